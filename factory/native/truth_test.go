package native

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// verdict is what a person decides by the published rules (factory/testdata/rules 4.1, 4.2) and the
// sender's own pages: whether a trigger with the filter fires on the event's sample with the changes.
//
// The filter is of the form "labels=bug,p1; repos!=acme/web". A change is PATH=JSON, @Header=value,
// -PATH (it is taken away) or ?question=answer,answer.
type verdict struct {
	fires  bool
	why    string
	filter string
	change []string
}

func yes(why, filter string, change ...string) verdict { return verdict{true, why, filter, change} }
func no(why, filter string, change ...string) verdict  { return verdict{false, why, filter, change} }

// truths are the verdicts about each event of each sender.
var truths = map[string]map[string][]verdict{
	"azure_devops": azureTruths, "github": githubTruths, "gitlab": gitlabTruths, "jira": jiraTruths, "linear": linearTruths, "slack": slackTruths, "teams": teamsTruths,
}

// TestTruth holds the index and the explanation to verdicts that were decided by hand.
func TestTruth(t *testing.T) {
	for _, s := range Senders() {
		for event := range truths[s.Provider] {
			if Find(s.Provider, event) == nil {
				t.Errorf("%s has no event %s", s.Provider, event)
			}
		}
		for _, e := range s.Events {
			count := map[bool]int{}
			for _, v := range truths[s.Provider][e.Name] {
				count[v.fires]++
				t.Run(s.Provider+" "+e.Name+"/"+v.why, func(t *testing.T) { v.check(t, e) })
			}
			if count[true] < 1 || count[false] < 3 {
				t.Errorf("%s %s: %d deliveries that must fire and %d that must not", s.Provider, e.Name, count[true], count[false])
			}
		}
	}
}

func (v verdict) check(t *testing.T, e *Event) {
	d := sample(t, e.Sender, e.Name)
	var body any
	if err := json.Unmarshal(d.Body, &body); err != nil {
		t.Fatal(err)
	}
	answers := make(map[string][]string)
	for _, change := range v.change {
		path, value, _ := strings.Cut(change, "=")
		switch path[0] {
		case '@':
			d.Header[path[1:]] = value
		case '?':
			answers[path[1:]] = strings.Split(value, ",")
		case '-':
			body = changed(t, body, strings.Split(path[1:], "."), nil, true)
		default:
			var to any
			if json.Unmarshal([]byte(value), &to) != nil {
				to = value
			}
			body = changed(t, body, strings.Split(path, "."), to, false)
		}
	}
	d.Body, _ = json.Marshal(body)
	trigger := &Trigger{Event: e}
	for part := range strings.SplitSeq(v.filter, "; ") {
		if part == "" {
			continue
		}
		name, list, _ := strings.Cut(part, "=")
		name, not := strings.CutSuffix(name, "!")
		k, named := e.Key(name)
		if k == nil {
			t.Fatalf("no key %s", name)
		}
		f := Filter{Key: k, Named: named}
		for value := range strings.SplitSeq(list, ",") {
			if value = k.Canonical(value, named); not {
				f.NotIn = append(f.NotIn, value)
			} else {
				f.In = append(f.In, value)
			}
		}
		trigger.Filters = append(trigger.Filters, f)
	}
	d.Answers = make(map[Question][]string)
	p := e.Sender.Read(d)
	for _, q := range trigger.Explain(p).Open {
		if answer, is := answers[q.Name]; is {
			d.Answers[q] = answer
		}
	}
	p = e.Sender.Read(d)
	matched, _ := NewIndex([]*Trigger{trigger}).Match(p, nil)
	if explained := trigger.Explain(p); len(matched) == 1 != v.fires || explained.Matched != v.fires {
		t.Errorf("fires %v, want %v; explained %+v", len(matched) == 1, v.fires, explained)
	}
}

// changed sets or removes what is at a path.
func changed(t *testing.T, in any, path []string, to any, remove bool) any {
	if len(path) == 0 {
		return to
	}
	switch in := in.(type) {
	case map[string]any:
		if _, is := in[path[0]]; !is && remove {
			t.Fatalf("there is no %v to take away", path)
		}
		if remove && len(path) == 1 {
			delete(in, path[0])
			return in
		}
		in[path[0]] = changed(t, in[path[0]], path[1:], to, remove)
		return in
	case []any:
		i, err := strconv.Atoi(path[0])
		if err != nil || i >= len(in) {
			t.Fatalf("no item %s", path[0])
		}
		in[i] = changed(t, in[i], path[1:], to, remove)
		return in
	case nil:
		return map[string]any{path[0]: changed(t, nil, path[1:], to, remove)}
	}
	t.Fatal(fmt.Sprint("no way to ", path, " in ", in))
	return nil
}
