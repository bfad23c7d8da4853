package factory

import (
	"slices"
	"strings"
	"testing"

	"triphammer/schema"
)

// TestReports: an automation's report wins over the webhook's, and what cannot be told is a
// finding, never silence (SPEC 22.1).
func TestReports(t *testing.T) {
	const github = "authMode: signature\nsignatureScheme: github\nsecretName: S\n"
	const jira = "authMode: signature\nsignatureScheme: jira\nsecretName: S\napiSecretName: T\n"
	const assigned = "triggers: [{provider: jira, event: issue_created}]\n"
	const opened = "triggers: [{provider: github, event: pull_request_opened}]\n"
	for name, c := range map[string]struct {
		webhook, automation string
		kinds               []string
		brief               bool
		told                string // the address
		finding             string // of no effect; empty: there is none
	}{
		"nothing":                  {webhook: github, automation: opened},
		"of the webhook":           {webhook: github + "apiSecretName: T\nreport: [thread, check]\nreportText: link\n", automation: opened, kinds: []string{"thread", "check"}, brief: true},
		"over the webhook's":       {webhook: github + "apiSecretName: T\nreport: check\nreportText: link\n", automation: opened + "report: thread\nreportText: full\n", kinds: []string{"thread"}},
		"none":                     {webhook: github + "apiSecretName: T\nreport: check\n", automation: opened + "report: none\n"},
		"no credential":            {webhook: github + "report: thread\n", automation: opened, kinds: []string{"thread"}, finding: "report has no effect without apiSecretName"},
		"no credential, over":      {webhook: github, automation: opened + "report: thread\n", kinds: []string{"thread"}, finding: "webhooks/w.yaml has no apiSecretName"},
		"nobody to answer":         {webhook: "secretName: S\n", automation: "triggers: [{provider: webhook, event: received, filter: {webhooks: [w]}}]\nreport: thread\n", kinds: []string{"thread"}, finding: "no trigger names an event of a sender"},
		"an address":               {webhook: "secretName: S\nreport: {url: 'https://a.example', secretName: T}\n", automation: "triggers: [{provider: webhook, event: received, filter: {webhooks: [w]}}]\n", told: "https://a.example"},
		"an address, over":         {webhook: github + "apiSecretName: T\nreport: thread\n", automation: opened + "report: {url: 'https://a.example', secretName: T}\n", told: "https://a.example"},
		"thread over an address":   {webhook: github + "apiSecretName: T\nreport: {url: 'https://a.example', secretName: T}\n", automation: opened + "report: thread\n", kinds: []string{"thread"}},
		"an address of a schedule": {webhook: github, automation: "triggers: [{provider: schedule, event: cron_fired, schedule: {cron: '@daily'}}]\nreport: {url: 'https://a.example', secretName: T}\n", told: "https://a.example", finding: "no delivery starts this automation"},
		"text of an address":       {webhook: github, automation: opened + "reportText: link\nreport: {url: 'https://a.example', secretName: T}\n", told: "https://a.example", brief: true, finding: "reportText has no effect without report: thread"},
		"data center":              {webhook: jira + "apiURL: https://jira.example.com\nreport: thread\n", automation: assigned, kinds: []string{"thread"}, finding: "report has no effect with Jira Data Center"},
		"data center, over":        {webhook: jira + "apiURL: https://acme.atlassian.net.example.com\n", automation: assigned + "report: thread\n", kinds: []string{"thread"}, finding: "webhooks/w.yaml is of Jira Data Center"},
		"jira cloud":               {webhook: jira + "apiURL: https://acme.atlassian.net\nreport: thread\n", automation: assigned, kinds: []string{"thread"}},
		"jira cloud by OAuth":      {webhook: jira + "apiURL: https://api.atlassian.com/ex/jira/1\n", automation: assigned + "report: thread\n", kinds: []string{"thread"}},
		"text of nothing":          {webhook: github, automation: opened + "reportText: link\n", brief: true, finding: "reportText has no effect without report: thread"},
		"a check where there is none": {
			webhook:    "authMode: signature\nsignatureScheme: linear\nsecretName: S\napiSecretName: T\n",
			automation: "triggers: [{provider: linear, event: issue_created}]\nreport: [thread, check]\n",
			kinds:      []string{"thread", "check"}, finding: "report: check has no effect for issue_created of Linear",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, report, err := Load(t.Context(), tree(map[string]string{
				"agents/lead/agent.md": "---\nagentType: FOREMAN\n---\n", "webhooks/w.yaml": c.webhook, "automations/a.md": "---\n" + c.automation + "---\nPrompt\n",
			}), Options{})
			if err != nil {
				t.Fatal(err)
			}
			if report.Diagnostics.HasErrors() {
				t.Fatal(report.Diagnostics)
			}
			kinds, brief := f.Automations[0].Reports(f.Webhooks[0])
			if told := f.Automations[0].Tells(f.Webhooks[0]); told.URL != c.told {
				t.Errorf("told is %+v", told)
			}
			if !slices.Equal(kinds, c.kinds) || brief != c.brief {
				t.Errorf("%v, brief %v", kinds, brief)
			}
			var found []string
			for _, d := range report.Diagnostics {
				if d.Code == schema.NoEffect {
					found = append(found, d.Message)
				}
			}
			if c.finding == "" && len(found) > 0 || c.finding != "" && (len(found) != 1 || !strings.Contains(found[0], c.finding)) {
				t.Errorf("findings: %q", found)
			}
		})
	}
}
