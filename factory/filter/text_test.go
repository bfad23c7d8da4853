package filter

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"
)

// TestString: equal filters are spelled alike, as JSON that compiles to the same
// filter again.
func TestString(t *testing.T) {
	for _, c := range []struct {
		patterns []string
		want     string
		paths    []string
	}{
		{[]string{`{}`}, `{}`, nil},
		{[]string{`{"b":[2,1],"a":["x"]}`, `{"a":{"in":["x"]},"b":[1,2.0,1e0]}`}, `{"a":["x"],"b":[1,2]}`, []string{"payload.a", "payload.b"}},
		{[]string{`{"n":[1700,0.025,-3.5,1e300,0,12e-1]}`}, `{"n":[-3.5,0,0.025,1.2,1700,1e300]}`, []string{"payload.n"}},
		{[]string{`{"a":{"b":{"c":{"not_in":[true,null],"exists":true}},"d":{}}}`}, `{"a":{"b":{"c":{"exists":true,"not_in":[null,true]}},"d":{}}}`, []string{"payload.a.b.c", "payload.a.d"}},
		{[]string{`{"q\"":{"exists":false}}`}, `{"q\"":{"exists":false}}`, nil},
	} {
		for _, pattern := range c.patterns {
			f := compile(t, pattern)
			if f.String() != c.want || !json.Valid([]byte(f.String())) {
				t.Errorf("%s is spelled %s, want %s", pattern, f, c.want)
			}
			if again := compile(t, f.String()); again.String() != c.want {
				t.Errorf("%s, again: %s", pattern, again)
			}
			if paths := slices.Sorted(maps.Keys(f.Values())); c.paths != nil && !slices.Equal(paths, c.paths) {
				t.Errorf("%s looks at %v", pattern, paths)
			}
		}
	}
}
