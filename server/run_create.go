package server

import (
	"cmp"
	"context"
	"errors"

	"triphammer/factory"
	"triphammer/server/access"
	"triphammer/server/api"
	"triphammer/server/run"
	"triphammer/server/store"
)

// unsupported lists the fields of a request that the server refuses.
func unsupported(r *api.CreateRun, cfg *api.RunConfig) []api.FieldProblem {
	var all []api.FieldProblem
	for _, f := range []struct {
		field string
		asked bool
	}{
		{"skill", r.Skill != ""},
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

// requestOf makes the request for a run from the body of a create.
func requestOf(body *api.CreateRun) (run.Request, error) {
	var cfg api.RunConfig
	if len(body.Config) > 0 {
		if err := decodeField("config", body.Config, &cfg); err != nil {
			return run.Request{}, err
		}
	}
	if problems := unsupported(body, &cfg); len(problems) > 0 {
		return run.Request{}, api.Refuse(api.NotSupported, problems[0].Field+" is not supported by this server", problems...)
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
	return req, nil
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
