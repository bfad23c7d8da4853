package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"triphammer/factory"
	"triphammer/server/access"
	"triphammer/server/api"
	"triphammer/server/run"
	"triphammer/server/run/task"
	"triphammer/server/store"
)

// unsupported lists the fields of a request that the server refuses, each with the reason.
func unsupported(r *api.CreateRun, cfg *api.RunConfig) []api.FieldProblem {
	var all []api.FieldProblem
	for _, f := range []struct {
		field string
		asked bool
		why   string
	}{
		{"mode", r.Mode == "orchestrate", "orchestrate is not supported: no agent here has that mode; an agent can start runs by the API, with parent_run_id"},
		{"team", r.Team != nil && !*r.Team, "false is not supported: a run belongs to its factory, as team-owned ones do"},
		{"on_behalf_of", r.OnBehalfOf != "", "is not supported: a run belongs to the owner of the key (triphammer keys create --owner)"},
		{"config.credential_strategy", cfg.CredentialStrategy == "CREATOR", "CREATOR is not supported: a run has the secrets that the definitions grant to it, whoever started it"},
		{"config.computer_use_enabled", cfg.ComputerUse, "is not supported: runs have no screen"},
		{"config.memory_stores", len(cfg.MemoryStores) > 0, "is not supported: this server keeps no memory for agents; give the agent an MCP server that does (config.mcp_servers)"},
		{
			"config.inference_providers.aws", cfg.InferenceProviders.AWS != nil && !cfg.InferenceProviders.AWS.Disabled,
			"is not supported: an agent calls the provider of its harness, by the variables and secrets of its environment",
		},
		{"config.session_sharing.public_access", cfg.SessionSharing.PublicAccess != "", "is not supported: who has a key or a login may read a run, and nobody else"},
	} {
		if f.asked {
			all = append(all, api.FieldProblem{Field: f.field, Message: f.why})
		}
	}
	return all
}

// Limits of config.idle_timeout_minutes, as published.
const minIdleMinutes, maxIdleMinutes = 1, 60

// wrong says which value of a request is none that its field can have; nil: all can be.
func wrong(r *api.CreateRun, cfg *api.RunConfig) error {
	for _, f := range []struct {
		field, value string
		known        []string
	}{
		{"mode", r.Mode, []string{"normal", run.ModePlan, "orchestrate"}},
		{"config.credential_strategy", cfg.CredentialStrategy, []string{"EXECUTOR", "CREATOR"}},
		{"config.session_sharing.public_access", cfg.SessionSharing.PublicAccess, []string{"VIEWER", "EDITOR"}},
	} {
		if f.value != "" && !slices.Contains(f.known, f.value) {
			return invalid(f.field, "is one of %s", strings.Join(f.known, ", "))
		}
	}
	if m := cfg.IdleTimeoutMinutes; m != nil && (*m < minIdleMinutes || *m > maxIdleMinutes) {
		return invalid("config.idle_timeout_minutes", "is a number from %d to %d", minIdleMinutes, maxIdleMinutes)
	}
	if cfg.SkillSpec != "" && len(cfg.Skills) > 0 {
		return invalid("config.skill_spec", "is not taken with config.skills: put it there, as the first")
	}
	return nil
}

// skillsOf are the skills that a request names. skill wins over config.skill_spec.
func skillsOf(r *api.CreateRun, cfg *api.RunConfig) (all []run.WantedSkill) {
	add := func(field, text string) {
		if text = strings.TrimSpace(text); text != "" && !slices.ContainsFunc(all, func(w run.WantedSkill) bool { return w.Text == text }) {
			all = append(all, run.WantedSkill{Field: field, Text: text})
		}
	}
	add("skill", r.Skill)
	if len(all) == 0 {
		add("config.skill_spec", cfg.SkillSpec)
	}
	for i, text := range cfg.Skills {
		add(fmt.Sprintf("config.skills[%d]", i), text)
	}
	return all
}

// authSecrets are the fields of config.harness_auth_secrets, by the harness that they are for.
var authSecrets = map[string]string{"claude": "claude_auth_secret_name", "codex": "codex_auth_secret_name"}

// grants reads from a configuration which servers, worker and credential a run is to have.
func grants(cfg *api.RunConfig, req *run.Request) error {
	if req.Worker = strings.TrimSpace(cfg.WorkerHost); req.Worker == factory.TheService {
		req.Worker = "" // documented as the same
	}
	servers := make(map[string]factory.MCPServer, len(cfg.MCPServers))
	for name, m := range cfg.MCPServers {
		servers[name] = factory.MCPServer{Name: name, WarpID: m.WarpID, Command: m.Command, Args: m.Args, Env: m.Env, URL: m.URL, Headers: m.Headers}
	}
	if found := factory.CheckMCPServers("config.mcp_servers", servers); found.HasErrors() {
		return invalid("config.mcp_servers", "are wrong: %s", strings.ReplaceAll(found[0].Message, "warpId", "warp_id"))
	}
	for _, name := range slices.Sorted(maps.Keys(servers)) {
		req.MCPServers = append(req.MCPServers, servers[name])
	}
	req.AuthSecrets = make(map[string]string)
	for harness, field := range authSecrets {
		if name := cfg.HarnessAuthSecrets[field]; name != "" {
			req.AuthSecrets[harness] = name
		}
	}
	for field, name := range cfg.HarnessAuthSecrets {
		if !slices.Contains(slices.Collect(maps.Values(authSecrets)), field) && name != "" {
			return api.Refuse(api.NotSupported, "config.harness_auth_secrets."+field+" is not supported by this server",
				api.FieldProblem{Field: "config.harness_auth_secrets." + field, Message: "is not supported: there are " + strings.Join(slices.Sorted(maps.Values(authSecrets)), " and ")})
		}
	}
	return nil
}

// postedRequest is requestOf for a body that was just posted, with everything that is wrong
// with it or cannot be done refused.
func postedRequest(body *api.CreateRun) (run.Request, error) {
	var cfg api.RunConfig
	if len(body.Config) > 0 {
		if err := cmp.Or(decodeField("config", body.Config, &cfg), known("config", body.Config, &cfg)); err != nil {
			return run.Request{}, err
		}
	}
	if err := wrong(body, &cfg); err != nil {
		return run.Request{}, err
	}
	if problems := unsupported(body, &cfg); len(problems) > 0 {
		return run.Request{}, api.Refuse(api.NotSupported, problems[0].Field+" "+problems[0].Message, problems...)
	}
	return requestOf(body)
}

// requestOf makes the request for a run from the body of a create. The body may have been
// stored by an older version.
func requestOf(body *api.CreateRun) (run.Request, error) {
	var cfg api.RunConfig
	if len(body.Config) > 0 {
		if err := decodeField("config", body.Config, &cfg); err != nil {
			return run.Request{}, err
		}
	}
	parent, err := store.ParseID[store.Run](body.ParentRunID)
	if err != nil {
		return run.Request{}, invalid("parent_run_id", "names no run")
	}
	attachments, err := filesOf(body.Attachments, body.Images)
	if err != nil {
		return run.Request{}, err
	}
	req := run.Request{
		Title: body.Title, Prompt: body.Prompt, BasePrompt: cfg.BasePrompt, Agent: body.Agent, Environment: cfg.EnvironmentID, Runner: cfg.RunnerID,
		Harness: factory.Harness{Type: cfg.Harness.Type, Model: cmp.Or(cfg.Harness.ModelID, cfg.ModelID), ReasoningLevel: cfg.Harness.ReasoningLevel},
		Config:  api.Present(body.Config), Parent: parent, Metadata: body.Metadata, Attachments: attachments, Priority: body.Priority,
		Skills: skillsOf(body, &cfg), Interactive: body.Interactive, Mode: modeOf(body.Mode),
	}
	if req.Harness.Type == "claude-code" { // as in definitions
		req.Harness.Type = "claude"
	}
	if cfg.IdleTimeoutMinutes != nil {
		req.Keep = time.Duration(*cfg.IdleTimeoutMinutes) * time.Minute
	}
	return req, grants(&cfg, &req)
}

// modeOf is the mode of a run; normal is the default.
func modeOf(posted string) string {
	if posted == "normal" {
		return ""
	}
	return posted
}

// imageTypes are the kinds of images that a request may have, with the ends of their names.
var imageTypes = map[string]string{"image/jpeg": "jpg", "image/png": "png", "image/gif": "gif", "image/webp": "webp"}

// filesOf are the files of a request. Images, which have no names, get some.
func filesOf(attachments []api.Attachment, images []api.Image) (all []task.Attachment, err error) {
	for _, f := range attachments {
		all = append(all, task.Attachment{Name: f.FileName, Data: f.Data})
	}
	taken := func(name string) bool {
		return slices.ContainsFunc(attachments, func(f api.Attachment) bool { return f.FileName == name })
	}
	for i, image := range images {
		end, ok := imageTypes[image.MIMEType]
		if !ok {
			return nil, invalid(fmt.Sprintf("images[%d].mime_type", i), "is one of %s", strings.Join(slices.Sorted(maps.Keys(imageTypes)), ", "))
		}
		name := fmt.Sprintf("image-%d.%s", i+1, end)
		for taken(name) {
			name = "posted-" + name
		}
		all = append(all, task.Attachment{Name: name, Data: image.Data})
	}
	return all, nil
}

// createAction is the action of the audit log that creates a run of nothing before it.
const createAction = "run.create"

// maxIdempotencyKey is the largest length of an Idempotency-Key, in bytes.
const maxIdempotencyKey = 255

func (s *Server) createRun(ctx context.Context, c *call) (shown api.CreatedRun, err error) {
	asked, body, err := bodyAndText[api.CreateRun](c)
	if err != nil {
		return shown, err
	}
	if err := known("", body, &asked); err != nil {
		return shown, err
	}
	req, err := postedRequest(&asked)
	if err != nil {
		return shown, err
	}
	if asked.ConversationID != "" {
		of, err := c.Run(ctx, asked.ConversationID)
		if errors.Is(err, store.ErrNotFound) {
			return shown, invalid("conversation_id", "names no conversation")
		}
		if err != nil {
			return shown, err
		}
		return s.continueRun(ctx, c, of, req, body)
	}
	r, err := c.NewRun(ctx, req)
	if err != nil {
		return shown, err
	}
	return s.storeRun(ctx, c, r, createAction, "", body)
}

// storeRun stores a run that a caller asked for with a body.
func (s *Server) storeRun(ctx context.Context, c *call, r store.NewRun, action, details string, body []byte) (shown api.CreatedRun, err error) {
	key := c.GetHeader("Idempotency-Key")
	if len(key) > maxIdempotencyKey {
		return shown, invalid("Idempotency-Key", "has at most %d bytes", maxIdempotencyKey)
	}
	if action != createAction {
		body = append([]byte(c.Request.URL.Path+"\x00"), body...) // which has the run that it is about
	}
	made, created, full, err := c.CreateRun(ctx, r, key, body)
	if err != nil {
		return shown, err
	}
	if created {
		c.audit(action, made.ID.String(), made.Factory, details)
	}
	return api.CreatedRun{
		RunID: made.ID.String(), ID: made.ID.String(), TaskID: made.ID.String(), ConversationID: made.ConversationID.String(), State: string(made.State),
		AtCapacity: made.State == store.Queued && full,
	}, nil
}

// runAutomation starts a run of an automation by hand.
func (s *Server) runAutomation(ctx context.Context, c *call, f access.Factory) (shown api.CreatedRun, err error) {
	asked, body, err := optionalBodyAndText[api.RunAutomation](c)
	if err != nil {
		return shown, err
	}
	if string(asked.Payload) == "null" {
		asked.Payload = nil
	}
	name := c.Param("automation")
	for _, r := range c.Revisions(f.Name) {
		for _, a := range r.Automations {
			if a.Def.Name != name {
				continue
			}
			if !a.Def.Enabled {
				return shown, api.Refuse(api.Conflict, "the automation "+name+" is disabled: enable it first")
			}
			if p := s.pauseOf(store.KindAutomation, f.Name, name); p != nil {
				return shown, api.Refuse(api.Conflict, "the automation "+name+" is paused by "+p.By+": resume it first")
			}
			kind, creator := c.Creator()
			made, err := run.FromHand(r, a, run.ByHand{
				Caller: run.Caller{CreatorKind: kind, CreatorName: creator, Factory: c.Factory}, Title: asked.Title, Prompt: asked.Prompt, Payload: asked.Payload,
			})
			if err != nil {
				return shown, err
			}
			return s.storeRun(ctx, c, made, "automation.run", "of "+name, body)
		}
	}
	return shown, f.NoneNamed(store.KindAutomation, name)
}

// followUp starts a run that goes on with the conversation of a run.
func (s *Server) followUp(ctx context.Context, c *call, of access.Run) (shown api.CreatedRun, err error) {
	asked, body, err := bodyAndText[api.FollowUp](c)
	if err != nil {
		return shown, err
	}
	if err := known("", body, &asked); err != nil {
		return shown, err
	}
	if asked.Message == "" {
		return shown, invalid("message", "is required")
	}
	req, err := postedRequest(&api.CreateRun{Prompt: asked.Message, Mode: asked.Mode, Attachments: asked.Attachments})
	if err != nil {
		return shown, err
	}
	return s.continueRun(ctx, c, of, req, body)
}

func (s *Server) continueRun(ctx context.Context, c *call, of access.Run, req run.Request, body []byte) (shown api.CreatedRun, err error) {
	r, err := c.Continue(ctx, of, req)
	if err != nil {
		return shown, err
	}
	return s.storeRun(ctx, c, r, "run.followup", "of "+of.ConversationID.String(), body)
}

// retryRun starts a run again.
func (s *Server) retryRun(ctx context.Context, c *call, of access.Run) (shown api.CreatedRun, err error) {
	asked, body, err := optionalBodyAndText[api.RetryRun](c)
	if err != nil {
		return shown, err
	}
	approved, err := of.Approved(ctx)
	if err == nil && !approved {
		err = mayDecide(c) // whoever starts it in person approves it by that
	}
	if err != nil {
		return shown, err
	}
	r, err := c.Retry(ctx, of, asked.Resume)
	if err != nil {
		return shown, err
	}
	return s.storeRun(ctx, c, r, "run.retry", "of "+of.ID.String(), body)
}
