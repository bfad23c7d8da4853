package delivery

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"triphammer/factory"
	"triphammer/factory/signature"
	"triphammer/server/store"
)

// newSignedFixture has webhooks of senders that sign the body alone (window, and signed without a
// replayWindow), the body and a time (timed), the body and the id (standard), or nothing (header).
func newSignedFixture(t *testing.T) *fixture {
	t.Helper()
	f := newFixture(t)
	for name, text := range map[string]string{
		"window":   "authMode: signature\nsignatureScheme: github\nreplayWindow: 10m\n",
		"timed":    "authMode: signature\nsignatureScheme: slack\nreplayWindow: 10m\n",
		"standard": "authMode: signature\nsignatureScheme: standard_webhooks\n",
	} {
		f.tree["webhooks/"+name+".yaml"] = &fstest.MapFile{Data: []byte("secretName: S\n" + text)}
	}
	f.tree["automations/each.md"] = &fstest.MapFile{Data: []byte("---\ntriggers: [{provider: webhook, event: received, filter: {webhooks: [window]}}]\n---\nDo it.\n")}
	f.live.Swap(f.build(t, signedSecret))
	return f
}

// signedSecret suits every scheme of newSignedFixture.
const signedSecret = "whsec_Y29ycmVjdC1ob3JzZS1iYXR0ZXJ5"

// captured is a delivery of a genuine sender, with its proof.
func (f *fixture) captured(t *testing.T, webhook, body string, header ...string) *Request {
	t.Helper()
	r := request(webhook, body, header...)
	hook, _ := f.live.Webhook(r.UID)
	if err := hook.Def.Sign(signedSecret, &signature.Request{Method: http.MethodPost, Header: r.Header, Body: []byte(body), Now: f.clock()}); err != nil {
		t.Fatal(err)
	}
	return r
}

// as is a captured delivery as somebody without the secret sends it again.
func as(r *Request, header ...string) *Request {
	again := *r
	again.Header = r.Header.Clone()
	for i := 0; i < len(header); i += 2 {
		again.Header.Set(header[i], header[i+1])
	}
	return &again
}

func (f *fixture) indexed(t *testing.T, id store.DeliveryID) *store.Delivery {
	t.Helper()
	if err := f.store.Subjects.Index(t.Context(), func(d *store.Delivery, body []byte) ([]string, store.PullState, bool) {
		subjects, signed := f.subjectsOf(d, body)
		return subjects, store.PullState{}, signed
	}); err != nil {
		t.Fatal(err)
	}
	d, err := f.store.Deliveries.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestSameBody (R12): a captured body that comes again under an id that nobody signed is accepted, because a
// genuine second event can have it too, and marked (SPEC 5.13).
func TestSameBody(t *testing.T) {
	f := newSignedFixture(t)
	genuine := f.captured(t, "signed", `{"a":1}`, "X-GitHub-Delivery", "1")
	first := f.Receive(t.Context(), genuine)
	second := f.Receive(t.Context(), as(genuine, "X-GitHub-Delivery", "2"))
	if first.Status != http.StatusAccepted || second.Status != http.StatusAccepted || second.DeliveryID == first.DeliveryID {
		t.Fatalf("%+v, %+v", first, second)
	}
	if d := f.indexed(t, second.DeliveryID); d.SameBodyAs != first.DeliveryID {
		t.Errorf("it is not marked: %+v", d)
	}
	if d := f.indexed(t, first.DeliveryID); d.SameBodyAs != 0 {
		t.Errorf("the genuine one is marked: %+v", d)
	}
	trace, err := f.Show(t.Context(), second.DeliveryID)
	if err != nil || !slices.ContainsFunc(trace.Belt, func(s Stage) bool {
		return s.Stage == StageNew && s.Detail == "provider 2, same signed body as "+first.DeliveryID.String()+", under another id, which the sender does not sign"
	}) {
		t.Errorf("the belt is %+v, %v", trace.Belt, err)
	}
	// Who replays or tests may do so. What is signed with its id, or not at all, is never marked.
	replayed, err := f.Replay(t.Context(), first.DeliveryID)
	if err != nil {
		t.Fatal(err)
	}
	tested := as(genuine, "X-GitHub-Delivery", "3")
	tested.TestBy = "ada"
	unmarked := []store.DeliveryID{replayed.ID, f.Receive(t.Context(), tested).DeliveryID}
	for i := range 2 {
		unmarked = append(unmarked,
			f.Receive(t.Context(), f.captured(t, "standard", `{}`, "Webhook-Id", fmt.Sprint("m", i))).DeliveryID,
			f.Receive(t.Context(), request("token", `{}`, "Authorization", "Bearer "+signedSecret, "X-Event", fmt.Sprint(i))).DeliveryID,
			f.Receive(t.Context(), request("header", `{}`, "X-Request-Id", signedSecret, factory.SenderIDHeader, fmt.Sprint(i))).DeliveryID)
	}
	for _, id := range unmarked {
		if d := f.indexed(t, id); d.Outcome != store.Accepted || d.SameBodyAs != 0 {
			t.Errorf("%+v", d)
		}
	}
}

// TestReplayWindow (R12): within replayWindow, whoever has captured a delivery cannot send its body again,
// whatever they change that is not signed, and is answered as with a wrong signature (SPEC 5.13).
func TestReplayWindow(t *testing.T) {
	f := newSignedFixture(t)
	f.start(Config{RateLimit: 3, AuthFailures: 5})
	genuine := f.captured(t, "window", `{"a":1}`, "X-GitHub-Delivery", "1", "X-GitHub-Event", "push")
	first := f.Receive(t.Context(), genuine)
	forged := f.Receive(t.Context(), as(genuine, "X-Hub-Signature-256", "sha256="+strings.Repeat("0", 64)))
	hex := genuine.Header.Get("X-Hub-Signature-256")
	attempts := []*Request{
		as(genuine, "X-GitHub-Delivery", "2"),
		as(genuine, "X-GitHub-Delivery", "", factory.SenderIDHeader, "3"),
		as(genuine, "X-GitHub-Delivery", ""), // its identity is that of the body
		as(genuine, "X-GitHub-Delivery", "4", "X-GitHub-Event", "issues", "X-Hub-Signature-256", "sha256="+strings.ToUpper(strings.TrimPrefix(hex, "sha256="))),
	}
	for i, r := range attempts {
		got := f.Receive(t.Context(), r)
		if got.Status != http.StatusUnauthorized || got.DeliveryID != 0 || got.Status != forged.Status {
			t.Fatalf("%d: %+v", i, got)
		}
		d, err := f.store.Deliveries.Get(t.Context(), got.Entry)
		if err != nil || d.Outcome != store.RejectedAuth || d.Reason != store.ReasonReplayed || d.SameBodyAs != first.DeliveryID || len(d.Runs) != 0 {
			t.Errorf("%d: %+v, %v", i, d, err)
		}
		if kept, err := f.store.Deliveries.HasPayload(t.Context(), got.Entry); err != nil || kept {
			t.Errorf("%d: the payload is kept, %v", i, err)
		}
		trace, err := f.Show(t.Context(), got.Entry)
		if want := "body_replayed, same signed body as " + first.DeliveryID.String() + ", within replayWindow 10m"; err != nil || trace.Belt[1].Detail != want {
			t.Errorf("%d: the belt is %+v, %v", i, trace.Belt, err)
		}
	}
	// They spend the budget of failures, and nothing of the genuine sender's rate, from the same address.
	if got := f.Receive(t.Context(), as(genuine, "X-GitHub-Delivery", "5")); got.Status != http.StatusTooManyRequests || got.Reason != ReasonFailures || got.Entry != 0 {
		t.Errorf("%+v", got)
	}
	if got := f.Receive(t.Context(), f.captured(t, "window", `{"a":2}`, "X-GitHub-Delivery", "6")); got.Status != http.StatusAccepted {
		t.Errorf("another event: %+v", got)
	}
	if got := f.Receive(t.Context(), genuine); got.Status != http.StatusAccepted || got.Reason != ReasonDuplicate || got.DeliveryID != first.DeliveryID {
		t.Errorf("the sender's own repetition: %+v", got)
	}
	if got := f.Receive(t.Context(), f.captured(t, "window", `{"a":3}`, "X-GitHub-Delivery", "7")); got.Reason != ReasonRate {
		t.Errorf("the rate of the genuine sender: %+v", got)
	}
	// A restart forgets nothing, and what a person does is not refused.
	f.pass(10*time.Minute - time.Second)
	f.start(Config{})
	if got := f.Receive(t.Context(), attempts[0]); got.Status != http.StatusUnauthorized {
		t.Errorf("after a restart: %+v", got)
	}
	tested := as(genuine, "X-GitHub-Delivery", "8")
	tested.TestBy = "ada"
	if got := f.Receive(t.Context(), tested); got.Status != http.StatusAccepted {
		t.Errorf("a test: %+v", got)
	}
	if _, err := f.Replay(t.Context(), first.DeliveryID); err != nil {
		t.Error(err)
	}
	f.pass(2 * time.Second)
	got := f.Receive(t.Context(), attempts[0])
	if d := f.indexed(t, got.Entry); d.Outcome != store.Accepted || d.SameBodyAs != first.DeliveryID || len(d.Runs) != 1 {
		t.Errorf("after the window: %+v", d)
	}
	if n, newest, err := f.store.Deliveries.SameBodies(t.Context(), "default", f.clock().Add(-time.Hour)); err != nil || n != 6 || newest != got.Entry {
		t.Errorf("%d are counted, the newest %s, %v", n, newest, err)
	}
}

// TestReplayWindowShared: a refused body takes nothing of a rate that all servers count, and a signed time
// does not make the body another one.
func TestReplayWindowShared(t *testing.T) {
	f := newSignedFixture(t)
	f.start(Config{RateLimit: 2, Shared: true})
	genuine := f.captured(t, "timed", `{"event_id":"E1"}`, factory.SenderIDHeader, "1")
	if got := f.Receive(t.Context(), genuine); got.Status != http.StatusAccepted {
		t.Fatalf("%+v", got)
	}
	var refused sync.WaitGroup
	for i := range 8 {
		refused.Go(func() {
			if got := f.Receive(t.Context(), as(genuine, factory.SenderIDHeader, fmt.Sprint("x", i))); got.Status == http.StatusAccepted {
				t.Errorf("%+v", got)
			}
		})
	}
	refused.Wait()
	if got := f.Receive(t.Context(), f.captured(t, "timed", `{"event_id":"E2"}`, factory.SenderIDHeader, "2")); got.Status != http.StatusAccepted {
		t.Errorf("another event: %+v", got)
	}
}
