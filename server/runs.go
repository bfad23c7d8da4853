package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gin-gonic/gin"

	"triphammer/applier"
	"triphammer/factory"
	"triphammer/server/run"
	"triphammer/server/store"
)

// Limits of the run API.
const (
	maxRequest   = 1 << 20 // bytes of a request's body
	defaultLimit = 20
	maxLimit     = 500
	maxTitle     = 200 // characters

	maxIdempotencyKey = 255              // bytes
	requestDeadline   = 30 * time.Second // to send a request's body
)

// createRequest is the body of POST /agent/runs: the fields that are honoured.
// Others of the published SDK are ignored, unless the agent would then work on
// something else than was asked (unsupported).
type createRequest struct {
	Prompt string          `json:"prompt"`
	Title  string          `json:"title"`
	Mode   string          `json:"mode"`
	Config json.RawMessage `json:"config"`

	Attachments    []json.RawMessage `json:"attachments"`
	Images         []json.RawMessage `json:"images"`
	Skill          string            `json:"skill"`
	ConversationID string            `json:"conversation_id"`
	ParentRunID    string            `json:"parent_run_id"`
}

// unsupported names what the request asks for and cannot get.
func (r *createRequest) unsupported(cfg *createConfig) []FieldProblem {
	var all []FieldProblem
	for _, f := range []struct {
		field string
		asked bool
	}{
		{"attachments", len(r.Attachments) > 0},
		{"images", len(r.Images) > 0},
		{"skill", r.Skill != ""},
		{"conversation_id", r.ConversationID != ""},
		{"parent_run_id", r.ParentRunID != ""},
		{"mode", r.Mode != "" && r.Mode != "normal"},
		{"config.skill_spec", cfg.SkillSpec != ""},
		{"config.skills", len(cfg.Skills) > 0},
		{"config.mcp_servers", len(cfg.MCPServers) > 0},
	} {
		if f.asked {
			all = append(all, FieldProblem{f.field, "is not supported"})
		}
	}
	return all
}

type createConfig struct {
	EnvironmentID string `json:"environment_id"`

	SkillSpec  string                     `json:"skill_spec"`
	Skills     []json.RawMessage          `json:"skills"`
	MCPServers map[string]json.RawMessage `json:"mcp_servers"`

	BasePrompt string `json:"base_prompt"`
	ModelID    string `json:"model_id"`
	Harness    struct {
		Type           string `json:"type"`
		ModelID        string `json:"model_id"`
		ReasoningLevel string `json:"reasoning_level"`
	} `json:"harness"`
}

func (s *Server) createRun(c *gin.Context) {
	body, ok := readRequest(c)
	if !ok {
		return
	}
	var req createRequest
	var cfg createConfig
	if err := decode(body, &req); err != nil {
		fail(c, "invalid-request", err.Error())
		return
	}
	if len(req.Config) > 0 && string(req.Config) != "null" {
		if err := decode(req.Config, &cfg); err != nil {
			fail(c, "invalid-request", err.Error(), FieldProblem{"config", err.Error()})
			return
		}
	}
	if problems := req.unsupported(&cfg); len(problems) > 0 {
		fail(c, "operation-not-supported", problems[0].Field+" is not supported by this server", problems...)
		return
	}
	if strings.TrimSpace(req.Prompt) == "" {
		fail(c, "invalid-request", "prompt is missing", FieldProblem{"prompt", "is required"})
		return
	}
	revision, environment, err := s.environment(who(c), cfg.EnvironmentID)
	if err != nil {
		fail(c, "invalid-request", err.Error(), FieldProblem{"config.environment_id", err.Error()})
		return
	}
	spec, err := run.SpecForEnvironment(revision.Definition, environment, run.CreateRequest{
		Prompt: req.Prompt, BasePrompt: cfg.BasePrompt, Config: req.Config,
		Harness: factory.Harness{Type: cfg.Harness.Type, Model: firstOf(cfg.Harness.ModelID, cfg.ModelID), ReasoningLevel: cfg.Harness.ReasoningLevel},
	}, s.cfg.RunDefaults)
	if err != nil {
		s.failWith(c, err)
		return
	}
	encoded, err := spec.Encode()
	if err != nil {
		s.failWith(c, err)
		return
	}
	p := who(c)
	key := c.GetHeader("Idempotency-Key")
	if len(key) > maxIdempotencyKey {
		fail(c, "invalid-request", fmt.Sprintf("an Idempotency-Key has at most %d bytes", maxIdempotencyKey), FieldProblem{"Idempotency-Key", "is too long"})
		return
	}
	if key != "" {
		key = firstOf(p.KeyID, p.Name) + "\x00" + key
	}
	kind := "user"
	if p.Kind == store.KeyAgent {
		kind = "agent"
	}
	r, created, err := s.cfg.Store.CreateRun(c.Request.Context(), store.NewRun{
		Factory: revision.Factory, Source: store.SourceAPI, Title: titleOf(req), CreatorKind: kind, CreatorName: p.Owner,
		Commit: revision.Commit.Hash, SpecHash: hashOf(encoded), Spec: encoded,
	}, key, body)
	if err != nil {
		s.failWith(c, err)
		return
	}
	if created {
		s.cfg.Runs.Wake()
		s.audit(c, "run.create", r.ID, r.Factory, "")
	}
	c.JSON(http.StatusOK, CreatedRun{RunID: r.ID, TaskID: r.ID, State: string(r.State)})
}

// environment finds the factory of an environment that is NAME or FACTORY/NAME
// (SPEC 9.7).
func (s *Server) environment(p *Principal, id string) (*applier.Revision, string, error) {
	owner, name, qualified := strings.Cut(id, "/")
	if !qualified {
		owner, name = "", id
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
		return nil, "", errors.New("environment_id is missing, and there are several factories")
	case len(found) > 1:
		return nil, "", fmt.Errorf("environment %q is in several factories: write FACTORY/%s", name, name)
	}
	if len(s.cfg.Live.Revisions()) == 0 {
		return nil, "", errors.New("no definitions serve yet: see triphammer status")
	}
	return nil, "", fmt.Errorf("there is no environment %q", id)
}

func firstOf(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}

func titleOf(req createRequest) string {
	title, _, _ := strings.Cut(strings.TrimSpace(firstOf(req.Title, req.Prompt)), "\n")
	if utf8.RuneCountInString(title) > maxTitle {
		title = string([]rune(title)[:maxTitle-1]) + "…"
	}
	return title
}

// readRequest reads a request's body, or answers why not.
func readRequest(c *gin.Context) ([]byte, bool) { return readBody(c, maxRequest) }

// readBody is readRequest for a body of up to most bytes.
func readBody(c *gin.Context, most int) ([]byte, bool) {
	_ = http.NewResponseController(c.Writer).SetReadDeadline(time.Now().Add(requestDeadline)) // in memory there is none
	body, err := io.ReadAll(http.MaxBytesReader(c.Writer, c.Request.Body, int64(most)))
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		fail(c, "request-too-large", fmt.Sprintf("at most %d bytes", most))
		return nil, false
	}
	if err != nil {
		fail(c, "invalid-request", "the body could not be read")
		return nil, false
	}
	return body, true
}

// decode reads JSON, and says in words what is wrong with it.
func decode(body []byte, into any) error {
	err := json.Unmarshal(body, into)
	syntax, kind := (*json.SyntaxError)(nil), (*json.UnmarshalTypeError)(nil)
	switch {
	case errors.As(err, &syntax):
		return fmt.Errorf("the body is not JSON: %v at byte %d", err, syntax.Offset)
	case errors.As(err, &kind):
		return fmt.Errorf("%s is a JSON %s, not what is expected", firstOf(kind.Field, "the body"), kind.Value)
	}
	return err
}

// limitOf reads the limit of a list, or answers why not.
func limitOf(c *gin.Context) (int, bool) {
	text := c.Query("limit")
	if text == "" {
		return defaultLimit, true
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxLimit {
		fail(c, "invalid-request", fmt.Sprintf("limit is a number from 1 to %d", maxLimit), FieldProblem{"limit", text})
		return 0, false
	}
	return n, true
}

// page cuts the row that was read beyond the limit, which tells that there are
// more, and names the last one as the cursor.
func page[T any](all []T, limit int, id func(T) string) ([]T, PageInfo) {
	if len(all) <= limit {
		return all, PageInfo{}
	}
	return all[:limit], PageInfo{HasNextPage: true, NextCursor: id(all[limit-1])}
}

// anID is the form of every id (package store); no list has another for cursor.
var anID = regexp.MustCompile(`^([a-z]{3})_[0-7][0-9a-hjkmnp-tv-z]{12}$`)

// goodCursor answers requests whose cursor is not from a list of that kind.
func goodCursor(c *gin.Context, prefix string) bool { return goodID(c, "cursor", prefix) }

func goodID(c *gin.Context, parameter, prefix string) bool {
	id := c.Query(parameter)
	if m := anID.FindStringSubmatch(id); id == "" || m != nil && m[1] == prefix {
		return true
	}
	fail(c, "invalid-request", parameter+" is not an id such as "+prefix+"_…", FieldProblem{parameter, "is not such an id"})
	return false
}

// otherFilters are those of the published run list that this server cannot
// select by. A list that ignored them would show what was not asked for.
var otherFilters = []string{
	"name", "model_id", "creator", "executor", "execution_location", "created_after", "created_before", "updated_after", "environment_id",
	"skill", "skill_spec", "schedule_id", "ancestor_run_id", "artifact_type", "q",
}

// otherStates are those of the published API that no run has here.
var otherStates = []string{"PENDING", "CLAIMED", "BLOCKED", "ERROR"}

func onlyKnownFilters(c *gin.Context) bool {
	for _, name := range otherFilters {
		if c.Query(name) != "" {
			fail(c, "invalid-request", "runs cannot be selected by "+name+" here", FieldProblem{name, "is not supported"})
			return false
		}
	}
	return true
}

func (s *Server) listRuns(c *gin.Context) {
	limit, ok := limitOf(c)
	if !ok {
		return
	}
	factory, ok := factoryOf(c)
	if !ok || !goodCursor(c, "run") || !goodID(c, "delivery_id", "dlv") || !onlyKnownFilters(c) {
		return
	}
	q := store.RunQuery{
		Factory: factory, Automation: firstOf(c.Query("automation"), c.Query("automation_id")), Source: c.Query("source"),
		DeliveryID: c.Query("delivery_id"), Before: c.Query("cursor"), Limit: limit + 1,
	}
	for _, state := range c.QueryArray("state") {
		if !slices.Contains(store.RunStates, store.RunState(state)) && !slices.Contains(otherStates, state) {
			fail(c, "invalid-request", fmt.Sprintf("state is one of %v", store.RunStates), FieldProblem{"state", "is no state"})
			return
		}
		q.States = append(q.States, store.RunState(state))
	}
	if sort := c.Query("sort_by"); sort != "" && sort != "created_at" || c.Query("sort_order") == "asc" {
		fail(c, "invalid-request", "runs are sorted by created_at, newest first", FieldProblem{"sort_by", sort})
		return
	}
	all, err := s.cfg.Store.Runs(c.Request.Context(), q)
	if err != nil {
		s.failWith(c, err)
		return
	}
	all, info := page(all, limit, func(r *store.Run) string { return r.ID })
	runs := make([]Run, len(all))
	for i, r := range all {
		if runs[i], err = s.showRun(c.Request.Context(), r); err != nil {
			s.failWith(c, err)
			return
		}
	}
	c.JSON(http.StatusOK, gin.H{"runs": runs, "page_info": info})
}

// run finds the run of a request, or answers why not. A key that is limited to
// another factory is told that there is none.
func (s *Server) run(c *gin.Context) (*store.Run, bool) {
	r, err := s.cfg.Store.Run(c.Request.Context(), c.Param("id"))
	if err == nil && !who(c).mayTouch(r.Factory) {
		err = fmt.Errorf("run %s: %w", c.Param("id"), store.ErrNotFound)
	}
	if err != nil {
		s.failWith(c, err)
		return nil, false
	}
	return r, true
}

func (s *Server) getRun(c *gin.Context) {
	r, ok := s.run(c)
	if !ok {
		return
	}
	shown, err := s.showRun(c.Request.Context(), r)
	if err != nil {
		s.failWith(c, err)
		return
	}
	c.JSON(http.StatusOK, shown)
}

// showRun is a run as the API shows it: what is in its spec comes from there.
func (s *Server) showRun(ctx context.Context, r *store.Run) (Run, error) {
	data, err := s.cfg.Store.Spec(ctx, r.SpecHash)
	if err != nil {
		return Run{}, fmt.Errorf("spec of %s: %w", r.ID, err)
	}
	spec, err := run.DecodeSpec(data)
	if err != nil {
		return Run{}, err
	}
	shown := Run{
		RunID: r.ID, TaskID: r.ID, Title: r.Title, State: string(r.State), StatusMessage: r.StatusMessage, Prompt: spec.Prompt, Config: spec.Config,
		Source: r.Source, Creator: creatorOf(r), Factory: r.Factory, Automation: r.Automation, Webhook: r.Webhook, DeliveryID: r.DeliveryID,
		Commit: r.Commit, Path: spec.Path, Blob: spec.Blob, Attempt: r.Attempt, ExitCode: r.ExitCode,
		CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt, StartedAt: optional(r.StartedAt), FinishedAt: optional(r.FinishedAt),
	}
	if spec.Environment != nil {
		shown.EnvironmentID = spec.Environment.Name
	}
	if r.State.Terminal() {
		shown.SessionLink = s.cfg.BaseURL + "/runs/" + r.ID
	}
	return shown, nil
}

func creatorOf(r *store.Run) Creator {
	kind := r.CreatorKind
	if kind == "agent" {
		kind = "service_account"
	}
	return Creator{Type: kind, UID: r.CreatorName, DisplayName: r.CreatorName}
}

func (s *Server) cancelRun(c *gin.Context) {
	r, ok := s.run(c)
	if !ok {
		return
	}
	if err := s.cfg.Runs.Cancel(c.Request.Context(), r.ID); err != nil {
		s.failWith(c, err)
		return
	}
	s.audit(c, "run.cancel", r.ID, r.Factory, "")
	c.JSON(http.StatusOK, r.ID)
}

// maxEvents is the most events of one answer.
const maxEvents = 10_000

func (s *Server) transcript(c *gin.Context) {
	r, ok := s.run(c)
	if !ok {
		return
	}
	after, err := strconv.ParseInt(firstOf(c.Query("after"), "0"), 10, 64)
	if err != nil {
		fail(c, "invalid-request", "after is the number of an event", FieldProblem{"after", c.Query("after")})
		return
	}
	events, err := s.cfg.Store.Events(c.Request.Context(), r.ID, after, maxEvents)
	if err != nil {
		s.failWith(c, err)
		return
	}
	// The state was read before the events: of a finished run they are all there.
	t := Transcript{RunID: r.ID, State: string(r.State), Events: make([]Event, len(events))}
	if len(events) == maxEvents {
		t.PageInfo = PageInfo{HasNextPage: true, NextCursor: strconv.FormatInt(events[maxEvents-1].Seq, 10)}
	}
	for i, e := range events {
		t.Events[i] = Event(e)
	}
	c.JSON(http.StatusOK, t)
}
