package answer

import (
	"context"
	"errors"
	"strings"
	"time"
	"unicode/utf8"

	"triphammer/server/run/event"
	"triphammer/server/store"
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
	switch {
	case r.State == store.Queued:
		m.State = Waits
		m.Why, err = w.Waits(ctx, r)
		return m, err
	case !r.State.Terminal():
		m.State, m.Took = Started, w.Now().Sub(r.StartedAt)
		return m, nil
	case !r.StartedAt.IsZero():
		m.Took = r.FinishedAt.Sub(r.StartedAt)
	}
	if a.Brief {
		return m, nil
	}
	m.Why, m.CostUSD = r.StatusMessage, r.CostUSD
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
