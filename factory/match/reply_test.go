package match

import (
	"strings"
	"testing"

	"triphammer/factory/native"
)

// TestReply: a reply matches beside the triggers of its candidate, with one identity, and matches by
// itself only in a thread that the candidate has answered (SPEC 21.6).
func TestReply(t *testing.T) {
	slack := native.ByProvider("slack")
	reply := func(names ...string) []*native.Trigger {
		trigger := &native.Trigger{Event: slack.Reply}
		if names != nil {
			trigger.StartedBy = native.ParseStarters(names)
		}
		return []*native.Trigger{trigger}
	}
	mention := []Trigger{{Native: &native.Trigger{Event: native.Find("slack", "app_mention")}}}
	x := NewIndex([]Candidate{
		{Automation: "any", Triggers: []Trigger{{}}},
		{Automation: "mention", Triggers: mention},
		{Automation: "both", Triggers: mention, Threads: true, Replies: reply()},
		{Automation: "ada", Triggers: mention, Threads: true, Replies: reply("U9")},
	})
	sent := func(kind, more string) Delivery {
		return Delivery{Body: []byte(`{"team_id":"T1","event":{"type":"` + kind + `","channel_type":"channel","channel":"C1","ts":"2.0","user":"U1"` + more + `}}`)}
	}
	said := func(d Delivery) string {
		matched, _, err := x.Match(d, nil)
		if err != nil {
			t.Fatal(err)
		}
		var parts []string
		for _, m := range matched {
			part := x.candidates[m.Candidate].Automation
			if m.Event.IsReply() {
				part += " only"
			}
			if m.Reply {
				part += " reply " + m.Identity
			}
			parts = append(parts, part)
		}
		return strings.Join(parts, ", ")
	}
	const inThread = `,"thread_ts":"1.0"`
	for _, c := range []struct{ kind, more, want string }{
		{"app_mention", "", "any, mention, both, ada"},
		{"app_mention", inThread, "any, mention, both reply slack thread_reply T1 C1 2.0, ada"},
		{"message", inThread, "any, both only reply slack thread_reply T1 C1 2.0"},
		{"message", "", "any"},
	} {
		if got := said(sent(c.kind, c.more)); got != c.want {
			t.Errorf("%s %s: %s, want %s", c.kind, c.more, got, c.want)
		}
	}
	// What the sender's API decides about a trigger is asked for, although the same delivery is a reply.
	channels, _ := mention[0].Native.Event.Key("channels")
	named := []Trigger{{Native: &native.Trigger{Event: mention[0].Native.Event, Filters: []native.Filter{{Key: channels, Named: true, In: []string{"ops"}}}}}}
	one := NewIndex([]Candidate{{Automation: "named", Triggers: named, Threads: true, Replies: reply()}})
	mentioned := sent("app_mention", inThread)
	matched, open, err := one.Match(mentioned, nil)
	if err != nil || len(matched) != 1 || !matched[0].Event.IsReply() || len(open) != 1 {
		t.Errorf("a mention in a thread: %+v, open %v, %v", matched, open, err)
	}
	mentioned.Answers = map[native.Question][]string{open[0]: {"ops"}}
	if matched, open, err = one.Match(mentioned, nil); err != nil || len(matched) != 1 || matched[0].Event.Name != "app_mention" || !matched[0].Reply || len(open) != 0 {
		t.Errorf("once the API has answered: %+v, open %v, %v", matched, open, err)
	}
	d := sent("message", inThread)
	both := x.Explain(d)[2]
	if both.Matched || !both.Reply || both.Path != "thread" || !strings.Contains(both.Want, "both has answered") {
		t.Errorf("a reply: %+v", both)
	}
	if ada := x.Explain(d)[3]; ada.Matched || ada.Reply || ada.Path != native.StartedBy {
		t.Errorf("a reply of somebody else: %+v", ada)
	}
	d.Answered = map[string]bool{"both": true}
	if both := x.Explain(d)[2]; !both.Matched || both.Subject != "slack:T1/C1/1.0" {
		t.Errorf("in a thread that it has answered: %+v", both)
	}
}
