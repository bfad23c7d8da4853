package native

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"triphammer/factory/jsonscan"
)

// fact is an event as the test makes it: it knows what the values are, and puts them into a
// payload.
type fact struct {
	event  string
	values map[string][]string
	header string
	body   map[string]any
}

var (
	someRepos  = []string{"acme/api", "acme/web", "Acme/api"}
	someLabels = []string{"bug", "Bug", "p1", "deploy: prod"}
	someLogins = []string{"ada", "Grace", "linus"}
	someStates = []string{"approved", "commented", "CHANGES_REQUESTED"}
	someRefs   = []string{"refs/heads/main", "refs/heads/release/1.0", "refs/tags/v1"}
	someTexts  = []string{"please deploy this", "The Deploy FAILED again", "nothing", ""}
	somePaths  = []string{"api/main.go", "api/v1/http.go", "web/index.html", "README.md", "docs/api/x.md"}
)

func pick(r *rand.Rand, from []string) string { return from[r.IntN(len(from))] }

func some(r *rand.Rand, from []string) []string {
	all := []string{}
	for range r.IntN(3) {
		all = append(all, pick(r, from))
	}
	return all
}

func named(key string, values []string) []map[string]any {
	all := []map[string]any{}
	for i, v := range values {
		all = append(all, map[string]any{"id": i, key: v, "z": nil})
	}
	return all
}

// makeFact makes an event of GitHub or Slack.
func makeFact(r *rand.Rand) fact {
	repo, label, author := pick(r, someRepos), pick(r, someLabels), pick(r, someLogins)
	labels, assignees := some(r, someLabels), some(r, someLogins)
	repository := map[string]any{"full_name": repo, "name": "x"}
	switch r.IntN(5) {
	case 0:
		return fact{
			event: "github issue_labeled", header: "issues",
			values: map[string][]string{"repos": {repo}, "labels": {label}, "assignees": assignees, "authors": {author}},
			body: map[string]any{
				"action": "labeled", "label": map[string]any{"name": label}, "repository": repository,
				"issue": map[string]any{"labels": named("name", labels), "assignees": named("login", assignees), "user": map[string]any{"login": author}},
			},
		}
	case 1:
		state := pick(r, someStates)
		return fact{
			event: "github pull_request_review_submitted", header: "pull_request_review",
			values: map[string][]string{"repos": {repo}, "labels": labels, "review_states": {state}, "mentioned": {author}},
			body: map[string]any{
				"action": "submitted", "repository": repository, "review": map[string]any{"state": state, "body": "well, @" + author + ", no `@nobody`"},
				"pull_request": map[string]any{"labels": named("name", labels)},
			},
		}
	case 2:
		reviewer, team := []string{author}, []string{}
		body := map[string]any{"action": "review_requested", "repository": repository, "requested_reviewer": map[string]any{"login": author}}
		if r.IntN(2) == 0 {
			reviewer, team = nil, []string{author}
			delete(body, "requested_reviewer")
			body["requested_team"] = map[string]any{"slug": author}
		}
		return fact{
			event: "github pull_request_review_requested", header: "pull_request",
			values: map[string][]string{"repos": {repo}, "reviewers": reviewer, "reviewer_teams": team}, body: body,
		}
	case 3:
		ref, paths := pick(r, someRefs), some(r, somePaths)
		return fact{
			event: "github push", header: "push",
			values: map[string][]string{"repos": {repo}, "branches": {ref}, "paths": paths},
			body: map[string]any{
				"ref": ref, "repository": repository,
				"commits": []any{map[string]any{"added": paths[:len(paths)/2], "removed": []string{}}, map[string]any{"modified": paths[len(paths)/2:]}},
			},
		}
	default:
		text := pick(r, someTexts)
		return fact{
			event:  "slack app_mention",
			values: map[string][]string{"channel_ids": {label}, "user_ids": {author}, "keywords": {text}},
			body: map[string]any{
				"type":  "event_callback",
				"event": map[string]any{"type": "app_mention", "channel": label, "user": author, "text": text},
			},
		}
	}
}

// wish is what a trigger wants, as its author wrote it.
type wish struct{ in, notIn []string }

func makeWishes(r *rand.Rand, event string) map[string]wish {
	pools := map[string][]string{
		"repos": someRepos, "labels": someLabels, "assignees": someLogins, "authors": someLogins, "mentioned": append([]string{"nobody"}, someLogins...),
		"review_states": append([]string{"Approved"}, someStates...), "reviewers": someLogins, "reviewer_teams": someLogins,
		"branches": append([]string{"main", "release/1.0"}, someRefs...), "paths": {"api/**", "**/*.go", "*.md", "docs/*", "README.md", "{api,web}/*"},
		"channel_ids": someLabels, "user_ids": someLogins, "keywords": {" Deploy ", "failed", "de", "nothing at all"},
	}
	all := make(map[string]wish)
	e := events()[event]
	for _, key := range e.KeyNames() {
		if r.IntN(3) > 0 {
			continue
		}
		w := wish{in: some(r, pools[key])}
		if r.IntN(3) == 0 {
			for _, v := range some(r, pools[key]) {
				if !slices.Contains(w.in, v) {
					w.notIn = append(w.notIn, v)
				}
			}
		}
		all[key] = w
	}
	return all
}

func (w wish) compiled(k *Key) Filter {
	f := Filter{Key: k}
	for _, v := range w.in {
		f.In = append(f.In, k.Canonical(v, false))
	}
	for _, v := range w.notIn {
		f.NotIn = append(f.NotIn, k.Canonical(v, false))
	}
	return f
}

// wanted decides by the published rules (factory/testdata/rules 4.2), slowly and in the
// open: it shares no code with the package.
func wanted(f fact, event string, wishes map[string]wish) bool {
	if f.event != event {
		return false
	}
	equal := func(key, want, have string) bool {
		switch key {
		case "assignees", "authors", "mentioned", "reviewers", "reviewer_teams", "review_states":
			return strings.EqualFold(want, have)
		case "branches":
			return strings.TrimPrefix(want, "refs/heads/") == strings.TrimPrefix(have, "refs/heads/")
		case "keywords":
			return strings.Contains(strings.ToLower(have), strings.ToLower(strings.TrimSpace(want)))
		case "paths":
			return slices.Contains(map[string][]string{
				"api/**": {"api/main.go", "api/v1/http.go"}, "**/*.go": {"api/main.go", "api/v1/http.go"}, "*.md": {"README.md"}, "docs/*": nil,
				"README.md": {"README.md"}, "{api,web}/*": {"api/main.go", "web/index.html"},
			}[want], have)
		}
		return want == have
	}
	for key, w := range wishes {
		have := f.values[key]
		hit := func(wants []string) bool {
			for _, want := range wants {
				for _, h := range have {
					if equal(key, want, h) {
						return true
					}
				}
			}
			return false
		}
		if len(w.in)+len(w.notIn) > 0 && strings.HasPrefix(key, "reviewer") && len(have) == 0 {
			return false // a person's request fails a constraint on teams, and the other way round
		}
		if len(w.in) > 0 && !hit(w.in) || hit(w.notIn) {
			return false
		}
	}
	return true
}

func (f fact) read(t testing.TB) *Payload {
	body, err := json.Marshal(f.body)
	if err != nil {
		t.Fatal(err)
	}
	provider, _, _ := strings.Cut(f.event, " ")
	return ByProvider(provider).Read(Delivery{Header: map[string]string{"X-Github-Event": f.header}, Body: body})
}

// TestIndex holds the index, the explanation and the published rules to the same verdicts,
// on 100,000 pairs of an event and a trigger.
func TestIndex(t *testing.T) {
	r := rand.New(rand.NewPCG(14, 16))
	rowNames := []string{"github issue_labeled", "github pull_request_review_submitted", "github pull_request_review_requested", "github push", "slack app_mention"}
	pairs, hits := 0, 0
	for range 50 {
		var triggers []*Trigger
		var rows []string
		var wishes []map[string]wish
		for range 100 {
			name := pick(r, rowNames)
			w := makeWishes(r, name)
			e := events()[name]
			tr := &Trigger{Event: e}
			for _, key := range e.KeyNames() {
				if wish, is := w[key]; is {
					k, _ := e.Key(key)
					if f := wish.compiled(k); len(f.In)+len(f.NotIn) > 0 {
						tr.Filters = append(tr.Filters, f)
					}
				}
			}
			triggers, rows, wishes = append(triggers, tr), append(rows, name), append(wishes, w)
		}
		bySender := make(map[*Sender][]int)
		for i, tr := range triggers {
			bySender[tr.Event.Sender] = append(bySender[tr.Event.Sender], i)
		}
		indexes := make(map[*Sender]*Index)
		for s, own := range bySender {
			var all []*Trigger
			for _, i := range own {
				all = append(all, triggers[i])
			}
			indexes[s] = NewIndex(all)
		}
		for range 20 {
			f := makeFact(r)
			p := f.read(t)
			matched, open := indexes[p.Sender].Match(p, nil)
			if len(open) > 0 {
				t.Fatalf("questions %v: the payload has all", open)
			}
			for i, tr := range triggers {
				pairs++
				want := wanted(f, rows[i], wishes[i])
				if want {
					hits++
				}
				own := slices.Index(bySender[p.Sender], i)
				if got := own >= 0 && slices.Contains(matched, own); got != want {
					t.Fatalf("the index says %v, the rules %v\nevent %s %v\ntrigger %s %+v", got, want, f.event, f.values, rows[i], wishes[i])
				}
				if tr.Event.Sender != p.Sender {
					continue
				}
				if v := tr.Explain(p); v.Matched != want {
					t.Fatalf("the explanation says %+v, the rules %v\nevent %s %v\ntrigger %s %+v", v, want, f.event, f.values, rows[i], wishes[i])
				}
			}
		}
	}
	if pairs < 100_000 || hits < pairs/200 {
		t.Errorf("%d pairs, %d of them match: not enough of either", pairs, hits)
	}
}

// TestMentions: who is mentioned, and what only looks like it.
func TestMentions(t *testing.T) {
	for text, want := range map[string]string{
		"@ada please":                        "ada",
		"cc @Ada, @grace-hopper.":            "ada grace-hopper",
		"(@ada)":                             "ada",
		"@acme/reviewers":                    "acme/reviewers",
		"mail ada@example.com":               "",
		"@ada@example.com":                   "",
		"x@ada":                              "",
		"https://x.example/@ada":             "",
		"`@ada` and ``x ` @grace``":          "",
		"a ` b @ada":                         "ada",
		"```\n@ada\n```\n@grace":             "grace",
		"~~~ js\n@ada\n~~~\n":                "",
		"````\n```\n@ada\n````\n":            "",
		"> @ada said\n\n@grace":              "grace",
		"@warp-factory-2":                    "warp-factory-2",
		"@ada's":                             "ada",
		"@":                                  "",
		"@@ada":                              "",
		"_@ada_ **@bob** __@eve__":           "ada bob eve",
		"_ask @ada_":                         "ada",
		"~~@ada~~ <b>@bob</b>":               "ada bob",
		"@ada_corp @ada\\_corp":              "ada_corp ada_corp",
		"a_@ada":                             "",
		"[@ada](/x) [x](@bob)":               "ada",
		"![@ada](/x)":                        "",
		"<!-- Write @ada to ask -->\n\n@bob": "bob",
		"<!--\n\n@ada\n-->\n@bob":            "bob",
		"x <!-- @ada --> <a title='@bob'>y</a> @eve": "eve",
		"@<!-- -->ada":                                 "",
		"<details>\n@ada\n\n@bob\n\n</details>":        "bob",
		"x\n\n    @ada\n\ny":                           "",
		"\t@ada":                                       "",
		"- x\n\n  @ada\n\n      @bob":                  "ada",
		"> said\n@ada\n\n@bob":                         "bob",
		"- > @ada\n- @bob":                             "bob",
		"- ```\n  @ada\n  ```\n- @bob":                 "bob",
		"<https://x.example/ @ada>":                    "ada",
		"[x]: /y '@ada'\n\n[x] @bob":                   "bob",
		strings.Repeat("> ", 99) + "@ada":              "",
		strings.Repeat("- ", 99) + "@ada":              "ada",
		strings.Repeat("x ", maxMarkdown/2-1) + "@ada": "",
		"日本@ada":                                       "",
		"、@ada":                                        "ada",
		"```unclosed\n@ada":                            "",
		"x " + strings.Repeat("`", 5000) + "@ada":      "ada",
		strings.Repeat("` `` ``` ", 2000) + "x":        "",
	} {
		if got := strings.Join(mentionsIn(text, "-/"), " "); got != want {
			t.Errorf("%.60q mentions %q, want %q", text, got, want)
		}
	}
}

// hostileMarkdown is what parsers of Markdown need long for, by what is repeated, and what follows.
var hostileMarkdown = [][2]string{
	{">", ""},
	{"> ", "a\n"},
	{">\n", ""},
	{"> - ", "\n"},
	{"- ", "\n"},
	{"- ", "```\n"},
	{"- ", "<!--\n"},
	{"1) ", " \n"},
	{"-\t", "\t\n"},
	{"- x\n", ""},
	{"*", ""},
	{"*a **a ", ""},
	{"*a_", ""},
	{"a**b", ""},
	{"_a ", ""},
	{"[", ""},
	{"]", ""},
	{"![", ""},
	{"[]", ""},
	{"[a](", ""},
	{"[a](<b", ""},
	{"[a][", ""},
	{"[a]: b\n", ""},
	{"[a\n", ""},
	{"![[]()", ""},
	{"`", " "},
	{"`a ``a ", ""},
	{"<", ""},
	{"<!--", ""},
	{"<?", ""},
	{"<![CDATA[", ""},
	{"<a ", ""},
	{"<a\n", ""},
	{"<x a='", ""},
	{"<https:", ""},
	{"\\", ""},
	{"&#1", ""},
	{"a\n=\n", ""},
	{"\t", ""},
	{"@a ", ""},
	{"@a@", ""},
	{"@", ""},
}

// TestHostileMarkdown: no text of 1 MB holds up what its sender does not.
func TestHostileMarkdown(t *testing.T) {
	for _, parts := range hostileMarkdown {
		for _, size := range []int{maxMarkdown, 1 << 20} {
			text := "@ada " + strings.Repeat(parts[0], size/2/len(parts[0]))
			if parts[1] != "" {
				text += strings.Repeat(parts[1], size/2/len(parts[1]))
			}
			start := worked(t)
			if _ = mentionsIn(text, "-/"); worked(t)-start > 5*time.Second {
				t.Errorf("%d bytes of %q took %s of a processor", len(text), parts, worked(t)-start)
			}
		}
	}
}

// worked is how long processors have worked for this process. Other processes of a busy machine do not
// make it longer.
func worked(t *testing.T) time.Duration {
	t.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// FuzzMentions: any text is read, each name that is found is in it, and no name stands in a comment or a quotation.
func FuzzMentions(f *testing.F) {
	for _, parts := range hostileMarkdown {
		f.Add(strings.Repeat(parts[0], 40) + "@ada " + strings.Repeat(parts[1], 40))
	}
	f.Add("_@ada_ <!-- @bob -->\n> @eve\n@mallory")
	f.Fuzz(func(t *testing.T, text string) {
		for _, name := range mentionsIn(text, "-/") {
			if name == "" || !strings.Contains(strings.ToLower(strings.ReplaceAll(text, "\\", "")), "@"+name) && utf8.ValidString(text) {
				t.Errorf("%q mentions %q", text, name)
			}
		}
		line := strings.Join(strings.Fields(strings.NewReplacer("-->", "", ">", "").Replace(text)), " ")
		if got := mentionsIn("<!-- @a "+line+" -->", "-/"); len(got) > 0 {
			t.Errorf("the comment %q mentions %q", line, got)
		}
		if got := mentionsIn("> @a "+line, "-/"); len(got) > 0 {
			t.Errorf("the quotation %q mentions %q", line, got)
		}
	})
}

// TestQuestions: what a payload lacks is asked only if it decides.
func TestQuestions(t *testing.T) {
	e := Find("github", "pull_request_opened")
	paths, _ := e.Key("paths")
	labels, _ := e.Key("labels")
	x := NewIndex([]*Trigger{
		{Event: e, Filters: []Filter{{Key: paths, In: []string{"api/**"}}}},
		{Event: e, Filters: []Filter{{Key: paths, In: []string{"api/**"}}, {Key: labels, In: []string{"bug"}}}},
	})
	d := Delivery{
		Header: map[string]string{"X-Github-Event": "pull_request"},
		Body:   []byte(`{"action":"opened","repository":{"full_name":"acme/api"},"pull_request":{"number":7,"html_url":"https://x.example/7"}}`),
	}
	p := ByProvider("github").Read(d)
	matched, open := x.Match(p, nil)
	q := Question{Provider: "github", Name: "pull_request_files", Args: "acme/api 7"}
	if len(matched) > 0 || len(open) != 1 || open[0].Trigger != 0 || !slices.Equal(open[0].Questions, []Question{q}) {
		t.Fatalf("matched %v, open %+v", matched, open)
	}
	if link := e.LinkOf(p); link != "https://x.example/7" {
		t.Errorf("link %q", link)
	}
	v := x.triggers[0].Explain(p)
	if v.Matched || !strings.Contains(v.Got, "apiSecretName") || !slices.Equal(v.Open, []Question{q}) {
		t.Errorf("%+v", v)
	}
	for _, c := range []struct {
		files []string
		want  int
	}{{[]string{"web/x", "api/v1/y"}, 1}, {[]string{"web/x"}, 0}, {nil, 0}} {
		d.Answers = map[Question][]string{q: c.files}
		if matched, open = x.Match(ByProvider("github").Read(d), nil); len(matched) != c.want || len(open) > 0 {
			t.Errorf("files %v: matched %v, open %v", c.files, matched, open)
		}
	}
	// A name that no sender gives asks nothing, and says why it does not match.
	d.Answers, d.Body = nil, bytes.Replace(d.Body, []byte("acme/api"), bytes.Repeat([]byte("a/"), maxArgs), 1)
	p = ByProvider("github").Read(d)
	if matched, open = x.Match(p, nil); len(matched) > 0 || len(open) > 0 {
		t.Errorf("of a long name: matched %v, open %+v", matched, open)
	}
	if v := x.triggers[0].Explain(p); v.Matched || v.Got == "" || len(v.Open) > 0 {
		t.Errorf("of a long name: %+v", v)
	}
}

// FuzzRead: no body breaks the reader, and both evaluations agree.
func FuzzRead(f *testing.F) {
	for _, s := range senders() {
		for _, e := range s.Events {
			f.Add(s.Provider, e.Name, []byte(`{"action":"opened","issue":{"labels":[{"name":"bug"},null,[1]],"user":"x"},"event":{"type":"message"}}`))
		}
	}
	f.Fuzz(func(t *testing.T, provider, header string, body []byte) {
		s := ByProvider(provider)
		if s == nil || jsonscan.Check(body) != nil {
			return
		}
		p := s.Read(Delivery{Header: map[string]string{"X-Github-Event": header}, Body: body, Accounts: []string{"x"}})
		var triggers []*Trigger
		for _, e := range s.Events {
			triggers = append(triggers, &Trigger{Event: e})
			_, _ = e.Identity(p), e.LinkOf(p)
			for i := range e.Keys {
				triggers = append(triggers, &Trigger{Event: e, Filters: []Filter{{Key: &e.Keys[i], NotIn: []string{"bug"}}}})
			}
		}
		matched, _ := NewIndex(triggers).Match(p, nil)
		for n, tr := range triggers {
			if v := tr.Explain(p); v.Matched != slices.Contains(matched, n) {
				t.Errorf("trigger %d: explained %v", n, v)
			}
		}
	})
}

// BenchmarkIndex shows that the number of triggers does not matter.
func BenchmarkIndex(b *testing.B) {
	e := Find("github", "pull_request_labeled")
	repos, _ := e.Key("repos")
	labels, _ := e.Key("labels")
	body := []byte(`{"action":"labeled","label":{"name":"label-7"},"repository":{"full_name":"acme/api"},"pull_request":{"number":7,"labels":[{"name":"a"},{"name":"label-7"}],"body":"` + strings.Repeat("text ", 1500) + `"}}`)
	for _, n := range []int{1, 100, 10_000} {
		var all []*Trigger
		for i := range n {
			all = append(all, &Trigger{Event: e, Filters: []Filter{{Key: repos, In: []string{"acme/api"}}, {Key: labels, In: []string{fmt.Sprintf("label-%d", 7+i)}}}})
		}
		x := NewIndex(all)
		b.Run(fmt.Sprintf("triggers=%d", n), func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for range b.N {
				p := e.Sender.Read(Delivery{Header: map[string]string{"X-Github-Event": "pull_request"}, Body: body})
				if m, _ := x.Match(p, nil); len(m) != 1 {
					b.Fatal(m)
				}
			}
		})
	}
}
