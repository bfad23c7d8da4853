package filter

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"triphammer/factory/jsonscan"
)

// pairs are the filters of triggers without a header filter.
func pairs(filters ...*Filter) []Pair {
	all := make([]Pair, len(filters))
	for i, f := range filters {
		all[i].Payload = f
	}
	return all
}

// generator makes patterns and bodies that meet: few keys and values, or, when
// wide, so many that the notes on an object are long.
type generator struct {
	*rand.Rand
	keys, values, depth int
}

func (g generator) scalar() string {
	spellings := []string{`1`, `1.0`, `10e-1`, `"1"`, `true`, `false`, `null`, `0`, `-0.0`, `"x"`, `"\u0078"`}
	if n := g.IntN(g.values + len(spellings)); n < g.values {
		return fmt.Sprintf(`"v%d"`, n)
	}
	return spellings[g.IntN(len(spellings))]
}

func (g generator) key() string {
	k := g.IntN(g.keys)
	if g.IntN(8) == 0 {
		return fmt.Sprintf(`"\u006b%d"`, k) // the same key, escaped
	}
	return fmt.Sprintf(`"k%d"`, k)
}

func (g generator) body(depth int) string {
	var parts []string
	switch n := g.IntN(10); {
	case depth == 0 || n < 3:
		return g.scalar()
	case n < 5:
		for range g.IntN(g.values) {
			parts = append(parts, g.body(depth-1))
		}
		return "[" + strings.Join(parts, ",") + "]"
	}
	for range g.IntN(2 * g.keys) { // so some are duplicates
		parts = append(parts, g.key()+": "+g.body(depth-1))
	}
	return "{" + strings.Join(parts, ",\n") + "}"
}

func (g generator) set() string {
	values := make([]string, 1+g.IntN(3))
	for i := range values {
		values[i] = g.scalar()
	}
	return "[" + strings.Join(values, ",") + "]"
}

func (g generator) pattern(depth int) string {
	var parts []string
	for k := range g.keys {
		if g.IntN(g.keys) > 1 {
			continue
		}
		var want string
		switch n := g.IntN(10); {
		case n < 4:
			want = g.set()
		case n < 5:
			want = fmt.Sprintf(`{"exists":%t}`, n%2 == 0)
		case n < 6:
			want = fmt.Sprintf(`{"exists":true,"not_in":%s}`, g.set())
		case n < 7 || depth == 0:
			want = fmt.Sprintf(`{"not_in":%s}`, g.set())
		default:
			want = g.pattern(depth - 1)
		}
		parts = append(parts, fmt.Sprintf(`"k%d":%s`, k, want))
	}
	return "{" + strings.Join(parts, ",") + "}"
}

// TestSetMatchesOracle holds sets of many filters, which share keys and values,
// and the evaluator of one to the oracle.
func TestSetMatchesOracle(t *testing.T) {
	for name, g := range map[string]generator{
		"narrow": {keys: 3, values: 3, depth: 4},
		"wide":   {keys: 20, values: 20, depth: 2},
	} {
		g.Rand = rand.New(rand.NewPCG(8, 2))
		matched := 0
		for range 5 {
			var filters []*Filter
			var patterns []Value
			for range 30 {
				v, err := ParseJSON([]byte(g.pattern(2)))
				if err != nil {
					t.Fatal(err)
				}
				f, problems := Compile(v)
				if len(problems) > 0 { // such as too many leaves
					continue
				}
				filters, patterns = append(filters, f), append(patterns, v)
			}
			set := NewSet(pairs(filters...))
			for range 25 {
				body := []byte(g.body(g.depth))
				var want []int
				for i, p := range patterns {
					accepts := oracle(t, p, body)
					if accepts {
						want = append(want, i)
					}
					if filters[i].Explain(body).Matched != accepts {
						t.Fatalf("%s: %s on %s: want %t", name, filters[i], body, accepts)
					}
				}
				matched += len(want)
				if got, err := set.Match(nil, body, nil); err != nil || !slices.Equal(got, want) {
					t.Fatalf("%s: on %s: got %v, %v; want %v", name, body, got, err, want)
				}
			}
		}
		if matched < 100 {
			t.Errorf("%s: %d matches prove little", name, matched)
		}
	}
}

// TestSetIsUndisturbed: a body that breaks off leaves no notes to the next one,
// which may have them in other places.
func TestSetIsUndisturbed(t *testing.T) {
	set := NewSet(pairs(compile(t, `{"a":{"b":["x"]},"c":["y"]}`), compile(t, `{"c":{"exists":false}}`)))
	whole := []byte(`{"a":[{"b":"x"},{"b":"z"}],"c":["w","y"]}`)
	for n := range len(whole) {
		if got, err := set.Match(nil, whole[:n], nil); err == nil || len(got) > 0 {
			t.Fatalf("%s: %v, %v", whole[:n], got, err)
		}
		if got, err := set.Match(nil, []byte(`{"a":{"b":"x"}}`), []int{9}); err != nil || !slices.Equal(got, []int{9, 1}) {
			t.Fatalf("after %s: %v, %v", whole[:n], got, err)
		}
	}
	if got, err := set.Match(nil, whole, nil); err != nil || !slices.Equal(got, []int{0}) {
		t.Errorf("%v, %v", got, err)
	}
}

// FuzzSetMatchesOracle puts two filters of the fuzzer's into a set with others.
func FuzzSetMatchesOracle(f *testing.F) {
	for i, c := range matchCases {
		f.Add([]byte(c.pattern), []byte(matchCases[(i+7)%len(matchCases)].pattern), []byte(c.body))
	}
	var others []*Filter
	for _, c := range matchCases {
		others = append(others, compile(f, c.pattern))
	}
	f.Fuzz(func(t *testing.T, one, two, body []byte) {
		if depth(body) > 9000 || jsonscan.Check(body) != nil {
			return
		}
		var filters []*Filter
		var want []int
		for _, pattern := range [][]byte{one, two} {
			v, err := ParseJSON(pattern)
			if err != nil {
				return
			}
			fl, problems := Compile(v)
			if len(problems) > 0 {
				return
			}
			accepts := oracle(t, v, body)
			if accepts {
				want = append(want, len(filters))
			}
			filters = append(filters, fl)
			if v := fl.Explain(body); v.Matched != accepts || !accepts && v.Path == "" {
				t.Errorf("%s on %s: Explain is %+v, want %t", pattern, body, v, accepts)
			}
		}
		got, err := NewSet(pairs(append(filters, others...)...)).Match(nil, body, nil)
		got = slices.DeleteFunc(got, func(n int) bool { return n > 1 })
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s and %s on %s: Set is %v, %v, want %v", one, two, body, got, err, want)
		}
	})
}
