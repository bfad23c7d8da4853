package dashboard

import (
	"strings"
	"testing"
	"time"

	"triphammer/server/api"
)

// TestFailures: an automation that fails again and again takes one row, and hides no other.
func TestFailures(t *testing.T) {
	at := time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)
	run := func(id, automation string, minutes int) api.Run {
		return api.Run{RunID: id, Factory: "default", Automation: automation, Title: "Title of " + id, StatusMessage: "why " + id, CreatedAt: at.Add(-time.Duration(minutes) * time.Minute)}
	}
	runs := []api.Run{run("r1", "charge", 0), run("r2", "charge", 10), run("r3", "label", 20), run("r4", "", 30), run("r5", "charge", 40), run("r6", "", 50)}
	var got []string
	for _, n := range failures(Page{}, runs) {
		got = append(got, n.Title+" | "+n.Text+" | "+n.Link)
	}
	want := []string{
		"charge failed 3 times, first 09:20 UTC | The newest: why r1 | /runs?automation=charge&since=24h&state=FAILED",
		"Title of r3 failed | Why r3. | /runs/r3", "Title of r4 failed | Why r4. | /runs/r4", "Title of r6 failed | Why r6. | /runs/r6",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("it needs\n%s, want\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for i := range mostFailed {
		runs = append(runs, run("more", strings.Repeat("a", i/10+1), 60+i))
	}
	needs := failures(Page{}, runs[len(runs)-mostFailed:])
	if len(needs) != mostFailures+1 || needs[0].Title != "a failed 10 times or more in 24 hours" || needs[mostFailures].Title != "12 more automations had runs that failed in 24 hours" {
		t.Errorf("it needs %+v", needs)
	}
}
