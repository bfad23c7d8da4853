package answer

import (
	"context"
	"encoding/json"
	"strings"

	"triphammer/server/store"
)

// Approvable notes in answers whose replies to them decide what waits for a person. buttons tells that clicks come
// back, too.
func Approvable(all []store.NewAnswer, by []string, buttons bool) {
	for i := range all {
		a := &all[i]
		var p Place
		if a.Kind != store.AnswerThread || len(by) == 0 || json.Unmarshal([]byte(a.Place), &p) != nil {
			continue
		}
		p.Approvers, p.Buttons = by, buttons
		text, _ := json.Marshal(p) // texts always encode
		a.Place = string(text)
	}
}

// approvals adds to a message what of its run waits for a person, with the code, and who has approved what.
func (w *Worker) approvals(ctx context.Context, a *store.Answer, r *store.Run, m *Message) error {
	if r.Automation == "" || a.Kind != store.AnswerThread {
		return nil
	}
	all, err := w.Store.Approvals.Of(ctx, r.ID)
	var waiting []store.Approval
	for _, one := range all {
		switch {
		case one.Decision == "":
			waiting = append(waiting, one)
		case one.Decision == store.Approved && (one.Seq > 0) == r.State.Terminal():
			m.Approved = one.Said()
		}
	}
	if len(waiting) == 0 || err != nil {
		return err
	}
	m.Undecided, m.Approved = true, ""
	var p Place
	if json.Unmarshal([]byte(a.Place), &p) == nil && len(p.Approvers) > 0 {
		m.Buttons, m.Mentioned = p.Buttons, p.Provider == "teams"
		m.Code, m.Decides = w.Store.Approvals.Code(r.ID, store.ShownOf(waiting...)), starters(p.Approvers)
	}
	return nil
}

// decision is how people decide what waits, or who has decided.
func decision(m Message) []block {
	switch {
	case m.Code != "":
		how := "reply "
		switch {
		case m.Buttons:
			how = "press a button, or reply "
		case m.Mentioned:
			how = "mention this webhook in a reply, and go on with "
		}
		return []block{{spans: guarded([]span{
			{text: "To decide, " + how},
			{text: "triphammer approve " + m.Code, code: true},
			{text: " or "},
			{text: "triphammer decline " + m.Code, code: true},
			{text: ". It counts from " + oneLine(m.Decides, maxWhy) + ", but not from whoever caused the event."},
		})}}
	case m.Undecided:
		return []block{{spans: []span{{text: "The page of the run approves or declines it", to: web(m.Link)}}}}
	case m.Approved != "":
		said := oneLine(m.Approved, maxWhy)
		return []block{{spans: guarded([]span{{text: strings.ToUpper(said[:1]) + said[1:] + "."}})}}
	}
	return nil
}
