package server

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"triphammer/server/api"

	"github.com/gin-gonic/gin"

	"triphammer/factory"
	"triphammer/server/run"
	"triphammer/server/store"
)

// unsupported names what the request asks for and cannot get.
func unsupported(r *api.CreateRun, cfg *api.RunConfig) []api.FieldProblem {
	var all []api.FieldProblem
	for _, f := range []struct {
		field string
		asked bool
	}{
		{"skill", r.Skill != ""},
		{"conversation_id", r.ConversationID != ""},
		{"on_behalf_of", r.OnBehalfOf != ""},
		{"images", len(r.Images) > 0},
		{"mode", r.Mode != "" && r.Mode != "normal"},
		{"config.skill_spec", cfg.SkillSpec != ""},
		{"config.skills", len(cfg.Skills) > 0},
		{"config.mcp_servers", len(cfg.MCPServers) > 0},
		{"config.worker_host", cfg.WorkerHost != ""},
		{"config.computer_use_enabled", cfg.ComputerUse},
		{"config.memory_stores", len(cfg.MemoryStores) > 0},
		{"config.harness_auth_secrets", len(cfg.HarnessAuthSecrets) > 0},
		{"config.inference_providers", len(cfg.InferenceProviders) > 0},
	} {
		if f.asked {
			all = append(all, api.FieldProblem{Field: f.field, Message: "is not supported"})
		}
	}
	return all
}

// refusal is a problem that a request is answered with.
type refusal struct {
	code   api.Code
	detail string
	fields []api.FieldProblem
}

func (r *refusal) Error() string { return r.detail }

func invalid(field, format string, args ...any) error {
	message := fmt.Sprintf(format, args...)
	return &refusal{api.InvalidRequest, field + " " + message, []api.FieldProblem{{Field: field, Message: message}}}
}

// refusalOf is the refusal that an error is, if it is one.
func refusalOf(err error) (*refusal, bool) {
	refused, unmet := (*refusal)(nil), (*run.RefusedError)(nil)
	if errors.As(err, &refused) {
		return refused, true
	}
	if !errors.As(err, &unmet) {
		return nil, false
	}
	refused = &refusal{code: api.InvalidRequest, detail: unmet.Error()}
	if unmet.Field != "" {
		refused.fields = []api.FieldProblem{{Field: unmet.Field, Message: unmet.Message}}
	}
	return refused, true
}

// requestOf is the run that the body of a create asks for.
func requestOf(body *api.CreateRun) (run.Request, error) {
	var cfg api.RunConfig
	if len(body.Config) > 0 {
		if err := decodeField("config", body.Config, &cfg); err != nil {
			return run.Request{}, err
		}
	}
	if problems := unsupported(body, &cfg); len(problems) > 0 {
		return run.Request{}, &refusal{api.NotSupported, problems[0].Field + " is not supported by this server", problems}
	}
	parent, err := store.ParseID[store.Run](body.ParentRunID)
	if err != nil {
		return run.Request{}, invalid("parent_run_id", "names no run")
	}
	req := run.Request{
		Title: body.Title, Prompt: body.Prompt, BasePrompt: cfg.BasePrompt, Agent: body.Agent, Environment: cfg.EnvironmentID, Runner: cfg.RunnerID,
		Harness: factory.Harness{Type: cfg.Harness.Type, Model: cmp.Or(cfg.Harness.ModelID, cfg.ModelID), ReasoningLevel: cfg.Harness.ReasoningLevel},
		Config:  body.Config, Parent: parent, Metadata: body.Metadata,
	}
	for _, f := range body.Attachments {
		req.Attachments = append(req.Attachments, run.Attachment{Name: f.FileName, Data: f.Data})
	}
	return req, nil
}

func (s *Server) createRun(c *gin.Context) {
	body, ok := readRequest(c)
	if !ok {
		return
	}
	var asked api.CreateRun
	if err := decode(body, &asked); err != nil {
		s.failWith(c, err)
		return
	}
	req, err := requestOf(&asked)
	if err != nil {
		s.failWith(c, err)
		return
	}
	req.Caller = who(c).caller()
	r, err := run.FromRequest(c.Request.Context(), s.cfg.Store, s.cfg.Live, req)
	if err != nil {
		s.failWith(c, err)
		return
	}
	p, key := who(c), c.GetHeader("Idempotency-Key")
	if len(key) > maxIdempotencyKey {
		s.failWith(c, invalid("Idempotency-Key", "has at most %d bytes", maxIdempotencyKey))
		return
	}
	if key != "" {
		key = cmp.Or(p.KeyID.String(), p.Name) + "\x00" + key
	}
	made, created, err := s.cfg.Store.CreateRun(c.Request.Context(), r, key, body)
	if err != nil {
		s.failWith(c, err)
		return
	}
	full := s.cfg.Runs.AtCapacity()
	if created {
		s.cfg.Runs.Wake()
		s.audit(c, "run.create", made.ID.String(), made.Factory, "")
	}
	c.JSON(http.StatusOK, api.CreatedRun{RunID: made.ID.String(), TaskID: made.ID.String(), State: string(made.State), AtCapacity: made.State == store.Queued && full})
}

// listEnvironments and listAgents are what a run can name.
func (s *Server) listEnvironments(c *gin.Context) {
	all := []api.AgentEnvironment{}
	for _, r := range s.revisions(c) {
		for _, e := range r.Definition.Environments {
			shown := api.AgentEnvironment{
				UID: r.Factory + "/" + e.Name, Name: e.Name, Factory: r.Factory, Description: e.Description, DockerImage: e.DockerImage,
				Repositories: []api.AgentRepository{}, GitHubRepos: []map[string]string{}, SetupCommands: append([]string{}, e.SetupCommands...),
			}
			for _, repository := range e.Repositories {
				shown.Repositories = append(shown.Repositories, api.AgentRepository(repository))
				if rest, ok := strings.CutPrefix(repository.URL, "https://github.com/"); ok {
					if owner, name, ok := strings.Cut(strings.TrimSuffix(rest, ".git"), "/"); ok {
						shown.GitHubRepos = append(shown.GitHubRepos, map[string]string{"owner": owner, "repo": name})
					}
				}
			}
			all = append(all, shown)
		}
	}
	c.JSON(http.StatusOK, gin.H{"environments": all})
}

func (s *Server) listAgents(c *gin.Context) {
	byName := make(map[string]*api.AgentEntry)
	all := []*api.AgentEntry{}
	for _, r := range s.revisions(c) {
		for _, a := range r.Definition.Agents {
			entry := byName[a.Name]
			if entry == nil {
				entry = &api.AgentEntry{Name: a.Name}
				byName[a.Name] = entry
				all = append(all, entry)
			}
			v := api.AgentVariant{
				ID: r.Factory + "/" + a.Name, Description: a.Description, BasePrompt: a.Prompt, Environments: []map[string]string{},
				Source: map[string]string{"owner": r.Factory, "name": r.Definition.Name, "skill_path": a.Path},
			}
			if id := a.Settings.EnvironmentID; id != "" {
				v.Environments = append(v.Environments, map[string]string{"uid": r.Factory + "/" + id, "name": id})
			}
			entry.Variants = append(entry.Variants, v)
		}
	}
	slices.SortFunc(all, func(a, b *api.AgentEntry) int { return strings.Compare(a.Name, b.Name) })
	c.JSON(http.StatusOK, gin.H{"agents": all})
}
