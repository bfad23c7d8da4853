package answer

import (
	"slices"
	"testing"

	"triphammer/factory/native"
	"triphammer/server/store"
)

// TestRows: what the checks of definitions say of a sender is what its row can do (SPEC 22.1).
func TestRows(t *testing.T) {
	for _, s := range native.Senders() {
		row := ByProvider(s.Provider)
		if row == nil || row.Place == nil || row.Text == nil || row.Post == nil || row.Needs == "" || len(own[s.Provider]) == 0 {
			t.Errorf("%s: %+v", s.Provider, row)
			continue
		}
		if !slices.Contains(s.Answers, store.AnswerThread) || slices.Contains(s.Answers, store.AnswerCheck) != (row.Check != nil) {
			t.Errorf("%s takes %v", s.Provider, s.Answers)
		}
	}
	if len(Senders()) != len(native.Senders()) {
		t.Errorf("%d rows for %d senders", len(Senders()), len(native.Senders()))
	}
}

// TestMarked: the marker counts in the text that a delivery is about, and not in what it repeats
// (SPEC 22.4).
func TestMarked(t *testing.T) {
	const marker = "triphammer:run_0123456789abc:0123456789abcdef0123456789abcdef"
	for payload, want := range map[string]int{
		`{"comment":{"body":"x <!-- ` + marker + ` -->"}}`:           1,
		`{"comment":{"body":"x \u003c!-- ` + marker + ` --\u003e"}}`: 1,
		`{"review":{"body":"` + marker + `"}}`:                       1,
		`{"issue":{"body":"` + marker + `"}}`:                        0,
		`{"comment":{"body":"triphammer:run_0123456789abc:0123"}}`:   0,
		`{"comment":["` + marker + `"]}`:                             0,
	} {
		if got := Marked("github", []byte(payload)); len(got) != want {
			t.Errorf("%s: %v", payload, got)
		}
	}
	if got := Marked("slack", []byte(`{"event":{"metadata":{"event_payload":{"marker":"`+marker+`"}}}}`)); len(got) != 1 {
		t.Errorf("Slack: %v", got)
	}
	if got := Marked("jira", []byte(`{"issue":{"fields":{"comment":{"comments":[{"body":"`+marker+`"}]}}},"comment":{"body":"please"}}`)); len(got) != 0 {
		t.Errorf("Jira: %v", got)
	}
}
