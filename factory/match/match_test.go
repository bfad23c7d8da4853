package match

import (
	"slices"
	"testing"

	"triphammer/factory/filter"
)

func compile(t *testing.T, pattern string) *filter.Filter {
	t.Helper()
	v, err := filter.ParseJSON([]byte(pattern))
	if err != nil {
		t.Fatal(err)
	}
	f, problems := filter.Compile(v)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return f
}

// TestMatch: any trigger that selects the webhook suffices, and an automation
// is named once however many of its triggers match (SPEC 9.2).
func TestMatch(t *testing.T) {
	x := NewIndex([]Candidate{
		{Automation: "all", Triggers: []Trigger{{}}},
		{Automation: "either", Triggers: []Trigger{{Payload: compile(t, `{"a":[1]}`)}, {Payload: compile(t, `{"b":[1]}`)}}},
		{Automation: "never", Triggers: []Trigger{{Payload: compile(t, `{"a":[1],"b":[9]}`)}, {Payload: compile(t, `{"c":[1]}`)}}},
	})
	for _, c := range []struct {
		body string
		want []int
	}{
		{`{"a":1,"b":1}`, []int{0, 1}},
		{`{"b":1}`, []int{0, 1}},
		{`{}`, []int{0}},
		{`[]`, []int{0}},
	} {
		got, err := x.Match(Delivery{Body: []byte(c.body)}, []int{7})
		if want := append([]int{7}, c.want...); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: got %v, %v; want %v", c.body, got, err, want)
		}
		for i, r := range x.Explain(Delivery{Body: []byte(c.body)}) {
			if r.Matched != slices.Contains(c.want, i) {
				t.Errorf("%s: explained %+v", c.body, r)
			}
		}
	}
	if _, err := x.Match(Delivery{Body: []byte(`{`)}, nil); err == nil {
		t.Error("invalid JSON matched")
	}
	// The trigger that came furthest is the one explained.
	if r := x.Explain(Delivery{Body: []byte(`{"a":1}`)})[2]; r.Path != "payload.b" || r.Want != "9" || r.Got != "nothing" {
		t.Errorf("explained %+v", r)
	}
}
