package delivery

import (
	"strings"
	"testing"
	"testing/fstest"

	"triphammer/applier"
	"triphammer/factory/signature"
	"triphammer/server/store"
)

// TestUnmatchedSession: a session of Linear that no automation wants is told so, once, if its webhook can
// answer, and nothing else is (SPEC 22.2).
func TestUnmatchedSession(t *testing.T) {
	const (
		created = `"type":"AgentSessionEvent","action":"created","agentSession":{"id":"s-1","creatorId":"ada","issue":{"identifier":"ENG-4","title":"t"}}`
		session = `{` + created + `,"webhookTimestamp":0}`
		key     = "apiSecretName: S\n"
		linear  = "integrations: [{type: linear}]\n"
	)
	for name, c := range map[string]struct {
		factory, webhook, filter, body string
		change                         func(*Request)
		told                           string // in the belt; empty: nothing
	}{
		"integration":   {linear, key, "[no]", session, nil, "Linear is to be told that no automation takes it"},
		"report":        {"", key + "report: thread\n", "[no]", session, nil, "Linear is to be told that no automation takes it"},
		"stop":          {linear, key, "[no]", strings.NewReplacer("created", "prompted", `"webhookTimestamp"`, `"agentActivity":{"id":"a","signal":"stop"},"webhookTimestamp"`).Replace(session), nil, "Linear is to be told that there was nothing to stop"},
		"a prompt":      {linear, key, "[no]", strings.Replace(session, "created", "prompted", 1), nil, ""},
		"it matches":    {linear, key, "[t]", session, nil, ""},
		"no report":     {linear, key + "report: none\n", "[no]", session, nil, ""},
		"no credential": {linear, "", "[no]", session, nil, ""},
		"neither":       {"", key, "[no]", session, nil, ""},
		"an issue":      {linear, key, "[no]", `{"type":"Issue","action":"create","data":{"id":"i","identifier":"ENG-4"},"webhookTimestamp":0}`, nil, ""},
		"a test":        {linear, key, "[no]", session, func(r *Request) { r.TestBy = "ada" }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			built, err := applier.Build(t.Context(), applier.BuildInput{Factory: "default", Secrets: secretS(webhookSecret), Tree: fstest.MapFS{
				"factory.yaml":         {Data: []byte("schemaVersion: v1alpha1\nname: x\n" + c.factory)},
				"webhooks/linear.yaml": {Data: []byte("secretName: S\nauthMode: signature\nsignatureScheme: linear\n" + c.webhook)},
				"automations/a.md":     {Data: []byte("---\ntriggers: [{provider: linear, event: agent_session_created, filter: {keywords: " + c.filter + "}}]\n---\nDo it.\n")},
			}})
			if err != nil || built.Revision == nil || built.Diagnostics.HasErrors() {
				t.Fatalf("%v, %+v", err, built)
			}
			f.live.Swap(built.Revision)
			scheme, _ := signature.Lookup("linear")
			send := func() Answer {
				t.Helper()
				signed := &signature.Request{Header: request("linear", "").Header, Body: []byte(c.body), Now: f.clock()}
				signed.Header.Set("Linear-Delivery", "1")
				if err := scheme.Sign(webhookSecret, signed); err != nil {
					t.Fatal(err)
				}
				r := request("linear", string(signed.Body))
				if r.Header = signed.Header; c.change != nil {
					c.change(r)
				}
				a := f.Receive(t.Context(), r)
				if a.Status != 202 {
					t.Fatalf("%+v", a)
				}
				return a
			}
			first := send()
			again := send()
			told := func(id store.DeliveryID) int {
				all, err := f.store.Answers.Of(t.Context(), store.RunID(id))
				if err != nil {
					t.Fatal(err)
				}
				return len(all)
			}
			want := 0
			if c.told != "" {
				want = 1
			}
			if told(first.DeliveryID) != want || told(again.Entry) != 0 {
				t.Errorf("told %d times, and again %d times", told(first.DeliveryID), told(again.Entry))
			}
			replayed, err := f.Replay(t.Context(), first.DeliveryID)
			if err != nil || told(replayed.ID) != 0 {
				t.Errorf("a replay is told %d times, %v", told(replayed.ID), err)
			}
			trace, err := f.Show(t.Context(), first.DeliveryID)
			if err != nil {
				t.Fatal(err)
			}
			var belt strings.Builder
			for _, stage := range trace.Belt {
				belt.WriteString(stage.Detail + "\n")
			}
			if strings.Contains(belt.String(), "told") != (want == 1) || !strings.Contains(belt.String(), c.told) {
				t.Errorf("the belt:\n%s", belt.String())
			}
		})
	}
}
