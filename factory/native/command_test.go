package native

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestCommanded: only a text whose first line is the command decides something (SPEC 26.2).
func TestCommanded(t *testing.T) {
	for text, want := range map[string]Command{
		"triphammer approve ABCD2345":                        {true, "ABCD2345", ""},
		"triphammer approve abcd2345\r\nThank you.":          {true, "ABCD2345", ""},
		"triphammer decline ABCD2345  too  risky \nand more": {false, "ABCD2345", "too risky"},
		"triphammer approve ABCD2345 \n":                     {true, "ABCD2345", ""},
	} {
		if got, ok := Commanded(text); !ok || got != want {
			t.Errorf("%q: %+v, %v", text, got, ok)
		}
	}
	for _, text := range []string{
		"", "> triphammer approve ABCD2345", "    triphammer approve ABCD2345", "\ttriphammer approve ABCD2345", "```\ntriphammer approve ABCD2345\n```", "`triphammer approve ABCD2345`",
		"Please:\ntriphammer approve ABCD2345", "\ntriphammer approve ABCD2345", "triphammer approve ABCD23456", "triphammer approve ABCD234", "triphammer approve", "triphammer  approve ABCD2345",
		"triphammer \u0430pprove ABCD2345", "triphammer approve \u0410BCD2345", "triphammer approve\u00a0ABCD2345", "\ufefftriphammer approve ABCD2345", "Triphammer approve ABCD2345",
		"triphammer approved ABCD2345", "<p>triphammer approve ABCD2345</p>", "triphammer approve ABCD2345\u2028",
	} {
		if got, ok := Commanded(text); ok {
			t.Errorf("%q decides: %+v", text, got)
		}
	}
}

// TestCommandedHTML: in HTML, the first line decides, after mentions and what editors put before it; a quotation, code
// and hidden text do not (SPEC 26.2).
func TestCommandedHTML(t *testing.T) {
	const command = "triphammer approve ABCD2345"
	bodies := map[string]func(text string) map[string]any{
		"teams": func(text string) map[string]any {
			return map[string]any{"type": "message", "text": text, "from": map[string]any{"id": "29:ada"}, "conversation": map[string]any{"id": "c"}}
		},
		"azure_devops": func(text string) map[string]any {
			return map[string]any{"eventType": "workitem.commented", "resource": map[string]any{"id": 7, "fields": map[string]any{
				"System.TeamProject": "p", "System.History": text, "System.ChangedBy": "Ada <ada@example.com>",
			}}}
		},
	}
	for provider, body := range bodies {
		said := func(text string) (Command, bool) {
			payload, _ := json.Marshal(body(text))
			c, who, ok := ByProvider(provider).Commanded(Delivery{Body: payload})
			if who.Login == "" {
				t.Errorf("%s: nobody says %q", provider, text)
			}
			return c, ok
		}
		for text, reason := range map[string]string{
			command: "", "<div>" + command + "</div>": "", "<div><span style=\"color:red\">" + command + "</span></div>": "", "<p>\n" + command + "<br>Thanks.</p>": "",
			"<at>Triphammer</at> " + command: "", "<at>Triphammer</at>&nbsp;" + command + "\n": "", "<at id=\"0\">A B</at>\u00a0" + command: "",
			"<p><at>Triphammer</at>&nbsp;triphammer approve&nbsp;ABCD2345 a &lt; b</p>": "a < b", "<div>" + command + " fine</div><div>more</div>": "fine",
		} {
			if c, ok := said(text); !ok || !c.Approve || c.Code != "ABCD2345" || c.Reason != reason {
				t.Errorf("%s: %q: %+v, %v", provider, text, c, ok)
			}
		}
		for _, text := range []string{
			"", " " + command, "<blockquote>" + command + "</blockquote>", "<pre>" + command + "</pre>", "<div><code>" + command + "</code></div>", "<!-- " + command + " -->", "<a href=x>" + command + "</a>",
			"<div>Please:</div><div>" + command + "</div>", "<div>triphammer <b>approve</b> ABCD2345</div>", "<at>" + command + "</at>", "<at>Triphammer</at> > " + command, "<div" + command, "&lt;div&gt;" + command, "<divx>" + command,
		} {
			if c, ok := said(text); ok {
				t.Errorf("%s: %q decides: %+v", provider, text, c)
			}
		}
	}
}

// FuzzCommanded: whatever comes, a command begins its text, and its reason is one short line.
func FuzzCommanded(f *testing.F) {
	f.Add("triphammer approve ABCD2345")
	f.Add("triphammer decline ABCD2345 no\nmore")
	f.Fuzz(func(t *testing.T, text string) {
		c, ok := Commanded(text)
		if line := firstLine(text); strings.ContainsAny(line, "<") && line != text && !strings.Contains(text, "&") {
			t.Errorf("the first line of %q is %q", text, line)
		}
		if ok && (!strings.HasPrefix(text, "triphammer ") || len(c.Code) != 8 || strings.ContainsAny(c.Reason, "\r\n") || utf8.RuneCountInString(c.Reason) > maxReason) {
			t.Errorf("%q: %+v", text, c)
		}
	})
}
