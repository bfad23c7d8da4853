package server

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"triphammer/schema/output"
	"triphammer/server/access"
	"triphammer/server/api"
	"triphammer/server/run"
	"triphammer/server/run/event"
	"triphammer/server/store"
	"triphammer/server/terms"
)

func (s *Server) getRun(ctx context.Context, c *call, r access.Run) (shown api.Run, err error) {
	all, err := s.showRuns(ctx, []access.Run{r})
	if err != nil {
		return shown, err
	}
	belt, err := r.Belt(ctx)
	if err != nil {
		return shown, err
	}
	all[0].Belt = terms.Each(belt, showStage)
	if err := tellOfRuns(ctx, c, []access.Run{r}, all); err != nil {
		return api.Run{}, err
	}
	if err := showApprovals(ctx, &all[0], r); err != nil {
		return api.Run{}, err
	}
	if question, err := r.Question(ctx); err != nil {
		return api.Run{}, err
	} else if question != nil {
		all[0].Question = showQuestion(*question, r.Automation)
	}
	if w, err := r.Workspace(ctx); err != nil {
		return shown, err
	} else if w != nil {
		all[0].Workspace = &api.Workspace{Path: w.Path, Removed: w.Path == "", KeptUntil: api.Time(w.KeptUntil)}
	}
	switch lacks, err := r.Lacks(ctx); {
	case err != nil:
		return shown, err
	case lacks != "":
		all[0].StatusMessage = lacks
	}
	all[0].Detail, err = detailOf(ctx, c, r)
	return all[0], err
}

// detailOf is what is shown of one run besides what lists have.
func detailOf(ctx context.Context, c *call, r access.Run) (*api.RunDetail, error) {
	spec, err := r.Spec(ctx)
	if err != nil {
		return nil, err
	}
	var headers map[string]string
	if r.DeliveryID != 0 {
		if of, err := c.Delivery(ctx, r.DeliveryID.String()); err == nil { // else it is not kept any more
			headers = of.Headers
		}
	}
	if spec.Reply, err = r.Replied(ctx); err != nil {
		return nil, err
	}
	d := &api.RunDetail{Sent: spec.Sent(r.Run, headers), Budget: api.Budget{USD: spec.Budget.USD, Tokens: spec.Budget.Tokens, Turns: spec.Budget.Turns}, Repositories: []string{}, Attachments: []api.AttachmentRef{}}
	if d.Takes, err = r.Takes(ctx); err != nil {
		return nil, err
	}
	if d.Events, err = r.EventCounts(ctx); err != nil {
		return nil, err
	}
	used, err := r.ModelUsage(ctx)
	if err != nil {
		return nil, err
	}
	d.Models = terms.Each(used, showUsage)
	for _, list := range []struct {
		q  store.RunQuery
		to *[]api.RunRef
	}{{store.RunQuery{ConversationID: r.ConversationID, Ascending: true}, &d.Conversation}, {store.RunQuery{RetryOf: r.ID, Ascending: true}, &d.RetriedBy}} {
		list.q.Limit = maxLimit
		runs, err := c.Runs(ctx, list.q)
		if err != nil {
			return nil, err
		}
		*list.to = terms.Each(runs, func(r access.Run) api.RunRef {
			return api.RunRef{RunID: r.ID.String(), ID: r.ID.String(), Title: r.Title, State: string(r.State), CreatedAt: r.CreatedAt}
		})
	}
	answers, err := access.Answers(ctx, r)
	if err != nil {
		return nil, err
	}
	for _, a := range answers {
		shown := showAnswer(a)
		if shown.Text, err = r.Preview(ctx, a); err != nil {
			return nil, err
		}
		d.Answers = append(d.Answers, shown)
	}
	for _, a := range spec.Attachments {
		d.Attachments = append(d.Attachments, api.AttachmentRef{Name: a.Name, Size: int64(len(a.Data))})
	}
	repositories := spec.Repositories
	d.Network = "all"
	if e := spec.Environment; e != nil {
		d.TimeoutSec, d.IdleSec, d.Isolation, d.Hosts = int64(e.Timeout/time.Second), int64(e.Idle/time.Second), e.Isolation, e.NetworkHosts
		switch {
		case e.NetworkOff:
			d.Network = "none"
		case len(e.NetworkHosts) > 0:
			d.Network = "listed"
		}
		repositories = append(slices.Clip(repositories), e.Repositories...)
	}
	for _, repository := range repositories {
		d.Repositories = append(d.Repositories, repository.URL)
	}
	return d, nil
}

func showOutput(o store.Output) api.Output {
	asked, _ := output.Parse([]byte(o.Request)) // of a newer server, the request itself is shown
	return api.Output{
		RunID: o.RunID.String(), ID: o.RunID.String(), Number: o.Seq, Kind: o.Kind, Request: json.RawMessage(o.Request), Bounds: json.RawMessage(o.Bounds), Where: o.Where(), Text: asked.Text(),
		Status: o.Status, Detail: o.Detail, URL: o.Link(), At: o.UpdatedAt,
	}
}

func showQuestion(o store.Output, automation string) *api.Question {
	return &api.Question{
		RunID: o.RunID.String(), ID: o.RunID.String(), Automation: automation, Provider: o.Provider, Text: showOutput(o).Text,
		Status: o.Status, From: append([]string{}, o.Starters()...), Place: o.Where(), NextRunID: o.Detail, At: o.UpdatedAt,
	}
}

func showStage(s run.Stage) api.Stage { return api.Stage(s) }

// showAnswer shows an answer without its text.
func showAnswer(a store.Answer) api.Answer {
	_, detail := run.Told(a)
	retry := a.DueAt
	if a.Status != store.AnswerPending || a.Detail == "" {
		retry = time.Time{}
	}
	return api.Answer{
		RunID: a.RunID.String(), ID: a.RunID.String(), Automation: a.Automation, Provider: a.Provider, Kind: a.Kind, Status: a.Status, Place: a.Where(), Link: a.Link(),
		Detail: detail, UpdatedAt: a.UpdatedAt, RetryAt: api.Time(retry),
	}
}

// runLink is the address of a run's page.
func (s *Server) runLink(id store.RunID) string { return s.cfg.BaseURL + "/runs/" + id.String() }

// showRuns converts runs for the API. It reads their specs, and their metadata.
func (s *Server) showRuns(ctx context.Context, all []access.Run) ([]api.Run, error) {
	specs := make(map[[32]byte]run.Spec)
	for _, r := range all {
		if _, known := specs[r.SpecHash]; known {
			continue
		}
		spec, err := r.Spec(ctx)
		if err != nil {
			return nil, err
		}
		specs[r.SpecHash] = spec
	}
	metadata, err := access.Metadata(ctx, all...)
	if err != nil {
		return nil, err
	}
	artifacts, err := access.Artifacts(ctx, all...)
	if err != nil {
		return nil, err
	}
	roots, err := access.Roots(ctx, all...)
	if err != nil {
		return nil, err
	}
	subjects, err := access.Subjects(ctx, all...)
	if err != nil {
		return nil, err
	}
	shown := make([]api.Run, len(all))
	for i, r := range all {
		shown[i] = s.showRun(r.Run, specs[r.SpecHash], metadata[r.ID])
		if of := subjects[r.ID]; len(of) > 0 {
			shown[i].Subject = of[0]
		}
		shown[i].RootRunID = cmp.Or(roots[r.ID], r.ID).String()
		shown[i].Artifacts = terms.Each(artifacts[r.ID], s.showArtifact)
		if shown[i].Worker, err = r.WorkerName(ctx); err != nil {
			return nil, err
		}
	}
	return shown, nil
}

// automationKey is the key of the automation in the metadata of a run.
const automationKey = "automation_id"

func (s *Server) showRun(r *store.Run, spec run.Spec, metadata map[string]string) api.Run {
	shown := api.Run{
		RunID: r.ID.String(), ID: r.ID.String(), TaskID: r.ID.String(), Title: r.Title, State: string(r.State), StatusMessage: r.StatusMessage, Prompt: spec.Prompt,
		Config: api.Present(spec.Config), AgentConfig: agentConfig(spec), Source: r.Source, Creator: creatorOf(r), Executor: executorOf(r),
		ExecutionLocation: "REMOTE", Factory: r.Factory, FactoryUID: r.Factory, Scope: teamScope(r.Factory),
		Automation: r.Automation, Agent: r.Agent, Webhook: r.Webhook, DeliveryID: r.DeliveryID.String(), Subject: r.Subject, ReplacedBy: r.ReplacedBy.String(), Person: r.Person, EnvironmentID: r.Environment,
		ParentRunID: r.ParentID.String(), ConversationID: r.ConversationID.String(), Commit: r.Commit, Path: spec.Path, Blob: spec.Blob,
		Mode: spec.Mode, Attempt: r.Attempt, Attempts: int64(spec.Retry.Attempts), NextAttempt: api.Time(r.RunAt), RetryOf: r.RetryOf.String(), Priority: r.Priority,
		ExitCode: r.ExitCode,
		Metadata: metadata, SandboxRunning: r.State == store.InProgress, Cancellable: true,
		CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt, StartedAt: api.Time(r.StartedAt), FinishedAt: api.Time(r.FinishedAt),
	}
	if spec.Environment != nil {
		shown.EnvironmentID = spec.Environment.Name
	}
	if len(spec.Asked) > 0 {
		skill := spec.Asked[0]
		shown.AgentSkill = &api.RunSkill{Name: skill.Name, FullPath: skill.Path}
		if skill.Repository != "" {
			shown.AgentSkill.FullPath = skill.Repository + ":" + skill.Path
		}
	}
	if r.Automation != "" {
		shown.Metadata = map[string]string{automationKey: r.Automation}
	}
	if r.Schedule != nil {
		shown.Schedule = &api.RunSchedule{ScheduleID: r.Schedule.ID.String(), ID: r.Schedule.ID.String(), Name: cmp.Or(r.Schedule.Name, r.Automation), Cron: r.Schedule.Cron}
	}
	if !r.StartedAt.IsZero() && r.State != store.Queued {
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
		shown.SessionLink = s.runLink(r.ID)
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

// agentConfig is the configuration of a run, in the form of the published API.
func agentConfig(spec run.Spec) api.AgentConfig {
	var posted struct {
		Name string `json:"name"`
	}
	_ = json.Unmarshal(spec.Config, &posted) // runs of automations have none
	cfg := api.AgentConfig{Name: posted.Name, ModelID: spec.Harness.Model, BasePrompt: spec.AgentPrompt}
	if cfg.Name == "" && len(spec.Asked) > 0 {
		cfg.Name = spec.Asked[0].Name
	}
	if spec.Environment != nil {
		cfg.EnvironmentID = spec.Environment.Name
	}
	if spec.Harness.Type != "" {
		cfg.Harness = &api.HarnessConfig{Type: spec.Harness.Type, ModelID: spec.Harness.Model, ReasoningLevel: spec.Harness.ReasoningLevel}
	}
	return cfg
}

// creatorOf is the creator of the run: a person, or a service account. An automation is a
// service account.
func creatorOf(r *store.Run) api.Profile {
	kind := "service_account"
	if r.CreatorKind == "user" {
		kind = "user"
	}
	return api.Profile{Type: kind, UID: r.CreatorName, ID: r.CreatorName, DisplayName: r.CreatorName}
}

// executorOf is the profile that the run acts as: its agent, if it has one.
func executorOf(r *store.Run) api.Profile {
	if r.Agent != "" {
		return api.Profile{Type: "service_account", UID: r.Agent, ID: r.Agent, DisplayName: r.Agent}
	}
	return creatorOf(r)
}

// RunNotice makes the body of the message that a run has started or ended; it is a notify.Runs.Body.
func (s *Server) RunNotice(ctx context.Context, r *store.Run) ([]byte, error) {
	shown, err := s.showRuns(ctx, []access.Run{s.cfg.Data.OwnRun(r)})
	if err != nil {
		return nil, err
	}
	at := r.FinishedAt
	if !r.State.Terminal() {
		at = r.StartedAt
	}
	return json.Marshal(api.RunNotice{Type: "run." + strings.ToLower(string(r.State)), Timestamp: at, Data: shown[0]})
}

func (s *Server) listNotices(ctx context.Context, c *call, all *store.Store) (shown api.List[api.Notice], err error) {
	cursor, limit, err := from[store.Run](c)
	if err != nil {
		return shown, err
	}
	notices, err := all.Notices.List(ctx, cursor, limit+1)
	return listPage(notices, limit, func(n store.Notice) string { return n.RunID.String() }, func(n store.Notice) api.Notice {
		return api.Notice{
			RunID: n.RunID.String(), ID: n.RunID.String(), Status: n.Status, Attempts: n.Attempts, Detail: n.Detail,
			NextAttempt: api.Time(n.DueAt), UpdatedAt: n.UpdatedAt,
		}
	}), err
}

// maxEvents is the largest number of events in one answer.
const maxEvents = 10_000

// maxKinds is the largest number of kinds of events that one request selects.
const maxKinds = 100

// transcriptOf sends the whole transcript to a client that asks for a file, as the published
// SDK does. It answers others with a part of it.
func (s *Server) transcriptOf(ctx context.Context, c *call, r access.Run) (any, error) {
	if c.wantsFile() {
		if c.Request.URL.RawQuery != "" {
			return nil, api.Refuse(api.InvalidRequest, "a transcript as a file is whole, and takes no parameters: leave them out, or ask for JSON (Accept: application/json)")
		}
		return written{}, s.sendTranscript(ctx, c, r)
	}
	return s.transcript(ctx, c, r)
}

func (s *Server) transcript(ctx context.Context, c *call, r access.Run) (t api.Transcript, err error) {
	p := store.EventPage{Limit: maxEvents, Kinds: c.QueryArray("kind")}
	slices.Sort(p.Kinds)
	if p.Kinds = slices.Compact(p.Kinds); len(p.Kinds) > maxKinds {
		return t, api.Refuse(api.InvalidRequest, fmt.Sprintf("kind: at most %d kinds are selected at once", maxKinds))
	}
	// Here the cursor is the number of the last event, so both parameters mean the same.
	for _, f := range []struct {
		name, text string
		to         *int64
	}{{"after", cmp.Or(c.Query("after"), c.Query("cursor"), "0"), &p.After}, {"before", cmp.Or(c.Query("before"), "0"), &p.Before}} {
		if *f.to, err = strconv.ParseInt(f.text, 10, 64); err != nil || *f.to < 0 {
			return t, refuse(f.name, f.text, "%s is the number of an event", f.name)
		}
	}
	if text := c.Query("limit"); text != "" {
		if p.Limit, err = strconv.Atoi(text); err != nil || p.Limit < 1 || p.Limit > maxEvents {
			return t, refuse("limit", text, "limit is a number from 1 to %d", maxEvents)
		}
	}
	switch text := c.Query("newest"); text {
	case "", "false":
	case "true":
		p.Newest = true
	default:
		return t, refuse("newest", text, "newest is true or false")
	}
	var events []store.Event
	if p.Newest || p.Before > 0 || len(p.Kinds) > 0 {
		events, err = r.EventPage(ctx, p)
	} else {
		events, err = r.Events(ctx, p.After, p.Limit)
	}
	if err != nil {
		return t, err
	}
	// The state was read before the events: a finished run has all of its events.
	t = api.Transcript{RunID: r.ID.String(), ID: r.ID.String(), State: string(r.State), Events: terms.Each(events, func(e store.Event) api.Event { return api.Event(e) })}
	if len(events) == p.Limit {
		t.PageInfo = api.PageInfo{HasNextPage: true, NextCursor: strconv.FormatInt(events[p.Limit-1].Seq, 10)}
		if p.Newest {
			t.PageInfo.NextCursor = strconv.FormatInt(events[0].Seq, 10)
		}
	}
	return t, nil
}

// timeline lists the milestones of a run.
func (s *Server) timeline(ctx context.Context, _ *call, r access.Run) (api.Timeline, error) {
	t, id := api.Timeline{Events: []api.TimelineEvent{}}, r.ID.String()
	add := func(kind string, at time.Time, payload any) {
		if !at.IsZero() {
			t.Events = append(t.Events, api.TimelineEvent{
				UUID: id + "/" + kind, ID: id + "/" + kind, RunID: id, ExecutionID: id + "/" + strconv.FormatInt(max(r.Attempt, 1), 10),
				Type: kind, OccurredAt: at, Payload: payload,
			})
		}
	}
	add("run_created", r.CreatedAt, nil)
	add("run_claimed", r.StartedAt, nil)
	started, err := r.FirstEvent(ctx, event.KindStarted)
	if err != nil {
		return t, err
	}
	add("agent_started", started, nil)
	ends := map[store.RunState]string{store.Succeeded: "run_done", store.FailedRun: "run_failed", store.Cancelled: "run_cancelled"}
	if kind := ends[r.State]; kind != "" {
		add(kind, r.FinishedAt, gin.H{"message": r.StatusMessage})
	}
	return t, nil
}

// conversation shows the transcript of a run as messages and actions.
func (s *Server) conversation(ctx context.Context, _ *call, r access.Run) (shown api.Conversation, err error) {
	return conversationOf(ctx, r.ConversationID, r)
}

// wholeConversation shows the transcripts of all runs of a conversation, each as a step.
func (s *Server) wholeConversation(ctx context.Context, c *call) (shown api.Conversation, err error) {
	all, err := c.Conversation(ctx, c.Param("id"))
	if err != nil {
		return shown, err
	}
	return conversationOf(ctx, all[0].ConversationID, all...)
}

func conversationOf(ctx context.Context, id store.RunID, all ...access.Run) (shown api.Conversation, err error) {
	shown.ConversationID = id.String()
	for i, r := range all {
		spec, err := r.Spec(ctx)
		if err != nil {
			return shown, err
		}
		step := api.Step{ID: strconv.Itoa(i + 1), Description: r.Title, StartedAt: api.Time(r.StartedAt), CompletedAt: api.Time(r.FinishedAt), Steps: []api.Step{}}
		say(&step, "user", r.CreatedAt, api.Content{"type": "text", "text": spec.Prompt})
		for after := int64(0); ; {
			events, err := r.Events(ctx, after, maxEvents)
			if err != nil {
				return shown, err
			}
			for _, e := range events {
				addEvent(&step, e)
			}
			if len(events) < maxEvents {
				break
			}
			after = events[len(events)-1].Seq
		}
		shown.Steps = append(shown.Steps, step)
	}
	return shown, nil
}

func say(s *api.Step, role string, at time.Time, parts ...api.Content) {
	s.Messages = append(s.Messages, api.ConversationMessage{Role: role, Content: parts, Timestamp: api.Time(at)})
}

// addEvent adds an event of the transcript, if it belongs to a conversation.
func addEvent(s *api.Step, e store.Event) {
	decoded, err := event.Decode(e.Kind, e.Data)
	if err != nil {
		return
	}
	id := strconv.FormatInt(e.Seq, 10)
	begin := func(category, name string, input any) {
		say(s, "assistant", e.At, api.Content{"type": "action", "id": id, "category": category, "name": name, "input": input})
	}
	end := func(failed bool, category, name string, output any) {
		state := "completed"
		if failed {
			state = "failed"
		}
		say(s, "tool", e.At, api.Content{"type": "action_result", "action_id": id, "category": category, "name": name, "state": state, "output": output})
	}
	act := func(failed bool, category, name string, input, output any) {
		begin(category, name, input)
		end(failed, category, name, output)
	}
	switch d := decoded.(type) {
	case event.Message:
		role := d.Role
		if role == "reasoning" {
			role = "assistant"
		}
		say(s, role, e.At, api.Content{"type": "text", "text": d.Text})
	case event.Command:
		if d.Started {
			return // its end repeats it
		}
		act(d.Failed, "command", "run_command", gin.H{"command": d.Command}, gin.H{"exit_code": d.ExitCode, "output": d.Output})
	case event.Tool:
		// The end of a tool that was announced does not repeat its input.
		id = cmp.Or(d.ID, id)
		if d.Started || d.ID == "" || d.Input != "" {
			begin("integration", d.Name, d.Input)
		}
		if !d.Started {
			end(d.Failed, "integration", d.Name, d.Output)
		}
	case event.File:
		act(false, "files", d.Change, gin.H{"path": d.Path}, gin.H{"diff": d.Diff})
	case event.Output:
		if text := strings.TrimRight(d.Text, "\n"); text != "" {
			say(s, "tool", e.At, api.Content{"type": "text", "text": text})
		}
	case event.Status:
		say(s, "system", e.At, api.Content{"type": "event", "name": "status", "data": gin.H{"state": d.State, "message": d.Message}})
	}
}

// handoff lists the files that were handed over to the run later. There are none, because
// this server has no way to do that.
func (s *Server) handoff(context.Context, *call, access.Run) (gin.H, error) {
	return gin.H{"attachments": []any{}}, nil
}

// cancelRun cancels a run and answers with its id.
func (s *Server) cancelRun(ctx context.Context, c *call, r access.Run) (string, error) {
	if err := c.Cancel(ctx, r); err != nil {
		return "", err
	}
	c.audit("run.cancel", r.ID.String(), r.Factory, "")
	return r.ID.String(), nil
}

// interruptRun stops the turn of a run in progress and answers with its id.
func (s *Server) interruptRun(ctx context.Context, c *call, r access.Run) (string, error) {
	if err := c.Interrupt(ctx, r); err != nil {
		return "", err
	}
	c.audit("run.interrupt", r.ID.String(), r.Factory, "")
	return r.ID.String(), nil
}

// answerRun sends the answers of a run again that were given up, has its outputs done that were, and answers
// with its id.
func (s *Server) answerRun(ctx context.Context, c *call, r access.Run) (string, error) {
	if err := r.Answer(ctx); err != nil {
		return "", err
	}
	c.audit("run.answer", r.ID.String(), r.Factory, "")
	return r.ID.String(), nil
}

// interruptConversation interrupts the run of a conversation that is in progress.
func (s *Server) interruptConversation(ctx context.Context, c *call) (shown api.FoundRun, err error) {
	all, err := c.Conversation(ctx, c.Param("id"))
	if err != nil {
		return shown, err
	}
	for _, r := range all {
		if r.State == store.InProgress {
			shown.RunID, err = s.interruptRun(ctx, c, r)
			return shown, err
		}
	}
	return shown, api.Refuse(api.Conflict, "no run of this conversation is in progress")
}
