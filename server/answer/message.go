package answer

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"triphammer/factory/native"
	"triphammer/schema/output"
	"triphammer/server/run/event"
	"triphammer/server/store"
	"triphammer/server/terms"
)

const (
	// maxSaid is how much of the agent's last message is told, in characters (SPEC 22.2).
	maxSaid = 4000
	// lastMessages is how many of the newest messages of a transcript are looked at.
	lastMessages = 50
)

// outcomes say in words how a run ended.
var outcomes = map[store.RunState]string{store.Succeeded: "succeeded", store.FailedRun: "failed", store.Cancelled: "cancelled"}

// message is what an answer says of a run now.
func (w *Worker) message(ctx context.Context, a *store.Answer, r *store.Run) (m Message, err error) {
	m = Message{State: Ended, Automation: r.Automation, Run: r.ID.String(), Link: w.Link(r.ID), Outcome: outcomes[r.State], Marker: w.marker(a)}
	if err := w.approvals(ctx, a, r, &m); err != nil {
		return m, err
	}
	switch {
	case r.State == store.Queued, r.State == store.Blocked:
		m.State = Waits
		m.Why, err = w.Waits(ctx, r)
		return m, err
	case !r.State.Terminal():
		m.State, m.Took = Started, w.Now().Sub(r.StartedAt)
		return m, nil
	case !r.StartedAt.IsZero():
		m.Took = r.FinishedAt.Sub(r.StartedAt)
	}
	if r.State == store.Succeeded {
		if question, err := w.Store.Outputs.QuestionOf(ctx, r.ID); err != nil || question != nil {
			return asking(m, question), err
		}
	}
	if a.Brief {
		return m, nil
	}
	m.Why, m.CostUSD = r.StatusMessage, r.CostUSD
	waiting, err := w.Store.Approvals.Of(ctx, r.ID)
	waiting = slices.DeleteFunc(waiting, func(a store.Approval) bool { return a.Seq == 0 || a.Decision != "" })
	if err != nil {
		return m, err
	}
	if len(waiting) > 0 && m.Why == "" {
		m.Why = terms.Counted(len(waiting), "request") + " of its agent waits for a person to approve it"
		if len(waiting) > 1 {
			m.Why = terms.Counted(len(waiting), "request") + " of its agent wait for a person to approve them"
		}
	}
	left, err := w.Store.Artifacts.Of(ctx, r.ID)
	if err != nil {
		return m, err
	}
	for _, one := range left[r.ID] {
		if one.Type == event.ArtifactPullRequest {
			m.PullRequests = append(m.PullRequests, one.URL)
		}
	}
	m.Text, err = w.said(ctx, r.ID)
	return m, err
}

// asking makes a message one that asks a question; nil: none.
func asking(m Message, question *store.Output) Message {
	if question == nil {
		return m
	}
	asked, _ := output.Parse([]byte(question.Request)) // the server itself wrote it
	m.Text, m.Asks = asked.Question, "Reply here to answer"
	if question.Provider == "teams" { // it sends nothing else
		m.Asks += ", and mention this webhook"
	}
	m.Asks += "."
	if who := question.Starters(); len(who) > 0 {
		m.Asks += " A reply counts from " + starters(who) + "."
	}
	return m
}

// starters are in words those whom startedBy names.
func starters(list []string) string {
	said := map[string]string{native.RoleWrite: "people with write access", native.RoleMember: "members", native.RoleOwner: "owners", native.RoleAuthor: "the author"}
	names := make([]string, len(list))
	for i, name := range list {
		names[i] = cmp.Or(said[name], strings.TrimPrefix(name, "@"))
	}
	return strings.Join(names, ", ")
}

// Preview is what an answer says of a run now, as people read it, whether it is told or not: a text in
// Markdown, or of a check one line.
func (w *Worker) Preview(ctx context.Context, a *store.Answer, r *store.Run) (string, error) {
	m, err := w.message(ctx, a, r)
	if err != nil {
		return "", err
	}
	if a.Kind == store.AnswerCheck {
		return described(m, maxName), nil
	}
	return preview(m), nil
}

// alone is the message of an answer of a delivery without a run; empty for the answer of a run.
func (w *Worker) alone(a *store.Answer) (m Message) {
	if !a.OfDelivery() {
		return m
	}
	m = Message{State: Ended, Automation: "Triphammer", Delivery: a.DeliveryID.String(), Marker: w.marker(a)}
	switch a.Kind {
	case store.AnswerIdle:
		m.Outcome = "cancelled nothing"
		m.Why = "no run of this session is at work."
	default:
		m.Outcome = "has no automation for this session"
		m.Why = "no filter of an automation accepts it, so nobody works on it."
	}
	return m
}

// Told says what was told of a delivery without a run, or why not (SPEC 22.5).
func Told(a *store.Answer) string {
	sender := a.Provider
	if s := native.ByProvider(sender); s != nil {
		sender = s.Title
	}
	what := "that no automation takes it"
	if a.Kind == store.AnswerIdle {
		what = "that there was nothing to stop"
	}
	switch a.Status {
	case store.AnswerDelivered:
		return sender + " was told " + what
	case store.AnswerFailed:
		return sender + " could not be told " + what + ", which needs a person: " + a.Detail
	}
	return join(sender+" is to be told "+what, a.Detail)
}

func join(text, more string) string {
	if more == "" {
		return text
	}
	return text + ": " + more
}

// said is the agent's last message, masked of secrets as the transcript is.
func (w *Worker) said(ctx context.Context, id store.RunID) (string, error) {
	events, err := w.Store.Transcripts.Page(ctx, id, store.EventPage{Newest: true, Kinds: []string{event.KindMessage}, Limit: lastMessages})
	if errors.Is(err, store.ErrDamaged) {
		return "", nil // the rest is told
	}
	if err != nil {
		return "", err
	}
	for i := len(events) - 1; i >= 0; i-- {
		decoded, err := event.Decode(events[i].Kind, events[i].Data)
		if m, is := decoded.(event.Message); err == nil && is && (m.Role == "assistant" || m.Role == "model") && strings.TrimSpace(m.Text) != "" {
			return cut(strings.TrimSpace(m.Text), maxSaid), nil
		}
	}
	return "", nil
}

// cut is a text of at most so many characters.
func cut(text string, most int) string {
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most-1]) + "…"
}

// marker is what tells the text of an answer, or its mention, from other texts.
func (w *Worker) marker(a *store.Answer) string {
	what := "text"
	if a.Next == store.AnswerMention {
		what = "mention"
	}
	return w.Store.Answers.Marker(a.RunID, a.PlaceKey, what)
}

// giveUp is how long an answer is tried (SPEC 22.3).
const giveUp = 24 * time.Hour
