package filter

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
)

func compileHeaders(t testing.TB, pattern string) *Headers {
	t.Helper()
	v, err := ParseJSON([]byte(pattern))
	if err != nil {
		t.Fatal(err)
	}
	h, problems := CompileHeaders(v)
	if len(problems) > 0 {
		t.Fatalf("%s: %v", pattern, problems)
	}
	return h
}

// TestHeaderFilter: names are compared without regard to case, values exactly.
func TestHeaderFilter(t *testing.T) {
	sent := map[string]string{"X-Github-Event": "issues", "X-Event-Type": "Build"}
	for _, c := range []struct {
		pattern string
		want    Verdict
	}{
		{`{"X-GitHub-Event":["issues","push"]}`, Verdict{Matched: true}},
		{`{"x-github-event":{"in":["issues"]}}`, Verdict{Matched: true}},
		{`{"X-GITHUB-EVENT":{"not_in":["push"]},"X-Event-Type":["Build"]}`, Verdict{Matched: true}},
		{`{"X-Gitlab-Event":{"exists":false},"X-Event-Type":{"exists":true}}`, Verdict{Matched: true}},
		{`{"X-Gitlab-Event":{"not_in":["push"]}}`, Verdict{Matched: true}},
		{`{"X-GitHub-Event":["pull_request"]}`, Verdict{Path: "headers.X-GitHub-Event", Want: `"pull_request"`, Got: `"issues"`}},
		{`{"X-Event-Type":["Build"],"x-github-event":{"not_in":["issues"]}}`, Verdict{Path: "headers.x-github-event", Want: `none of "issues"`, Got: `"issues"`}},
		{`{"X-Event-Type":["build","b"]}`, Verdict{Path: "headers.X-Event-Type", Want: `one of "build", "b"`, Got: `"Build"`}},
		{`{"X-Event-Type":{"exists":false}}`, Verdict{Path: "headers.X-Event-Type", Want: "to be absent", Got: `"Build"`}},
		{`{"X-Gitlab-Event":{"exists":true}}`, Verdict{Path: "headers.X-Gitlab-Event", Want: "to exist", Got: "nothing"}},
		{`{"X-Gitlab-Event":["push"]}`, Verdict{Path: "headers.X-Gitlab-Event", Want: `"push"`, Got: "nothing"}},
	} {
		h := compileHeaders(t, c.pattern)
		got := h.Explain(sent)
		if got.Matched != c.want.Matched || got.Path != c.want.Path || got.Want != c.want.Want || got.Got != c.want.Got || len(got.Conditions) != len(h.root.fields) {
			t.Errorf("%s: got %+v", c.pattern, got)
		}
		// A header is there or not, whatever the body is.
		for _, body := range []string{`{}`, `[]`, `1`} {
			if got, err := NewSet([]Pair{{Headers: h}}).Match(sent, []byte(body), nil); err != nil || (len(got) == 1) != c.want.Matched {
				t.Errorf("%s on %s: %v, %v", c.pattern, body, got, err)
			}
		}
	}
}

// TestHeaderFilterProblems: a filter that could match nothing, or everything, is refused.
func TestHeaderFilterProblems(t *testing.T) {
	for pattern, want := range map[string]string{
		`[]`:                                  `headers: a header filter is an object with a key per header, not an array (write {X-Event-Type: [VALUE]})`,
		`{}`:                                  `headers: a header filter is an object with a key per header, not an empty one (write {X-Event-Type: [VALUE]})`,
		`{"X-A":[]}`:                          `headers.X-A: an empty array matches nothing (leave the key out to accept anything; use {exists: true} for any value)`,
		`{"X-A":"x"}`:                         `headers.X-A: a string where an array of allowed values is expected (write ["x"])`,
		`{"X-A":["x","y","x"]}`:               `headers.X-A: it holds "x" twice (keep one of them)`,
		`{"X-A":{"not_in":["x","x"]}}`:        `headers.X-A.not_in: it holds "x" twice (keep one of them)`,
		`{"X-A":{"in":["x"],"not_in":["x"]}}`: `headers.X-A: both in and not_in hold "x" (take it out of one of them)`,
		`{"X-A":[1]}`:                         `headers.X-A: a number in a set of values; a header holds text (quote it, or take it out)`,
		`{"X-A":{"in":[{}]}}`:                 `headers.X-A.in: an object in a set of values; a header holds text (quote it, or take it out)`,
		`{"X-A":[" x"]}`:                      `headers.X-A: " x" cannot be the value of a header: that is 1 to 255 characters of ASCII that can be seen, and spaces between them (copy it from a delivery)`,
		`{"X-A":{"equals":["x"]}}`:            `headers.X-A: a header takes an array of values, or an object of operators (did you mean "in"?)`,
		`{"X-A":{}}`:                          `headers.X-A: a header takes an array of values, or an object of operators (in, not_in and exists are the operators)`,
		`{"X-A":{"exists":1}}`:                `headers.X-A.exists: exists is true or false, not a number (write true or false)`,
		`{"X-A":["x"],"x-a":["y"]}`:           `headers.x-a: it is the same header as X-A (keep one of them)`,
		`{"X-A":["xéx"]}`:                     `headers.X-A: "xéx" cannot be the value of a header: that is 1 to 255 characters of ASCII that can be seen, and spaces between them (copy it from a delivery)`,
		`{"X-A":["` + strings.Repeat("x", 256) + `"]}`: `headers.X-A: "` + strings.Repeat("x", 120) + `…" cannot be the value of a header: that is 1 to 255 characters of ASCII that can be seen, and spaces between them (copy it from a delivery)`,
	} {
		v, err := ParseJSON([]byte(pattern))
		if err != nil {
			t.Fatal(err)
		}
		h, problems := CompileHeaders(v)
		if len(problems) != 1 || problems[0].String() != want || h != nil {
			t.Errorf("%s:\n got %v\nwant %s", pattern, problems, want)
		}
	}
}

// TestSetMatchesHeaderOracle holds sets of many pairs to filters of bodies. The filter of a body
// is evaluated on an object that has the headers as fields.
func TestSetMatchesHeaderOracle(t *testing.T) {
	g := generator{keys: 3, values: 3, depth: 3, Rand: rand.New(rand.NewPCG(14, 2))}
	names := []string{"X-Event-Type", "X-Event-Key", "X-Github-Event", "User-Agent"}
	pattern := func() string {
		var parts []string
		for i, n := range g.Perm(len(names))[:1+g.IntN(2)] {
			value := `["v1","v2"]`
			switch g.IntN(4) {
			case 0:
				value = fmt.Sprintf(`{"exists":%t}`, g.IntN(2) == 0)
			case 1:
				value = fmt.Sprintf(`{"not_in":["v%d"]}`, i)
			case 2:
				value = fmt.Sprintf(`["v%d"]`, g.IntN(3))
			}
			parts = append(parts, fmt.Sprintf("%q:%s", names[n], value))
		}
		return "{" + strings.Join(parts, ",") + "}"
	}
	value := func(pattern string) Value {
		v, err := ParseJSON([]byte(pattern))
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	matched := 0
	for range 20 {
		var all []Pair
		var headers, payloads []Value
		for len(all) < 40 {
			var p Pair
			h, f := value(pattern()), value(g.pattern(1))
			if g.IntN(4) > 0 {
				spelled := h
				spelled.Fields = slices.Clone(h.Fields)
				for i := range spelled.Fields {
					if g.IntN(2) == 0 {
						spelled.Fields[i].Key = strings.ToLower(spelled.Fields[i].Key)
					}
				}
				var problems []Problem
				if p.Headers, problems = CompileHeaders(spelled); len(problems) > 0 {
					t.Fatal(problems)
				}
			}
			if g.IntN(2) > 0 {
				if p.Payload, _ = Compile(f); p.Payload == nil {
					continue
				}
			}
			all, headers, payloads = append(all, p), append(headers, h), append(payloads, f)
		}
		set := NewSet(all)
		for range 50 {
			sent := make(map[string]string)
			for _, name := range names {
				if g.IntN(3) > 0 {
					sent[http.CanonicalHeaderKey(name)] = fmt.Sprintf("v%d", g.IntN(4))
				}
			}
			asBody, err := json.Marshal(sent)
			if err != nil {
				t.Fatal(err)
			}
			body := []byte(g.body(g.depth))
			var want []int
			for i, p := range all {
				accepts := (p.Headers == nil || oracle(t, headers[i], asBody)) && (p.Payload == nil || oracle(t, payloads[i], body))
				if accepts {
					want = append(want, i)
				}
				if v := p.Headers.Explain(sent).And(p.Payload.Explain(body)); v.Matched != accepts || (v.Path == "") != accepts {
					t.Fatalf("%s and %s on %s and %s: explained %+v, want %t", p.Headers, p.Payload, asBody, body, v, accepts)
				}
			}
			if got, err := set.Match(sent, body, nil); err != nil || !slices.Equal(got, want) {
				t.Fatalf("on %s and %s: got %v, %v; want %v", asBody, body, got, err, want)
			}
			matched += len(want)
		}
	}
	if matched < 1000 {
		t.Errorf("only %d matches were compared", matched)
	}
}
