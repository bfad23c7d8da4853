package answer

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"triphammer/server/store"
)

// TestTell: an address is told in order, with the same id at each attempt, what was told with an unknown
// outcome is told again, and what is not taken for 24 hours, or for good, needs a person (SPEC 22.1, 22.3).
func TestTell(t *testing.T) {
	f := newFixture(t)
	status, broken, told := http.StatusOK, error(nil), []string(nil)
	f.Tell = func(_ context.Context, address, secretName, id string, r *store.Run) (int, error) {
		told = append(told, strings.TrimPrefix(id, "msg_"+r.ID.String())+" "+string(r.State))
		if address != "https://ci.example.com/hooks" || secretName != "TELL" {
			t.Errorf("%s signed with %s", address, secretName)
		}
		return status, broken
	}
	is := func(want ...string) {
		t.Helper()
		if !slices.Equal(told, want) {
			t.Fatalf("told %q, not %q", told, want)
		}
		told = nil
	}
	hooked := func() store.NewAnswer { return Tell("whk_1", "https://ci.example.com/hooks", "TELL") }
	first := f.deliver("1", hooked())
	f.pass(2 * store.StartPatience)
	f.turns(t.Context())
	is() // it waits
	l := f.start()
	f.turns(t.Context())
	is("_started INPROGRESS")
	f.end(l)
	status, broken = 0, errors.New("connection reset")
	f.turns(t.Context())
	is(" SUCCEEDED")
	second := f.deliver("2", hooked())
	f.end(f.start())
	f.turns(t.Context())
	is() // after the first
	status, broken = http.StatusAccepted, nil
	f.pass(time.Minute)
	f.turns(t.Context())
	is(" SUCCEEDED", " SUCCEEDED")
	for _, id := range []store.RunID{first, second} {
		if a := f.answer(id); a.Status != store.AnswerDelivered || a.Link() != "https://ci.example.com/hooks" {
			t.Errorf("%+v", a)
		}
	}

	status, broken = http.StatusNotFound, errors.New("answered 404")
	late := f.deliver("3", hooked())
	f.end(f.start())
	for range 2 * 25 {
		f.turns(t.Context())
		f.pass(30 * time.Minute)
	}
	if a := f.answer(late); a.Status != store.AnswerFailed || !strings.Contains(a.Detail, "given up after 24h0m0s: answered 404") || len(told) < 40 {
		t.Errorf("%+v after %d attempts", a, len(told))
	}
	told, status, broken = nil, http.StatusGone, errors.New("answered 410")
	gone := f.deliver("4", hooked())
	f.end(f.start())
	f.turns(t.Context())
	is(" SUCCEEDED")
	if a := f.answer(gone); a.Status != store.AnswerFailed || !strings.Contains(a.Detail, "answered 410") {
		t.Errorf("%+v", a)
	}
}
