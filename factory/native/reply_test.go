package native

import "testing"

// TestReplies: what is a reply in a thread, and what stops one (SPEC 21.6).
func TestReplies(t *testing.T) {
	const session = `"type":"AgentSessionEvent","agentSession":{"id":"s-1","creatorId":"ada"`
	const prompted = `{` + session + `,"issue":{"identifier":"ENG-4"}},"action":"prompted","agentActivity":{"id":"act-1","userId":"grace"`
	const message = `{"team_id":"T1","event":{"type":"message","channel_type":"channel","channel":"C1","ts":"2.0","user":"U1"`
	for name, c := range map[string]struct {
		provider, body string
		reply, stop    bool
		subject        string // of whichever it is
		person         string
	}{
		"prompted":                 {"linear", prompted + `}}`, true, false, "linear:ENG-4", "linear:grace"},
		"prompted with a signal":   {"linear", prompted + `,"signal":"select"}}`, true, false, "linear:ENG-4", "linear:grace"},
		"stopped":                  {"linear", prompted + `,"signal":"stop"}}`, false, true, "linear:ENG-4", "linear:grace"},
		"created":                  {"linear", `{` + session + `},"action":"created"}`, false, false, "", ""},
		"without an issue":         {"linear", `{` + session + `},"action":"prompted","agentActivity":{"user":{"id":"grace"}}}`, true, false, "linear:session/s-1", "linear:grace"},
		"in a thread":              {"slack", message + `,"thread_ts":"1.0"}}`, true, false, "slack:T1/C1/1.0", "slack:U1"},
		"a mention in a thread":    {"slack", `{"team_id":"T1","event":{"type":"app_mention","channel":"C1","ts":"2.0","thread_ts":"1.0","user":"U1"}}`, true, false, "slack:T1/C1/1.0", "slack:U1"},
		"not in a thread":          {"slack", message + `}}`, false, false, "", ""},
		"by a bot":                 {"slack", message + `,"thread_ts":"1.0","bot_id":"B1"}}`, false, false, "", ""},
		"edited":                   {"slack", message + `,"thread_ts":"1.0","subtype":"message_changed"}}`, false, false, "", ""},
		"a reaction in a thread":   {"slack", `{"team_id":"T1","event":{"type":"reaction_added","item":{"channel":"C1","ts":"1.0"},"user":"U1","reaction":"x"}}`, false, false, "", ""},
		"in a conversation of one": {"teams", `{"type":"message","id":"2","conversation":{"id":"19:c;messageid=1"},"from":{"id":"29:x"}}`, true, false, "teams:19:c;messageid=1", "teams:29:x"},
	} {
		t.Run(name, func(t *testing.T) {
			s := ByProvider(c.provider)
			p := s.Read(Delivery{Body: []byte(c.body)})
			if p.Is(s.Reply) != c.reply || p.Is(s.Stop) != c.stop {
				t.Fatalf("reply %v, stop %v", p.Is(s.Reply), p.Is(s.Stop))
			}
			for _, e := range s.unnamed() {
				if p.Is(e) && (e.SubjectOf(p) != c.subject || e.PersonOf(p).String() != c.person) {
					t.Errorf("%s is about %q, by %q", e.Name, e.SubjectOf(p), e.PersonOf(p))
				}
				if Find(c.provider, e.Name) != nil && e.Name != "comment" || e.Doc == "" || e.IsReply() != (e != s.Stop && e != s.Click) {
					t.Errorf("%s can be named by a trigger, or nothing describes it", e.Name)
				}
			}
		})
	}
	mentioned := ByProvider("slack").Read(Delivery{Body: []byte(`{"team_id":"T1","event":{"type":"app_mention","channel":"C1","ts":"2.0","thread_ts":"1.0","user":"U1"}}`)})
	posted := ByProvider("slack").Read(Delivery{Body: []byte(message + `,"thread_ts":"1.0"}}`)})
	if a, b := ByProvider("slack").Reply.Identity(mentioned), ByProvider("slack").Reply.Identity(posted); a == "" || a != b {
		t.Errorf("one reply has the identities %q and %q", a, b)
	}
}
