package factory

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"

	"triphammer/factory/jsonscan"
	"triphammer/factory/match"
	"triphammer/factory/native"
	"triphammer/schema"
)

// Test is one filter test of tests/<name>.yaml (SPEC 2.2b).
type Test struct {
	Name, Path string
	schema.At
	Webhook string
	Payload []byte
	File    string            // with the payload, in the factory; empty: the test itself has it
	Headers map[string]string // headers of the delivery, by canonical name
	// Answers are what the sender's API answers, by the names of native.Ask.
	Answers map[string][]string
	Expect  []string // names of the automations that would start, sorted
	Problem string   // why the test cannot run; empty: it can
}

// TestResult is the outcome of a Test.
type TestResult struct {
	*Test
	Passed  bool
	Problem string   // why the test could not run; empty: it ran
	Got     []string // names of the automations that would start, sorted
	// Unknown are the names of the automations that depend on an answer of the sender's API
	// which the test does not state.
	Unknown []string
	Why     []match.Result
}

// brokenTest stands for a whole file of tests that cannot be read.
func brokenTest(c *schema.Collector, name string) *Test {
	t := &Test{Name: name, Path: c.Path, Problem: invalidFile(c)}
	if len(c.Found) > 0 {
		t.At = schema.At{Line: c.Found[0].Line, Column: c.Found[0].Column}
	}
	return t
}

// invalidFile says why no test of a file can pass.
func invalidFile(c *schema.Collector) string {
	if len(c.Found) == 0 { // left out: there are too many findings
		return "the file is not valid"
	}
	return "the file is not valid: " + c.Found[0].Message
}

func (l *loader) tests(d *document) []*Test {
	var all []*Test
	invalid := "" // why no test of the file can pass
	if d.Total > 0 {
		invalid = invalidFile(d.Collector)
	}
	for _, n := range itemsOf(d.Root) {
		if n.Kind != schema.Mapping {
			continue
		}
		t := &Test{
			Name: textOf(n.Get("name")), Path: d.Path, At: n.At,
			Webhook: textOf(n.Get("webhook")), Expect: textsOf(n.Get("expect")), Headers: make(map[string]string), Answers: make(map[string][]string),
		}
		if answers := n.Get("answers"); answers != nil {
			for _, f := range answers.Fields {
				t.Answers[f.Key] = textsOf(f.Value)
			}
		}
		if headers := n.Get("headers"); headers != nil {
			for _, f := range headers.Fields {
				t.Headers[http.CanonicalHeaderKey(f.Key)] = textOf(f.Value)
			}
		}
		slices.Sort(t.Expect)
		t.Problem = l.payload(t, n)
		t.Problem = cmp.Or(t.Problem, invalid)
		if t.Problem == "" {
			told := false
			if t.Problem, told = l.references(t); told {
				all = append(all, t)
				continue
			}
		}
		if t.Problem != "" && invalid == "" {
			d.Warn(n.At, schema.UnknownTarget, "correct the test, or take it out", fmt.Sprintf("test %q cannot pass: %s", t.Name, t.Problem))
		}
		all = append(all, t)
	}
	return all
}

// payload fills in what the test sends.
func (l *loader) payload(t *Test, n *schema.Node) string {
	inline, file := n.Get("payload"), textOf(n.Get("payloadFile"))
	switch {
	case (inline == nil) == (file == ""):
		return "it needs exactly one of payload and payloadFile"
	case inline != nil:
		t.Payload = inline.AppendJSON(nil)
		return ""
	}
	name := path.Join("tests", file)
	if !fs.ValidPath(name) || !strings.HasPrefix(name, "tests/") {
		return fmt.Sprintf("payloadFile %q is not within tests/", file)
	}
	var problem string
	t.File = name
	if t.Payload, problem = l.payloadFile(name); problem != "" {
		return problem
	}
	if err := jsonscan.Check(t.Payload); err != nil {
		return fmt.Sprintf("%s: %v", name, err)
	}
	return ""
}

// payloadFile reads a file below tests/, through no link.
func (l *loader) payloadFile(name string) (data []byte, problem string) {
	if data, read := l.payloads[name]; read {
		return data, ""
	}
	for i := range len(name) {
		if name[i] != '/' {
			continue
		}
		if info, err := l.lstat(name[:i]); err != nil || !info.IsDir() {
			return nil, fmt.Sprintf("there is no folder %s", name[:i])
		}
	}
	info, err := l.lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Sprintf("there is no %s", name)
	case err != nil:
		return nil, err.Error()
	case !info.Mode().IsRegular():
		return nil, name + " is not a regular file"
	case info.Size() > schema.MaxFile:
		return nil, fmt.Sprintf("%s is larger than %d bytes", name, schema.MaxFile)
	}
	if l.bytes += info.Size(); l.bytes > l.opt.MaxBytes {
		return nil, fmt.Sprintf("%s is beyond the %d bytes of definitions that are read", name, l.opt.MaxBytes)
	}
	if data, err = fs.ReadFile(l.tree, name); err != nil {
		return nil, err.Error()
	}
	l.payloads[name] = data
	return data, ""
}

// references says which name in a test does not exist. told is whether the findings
// of the file have said so already.
func (l *loader) references(t *Test) (problem string, told bool) {
	w := l.factory.Webhook(t.Webhook)
	if w == nil {
		return fmt.Sprintf("there is no webhook %q", t.Webhook), l.unread["webhook "+t.Webhook]
	}
	for _, name := range slices.Sorted(maps.Keys(t.Headers)) {
		if !w.KeepsHeader(name) {
			return fmt.Sprintf("the header %s is not kept with deliveries of webhook %q", name, t.Webhook), false
		}
	}
	var questions []string
	if s := w.Sender(); s != nil {
		questions = s.Questions()
	}
	for _, name := range slices.Sorted(maps.Keys(t.Answers)) {
		switch {
		case len(questions) == 0:
			return fmt.Sprintf("answers: no trigger asks the sender of webhook %q anything", t.Webhook), false
		case !slices.Contains(questions, name):
			return fmt.Sprintf("answers: %s is asked nothing named %q; %s", w.Sender().Title, name, schema.OneOf(name, questions)), false
		}
	}
	for _, name := range t.Expect {
		if !l.automations[name] {
			return fmt.Sprintf("there is no automation %q", name), l.unread["automation "+name]
		}
	}
	return "", false
}

// RunTests runs the factory's filter tests with the code that matches
// deliveries. UIDs have no meaning here: webhooks are selected by file name.
func (f *Factory) RunTests() []TestResult {
	results := make([]TestResult, 0, len(f.Tests))
	indexes := make(map[string]*match.Index)
	for _, t := range f.Tests {
		r := TestResult{Test: t, Problem: t.Problem}
		if t.Problem == "" {
			if indexes[t.Webhook] == nil {
				indexes[t.Webhook] = match.NewIndex(f.Candidates(f.Webhook(t.Webhook), ""))
			}
			r.run(indexes[t.Webhook])
		}
		results = append(results, r)
	}
	return results
}

func (r *TestResult) run(index *match.Index) {
	sent := match.Delivery{Headers: r.Headers, Body: r.Payload, Answers: make(map[native.Question][]string), Open: native.NotAsked}
	_, open, err := index.Match(sent, nil)
	if err != nil {
		r.Problem = err.Error()
		return
	}
	for _, q := range open {
		if answer, stated := r.Answers[q.Name]; stated {
			sent.Answers[q] = answer
		}
	}
	r.Why = index.Explain(sent)
	for _, why := range r.Why {
		switch {
		case why.Matched:
			r.Got = append(r.Got, why.Automation)
		case len(why.Open) > 0:
			r.Unknown = append(r.Unknown, why.Automation)
		}
	}
	r.Passed = slices.Equal(r.Got, r.Expect) && len(r.Unknown) == 0
}

// Failure lists what went wrong, one automation per line, with the condition that decided:
// expected but would not start (-), would start but not expected (+), not known (?).
func (r *TestResult) Failure() string {
	if r.Problem != "" {
		return r.Problem
	}
	lines := []string{"expected to start and got:"}
	names := slices.Concat(r.Expect, r.Got, r.Unknown)
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		why := ""
		if i := slices.IndexFunc(r.Why, func(m match.Result) bool { return m.Automation == name }); i < 0 {
			why = "it does not select webhook " + r.Webhook + ", or is disabled"
		} else if m := r.Why[i]; len(m.Open) > 0 {
			lines = append(lines, fmt.Sprintf("? %s: not known: %s wanted %s, and only the sender's API knows it: state it with answers: {%s: [...]}", name, m.Path, m.Want, m.Open[0].Name))
			continue
		} else if !m.Matched {
			why = fmt.Sprintf("stopped at %s: wanted %s, came %s", m.Path, m.Want, m.Got)
		} else {
			why = "its filter accepts the payload"
		}
		switch expected, got := slices.Contains(r.Expect, name), slices.Contains(r.Got, name); {
		case expected && got:
			lines = append(lines, "  "+name)
		case expected:
			lines = append(lines, "- "+name+": "+why)
		default:
			lines = append(lines, "+ "+name+": "+why)
		}
	}
	return strings.Join(lines, "\n")
}
