package delivery

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"triphammer/server/run"
	"triphammer/server/store"
)

// TestCommitters: the runs that made a push are those that its commits name, and nothing
// that somebody says elsewhere in a payload counts.
func TestCommitters(t *testing.T) {
	one, two := store.RunID(1<<40).String(), store.RunID(2<<40).String()
	email := func(id string) string { return id + "@triphammer.invalid" }
	for payload, want := range map[string]string{
		`{"commits":[{"message":"m","author":{"email":"a@example.com"},"committer":{"email":"` + email(one) + `"}}]}`:           one,
		`{"commits":[{"author":{"email":"` + email(one) + `"}},{"message":"Fix.\n\nTriphammer-Run: ` + two + `"}]}`:             one + " " + two,
		`{"head_commit":{"committer":{"email":"` + email(one) + `"}},"commits":[{"committer":{"email":"` + email(one) + `"}}]}`: one,
		`{"comment":{"body":"Triphammer-Run: ` + one + `"}}`:                                                                    "",
		`{"commits":[{"message":"as ` + one + ` says"}]}`:                                                                       "",
		`{"commits":"Triphammer-Run: ` + one + `"}`:                                                                             "",
		`{"commits":[{"message":"Triphammer-Run: run_zzzzzzzzzzzzz"}]}`:                                                         "",
		`["` + email(one) + `"]`: "",
		`{"commits":[` + strings.Repeat(`{"message":"Triphammer-Run: `+one+`"},`, 50) + `{}]}`: one,
	} {
		var got []string
		for _, id := range committers([]byte(payload)) {
			got = append(got, id.String())
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%.80s: %v, want %s", payload, got, want)
		}
	}
}

func FuzzCommitters(f *testing.F) {
	f.Add([]byte(`{"commits":[{"committer":{"email":"run_0000000000001@triphammer.invalid"}}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if got := committers(body); len(got) > maxLoopRuns || !json.Valid(body) && len(got) > 0 {
			t.Errorf("%q: %v", body, got)
		}
	})
}

// TestLoop: a delivery that brings a commit of a run pauses the run's automation and no
// other one, and its trace says so (SPEC 15.7). Long after the run, it is somebody else's.
func TestLoop(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	deliver := func(commit string) *store.Delivery {
		t.Helper()
		body := fmt.Sprintf(`{"build":{"status":"failed"},"commits":[{"committer":{"email":"%s@triphammer.invalid"}}]}`, commit)
		answer := f.Receive(ctx, request("token", body, bearer("X-Event", fmt.Sprint(time.Now().UnixNano()))...))
		d, err := f.store.Deliveries.Get(ctx, answer.DeliveryID)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	first := deliver("somebody")
	if len(first.Runs) != 2 {
		t.Fatalf("the first delivery started %v", first.Runs)
	}
	own := first.Runs[0]
	if _, err := f.store.Runs.Stop(ctx, own.ID, store.StopCancel, ""); err != nil {
		t.Fatal(err)
	}
	f.pass(11 * time.Minute)
	if late := deliver(own.ID.String()); len(late.Runs) != 2 || len(late.Paused) != 0 {
		t.Errorf("eleven minutes after the run: started %v, paused %v", late.Runs, late.Paused)
	}
	running := first.Runs[1]
	loop := deliver(running.ID.String())
	if len(loop.Runs) != 1 || loop.Runs[0].Automation != own.Automation || !slices.Equal(loop.Paused, []string{running.Automation}) {
		t.Errorf("the loop started %v, paused %v", loop.Runs, loop.Paused)
	}
	if _, err := f.store.Pauses.Pause(ctx, store.Pause{Pausable: store.Pausable{Kind: store.KindAutomation, Factory: "default", Name: own.Automation}, By: "ada", Reason: "holidays"}); err != nil {
		t.Fatal(err)
	}
	trace, err := f.Show(ctx, deliver("somebody").ID)
	if err != nil {
		t.Fatal(err)
	}
	last := trace.Belt[len(trace.Belt)-1]
	if last.Stage != StageRun || last.Outcome != run.Stopped || !strings.Contains(last.Detail, own.Automation+" is paused since") || !strings.Contains(last.Detail, "holidays") ||
		!strings.Contains(last.Detail, "its own run "+running.ID.String()+" made a commit") || !strings.Contains(last.Detail, "triphammer automations resume "+own.Automation) {
		t.Errorf("the belt ends with %+v", last)
	}
}

// BenchmarkCommitters is what the guard costs a delivery that starts a run.
func BenchmarkCommitters(b *testing.B) {
	body := []byte(`{"text":"` + strings.Repeat("no run made this @ all ", 330) + `"}`)
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		committers(body)
	}
}
