package server

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"triphammer/server/api"

	"github.com/gin-gonic/gin"

	"triphammer/server/run"
	"triphammer/server/store"
)

func (s *Server) getRun(c *gin.Context) {
	r, ok := s.run(c)
	if !ok {
		return
	}
	shown, err := s.showRuns(c.Request.Context(), []*store.Run{r})
	if err != nil {
		s.failWith(c, err)
		return
	}
	c.JSON(http.StatusOK, shown[0])
}

// showRuns are runs as the API shows them: what is in their specs comes from
// there.
func (s *Server) showRuns(ctx context.Context, all []*store.Run) ([]api.Run, error) {
	specs := make(map[[32]byte]run.Spec)
	ids := make([]store.RunID, len(all))
	for i, r := range all {
		ids[i] = r.ID
		if _, known := specs[r.SpecHash]; known {
			continue
		}
		spec, err := s.spec(ctx, r)
		if err != nil {
			return nil, err
		}
		specs[r.SpecHash] = spec
	}
	metadata, err := s.cfg.Store.RunMetadata(ctx, ids...)
	if err != nil {
		return nil, err
	}
	shown := make([]api.Run, len(all))
	for i, r := range all {
		shown[i] = s.showRun(r, specs[r.SpecHash], metadata[r.ID])
	}
	return shown, nil
}

func (s *Server) spec(ctx context.Context, r *store.Run) (run.Spec, error) {
	data, err := s.cfg.Store.Spec(ctx, r.SpecHash)
	if err != nil {
		return run.Spec{}, fmt.Errorf("spec of %s: %w", r.ID, err)
	}
	return run.DecodeSpec(data)
}

// automationKey is the key under which the metadata of a run name its
// automation.
const automationKey = "automation_id"

func (s *Server) showRun(r *store.Run, spec run.Spec, metadata map[string]string) api.Run {
	shown := api.Run{
		RunID: r.ID.String(), TaskID: r.ID.String(), Title: r.Title, State: string(r.State), StatusMessage: r.StatusMessage, Prompt: spec.Prompt,
		Config: spec.Config, AgentConfig: agentConfig(spec), Source: r.Source, Creator: creatorOf(r), Executor: executorOf(r),
		ExecutionLocation: "REMOTE", Factory: r.Factory, FactoryUID: r.Factory, Scope: api.Scope{Type: "Team", UID: r.Factory},
		Automation: r.Automation, Agent: r.Agent, Webhook: r.Webhook, DeliveryID: r.DeliveryID.String(), EnvironmentID: r.Environment,
		ParentRunID: r.ParentID.String(), ConversationID: r.ID.String(), Commit: r.Commit, Path: spec.Path, Blob: spec.Blob, Attempt: r.Attempt, ExitCode: r.ExitCode,
		Metadata: metadata, Artifacts: []json.RawMessage{}, SandboxRunning: r.State == store.InProgress, Cancellable: true,
		CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt, StartedAt: api.Time(r.StartedAt), FinishedAt: api.Time(r.FinishedAt),
	}
	if spec.Environment != nil {
		shown.EnvironmentID = spec.Environment.Name
	}
	if r.Automation != "" {
		shown.Metadata = map[string]string{automationKey: r.Automation}
	}
	if r.Schedule != nil {
		shown.Schedule = &api.RunSchedule{ID: r.Schedule.ID.String(), Name: cmp.Or(r.Schedule.Name, r.Automation), Cron: r.Schedule.Cron}
	}
	if !r.StartedAt.IsZero() {
		until := r.FinishedAt
		if until.IsZero() {
			until = s.cfg.Now()
		}
		shown.RunTime = isoDuration(until.Sub(r.StartedAt))
	}
	if r.Tokens > 0 || r.CostUSD > 0 {
		shown.Usage = &api.Usage{InferenceCostUSD: r.CostUSD, TotalTokens: r.Tokens}
	}
	if r.State.Terminal() {
		shown.SessionLink = s.cfg.BaseURL + "/runs/" + r.ID.String()
	}
	return shown
}

// isoDuration is a duration in ISO 8601, such as PT1M2.5S.
func isoDuration(d time.Duration) string {
	d = max(d, 0).Round(time.Millisecond)
	out := "PT"
	if h := d / time.Hour; h > 0 {
		out += strconv.Itoa(int(h)) + "H"
	}
	if m := d % time.Hour / time.Minute; m > 0 {
		out += strconv.Itoa(int(m)) + "M"
	}
	if s := d % time.Minute; s > 0 || out == "PT" {
		out += strconv.FormatFloat(float64(s.Milliseconds())/1000, 'f', -1, 64) + "S"
	}
	return out
}

// agentConfig is what the run was made with, as the published API shows it.
func agentConfig(spec run.Spec) api.AgentConfig {
	var posted struct {
		Name string `json:"name"`
	}
	_ = json.Unmarshal(spec.Config, &posted) // of an automation's there is none
	cfg := api.AgentConfig{Name: posted.Name, ModelID: spec.Harness.Model, BasePrompt: spec.AgentPrompt}
	if spec.Environment != nil {
		cfg.EnvironmentID = spec.Environment.Name
	}
	if spec.Harness.Type != "" {
		cfg.Harness = &api.HarnessConfig{Type: spec.Harness.Type, ModelID: spec.Harness.Model, ReasoningLevel: spec.Harness.ReasoningLevel}
	}
	return cfg
}

// creatorOf is who asked for the run: a person, or a service account, which an
// automation is too.
func creatorOf(r *store.Run) api.Profile {
	kind := "service_account"
	if r.CreatorKind == "user" {
		kind = "user"
	}
	return api.Profile{Type: kind, UID: r.CreatorName, DisplayName: r.CreatorName}
}

// executorOf is who the run acts as: its agent, if it has one.
func executorOf(r *store.Run) api.Profile {
	if r.Agent != "" {
		return api.Profile{Type: "service_account", UID: r.Agent, DisplayName: r.Agent}
	}
	return creatorOf(r)
}

// RunNotice makes the body of a notice; it is a notify.Runs.Body.
func (s *Server) RunNotice(ctx context.Context, r *store.Run) ([]byte, error) {
	shown, err := s.showRuns(ctx, []*store.Run{r})
	if err != nil {
		return nil, err
	}
	return json.Marshal(api.RunNotice{Type: "run." + strings.ToLower(string(r.State)), Timestamp: r.FinishedAt, Data: shown[0]})
}

func (s *Server) listNotices(c *gin.Context) {
	limit, ok := limitOf(c)
	if !ok || !forAll(c) {
		return
	}
	cursor, ok := cursorOf[store.Run](c)
	if !ok {
		return
	}
	all, err := s.cfg.Store.Notices(c.Request.Context(), cursor, limit+1)
	if err != nil {
		s.failWith(c, err)
		return
	}
	all, info := page(all, limit, func(n store.Notice) string { return n.RunID.String() })
	shown := make([]api.Notice, len(all))
	for i, n := range all {
		shown[i] = api.Notice{RunID: n.RunID.String(), Status: n.Status, Attempts: n.Attempts, Detail: n.Detail, NextAttempt: api.Time(n.DueAt), UpdatedAt: n.UpdatedAt}
	}
	c.JSON(http.StatusOK, gin.H{"notices": shown, "page_info": info})
}

// maxEvents is the most events of one answer.
const maxEvents = 10_000

func (s *Server) transcript(c *gin.Context) {
	r, ok := s.run(c)
	if !ok {
		return
	}
	// The cursor of lists is the number of the last event here: both go on.
	text := cmp.Or(c.Query("after"), c.Query("cursor"), "0")
	after, err := strconv.ParseInt(text, 10, 64)
	if err != nil || after < 0 {
		fail(c, api.InvalidRequest, "after is the number of an event", api.FieldProblem{Field: "after", Message: text})
		return
	}
	events, err := s.cfg.Store.Events(c.Request.Context(), r.ID, after, maxEvents)
	if err != nil {
		s.failWith(c, err)
		return
	}
	// The state was read before the events: of a finished run they are all there.
	t := api.Transcript{RunID: r.ID.String(), State: string(r.State), Events: make([]api.Event, len(events))}
	if len(events) == maxEvents {
		t.PageInfo = api.PageInfo{HasNextPage: true, NextCursor: strconv.FormatInt(events[maxEvents-1].Seq, 10)}
	}
	for i, e := range events {
		t.Events[i] = api.Event(e)
	}
	c.JSON(http.StatusOK, t)
}

// timeline is the milestones of a run.
func (s *Server) timeline(c *gin.Context) {
	r, ok := s.run(c)
	if !ok {
		return
	}
	t, id := api.Timeline{Events: []api.TimelineEvent{}}, r.ID.String()
	add := func(kind string, at time.Time, payload any) {
		if !at.IsZero() {
			t.Events = append(t.Events, api.TimelineEvent{
				UUID: id + "/" + kind, RunID: id, ExecutionID: id + "/" + strconv.FormatInt(max(r.Attempt, 1), 10), Type: kind, OccurredAt: at, Payload: payload,
			})
		}
	}
	add("run_created", r.CreatedAt, nil)
	add("run_claimed", r.StartedAt, nil)
	started, err := s.cfg.Store.FirstEvent(c.Request.Context(), r.ID, run.KindStarted)
	if err != nil {
		s.failWith(c, err)
		return
	}
	add("agent_started", started, nil)
	ends := map[store.RunState]string{store.Succeeded: "run_done", store.FailedRun: "run_failed", store.Cancelled: "run_cancelled"}
	if kind := ends[r.State]; kind != "" {
		add(kind, r.FinishedAt, gin.H{"message": r.StatusMessage})
	}
	c.JSON(http.StatusOK, t)
}

// conversation is the transcript as what was said and done.
func (s *Server) conversation(c *gin.Context) {
	r, ok := s.run(c)
	if !ok {
		return
	}
	spec, err := s.spec(c.Request.Context(), r)
	if err != nil {
		s.failWith(c, err)
		return
	}
	step := api.Step{ID: "1", Description: r.Title, StartedAt: api.Time(r.StartedAt), CompletedAt: api.Time(r.FinishedAt), Steps: []api.Step{}}
	say(&step, "user", r.CreatedAt, api.Content{"type": "text", "text": spec.Prompt})
	for after := int64(0); ; {
		events, err := s.cfg.Store.Events(c.Request.Context(), r.ID, after, maxEvents)
		if err != nil {
			s.failWith(c, err)
			return
		}
		for _, e := range events {
			addEvent(&step, e)
		}
		if len(events) < maxEvents {
			break
		}
		after = events[len(events)-1].Seq
	}
	c.JSON(http.StatusOK, api.Conversation{ConversationID: r.ID.String(), Steps: []api.Step{step}})
}

func say(s *api.Step, role string, at time.Time, parts ...api.Content) {
	s.Messages = append(s.Messages, api.ConversationMessage{Role: role, Content: parts, Timestamp: api.Time(at)})
}

// addEvent adds an event of the transcript, if it belongs to a conversation.
func addEvent(s *api.Step, e store.Event) {
	decoded, err := run.Decode(e.Kind, e.Data)
	if err != nil {
		return
	}
	id := strconv.FormatInt(e.Seq, 10)
	act := func(failed bool, category, name string, input, output any) {
		state := "completed"
		if failed {
			state = "failed"
		}
		say(s, "assistant", e.At, api.Content{"type": "action", "id": id, "category": category, "name": name, "input": input})
		say(s, "tool", e.At, api.Content{"type": "action_result", "action_id": id, "category": category, "name": name, "state": state, "output": output})
	}
	switch d := decoded.(type) {
	case run.Message:
		role := d.Role
		if role == "reasoning" {
			role = "assistant"
		}
		say(s, role, e.At, api.Content{"type": "text", "text": d.Text})
	case run.Command:
		act(d.Failed, "command", "run_command", gin.H{"command": d.Command}, gin.H{"exit_code": d.ExitCode, "output": d.Output})
	case run.Tool:
		act(d.Failed, "integration", d.Name, d.Input, d.Output)
	case run.File:
		act(false, "files", d.Change, gin.H{"path": d.Path}, gin.H{"diff": d.Diff})
	case run.Output:
		if text := strings.TrimRight(d.Text, "\n"); text != "" {
			say(s, "tool", e.At, api.Content{"type": "text", "text": text})
		}
	case run.Status:
		say(s, "system", e.At, api.Content{"type": "event", "name": "status", "data": gin.H{"state": d.State, "message": d.Message}})
	}
}

// followUp refuses what this server cannot do: a run is one conversation, and
// ends with its agent.
func (s *Server) followUp(c *gin.Context) {
	if _, ok := s.run(c); ok {
		fail(c, api.NotSupported, "a run takes no follow-ups here: start another run, with parent_run_id to link the two")
	}
}

// handoff are the files that somebody handed over to the run beside its own
// attachments: there is no way to.
func (s *Server) handoff(c *gin.Context) {
	if _, ok := s.run(c); ok {
		c.JSON(http.StatusOK, gin.H{"attachments": []any{}})
	}
}
