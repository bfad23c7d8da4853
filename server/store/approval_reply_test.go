package store

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestReplyDecides: a reply with the code of what waits in its thread decides it once, by whom may, and by
// nobody who has caused it; wrong codes are counted, and in the audit log (SPEC 26.2).
func TestReplyDecides(t *testing.T) {
	f := open(t)
	ctx := t.Context()
	wait := func(automation, thread, person string) RunID {
		t.Helper()
		f.lined++
		d := delivery(fmt.Sprint("waits ", f.lined), "{}", automation)
		r := &d.Runs[0]
		r.Person, r.Approval, r.Answers = person, &NewApproval{For: time.Hour}, []NewAnswer{told(thread, AnswerStart)}
		return must[Recorded](t)(f.Deliveries.Record(ctx, d)).RunIDs[0]
	}
	code := func(id RunID) string {
		return f.Approvals.Code(id, ShownOf(must[[]Approval](t)(f.Approvals.Of(ctx, id))...))
	}
	reply := func(thread, code, person string, may ...string) string {
		t.Helper()
		f.lined++
		d := delivery(fmt.Sprint("reply ", f.lined), "{}")
		d.Reply = &Reply{Thread: thread, Code: code, Approve: true, Person: person, May: may, Reason: "fine"}
		done := must[Recorded](t)(f.Deliveries.Record(ctx, d))
		return must[*Delivery](t)(f.Deliveries.Get(ctx, done.ID)).Decided
	}
	state := func(id RunID) RunState { return must[*Run](t)(f.Runs.Get(ctx, id)).State }
	first, other := wait("a", "k", "github:eve 9"), wait("b", "k", "github:eve 9")
	elsewhere := wait("a", "other", "github:eve 9")
	for name, c := range map[string]struct{ said, want string }{
		"who may not":          {reply("k", code(first), "github:mallory 6"), "github:mallory may not approve here"},
		"the author":           {reply("k", code(first), "github:eve2 9", "a", "b"), "github:eve2 has caused the event of " + first.String()},
		"of another thread":    {reply("k", code(elsewhere), "github:ada 1", "a"), "nothing that waited in this thread has the code"},
		"of another":           {reply("k", code(other), "github:ada 1", "a"), "nothing that waited in this thread has the code"},
		"in no thread of ours": {reply("", code(first), "github:ada 1", "a"), "nothing that waited"},
	} {
		if !strings.Contains(c.said, c.want) {
			t.Errorf("%s: %q", name, c.said)
		}
	}
	if state(first) != Blocked || state(other) != Blocked || state(elsewhere) != Blocked {
		t.Fatal("somebody has approved something")
	}
	// The account of the credential.
	a := must[[]Answer](t)(f.Answers.Of(ctx, first))[0]
	a.Posted = `{"id":"1","author":"77"}`
	check(t, f.Answers.Save(ctx, a))
	if said := reply("k", code(first), "github:hammer 77", "a"); !strings.Contains(said, "is the account with which this server answers") {
		t.Error(said)
	}
	if said := reply("k", code(first), "github:ada 1", "a"); said != first.String()+" is approved by github:ada" || state(first) != Queued {
		t.Fatalf("%q: %s", said, state(first))
	}
	if said := reply("k", code(first), "github:grace 2", "a"); !strings.Contains(said, first.String()+" was approved by github:ada (fine)") {
		t.Errorf("once more: %q", said)
	}
	entries := must[[]AuditEntry](t)(f.Audit.List(ctx, AuditQuery{Limit: 20}))
	if e := entries[0]; e.Action != "run.approve" || e.Actor != "reply github:ada" || e.Object != first.String() || !strings.HasPrefix(e.Origin, "dlv_") {
		t.Errorf("%+v", e)
	}
	for range mostWrong {
		reply("other", "22222222", "github:ada 1", "a")
	}
	if said := reply("other", code(elsewhere), "github:ada 1", "a"); !strings.Contains(said, "wrong codes came in this thread") || state(elsewhere) != Blocked {
		t.Errorf("after many wrong codes: %q", said)
	}
	if wrong := must[[]AuditEntry](t)(f.Audit.List(ctx, AuditQuery{Action: wrongCode, Limit: 20})); len(wrong) != mostWrong+3 {
		t.Errorf("%d wrong codes are in the log", len(wrong))
	}
	if said := reply("k", code(other), "github:ada 1", "a", "b"); state(other) != Queued {
		t.Errorf("in another thread: %q", said)
	}
	f.at = f.at.Add(2 * wrongTime)
	late := wait("a", "other", "")
	was := code(late)
	f.at = f.at.Add(2 * time.Hour)
	if said := reply("other", was, "github:ada 1", "a"); !strings.Contains(said, "not approved within") || state(late) != Blocked {
		t.Errorf("too late: %q", said)
	}
}
