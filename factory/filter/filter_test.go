package filter

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"

	"triphammer/factory/jsonscan"
)

func compile(t testing.TB, pattern string) *Filter {
	t.Helper()
	v, err := ParseJSON([]byte(pattern))
	if err != nil {
		t.Fatalf("%s: %v", pattern, err)
	}
	f, problems := Compile(v)
	if len(problems) > 0 {
		t.Fatalf("%s: %v", pattern, problems)
	}
	return f
}

// matchCases are the rules of the grammar, each with the rule it shows.
var matchCases = []struct {
	rule, pattern, body string
	want                bool
}{
	{"SPEC 8.3: no condition accepts an object", `{}`, `{"a":1}`, true},
	{"SPEC 8.3: a non-object body never matches", `{}`, `[{"a":1}]`, false},
	{"SPEC 8.3: nor does a scalar", `{}`, `1`, false},
	{"any-of", `{"a":["x","y"]}`, `{"a":"y"}`, true},
	{"any-of, none", `{"a":["x","y"]}`, `{"a":"z"}`, false},
	{"in is the same as a bare array", `{"a":{"in":["x"]}}`, `{"a":"x"}`, true},
	{"strings are case-sensitive", `{"a":["x"]}`, `{"a":"X"}`, false},
	{"keys are case-sensitive", `{"a":["x"]}`, `{"A":"x"}`, false},
	{"all keys must match", `{"a":[1],"b":[2]}`, `{"b":3,"a":1}`, false},
	{"omitted keys match anything", `{"a":[1]}`, `{"b":3,"a":1}`, true},
	{"numbers are numeric", `{"a":[1]}`, `{"a":1.0}`, true},
	{"numbers are numeric, exponent", `{"a":[100]}`, `{"a":1e2}`, true},
	{"numbers are numeric, fraction", `{"a":[0.015]}`, `{"a":150e-4}`, true},
	{"minus zero is zero", `{"a":[0]}`, `{"a":-0.0e5}`, true},
	{"SPEC 8.2: exact decimal value", `{"a":[9007199254740993]}`, `{"a":9007199254740992}`, false},
	{"SPEC 8.2: exact decimal value, equal", `{"a":[9007199254740993]}`, `{"a":9007199254740993.000}`, true},
	{"sign counts", `{"a":[1]}`, `{"a":-1}`, false},
	{"a huge exponent equals nothing", `{"a":[1]}`, `{"a":1e99999999999999999999}`, false},
	{"a string is not a number", `{"a":[1]}`, `{"a":"1"}`, false},
	{"booleans", `{"a":[true]}`, `{"a":true}`, true},
	{"a boolean is not a string", `{"a":["true"]}`, `{"a":true}`, false},
	{"null matches an explicit null", `{"a":[null]}`, `{"a":null}`, true},
	{"null does not match an absent key", `{"a":[null]}`, `{}`, false},
	{"missing key fails in", `{"a":["x"]}`, `{}`, false},
	{"missing key passes not_in", `{"a":{"not_in":["x"]}}`, `{}`, true},
	{"not_in", `{"a":{"not_in":["x"]}}`, `{"a":"x"}`, false},
	{"not_in, other", `{"a":{"not_in":["x"]}}`, `{"a":"y"}`, true},
	{"not_in, object", `{"a":{"not_in":["x"]}}`, `{"a":{"x":1}}`, true},
	{"operators AND", `{"a":{"in":["x","y"],"not_in":["z"]}}`, `{"a":["x","z"]}`, false},
	{"exists", `{"a":{"exists":true}}`, `{"a":null}`, true},
	{"exists, absent", `{"a":{"exists":true}}`, `{"b":1}`, false},
	{"SPEC 8.2: exists false, absent", `{"a":{"exists":false}}`, `{"b":1}`, true},
	{"SPEC 8.2: an explicit null exists", `{"a":{"exists":false}}`, `{"a":null}`, false},
	{"exists, empty array", `{"a":{"exists":true}}`, `{"a":[]}`, true},
	{"nested", `{"a":{"b":{"c":["x"]}}}`, `{"a":{"b":{"c":"x"}}}`, true},
	{"a nested pattern requires its key", `{"a":{"b":{"not_in":["x"]}}}`, `{}`, false},
	{"SPEC 8.2: nested against a scalar fails", `{"a":{"b":{"not_in":["x"]}}}`, `{"a":"s"}`, false},
	{"SPEC 8.2: {} requires an object", `{"a":{}}`, `{"a":{}}`, true},
	{"SPEC 8.2: {} requires an object, not a scalar", `{"a":{}}`, `{"a":1}`, false},
	{"SPEC 8.2: {} requires an object, not nothing", `{"a":{}}`, `{}`, false},
	{"array of scalars: overlap", `{"a":["x"]}`, `{"a":["w","x"]}`, true},
	{"array of scalars: no overlap", `{"a":["x"]}`, `{"a":["w"]}`, false},
	{"array of scalars: not_in", `{"a":{"not_in":["x"]}}`, `{"a":["w","x"]}`, false},
	{"array of scalars: empty", `{"a":["x"]}`, `{"a":[]}`, false},
	{"SPEC 8.2: arrays of arrays, one level", `{"a":["x"]}`, `{"a":[["x"]]}`, false},
	{"array of objects: any", `{"a":{"b":[2]}}`, `{"a":[{"b":1},{"b":2}]}`, true},
	{"array of objects: one element must match it all", `{"a":{"b":[1],"c":[2]}}`, `{"a":[{"b":1,"c":1},{"b":2,"c":2}]}`, false},
	{"array of objects: mixed elements", `{"a":{"b":[1]}}`, `{"a":[7,null,{"b":1}]}`, true},
	{"SPEC 8.2: the last duplicate counts", `{"a":[1]}`, `{"a":1,"a":2}`, false},
	{"SPEC 8.2: the last duplicate counts, nested", `{"a":{"b":[1]}}`, `{"a":{"b":1},"a":{"c":1}}`, false},
	{"SPEC 8.2: the last duplicate counts, not_in", `{"a":{"not_in":[1]}}`, `{"a":1,"a":2}`, true},
	{"escaped value", `{"a":["é/\n"]}`, `{"a":"\u00e9\/\n"}`, true},
	{"escaped key", `{"a\u0062":["x"]}`, `{"\u0061b":"x"}`, true},
	{"surrogate pair", `{"a":["😀"]}`, `{"a":"\ud83d\ude00"}`, true},
	{"empty key", `{"":[1]}`, `{"":1}`, true},
}

func TestMatch(t *testing.T) {
	for _, c := range matchCases {
		f := compile(t, c.pattern)
		v := f.Explain([]byte(c.body))
		if v.Matched != c.want || !c.want && v.Path == "" {
			t.Errorf("%s: %s on %s: Explain is %+v", c.rule, c.pattern, c.body, v)
		}
		got, err := NewSet(pairs(f, nil, f)).Match(nil, []byte(c.body), nil)
		want := []int{1}
		if c.want {
			want = []int{0, 1, 2}
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %s on %s: Set is %v, %v", c.rule, c.pattern, c.body, got, err)
		}
	}
}

// TestSetTogether puts all cases into one set: filters must not disturb each
// other, nor one body the next.
func TestSetTogether(t *testing.T) {
	filters := make([]*Filter, len(matchCases))
	for i, c := range matchCases {
		filters[i] = compile(t, c.pattern)
	}
	set := NewSet(pairs(filters...))
	for _, c := range matchCases {
		var want []int
		for i, f := range filters {
			if f.Explain([]byte(c.body)).Matched {
				want = append(want, i)
			}
		}
		if got, err := set.Match(nil, []byte(c.body), nil); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: got %v, %v; want %v", c.body, got, err, want)
		}
	}
}

func TestExplainWords(t *testing.T) {
	for _, c := range []struct{ pattern, body, want string }{
		{`{"a":{"b":["x","y"]}}`, `{"a":{"b":"z"}}`, `payload.a.b: one of "x", "y"; got "z"`},
		{`{"a":["x"]}`, `{}`, `payload.a: "x"; got nothing`},
		{`{"a":{"exists":false}}`, `{"a":[1,"b"]}`, `payload.a: to be absent; got [1, "b"]`},
		{`{"a":{"b":[1]}}`, `{"a":7}`, `payload.a: an object; got 7`},
		{`{"a":{"b":[1]}}`, `{"a":[{"b":2},{"b":3}]}`, `payload.a: an element that matches; got none of 2 does`},
		{`{"a.b":[1]}`, `{}`, `payload."a.b": 1; got nothing`},
		{`{}`, `[]`, `payload: an object; got []`},
	} {
		v := compile(t, c.pattern).Explain([]byte(c.body))
		if got := fmt.Sprintf("%s: %s; got %s", v.Path, v.Want, v.Got); got != c.want {
			t.Errorf("%s on %s:\n got %s\nwant %s", c.pattern, c.body, got, c.want)
		}
	}
}

func TestCompileProblems(t *testing.T) {
	deep := strings.Repeat(`{"a":`, 11) + `["x"]` + strings.Repeat("}", 11)
	many := make([]string, 65)
	for i := range many {
		many[i] = fmt.Sprintf(`"k%d":["x"]`, i)
	}
	long := make([]string, 33)
	for i := range long {
		long[i] = fmt.Sprint(i)
	}
	for _, c := range []struct{ rule, pattern, want string }{
		{"top level", `["x"]`, "payload: a payload filter is an object that mirrors the body, not an array (write {KEY: [VALUE]})"},
		{"operators at the top", `{"in":["x"]}`, `payload: "in" applies to a field, not to the whole body (a payload field that is itself named in, not_in or exists cannot be filtered on)`},
		{"SPEC 8.2: bare scalar", `{"a":"x"}`, `payload.a: a string where an array of allowed values is expected (write ["x"])`},
		{"SPEC 8.2: empty array", `{"a":[]}`, "payload.a: an empty array matches nothing (leave the key out to accept anything; use {exists: true} for any value)"},
		{"SPEC 8.2: mix", `{"a":{"in":["x"],"b":["y"]}}`, `payload.a: operators and other keys are mixed: "b" is not an operator (a payload field that is itself named in, not_in or exists cannot be filtered on)`},
		{"SPEC 8.2: mix at the top", `{"in":["x"],"b":["y"]}`, `payload: "in" applies to a field, not to the whole body (a payload field that is itself named in, not_in or exists cannot be filtered on)`},
		{"SPEC 8.2: a field named like an operator", `{"a":{"in":{"b":["x"]}}}`, `payload.a.in: in takes an array of values, not an object (a payload field that is itself named in, not_in or exists cannot be filtered on)`},
		{"SPEC 8.2: a field named like an operator, exists", `{"a":{"exists":["x"]}}`, `payload.a.exists: exists is true or false, not an array (a payload field that is itself named in, not_in or exists cannot be filtered on)`},
		{"exponent", `{"a":[1e9999999999999]}`, "payload.a: the exponent of 1e9999999999999 is out of range"},
		{"near operator", `{"a":{"in":["x"],"notIn":["y"]}}`, `payload.a: operators and other keys are mixed: "notIn" is not an operator (did you mean "not_in"?)`},
		{"exists type", `{"a":{"exists":"yes"}}`, "payload.a.exists: exists is true or false, not a string (write true or false)"},
		{"in type", `{"a":{"in":"x"}}`, `payload.a.in: in takes an array of values, not a string (write ["x"])`},
		{"object in a set", `{"a":[{"b":1}]}`, "payload.a: an object in a set of values; only strings, numbers, booleans and null compare (list the values themselves; a field of an object is filtered by nesting)"},
		{"in and not_in", `{"a":{"in":[1],"not_in":[1.0]}}`, "payload.a: both in and not_in hold 1 (take it out of one of them)"},
		{"absent and in", `{"a":{"in":[1],"exists":false}}`, "payload.a: a field cannot be absent and hold one of the values of in (take one of them out)"},
		{"depth", deep, "payload" + strings.Repeat(".a", 10) + ": nested deeper than 10 levels (filter on a field further up)"},
		{"leaves", "{" + strings.Join(many, ",") + "}", "payload: 65 fields with a condition; a filter has at most 64 (leave out the fields that follow from the others)"},
		{"values", `{"a":[` + strings.Join(long, ",") + `]}`, "payload.a: 33 values; a set has at most 32 (share them between two triggers: either starts the automation)"},
	} {
		v, err := ParseJSON([]byte(c.pattern))
		if err != nil {
			t.Fatalf("%s: %v", c.rule, err)
		}
		f, problems := Compile(v)
		if f != nil || len(problems) != 1 || problems[0].String() != c.want {
			t.Errorf("%s: got %v\nwant %s", c.rule, problems, c.want)
		}
	}
	v, _ := ParseJSON([]byte("{\n  \"a\": 1,\n  \"b\": {\"é\": []}}"))
	_, problems := Compile(v)
	if len(problems) != 2 || problems[0].Line != 2 || problems[0].Column != 8 || problems[1].Line != 3 || problems[1].Column != 14 {
		t.Errorf("positions: %+v", problems)
	}
}

// TestCompileAllProblems: what else is wrong is told beside a mix (SPEC 3.1).
func TestCompileAllProblems(t *testing.T) {
	v, err := ParseJSON([]byte(`{"exists":true,"a":{"in":[],"b":"y"},"c":[[1]]}`))
	if err != nil {
		t.Fatal(err)
	}
	_, problems := Compile(v)
	var at []string
	for _, p := range problems {
		at = append(at, fmt.Sprintf("%s:%d", p.Path, p.Column))
	}
	want := []string{"payload:2", "payload.a:29", "payload.a.in:26", "payload.a.b:33", "payload.c:43"}
	if !slices.Equal(at, want) {
		t.Errorf("got %v, want %v: %v", at, want, problems)
	}
}

// TestCompileForeignNumbers: a value may come from a format that spells numbers
// as JSON does not; it is refused, not misread.
func TestCompileForeignNumbers(t *testing.T) {
	for _, text := range []string{"", "-", "+1", "0x1F", "1_000", ".inf", ".5", "1.", "12e", "01", "1 "} {
		item := Value{Kind: Number, Text: text}
		v := Value{Kind: Object, Fields: []Field{{Key: "a", Value: Value{Kind: Array, Items: []Value{item}}}}}
		if f, problems := Compile(v); f != nil || len(problems) != 1 {
			t.Errorf("%q: %v, %v", text, f, problems)
		}
	}
}

// TestMatchIsDeep: SPEC 5.3, there is no limit of depth.
func TestMatchIsDeep(t *testing.T) {
	nested := []byte(`{"a":` + strings.Repeat(`{"a":`, 50000) + "1" + strings.Repeat("}", 50000) + "}")
	if _, err := NewSet(pairs(compile(t, `{"a":{"a":["x"]}}`))).Match(nil, nested, nil); err != nil {
		t.Errorf("%v", err)
	}
}

// FuzzMatchChecks: a set takes for JSON what Check does.
func FuzzMatchChecks(f *testing.F) {
	for _, c := range matchCases {
		f.Add([]byte(c.body))
		f.Add([]byte(c.body + "x"))
	}
	f.Add([]byte("{\"a\":{\"b\":\"\xff\"}}"))
	empty, one := NewSet(nil), NewSet(pairs(compile(f, `{"a":{"b":["x"]}}`)))
	f.Fuzz(func(t *testing.T, body []byte) {
		want := jsonscan.Check(body)
		for _, set := range []*Set{empty, one} {
			if _, err := set.Match(nil, body, nil); (err == nil) != (want == nil) || err != nil && err.Error() != want.Error() {
				t.Errorf("%q: %v, want %v", body, err, want)
			}
		}
	})
}

func depth(body []byte) int { return bytes.Count(body, []byte("[")) + bytes.Count(body, []byte("{")) }

func FuzzParseJSON(f *testing.F) {
	for _, c := range matchCases {
		f.Add([]byte(c.pattern))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := ParseJSON(data)
		if err == nil {
			if filter, problems := Compile(v); (filter == nil) != (len(problems) > 0) {
				t.Errorf("%q: a filter and problems %v", data, problems)
			}
		}
	})
}

// oracle evaluates a pattern on the decoded body, following the rules' words.
func oracle(t *testing.T, pattern Value, body []byte) bool {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	var decoded any
	if err := d.Decode(&decoded); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	object, ok := decoded.(map[string]any)
	return ok && oracleObject(pattern, object)
}

func oracleObject(pattern Value, object map[string]any) bool {
	for _, f := range pattern.Fields {
		got, there := object[f.Key]
		switch {
		case f.Value.Kind == Array:
			if !there || !oracleOverlap(f.Value.Items, got) {
				return false
			}
		case isOperators(f.Value):
			for _, op := range f.Value.Fields {
				var ok bool
				switch op.Key {
				case "exists":
					ok = op.Value.Bool == there
				case "in":
					ok = there && oracleOverlap(op.Value.Items, got)
				default:
					ok = !there || !oracleOverlap(op.Value.Items, got)
				}
				if !ok {
					return false
				}
			}
		case !oracleNested(f.Value, got):
			return false
		}
	}
	return true
}

func oracleNested(pattern Value, got any) bool {
	switch got := got.(type) {
	case map[string]any:
		return oracleObject(pattern, got)
	case []any:
		return slices.ContainsFunc(got, func(e any) bool {
			object, ok := e.(map[string]any)
			return ok && oracleObject(pattern, object)
		})
	}
	return false
}

func oracleOverlap(set []Value, got any) bool {
	elements, ok := got.([]any)
	if !ok {
		elements = []any{got}
	}
	for _, e := range elements {
		for _, want := range set {
			if oracleEqual(want, e) {
				return true
			}
		}
	}
	return false
}

func oracleEqual(want Value, got any) bool {
	switch got := got.(type) {
	case nil:
		return want.Kind == Null
	case bool:
		return want.Kind == Bool && want.Bool == got
	case string:
		return want.Kind == String && want.Text == got
	case json.Number:
		if want.Kind != Number {
			return false
		}
		a, okA := rat(want.Text)
		b, okB := rat(string(got))
		if okA && okB {
			return a.Cmp(b) == 0
		}
		// Too large to write out: the spelling decides.
		x, _ := appendDecimal(nil, []byte(want.Text))
		y, ok := appendDecimal(nil, []byte(got))
		return ok && bytes.Equal(x, y)
	}
	return false
}

func rat(s string) (*big.Rat, bool) {
	if i := strings.IndexAny(s, "eE"); i >= 0 && len(s)-i > 4 {
		return nil, false
	}
	return new(big.Rat).SetString(s)
}
