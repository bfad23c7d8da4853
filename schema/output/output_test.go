package output

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestCheck: what is out of bounds is refused, with a sentence that says what is right (SPEC 23.1).
func TestCheck(t *testing.T) {
	may := Allowed{
		"comment": {Max: 2}, "addLabels": {Allowed: []string{"bug", "triaged"}}, "close": {}, "createIssue": {Repositories: []string{"acme/other"}},
		"review": {Comments: 1}, "message": {Channels: []string{"C1"}}, "createPullRequest": {},
	}
	many := make([]Request, MaxRequests)
	for name, c := range map[string]struct {
		request string
		made    []Request
		wrong   string // part of the refusal; empty: it is taken
	}{
		"a comment":               {request: `{"kind":"comment","body":"Hello"}`},
		"two of two":              {request: `{"kind":"comment","body":"Hello"}`, made: []Request{{Kind: "comment"}}},
		"three of two":            {request: `{"kind":"comment","body":"Hello"}`, made: []Request{{Kind: "comment"}, {Kind: "comment"}}, wrong: "allows 2 in a run, and 2 came before"},
		"one of one":              {request: `{"kind":"createIssue","title":"T","body":"B"}`, made: []Request{{Kind: "comment"}}},
		"two of one":              {request: `{"kind":"createIssue","title":"T","body":"B"}`, made: []Request{{Kind: "createIssue"}}, wrong: "allows 1 in a run"},
		"labels count one by one": {request: `{"kind":"addLabels","labels":["bug","triaged"]}`, made: []Request{{Kind: "addLabels", Labels: []string{"bug", "bug"}}}, wrong: "allows 3 in a run, and 2 came before"},
		"a label":                 {request: `{"kind":"addLabels","labels":["bug"]}`},
		"another label":           {request: `{"kind":"addLabels","labels":["bug","admin"]}`, wrong: `labels may not be "admin": the automation allows bug, triaged`},
		"a label that looks alike": {
			request: `{"kind":"addLabels","labels":["b\u03c5g"]}`, wrong: `labels may not be "b\u03c5g"`,
		},
		"a label in capitals":     {request: `{"kind":"addLabels","labels":["BUG"]}`, wrong: `may not be "BUG"`},
		"no labels":               {request: `{"kind":"addLabels"}`, wrong: "labels is missing"},
		"too many labels":         {request: `{"kind":"addLabels","labels":[` + strings.TrimSuffix(strings.Repeat(`"bug",`, 101), ",") + `]}`, wrong: "at most 100"},
		"a kind that is not":      {request: `{"kind":"approve"}`, wrong: `allows no "approve": it allows comment, addLabels, close, createIssue, createPullRequest, review, message`},
		"a kind that may not":     {request: `{"kind":"assign","assignees":["ada"]}`, wrong: "allows no \"assign\""},
		"a kind in capitals":      {request: `{"kind":"Close"}`, wrong: "allows no"},
		"no kind":                 {request: `{"body":"x"}`, wrong: "has no kind"},
		"a field of another kind": {request: `{"kind":"close","labels":["bug"]}`, wrong: "close: it has no labels"},
		"an unknown field":        {request: `{"kind":"close","number":12}`, wrong: "unknown field"},
		"another subject":         {request: `{"kind":"comment","body":"x","repository":"acme/other"}`, wrong: "it has no repository"},
		"another repository":      {request: `{"kind":"createIssue","title":"T","body":"B","repository":"acme/secret"}`, wrong: "repository may not be"},
		"a listed repository":     {request: `{"kind":"createIssue","title":"T","body":"B","repository":"acme/other"}`},
		"a title of two lines":    {request: `{"kind":"createIssue","title":"T\nU","body":"B"}`, wrong: "more than one line"},
		"a long title":            {request: `{"kind":"createIssue","title":"` + strings.Repeat("x", 201) + `","body":"B"}`, wrong: "201 bytes"},
		"a long body":             {request: `{"kind":"comment","body":"` + strings.Repeat("x", MaxBody+1) + `"}`, wrong: "may have 24000"},
		"an empty body":           {request: `{"kind":"comment","body":" "}`, wrong: "body is empty"},
		"a review":                {request: `{"kind":"review","body":"B","comments":[{"path":"a.go","line":3,"body":"C"}]}`},
		"two remarks of one":      {request: `{"kind":"review","body":"B","comments":[{"path":"a","line":3,"body":"C"},{"path":"a","line":4,"body":"C"}]}`, wrong: "allows 1"},
		"a remark nowhere":        {request: `{"kind":"review","body":"B","comments":[{"path":"a","line":0,"body":"C"}]}`, wrong: "a line from 1"},
		"a channel":               {request: `{"kind":"message","channel":"C1","body":"x"}`},
		"another channel":         {request: `{"kind":"message","channel":"C2","body":"x"}`, wrong: "channel may not be"},
		"too many":                {request: `{"kind":"close"}`, made: many, wrong: "which is the most"},
		"two objects":             {request: `{"kind":"close"}{"kind":"close"}`, wrong: "something follows"},
		"a list":                  {request: `[]`, wrong: "no JSON object"},
		"deep":                    {request: strings.Repeat(`{"kind":`, 20_000), wrong: "at most 60000"},
		"not UTF-8":               {request: "{\"kind\":\"\xff\"}", wrong: "not UTF-8"},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := Parse([]byte(c.request))
			if err == nil {
				err = may.Check(r, c.made)
			}
			if text := fmt.Sprint(err); (err == nil) != (c.wrong == "") || !strings.Contains(text, c.wrong) && c.wrong != "" {
				t.Errorf("%v, want %q", err, c.wrong)
			}
		})
	}
}

// TestFits: what an event is not about is offered to no agent (SPEC 23.1).
func TestFits(t *testing.T) {
	for at, want := range map[[2]string]string{
		{"", ""}:             "createIssue createPullRequest message",
		{"7", "issue"}:       "comment addLabels removeLabels assign close createIssue createPullRequest message setState ask",
		{"7", "pull"}:        "comment addLabels removeLabels assign close createIssue createPullRequest review message setState ask",
		{"77b20b", "commit"}: "comment createIssue createPullRequest message ask",
		{"s", "session"}:     "comment addLabels removeLabels assign close createIssue createPullRequest message setState ask",
	} {
		var fit []string
		for _, k := range Kinds {
			if k.Fits(at[0], at[1]) {
				fit = append(fit, k.Name)
			}
		}
		if got := strings.Join(fit, " "); got != want {
			t.Errorf("%q: %s, want %s", at, got, want)
		}
	}
}

// TestSize: what an agent was told is taken is no longer where it is kept (SPEC 23.2).
func TestSize(t *testing.T) {
	may := Allowed{"comment": {}, "review": {}}
	r, err := Parse([]byte(`{"kind":"comment","body":"` + strings.Repeat("<", MaxBody) + `"}`))
	if err != nil || may.Check(r, nil) != nil {
		t.Fatal(err, may.Check(r, nil))
	}
	if again, err := Parse([]byte(r.JSON())); err != nil || again.Body != r.Body {
		t.Errorf("what was taken cannot be read: %v", err)
	}
	separators := "x" + strings.Repeat("\u2028", MaxBody/3-1)
	r = Request{Kind: "review", Body: separators, Comments: []Remark{{Path: "a.go", Line: 1, Body: separators}}}
	if err := may.Check(r, nil); err == nil || !strings.Contains(err.Error(), "bytes as JSON") {
		t.Errorf("what cannot be kept is taken: %v", err)
	}
}

// TestText: people read what is asked for.
func TestText(t *testing.T) {
	for want, r := range map[string]Request{
		"bug, triaged": {Kind: "addLabels", Labels: []string{"bug", "triaged"}}, "ada": {Kind: "assign", Assignees: []string{"ada"}}, "": {Kind: "close"},
		"Hello": {Kind: "comment", Body: "Hello"}, "T": {Kind: "createIssue", Title: "T", Body: "B"}, "T (triphammer/x)": {Kind: "createPullRequest", Title: "T", Head: "triphammer/x"},
		"B (comments on lines: 1)": {Kind: "review", Body: "B", Comments: []Remark{{}}}, "Done": {Kind: "setState", State: "Done"}, "Why?": {Kind: "ask", Question: "Why?"},
	} {
		if got := r.Text(); got != want {
			t.Errorf("%+v is %q, want %q", r, got, want)
		}
	}
}

// TestTools: each kind has a tool whose schema is that of its fields.
func TestTools(t *testing.T) {
	for _, k := range Kinds {
		if k.Doc == "" || len(k.Needs) == 0 {
			t.Errorf("%s: %+v", k.Name, k)
		}
		b := Bounds{Allowed: []string{"a"}, Channels: []string{"a"}, Repositories: []string{"a"}}
		properties, _ := k.Tool(b)["properties"].(map[string]any)
		if len(properties) != len(k.Fields) {
			t.Errorf("%s has the fields %v", k.Name, properties)
		}
		if _, err := json.Marshal(k.Tool(Bounds{})); err != nil {
			t.Error(err)
		}
		for _, f := range k.Fields {
			if f.Doc == "" || f.Of != "" && !slices.ContainsFunc(k.Bounds, func(b Bound) bool { return b.Name == f.Of }) {
				t.Errorf("%s.%s: %+v", k.Name, f.Name, f)
			}
		}
	}
}

var update = flag.Bool("update", false, "write the table into docs/outputs.md")

// TestGuide: the table of the guide is that of this package.
func TestGuide(t *testing.T) {
	const file = "../../docs/outputs.md"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, _ := strings.Cut(string(text), "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n")
	_, after, _ := strings.Cut(rest, "\n`max` is")
	var table strings.Builder
	for _, k := range Kinds {
		var bounds []string
		for _, b := range k.Bounds {
			name := "`" + b.Name + "`"
			switch {
			case b.Required:
				name += " (required)"
			case b.Default > 0:
				name += fmt.Sprintf(" (%d)", b.Default)
			}
			bounds = append(bounds, name)
		}
		fmt.Fprintf(&table, "| `%s` | %s | %s |", k.Name, k.Doc, strings.Join(bounds, ", "))
		for _, provider := range []string{"github", "gitlab", "linear", "jira", "slack", "azure_devops", "teams"} {
			cell := ""
			if k.Needs[provider] != "" {
				cell = "yes"
			}
			fmt.Fprintf(&table, " %s |", cell)
		}
		table.WriteByte('\n')
	}
	want := before + "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n" + table.String() + "\n`max` is" + after
	if *update {
		err = os.WriteFile(file, []byte(want), 0o644)
	} else if string(text) != want {
		t.Errorf("the table of %s is not that of the package; write it: go test ./schema/output -update", file)
	}
	if err != nil {
		t.Error(err)
	}
}

// FuzzParse: no bytes make more of a request than its bounds allow.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{`{"kind":"comment","body":"x"}`, `{"kind":"addLabels","labels":["a"]}`, `{"kind":"review","comments":[{"path":"a","line":1,"body":"x"}]}`, `[`} {
		f.Add([]byte(seed))
	}
	may := Allowed{"addLabels": {Allowed: []string{"a"}}, "comment": {}, "createIssue": {Repositories: []string{"a/b"}}}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := Parse(data)
		if err != nil || may.Check(r, nil) != nil {
			return
		}
		if _, known := may[r.Kind]; !known || r.Channel != "" || r.State != "" || len(r.Assignees) > 0 || len(r.Labels) > 3 || slices.ContainsFunc(r.Labels, func(l string) bool { return l != "a" }) || r.Repository != "" && r.Repository != "a/b" {
			t.Errorf("%s makes %+v", data, r)
		}
	})
}
