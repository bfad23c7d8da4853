package client

import (
	"encoding/json"
	"strings"
	"testing"

	"triphammer/cmd/triphammer/client/term"
	"triphammer/server/api"
)

// TestPrintRequest: who approves reads all that an agent asks for, and no text of it passes for another line (SPEC 26.1).
func TestPrintRequest(t *testing.T) {
	for _, c := range []struct{ request, text, want string }{
		{`{"kind":"comment","body":"Hello"}`, "Hello", ""},
		{`{"kind":"createIssue","title":"T","body":"one\ntwo\u001b[2Jx\r","labels":["a"]}`, "T", "  body: one\n    two\\u001b[2Jx\n  labels: [\"a\"]\n"},
		{`{"kind":"message","channel":"C1","body":"Hello"}`, "Hello", "  channel: C1\n"},
		{`{"kind":"message","channel":"C1","body":"Hello C1"}`, "Hello C1", "  channel: C1\n"},
		{`{"kind":"createPullRequest","title":"Fix release","body":"B","head":"triphammer/x","base":"release"}`, "Fix release (triphammer/x)", "  base: release\n  body: B\n"},
	} {
		var b strings.Builder
		printRequest(term.Printable{W: &b}, api.Output{Request: json.RawMessage(c.request), Text: c.text})
		if b.String() != c.want {
			t.Errorf("%s: %q, want %q", c.request, b.String(), c.want)
		}
	}
	var b strings.Builder
	printAdded(&b, api.Output{Bounds: json.RawMessage(`{"max":2,"titlePrefix":"[bot] ","draft":true}`), Where: "https://github.com/acme/api/issues/7"})
	if want := "  draft, by the automation: true\n  titlePrefix, by the automation: \"[bot] \"\n  where: https://github.com/acme/api/issues/7\n"; b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
}
