package delivery

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"testing/fstest"

	"triphammer/applier"
	"triphammer/factory/match"
	"triphammer/factory/signature"
	"triphammer/server/store"
)

// TestReplyInHTML: a reply decides in Microsoft Teams, where it comes with a mention, and on a work item of Azure
// DevOps, where it comes as HTML, from whom approvers names alone (SPEC 26.2).
func TestReplyInHTML(t *testing.T) {
	for name, c := range map[string]struct {
		scheme, provider, event, secret, more string
		body                                  func(person, text, id string) map[string]any
		before, after, ada                    string
	}{
		"teams": {
			"ms_teams", "teams", "app_mention", base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 32))), "", func(person, text, id string) map[string]any {
				return map[string]any{
					"type": "message", "id": id, "text": text, "from": map[string]any{"id": "29:" + person, "aadObjectId": person},
					"conversation": map[string]any{"id": "19:c@thread.tacv2;messageid=1"}, "channelData": map[string]any{"channel": map[string]any{"id": "19:c@thread.tacv2"}},
				}
			}, "<at>Triphammer</at>&nbsp;", "\n", "ada",
		},
		"azure_devops": {
			"azure_devops", "azure_devops", "work_item, filter: {actions: [created]}", "user:" + strings.Repeat("p", 32), "apiURL: https://dev.azure.com/acme\n", func(person, text, id string) map[string]any {
				kind := map[bool]string{true: "workitem.commented", false: "workitem.created"}[strings.Contains(text, "triphammer")]
				return map[string]any{"id": id, "eventType": kind, "resourceContainers": map[string]any{"project": map[string]any{"id": "p1"}}, "resource": map[string]any{
					"id": 7, "fields": map[string]any{"System.TeamProject": "p", "System.History": text, "System.ChangedBy": person + " <" + person + ">", "System.CreatedBy": person + " <" + person + ">"},
				}}
			}, "<div>", "</div>", "ada@example.com",
		},
		"azure_devops, a pull request": {
			"azure_devops", "azure_devops", "pull_request, filter: {actions: [created]}", "user:" + strings.Repeat("p", 32), "apiURL: https://dev.azure.com/acme\n", func(person, text, id string) map[string]any {
				pull := map[string]any{"pullRequestId": 4, "repository": map[string]any{"id": "r1", "name": "r", "project": map[string]any{"id": "p1", "name": "p"}}, "createdBy": map[string]any{"uniqueName": person}}
				if !strings.Contains(text, "triphammer") {
					return map[string]any{"id": id, "eventType": "git.pullrequest.created", "resource": pull}
				}
				return map[string]any{"id": id, "eventType": "ms.vss-code.git-pullrequest-comment-event", "resource": map[string]any{
					"pullRequest": pull, "comment": map[string]any{"content": text, "author": map[string]any{"uniqueName": person}, "publishedDate": "1"},
				}}
			}, "", "\n\nThanks.", "ada@example.com",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			built, err := applier.Build(t.Context(), applier.BuildInput{Factory: "default", Secrets: secretS(c.secret), Tree: fstest.MapFS{
				"factory.yaml":       {Data: []byte("schemaVersion: v1alpha1\nname: x\n")},
				"webhooks/hook.yaml": {Data: []byte("secretName: S\nauthMode: signature\nsignatureScheme: " + c.scheme + "\napiSecretName: S\nreport: thread\n" + c.more)},
				"automations/on.md":  {Data: []byte("---\ntriggers: [{provider: " + c.provider + ", event: " + c.event + "}]\napproval: [start]\napprovers: ['" + c.ada + "']\n---\nDo it.\n")},
			}})
			if err != nil || built.Revision == nil || built.Diagnostics.HasErrors() {
				t.Fatalf("%v, %+v", err, built)
			}
			f.live.Swap(built.Revision)
			n := 0
			send := func(person, text string) *Trace {
				t.Helper()
				n++
				body, _ := json.Marshal(c.body(person, text, string(rune('a'+n))))
				r := request("hook", string(body), "Content-Type", "application/json")
				scheme, _ := signature.Lookup(c.scheme)
				if err := scheme.Sign(c.secret, &signature.Request{Header: r.Header, Body: body, Now: f.clock()}); err != nil {
					t.Fatal(err)
				}
				a := f.Receive(t.Context(), r)
				if a.Status != 202 {
					t.Fatalf("%+v", a)
				}
				trace, err := f.Show(t.Context(), a.DeliveryID)
				if err != nil {
					t.Fatal(err)
				}
				return trace
			}
			trace := send("eve", c.before+"please"+c.after)
			if len(trace.Delivery.Runs) != 1 {
				t.Fatalf("%+v", trace.Belt)
			}
			id := trace.Delivery.Runs[0].ID
			waiting, err := f.store.Approvals.Of(t.Context(), id)
			answers, failed := f.store.Answers.Of(t.Context(), id)
			if err != nil || failed != nil || len(waiting) != 1 || len(answers) != 1 || !strings.Contains(answers[0].Place, `"approvers":["`+c.ada+`"]`) {
				t.Fatalf("%+v, %v; %+v, %v", waiting, err, answers, failed)
			}
			command := "triphammer approve " + f.store.Approvals.Code(id, store.ShownOf(waiting...))
			for _, reply := range []struct{ person, text, want string }{
				{"mallory", c.before + command + c.after, "may not approve here"},
				{c.ada, c.before + "triphammer approve 22222222" + c.after, "nothing that waited in this thread has the code"},
				{c.ada, "<blockquote>" + command + "</blockquote>", ""},
				{c.ada, c.before + command + c.after, id.String() + " is approved by " + c.provider + ":" + c.ada},
			} {
				if got := send(reply.person, reply.text).Delivery.Decided; !strings.Contains(got, reply.want) || (got == "") != (reply.want == "") {
					t.Errorf("%+v: %q", reply, got)
				}
			}
			if r, err := f.store.Runs.Get(t.Context(), id); err != nil || r.State != store.Queued {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
}

// TestApproveAllOutputs: with --approve-outputs, pushes wait also of a run whose event has nothing that could be
// asked of its sender, and of a test (SPEC 26.1).
func TestApproveAllOutputs(t *testing.T) {
	f := newFixture(t)
	f.cfg.ApproveOutputs = true
	built, err := applier.Build(t.Context(), applier.BuildInput{Factory: "default", Secrets: secretS("s"), Tree: fstest.MapFS{
		"factory.yaml":       {Data: []byte("schemaVersion: v1alpha1\nname: x\n")},
		"webhooks/hook.yaml": {Data: []byte("secretName: S\nauthMode: signature\nsignatureScheme: github\n")},
		"automations/on.md":  {Data: []byte("---\ntriggers: [{provider: github, event: issue_created}]\noutputs: {comment: {}}\n---\nDo it.\n")},
	}})
	if err != nil || built.Revision == nil || built.Diagnostics.HasErrors() {
		t.Fatalf("%v, %+v", err, built)
	}
	f.live.Swap(built.Revision)
	hook := built.Revision.Webhooks[0]
	for _, by := range []string{"", "ada"} {
		body := []byte(`{"action":"opened","issue":{"number":1}}`)
		sent := match.Delivery{Headers: map[string]string{"X-Github-Event": "issues"}, Body: body}
		matched, _, err := hook.Index.Match(sent, nil)
		if err != nil || len(matched) != 1 {
			t.Fatal(matched, err)
		}
		if o := f.outputsOf(hook, hook.Automations[0], matched[0].Event, &store.Delivery{Headers: sent.Headers, TestBy: by}, body); o.Waits == 0 || o.Detail == "" {
			t.Errorf("%+v", o)
		}
	}
}
