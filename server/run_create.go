package server

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"triphammer/factory"
	"triphammer/server/access"
	"triphammer/server/api"
	"triphammer/server/run"
	"triphammer/server/store"
)

// unsupported lists the fields of a request that the server refuses, each with the reason.
func unsupported(r *api.CreateRun, cfg *api.RunConfig) []api.FieldProblem {
	const (
		skills  = "is not supported: an agent has the skills of its definitions (skills/, agents/NAME/skills/); name one in the prompt"
		granted = "is not supported: the definitions decide what a run is granted"
	)
	var all []api.FieldProblem
	for _, f := range []struct {
		field string
		asked bool
		why   string
	}{
		{"skill", r.Skill != "", skills},
		{"on_behalf_of", r.OnBehalfOf != "", granted},
		{"images", len(r.Images) > 0, "is not supported: send files as attachments"},
		{"mode", r.Mode != "" && r.Mode != "normal", "is not supported: every run works in the mode normal"},
		{"config.skill_spec", cfg.SkillSpec != "", skills},
		{"config.skills", len(cfg.Skills) > 0, skills},
		{"config.computer_use_enabled", cfg.ComputerUse, "is not supported: runs have no screen"},
		{"config.memory_stores", len(cfg.MemoryStores) > 0, "is not supported: this server keeps no memory for agents"},
		{"config.inference_providers", len(cfg.InferenceProviders) > 0, "is not supported: an agent calls the provider of its harness"},
	} {
		if f.asked {
			all = append(all, api.FieldProblem{Field: f.field, Message: f.why})
		}
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

// requestOf makes the request for a run from the body of a create.
func requestOf(body *api.CreateRun) (run.Request, error) {
	var cfg api.RunConfig
	if len(body.Config) > 0 {
		if err := decodeField("config", body.Config, &cfg); err != nil {
			return run.Request{}, err
		}
	}
	if problems := unsupported(body, &cfg); len(problems) > 0 {
		return run.Request{}, api.Refuse(api.NotSupported, problems[0].Field+" "+problems[0].Message, problems...)
	}
	parent, err := store.ParseID[store.Run](body.ParentRunID)
	if err != nil {
		return run.Request{}, invalid("parent_run_id", "names no run")
	}
	req := run.Request{
		Title: body.Title, Prompt: body.Prompt, BasePrompt: cfg.BasePrompt, Agent: body.Agent, Environment: cfg.EnvironmentID, Runner: cfg.RunnerID,
		Harness: factory.Harness{Type: cfg.Harness.Type, Model: cmp.Or(cfg.Harness.ModelID, cfg.ModelID), ReasoningLevel: cfg.Harness.ReasoningLevel},
		Config:  api.Present(body.Config), Parent: parent, Metadata: body.Metadata, Attachments: attachmentsOf(body.Attachments), Priority: body.Priority,
	}
	return req, grants(&cfg, &req)
}

func attachmentsOf(posted []api.Attachment) (all []run.Attachment) {
	for _, f := range posted {
		all = append(all, run.Attachment{Name: f.FileName, Data: f.Data})
	}
	return all
}

// createAction is the action of the audit log that creates a run of nothing before it.
const createAction = "run.create"

// maxIdempotencyKey is the largest length of an Idempotency-Key, in bytes.
const maxIdempotencyKey = 255

func (s *Server) createRun(ctx context.Context, c *call) (shown api.CreatedRun, err error) {
	body, err := readBody(c.Context, maxRequest)
	if err != nil {
		return shown, err
	}
	var asked api.CreateRun
	if err := decode(body, &asked); err != nil {
		return shown, err
	}
	req, err := requestOf(&asked)
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
		RunID: made.ID.String(), TaskID: made.ID.String(), ConversationID: made.ConversationID.String(), State: string(made.State),
		AtCapacity: made.State == store.Queued && full,
	}, nil
}

// runAutomation starts a run of an automation by hand.
func (s *Server) runAutomation(ctx context.Context, c *call, f access.Factory) (shown api.CreatedRun, err error) {
	body, err := readBody(c.Context, maxRequest)
	if err != nil {
		return shown, err
	}
	var asked api.RunAutomation
	if len(body) > 0 {
		if err := decode(body, &asked); err != nil {
			return shown, err
		}
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
	return shown, api.Refuse(api.NotFound, "the factory "+f.Name+" has no live automation "+name)
}

// followUp starts a run that goes on with the conversation of a run.
func (s *Server) followUp(ctx context.Context, c *call, of access.Run) (shown api.CreatedRun, err error) {
	body, err := readBody(c.Context, maxRequest)
	if err != nil {
		return shown, err
	}
	var asked api.FollowUp
	if err := decode(body, &asked); err != nil {
		return shown, err
	}
	switch {
	case asked.Message == "":
		return shown, invalid("message", "is required")
	case asked.Mode != "" && asked.Mode != "normal":
		return shown, api.Refuse(api.NotSupported, "mode is not supported by this server", api.FieldProblem{Field: "mode", Message: "is not supported"})
	}
	return s.continueRun(ctx, c, of, run.Request{Prompt: asked.Message, Attachments: attachmentsOf(asked.Attachments)}, body)
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
	body, err := readBody(c.Context, maxRequest)
	if err != nil {
		return shown, err
	}
	var asked api.RetryRun
	if len(body) > 0 {
		if err := decode(body, &asked); err != nil {
			return shown, err
		}
	}
	r, err := c.Retry(ctx, of, asked.Resume)
	if err != nil {
		return shown, err
	}
	return s.storeRun(ctx, c, r, "run.retry", "of "+of.ID.String(), body)
}
