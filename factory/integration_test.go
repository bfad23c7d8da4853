package factory

import (
	"slices"
	"strings"
	"testing"

	"triphammer/schema"
)

// TestIntegrations: an integration makes the events of its sender be answered in the thread, and what it
// cannot do is a finding (SPEC 21.6).
func TestIntegrations(t *testing.T) {
	const (
		slack   = "authMode: signature\nsignatureScheme: slack\nsecretName: S\n"
		linear  = "authMode: signature\nsignatureScheme: linear\nsecretName: S\n"
		teams   = "authMode: signature\nsignatureScheme: ms_teams\nsecretName: S\n"
		key     = "apiSecretName: T\n"
		mention = "triggers: [{provider: slack, event: app_mention}]\n"
		session = "triggers: [{provider: linear, event: agent_session_created}]\n"
		asked   = "triggers: [{provider: teams, event: app_mention}]\n"
		replies = "[{type: slack, slack: {autoRespondToThreadReplies: true}}]"
	)
	for name, c := range map[string]struct {
		integrations, webhook, automation string
		told, replies                     bool
		findings                          []string // of no effect
	}{
		"listed":                   {"[{type: slack}]", slack + key, mention, true, false, nil},
		"its name is trimmed":      {"[{type: ' Slack'}]", slack + key, mention, true, false, nil},
		"not listed":               {"[]", slack + key, mention, false, false, nil},
		"another one listed":       {"[{type: jira}]", slack + key, mention, false, false, []string{"no webhook is of Jira"}},
		"the webhook wins":         {"[{type: slack}]", slack + key + "report: none\n", mention, false, false, nil},
		"the automation wins":      {"[{type: slack}]", slack + key, mention + "report: none\n", false, false, nil},
		"the text of the answer":   {"[{type: slack}]", slack + key, mention + "reportText: link\n", true, false, nil},
		"replies":                  {replies, slack + key, mention, true, true, nil},
		"sessions":                 {"[{type: linear}]", linear + key, session, true, true, nil},
		"no credential":            {"[{type: slack}]", slack, mention, true, false, []string{"no effect for webhooks/w.yaml without apiSecretName"}},
		"no event":                 {"[{type: slack}]", slack + key, session, true, false, []string{"no automation has a trigger with an event of Slack"}},
		"no session":               {replies, slack + key, mention + "environmentId: command\n", true, true, []string{"the command of environments/command.yaml keeps no session"}},
		"no session, and none ask": {"[{type: slack}]", slack + key, mention + "environmentId: command\n", true, false, nil},
		"teams of Linear":          {"[{type: linear, linear: {teamIds: [x]}}]", linear + key, session, true, true, []string{"teamIds has no effect"}},
		"settings of another":      {"[{type: linear, slack: {autoRespondToThreadReplies: true}}]", linear + key, session, true, true, []string{"settings of slack have no effect beside type: linear"}},
		"replies in Teams":         {"[{type: microsoft-teams, microsoft-teams: {autoRespondToThreadReplies: true}}]", teams + key, asked, true, true, []string{"no effect for replies that mention nobody"}},
	} {
		t.Run(name, func(t *testing.T) {
			f, report, err := Load(t.Context(), tree(map[string]string{
				"factory.yaml":         "schemaVersion: v1alpha1\nname: x\nintegrations: " + c.integrations + "\n",
				"agents/lead/agent.md": "---\nagentType: FOREMAN\n---\n", "webhooks/w.yaml": c.webhook, "automations/a.md": "---\n" + c.automation + "---\nPrompt\n",
				"environments/command.yaml": "command: ['true']\n",
			}), Options{})
			if err != nil {
				t.Fatal(err)
			}
			if report.Diagnostics.HasErrors() {
				t.Fatal(report.Diagnostics)
			}
			a, w := f.Automations[0], f.Webhooks[0]
			kinds, _ := a.Reports(w)
			if told := slices.Equal(kinds, []string{"thread"}); told != c.told || w.Replies != c.replies {
				t.Errorf("told %v, replies %v", kinds, w.Replies)
			}
			if goesOn := a.Candidate(w, "").Replies != nil; goesOn != (c.replies && a.triggerOf(w.Sender()) != nil) {
				t.Errorf("goes on with replies: %v", goesOn)
			}
			var found []string
			for _, d := range report.Diagnostics {
				if d.Code == schema.NoEffect {
					found = append(found, d.Path+": "+d.Message)
				}
			}
			if len(found) != len(c.findings) {
				t.Fatalf("findings %q", found)
			}
			for i, want := range c.findings {
				if !strings.Contains(found[i], want) {
					t.Errorf("%q is not %q", found[i], want)
				}
			}
		})
	}
}

// TestReplyStarters: who may not start an automation does not go on with it (SPEC 21.6, 24.1).
func TestReplyStarters(t *testing.T) {
	f, report, err := Load(t.Context(), tree(map[string]string{
		"factory.yaml":         "schemaVersion: v1alpha1\nname: x\nintegrations: [{type: linear}]\n",
		"agents/lead/agent.md": "---\nagentType: FOREMAN\n---\n",
		"webhooks/w.yaml":      "authMode: signature\nsignatureScheme: linear\nsecretName: S\napiSecretName: T\n",
		"automations/a.md":     "---\ntriggers: [{provider: linear, event: agent_session_created}]\nstartedBy: [ada]\n---\nPrompt\n",
	}), Options{})
	if err != nil || report.Diagnostics.HasErrors() {
		t.Fatal(err, report.Diagnostics)
	}
	if r := f.Automations[0].Candidate(f.Webhooks[0], "").Replies; len(r) != 1 || r[0].StartedBy == nil || r[0].StartedBy != f.Automations[0].Triggers[0].Native.StartedBy {
		t.Errorf("%+v", r)
	}
}
