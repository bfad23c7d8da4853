package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"triphammer/server/api"

	"github.com/gin-gonic/gin"

	"triphammer/applier"
	"triphammer/factory"
	"triphammer/server/run"
	"triphammer/server/store"
)

// Limits of what a run is created with.
const (
	maxAttachments  = 5
	maxMetadata     = 20
	maxMetadataName = 64  // bytes
	maxMetadataText = 256 // bytes
	maxDepth        = 10  // runs that asked for one another
)

// createRequest is the body of POST /agent/runs: what is honoured, and what is
// refused because the agent would otherwise work on something else, in another
// place or with another right than was asked for. docs/api.md lists both; all
// else is ignored.
type createRequest struct {
	Prompt      string            `json:"prompt"`
	Title       string            `json:"title"`
	Agent       string            `json:"agent_identity_uid"`
	ParentRunID string            `json:"parent_run_id"`
	Metadata    map[string]string `json:"metadata"`
	Attachments []attachment      `json:"attachments"`
	Config      json.RawMessage   `json:"config"`

	Mode           string            `json:"mode"`
	Skill          string            `json:"skill"`
	ConversationID string            `json:"conversation_id"`
	OnBehalfOf     string            `json:"on_behalf_of"`
	Images         []json.RawMessage `json:"images"`
}

type attachment struct {
	FileName string `json:"file_name"`
	MIMEType string `json:"mime_type"`
	Data     []byte `json:"data"` // base64 in JSON
}

type createConfig struct {
	Name          string            `json:"name"`
	EnvironmentID string            `json:"environment_id"`
	RunnerID      string            `json:"runner_id"`
	BasePrompt    string            `json:"base_prompt"`
	ModelID       string            `json:"model_id"`
	Harness       api.HarnessConfig `json:"harness"`

	WorkerHost         string                     `json:"worker_host"`
	SkillSpec          string                     `json:"skill_spec"`
	Skills             []json.RawMessage          `json:"skills"`
	MCPServers         map[string]json.RawMessage `json:"mcp_servers"`
	ComputerUse        bool                       `json:"computer_use_enabled"`
	MemoryStores       []json.RawMessage          `json:"memory_stores"`
	HarnessAuthSecrets map[string]string          `json:"harness_auth_secrets"`
	InferenceProviders map[string]json.RawMessage `json:"inference_providers"`
}

// unsupported names what the request asks for and cannot get.
func (r *createRequest) unsupported(cfg *createConfig) []api.FieldProblem {
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

// asked is a request whose form is checked.
type asked struct {
	createRequest
	config  createConfig
	factory string // whose names are meant where they name none; empty: whichever has them
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

// parseCreate reads and checks the body of a create.
func parseCreate(body []byte) (*asked, error) {
	a := &asked{}
	if err := decode(body, &a.createRequest); err != nil {
		return nil, err
	}
	if len(a.Config) > 0 && string(a.Config) != "null" {
		if err := decodeField("config", a.Config, &a.config); err != nil {
			return nil, err
		}
	}
	if problems := a.unsupported(&a.config); len(problems) > 0 {
		return nil, &refusal{api.NotSupported, problems[0].Field + " is not supported by this server", problems}
	}
	if strings.TrimSpace(a.Prompt) == "" {
		return nil, &refusal{api.InvalidRequest, "prompt is missing", []api.FieldProblem{{Field: "prompt", Message: "is required"}}}
	}
	if problem, ok := checkMetadata(a.Metadata); !ok {
		return nil, invalid(problem.Field, "%s", problem.Message)
	}
	return a, checkAttachments(a.Attachments)
}

var metadataName = regexp.MustCompile(`^[a-zA-Z0-9._-]+$`)

func checkMetadata(metadata map[string]string) (api.FieldProblem, bool) {
	if len(metadata) > maxMetadata {
		return api.FieldProblem{Field: "metadata", Message: fmt.Sprintf("has at most %d keys", maxMetadata)}, false
	}
	for name, value := range metadata {
		switch {
		case len(name) > maxMetadataName || !metadataName.MatchString(name):
			return api.FieldProblem{Field: "metadata", Message: fmt.Sprintf("has keys of 1 to %d of a-z, A-Z, 0-9, dot, _ and -", maxMetadataName)}, false
		case len(value) > maxMetadataText || !utf8.ValidString(value) || strings.ContainsRune(value, 0):
			return api.FieldProblem{Field: "metadata." + name, Message: fmt.Sprintf("has at most %d bytes of UTF-8, without NUL", maxMetadataText)}, false
		}
	}
	return api.FieldProblem{}, true
}

func checkAttachments(all []attachment) error {
	if len(all) > maxAttachments {
		return invalid("attachments", "are at most %d", maxAttachments)
	}
	taken := make(map[string]bool)
	for i, a := range all {
		field := fmt.Sprintf("attachments[%d]", i)
		switch name := a.FileName; {
		case name == "" || name == "." || name == ".." || len(name) > 255 || strings.ContainsAny(name, "/\\\x00") || !utf8.ValidString(name):
			return invalid(field+".file_name", "is a plain file name of at most 255 bytes")
		case taken[name]:
			return invalid(field+".file_name", "is there twice")
		}
		taken[a.FileName] = true
	}
	return nil
}

// newRun makes what a checked request enqueues. Its environment is NAME or
// FACTORY/NAME (SPEC 9.7), its agent likewise.
func (s *Server) newRun(ctx context.Context, p *Principal, a *asked) (store.NewRun, error) {
	owner, agent, qualified := strings.Cut(a.Agent, "/")
	if !qualified {
		owner, agent = a.factory, a.Agent
	}
	revision, environment, err := s.environment(p, a.config.EnvironmentID, owner)
	if err != nil {
		return store.NewRun{}, invalid("config.environment_id", "%v", err)
	}
	req := run.CreateRequest{
		Prompt: a.Prompt, BasePrompt: a.config.BasePrompt, Config: a.Config, Runner: a.config.RunnerID,
		Harness: factory.Harness{
			Type: a.config.Harness.Type, Model: cmp.Or(a.config.Harness.ModelID, a.config.ModelID), ReasoningLevel: a.config.Harness.ReasoningLevel,
		},
	}
	if a.Agent != "" {
		if req.Agent = revision.Definition.Agent(agent); req.Agent == nil || qualified && owner != revision.Factory {
			return store.NewRun{}, invalid("agent_identity_uid", "names no agent of the factory %s", revision.Factory)
		}
	}
	if name := req.Runner; name != "" && !slices.Contains(revision.Definition.Runners, name) {
		return store.NewRun{}, invalid("config.runner_id", "names no runner of the factory %s", revision.Factory)
	}
	for _, f := range a.Attachments {
		req.Attachments = append(req.Attachments, run.Attachment{Name: f.FileName, Data: f.Data})
	}
	metadata, err := s.inherit(ctx, p, a)
	if err != nil {
		return store.NewRun{}, err
	}
	spec, err := run.SpecForEnvironment(revision.Definition, environment, req, s.cfg.RunDefaults)
	if err != nil {
		return store.NewRun{}, err
	}
	encoded, err := spec.Encode()
	if err != nil {
		return store.NewRun{}, err
	}
	kind, name := p.creator()
	title := titleOf(a.createRequest)
	return store.NewRun{
		Factory: revision.Factory, Source: store.SourceAPI, Title: title, CreatorKind: kind, CreatorName: name, Commit: revision.Commit.Hash,
		SpecHash: hashOf(encoded), Spec: encoded, ParentID: a.ParentRunID, Metadata: metadata, Search: []string{title, a.Prompt},
	}, nil
}

// inherit finds the parent, and its metadata under the run's own.
func (s *Server) inherit(ctx context.Context, p *Principal, a *asked) (map[string]string, error) {
	if a.ParentRunID == "" {
		return a.Metadata, nil
	}
	depth := 0
	for id := a.ParentRunID; id != ""; depth++ {
		r, err := s.cfg.Store.Run(ctx, id)
		if errors.Is(err, store.ErrNotFound) && depth > 0 {
			break // it was deleted with its age
		}
		if errors.Is(err, store.ErrNotFound) || err == nil && !p.mayTouch(r.Factory) {
			return nil, invalid("parent_run_id", "names no run")
		}
		if err != nil {
			return nil, err
		}
		if depth >= maxDepth-1 {
			return nil, invalid("parent_run_id", "would make a chain of more than %d runs", maxDepth)
		}
		id = r.ParentID
	}
	all, err := s.cfg.Store.RunMetadata(ctx, a.ParentRunID)
	if err != nil {
		return nil, err
	}
	merged := make(map[string]string)
	for _, from := range []map[string]string{all[a.ParentRunID], a.Metadata} {
		for name, value := range from {
			merged[name] = value
		}
	}
	if len(merged) > maxMetadata {
		return nil, invalid("metadata", "has at most %d keys, with those of the parent", maxMetadata)
	}
	return merged, nil
}

func (s *Server) createRun(c *gin.Context) {
	body, ok := readRequest(c)
	if !ok {
		return
	}
	a, err := parseCreate(body)
	if err != nil {
		s.failWith(c, err)
		return
	}
	r, err := s.newRun(c.Request.Context(), who(c), a)
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
		key = cmp.Or(p.KeyID, p.Name) + "\x00" + key
	}
	made, created, err := s.cfg.Store.CreateRun(c.Request.Context(), r, key, body)
	if err != nil {
		s.failWith(c, err)
		return
	}
	full := s.cfg.Runs.AtCapacity()
	if created {
		s.cfg.Runs.Wake()
		s.audit(c, "run.create", made.ID, made.Factory, "")
	}
	c.JSON(http.StatusOK, api.CreatedRun{RunID: made.ID, TaskID: made.ID, State: string(made.State), AtCapacity: made.State == store.Queued && full})
}

// environment finds the factory of an environment that is NAME or FACTORY/NAME
// (SPEC 9.7). A bare name, or none, is looked for in the factory that is given, if
// one is.
func (s *Server) environment(p *Principal, id, within string) (*applier.Revision, string, error) {
	owner, name, qualified := strings.Cut(id, "/")
	switch {
	case !qualified:
		owner, name = within, id
	case owner == "" || name == "":
		return nil, "", fmt.Errorf("%q is not NAME or FACTORY/NAME", id)
	}
	var found []*applier.Revision
	for _, r := range s.cfg.Live.Revisions() {
		if p.mayTouch(r.Factory) && (owner == "" || owner == r.Factory) && (name == "" || r.Definition.Environment(name) != nil) {
			found = append(found, r)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], name, nil
	case len(found) > 1 && name == "":
		return nil, "", errors.New("is missing, and there are several factories")
	case len(found) > 1:
		return nil, "", fmt.Errorf("%q is in several factories: write FACTORY/%s", name, name)
	}
	if len(s.cfg.Live.Revisions()) == 0 {
		return nil, "", errors.New("names nothing: no definitions serve yet (triphammer status)")
	}
	if name == "" {
		return nil, "", fmt.Errorf("is missing, and there is no factory %q", owner)
	}
	return nil, "", fmt.Errorf("%q is no environment here", id)
}

func titleOf(req createRequest) string {
	title, _, _ := strings.Cut(strings.TrimSpace(cmp.Or(req.Title, req.Prompt)), "\n")
	if utf8.RuneCountInString(title) > maxTitle {
		title = string([]rune(title)[:maxTitle-1]) + "…"
	}
	return title
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
