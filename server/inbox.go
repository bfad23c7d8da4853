package server

import (
	"context"
	"slices"
	"strings"

	"triphammer/server/access"
	"triphammer/server/api"
	"triphammer/server/store"
	"triphammer/server/terms"
)

// maxWaiting is how many approvals of each factory an inbox lists.
const maxWaiting = 500

// listInbox lists everything that waits for a person, what ends first before the rest (SPEC 26.2).
func (s *Server) listInbox(ctx context.Context, c *call) (shown api.List[api.InboxItem], err error) {
	shown.Entries = []api.InboxItem{}
	for _, f := range c.Factories() {
		if only := c.Query("factory"); only != "" && only != f.Name {
			continue
		}
		waiting, err := f.Waiting(ctx, maxWaiting)
		if err != nil {
			return shown, err
		}
		items, err := inboxOf(ctx, waiting)
		if err != nil {
			return shown, err
		}
		stands, err := s.getFactory(ctx, c, f)
		if err != nil {
			return shown, err
		}
		shown.Entries = append(append(shown.Entries, items...), troubles(stands)...)
	}
	slices.SortStableFunc(shown.Entries, func(a, b api.InboxItem) int {
		switch {
		case a.EndsAt != nil && b.EndsAt != nil:
			return a.EndsAt.Compare(*b.EndsAt)
		case a.EndsAt != nil:
			return -1
		case b.EndsAt != nil:
			return 1
		}
		return b.Since.Compare(a.Since)
	})
	return shown, nil
}

// inboxOf are the items of approvals that wait: one for each run.
func inboxOf(ctx context.Context, waiting []access.Waiting) (items []api.InboxItem, err error) {
	subjects, err := access.Subjects(ctx, terms.Each(waiting, func(w access.Waiting) access.Run { return w.Run })...)
	if err != nil {
		return nil, err
	}
	for _, w := range waiting {
		first := w.Approvals[0]
		item := api.InboxItem{
			Kind: "start", Factory: w.Run.Factory, Automation: w.Run.Automation, RunID: w.Run.ID.String(), ID: w.Run.ID.String(), Person: w.Run.Person, Subject: w.Run.Subject,
			Since: first.AskedAt, EndsAt: api.Time(first.EndsAt), Shown: store.ShownOf(w.Approvals...), Command: "triphammer inbox approve " + w.Run.ID.String(),
			Title: w.Run.Automation + " waits to start", Text: w.Run.StatusMessage,
		}
		if of := subjects[w.Run.ID]; len(of) > 0 {
			item.Subject = of[0]
		}
		if first.Seq > 0 {
			all, err := access.Outputs(ctx, w.Run)
			if err != nil {
				return nil, err
			}
			item.Kind, item.Title, item.Text = "outputs", w.Run.Automation+" asks for "+terms.Counted(len(w.Approvals), "thing"), ""
			for _, o := range showOutputs(all, w.Approvals) {
				if o.Status == store.OutputWaiting {
					item.Outputs = append(item.Outputs, o)
				}
			}
		}
		items = append(items, item)
	}
	return items, nil
}

// troubles are the items of a factory that no approval answers.
func troubles(f api.FactoryStatus) (items []api.InboxItem) {
	for _, of := range []struct {
		kind, title string
		all         []api.Unanswered
	}{{"answer", "an answer could not be told", f.Unanswered}, {"output", "what an agent asked for could not be done", f.Undone}} {
		for _, a := range of.all {
			item := api.InboxItem{Kind: of.kind, Factory: f.Name, Automation: a.Automation, RunID: a.RunID, ID: a.RunID, Title: of.title + ": " + a.Kind, Text: a.Detail, Since: a.At}
			if a.RunID != "" {
				item.Command = "triphammer runs answer " + a.RunID
			}
			items = append(items, item)
		}
	}
	for _, q := range f.Questions {
		items = append(items, api.InboxItem{Kind: "question", Factory: f.Name, Automation: q.Automation, RunID: q.RunID, Title: q.Automation + " asks a question", Text: q.Text + " (at " + q.Place + ")", Since: q.At})
	}
	for _, p := range f.Paused {
		items = append(items, api.InboxItem{
			Kind: "pause", Factory: f.Name, Title: p.Name + " is paused by " + p.By, Text: p.Reason, Since: p.Since, EndsAt: p.Until,
			Command: "triphammer " + p.Kind + "s resume " + p.Name,
		})
	}
	if f.State == "failing" && f.Since != nil {
		items = append(items, api.InboxItem{Kind: "commit", Factory: f.Name, Title: "the newest commit does not serve", Text: f.Error, Since: *f.Since, Command: "triphammer definition show"})
	}
	return items
}

// showOutputs shows outputs with what was decided about them.
func showOutputs(all []store.Output, approvals []store.Approval) []api.Output {
	return terms.Each(all, func(o store.Output) api.Output {
		shown := showOutput(o)
		for _, a := range approvals {
			if a.Seq == o.Seq {
				shown.Approval = showApproval(a)
			}
		}
		return shown
	})
}

func showApproval(a store.Approval) *api.Approval {
	return &api.Approval{
		Shown: store.ShownOf(a), Outsider: a.Outsider, AskedAt: a.AskedAt, EndsAt: a.EndsAt, Decision: a.Decision, By: a.By, Through: a.Actor, Reason: a.Reason,
		DecidedAt: api.Time(a.DecidedAt),
	}
}

// showApprovals adds to a run what waits of it for a person, and what was decided.
func showApprovals(ctx context.Context, shown *api.Run, r access.Run) error {
	approvals, err := r.Approvals(ctx)
	if err != nil {
		return err
	}
	outputs, err := access.Outputs(ctx, r)
	if err != nil {
		return err
	}
	shown.Outputs = showOutputs(outputs, approvals)
	var waiting []store.Approval
	for _, a := range approvals {
		if a.Seq == 0 {
			shown.Approval = showApproval(a)
		}
		if a.Decision == "" {
			waiting = append(waiting, a)
		}
	}
	if len(waiting) > 0 {
		shown.Undecided = store.ShownOf(waiting...)
	}
	return nil
}

// mayDecide refuses callers that must not approve. Keys of agents do not: an agent could hold one.
func mayDecide(c *call) error {
	if c.Kind == store.KeyAgent || !c.May(store.ScopeOperate) {
		return api.Refuse(api.NotAuthorized, "a person decides this, with the scope operate: a key of an agent does not")
	}
	return nil
}

// decideRun approves or declines what waits of a run (SPEC 26.2).
func (s *Server) decideRun(ctx context.Context, c *call, r access.Run) (shown api.Decided, err error) {
	asked, err := body[api.Decide](c)
	if err != nil {
		return shown, err
	}
	if err := mayDecide(c); err != nil {
		return shown, err
	}
	asked.Reason = strings.TrimSpace(asked.Reason)
	switch {
	case asked.Decision != "approve" && asked.Decision != "decline":
		return shown, invalid("decision", "is approve or decline")
	case asked.Decision == "approve" && asked.Shown == "":
		return shown, invalid("shown", "is required to approve: the hash of what was shown to you, which the run and the inbox have")
	case asked.Output < 0:
		return shown, invalid("output", "is the number of an output, from 1")
	case len(asked.Reason) > store.MaxReason || strings.ContainsFunc(asked.Reason, func(r rune) bool { return r < ' ' }):
		return shown, invalid("reason", "is one line of up to %d bytes", store.MaxReason)
	}
	after, err := r.Decide(ctx, store.Decision{
		Output: asked.Output, Approve: asked.Decision == "approve", Shown: asked.Shown, By: c.Owner, Actor: c.Name, Origin: c.origin(), Reason: asked.Reason,
	})
	if err != nil {
		return shown, err
	}
	return api.Decided{RunID: r.ID.String(), ID: r.ID.String(), State: string(after.State), Decision: strings.TrimSuffix(asked.Decision, "e") + "ed"}, nil
}
