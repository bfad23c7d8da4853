package server

import (
	"cmp"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"triphammer/server/api"
	"triphammer/server/githubapp/githubtest"
	"triphammer/server/secret"
	"triphammer/server/store"
)

// TestEveryRouteOfAnotherFactory asks every route of the API for what is one
// factory's, with a key of another that may manage: no answer has a word of it, and
// nothing changes (SPEC 10.2). Then the factory's own key, or one for all factories,
// is answered well: so it was the right request. A new route fails here until its
// request is known.
func TestEveryRouteOfAnotherFactory(t *testing.T) {
	f := newFixtureWith(t, options{hosted: true, files: publishedTree})
	admin, own, other := f.key("admin", "manage"), f.limitedKey("own", "default", "manage"), f.limitedKey("other", "elsewhere", "manage")
	uid := f.uids()["hook"]
	delivery := field(t, f.do("POST", ingress+uid, hookSecret, `{"n":1}`), "delivery_id")
	run := field(t, f.get("/api/v1/deliveries/"+delivery, admin), "runs", "0")
	applies := f.get("/api/v1/applies", admin)
	apply, commit := field(t, applies, "applies", "0", "id"), field(t, applies, "applies", "0", "commit")
	schedule := field(t, f.do("POST", "/api/v1/agent/schedules", own, `{"name":"Nightly","cron_schedule":"@daily","prompt":"x"}`), "id")
	_, artifact := f.keepFile("report.html", "<script>")
	f.key("leaked", "read")
	pending := func() string {
		held := store.PendingSecret{Factory: "default", Webhook: "hook", WebhookUID: uid, SecretName: "S"}
		if err := f.store.Secrets.Hold(t.Context(), held, secret.New(hookSecret)); err != nil {
			t.Fatal(err)
		}
		return field(t, f.get("/api/v1/pending-secrets", admin), "pending_secrets", "0", "id")
	}
	if _, err := f.store.Workers.Start(t.Context(), store.Worker{
		ID: "wrk_1", Kind: "worker", Names: []string{"gpu"}, Host: "b", Version: "v1", Isolation: "none", MaxRuns: 1, Lease: time.Minute,
	}, "p"); err != nil {
		t.Fatal(err)
	}
	named := map[string]string{
		"/workers":    "wrk_1",
		"/deliveries": delivery, "/agent/runs": run, "/agent/conversations": run, "/agent/schedules": schedule, "/agent/artifacts": artifact, "/applies": apply, "/webhooks": "hook", "/factories": "default",
		"/secrets": "SPARE", "/keys": "leaked", "/signature-schemes": "github",
		"/factory": "default", "/factory/scorers": "1", "/factory/runs": run, "/agent/sessions": run, "/agent/identities": "default%2Fboss",
	}
	f.about("web:1")
	asked := map[string]string{ // queries that routes need
		"GET /applies/:id/diff":                "?from=" + apply,
		"GET /subjects/story":                  "?subject=web:1",
		"GET /agent/run-by-external-reference": "?url=https://git.example.com/a/b/pull/7",
	}
	screenshot := field(t, f.get("/api/v1/agent/runs/"+run, admin), "artifacts", "3", "artifact_uid")
	create := `{"prompt":"x","parent_run_id":"` + run + `","config":{"environment_id":"e"}}`
	hub := githubtest.Start(t, "")
	sent := map[string]string{
		"POST /github-apps": fmt.Sprintf(`{"code":%q,"api_url":%q,"secret_name":"MADE_APP","webhook_secret_name":"MADE_SECRET"}`, hub.Code(), hub.API()),
		"POST /agent/runs":  create, "POST /agent/run": create,
		"POST /agent/runs/:id/decision": `{"decision":"decline"}`, "POST /agent/runs/:id/followups": `{"message":"x"}`, "POST /agent/conversations/:id/followups": `{"message":"x"}`,
		"POST /agent/schedules":                            `{"name":"x","cron_schedule":"@daily","prompt":"x","agent_config":{"environment_id":"default/e"}}`,
		"PUT /agent/schedules/:id":                         `{"name":"x","cron_schedule":"@daily","prompt":"x","enabled":true}`,
		"POST /filters/test":                               `{"factory":"default","automation":"a","payload":{"n":1},"webhook":"hook"}`,
		"POST /filters/ask":                                `{"factory":"default","automation":"a","payload":{"n":1},"webhook":"hook"}`,
		"POST /factories/:name/plan":                       `{"files":[]}`,
		"POST /factories/:name/changes":                    `{"files":{"README.md":"x"}}`,
		"POST /factories/:name/pin":                        `{"commit":"` + commit + `","reason":"x"}`,
		"POST /factories/:name/webhooks":                   `{"name":"new","secret":{"name":"S"}}`,
		"POST /factories/:name/automations":                `{"name":"new","definition":{"triggers":[{"provider":"webhook","event":"received","filter":{"webhooks":["hook"]}}]}}`,
		"POST /factories/:name/environments":               `{"name":"new","definition":{"env":{}}}`,
		"POST /factories/:name/agents":                     `{"name":"new","definition":{"description":"x"}}`,
		"PATCH /factories/:name/webhooks/:webhook":         `{"enabled":true}`,
		"PATCH /factories/:name/automations/:automation":   `{"prompt":"x"}`,
		"PATCH /factories/:name/environments/:environment": `{"definition":{"timeoutMinutes":5}}`,
		"PATCH /factories/:name/agents/:agent":             `{"prompt":"x"}`,
		"PUT /secrets/:name":                               `{"value":"` + hookSecret + `"}`,
		"POST /keys":                                       `{"name":"more"}`,
		"POST /factories":                                  `{"name":"fresh"}`,
		"POST /factory/:uid/runs":                          `{"prompt":"x","ticket_ref":"linear:ACME-1"}`,
	}
	if _, err := f.store.Leases.Claim(t.Context(), store.Claim{Worker: "w", Most: 1, Lease: time.Minute}); err != nil {
		t.Fatal(err) // only a run in progress can be interrupted
	}
	resumed := func() string { // an automation that may be run
		f.do("POST", "/api/v1/factories/default/automations/a/resume", admin, "")
		return "default"
	}
	agent := func() string {
		f.do("POST", "/api/v1/factories/default/agents", admin, `{"name":"lead","definition":{"description":"x"}}`) // unless it is there
		return "default"
	}
	paused := func(what, action, thing string) func() string { // leaves it paused, or resumed
		return func() string {
			f.do("POST", "/api/v1/factories/default/"+what+"/"+action, admin, `{"reason":"x"}`)
			return thing
		}
	}
	needs := map[string]func() string{ // makes what the request needs
		"GET /factories/:name/agents/:agent": agent, "PATCH /factories/:name/agents/:agent": agent, "DELETE /factories/:name/agents/:agent": agent,
		// Routes come in an order that is gin's own.
		"POST /factories/:name/webhooks/:webhook/resume":       paused("webhooks/hook", "pause", "default"),
		"POST /factories/:name/automations/:automation/resume": paused("automations/a", "pause", "default"),
		"POST /factories/:name/automations/:automation/run":    resumed,
		"POST /factories/:name/webhooks/:webhook/test":         paused("webhooks/hook", "resume", "default"),
		"POST /deliveries/:id/replay":                          paused("webhooks/hook", "resume", delivery),
		"POST /secrets/:name/check": func() string {
			if _, err := f.store.Secrets.Set(t.Context(), "OLD_APP", hub.Secret(t)); err != nil {
				t.Fatal(err)
			}
			return "OLD_APP"
		},
		"POST /agent/runs/:id/retry": func() string {
			ended := field(t, f.do("POST", "/api/v1/agent/runs", own, create), "run_id")
			f.do("POST", "/api/v1/agent/runs/"+ended+"/cancel", own, "")
			return ended
		},
		"DELETE /auth/sessions/:id": func() string {
			f.signIn(f.link(admin))
			return field(t, f.get("/api/v1/auth/sessions", admin), "sessions", "0", "id")
		},
	}
	routes := f.engine.Routes()
	order := []string{http.MethodGet, http.MethodPut, http.MethodPatch, http.MethodPost, http.MethodDelete} // what others need goes last
	slices.SortStableFunc(routes, func(a, b gin.RouteInfo) int {
		return cmp.Compare(slices.Index(order, a.Method), slices.Index(order, b.Method))
	})
	for _, r := range routes {
		path, isAPI := strings.CutPrefix(r.Path, api.Base)
		name := r.Method + " " + path
		switch {
		case !isAPI: // no key opens the ingress and the pages; TestMetricsAccess has the rest
			continue
		case path == "/mcp/factory": // TestToolsOfOneFactory
			continue
		case strings.HasPrefix(path, "/factory-files/"): // for everybody, and of no factory
			continue
		case strings.HasSuffix(path, "/events"): // never ends for its own key: TestOneFactory
			continue
		case strings.HasPrefix(path, "/pending-secrets/"):
			named["/pending-secrets"] = pending()
		}
		path = strings.Replace(path, "*uid", ":uid", 1)
		kind, rest, _ := strings.Cut(path, "/:")
		parameter, _, _ := strings.Cut(rest, "/")
		thing := named[kind]
		if need := needs[name]; need != nil {
			thing = need()
		}
		full := strings.Replace(strings.Replace(api.Base+path, ":"+parameter, thing, 1), ":automation", "a", 1)
		full = strings.NewReplacer(":webhook", "hook", ":environment", "e", ":agent", "lead", ":screenshot", screenshot).Replace(full)
		full = strings.Replace(full, "*path", "factory.yaml", 1)
		full = strings.Replace(full, ":webhook", "hook", 1)
		full += asked[name]
		entries := func() int {
			log, err := f.store.Audit.List(t.Context(), store.AuditQuery{Limit: 500})
			if err != nil {
				t.Fatal(err)
			}
			return len(log)
		}
		before := entries()
		got := f.do(r.Method, full, other, sent[name])
		if got.status < 400 && regexp.MustCompile(`"(default|hook|[a-z]{3}_\w{13})"`).MatchString(string(got.body)) {
			t.Errorf("%s with another's key: %d %s", name, got.status, got.body)
		}
		if got.status < 400 && r.Method != http.MethodGet || entries() != before {
			t.Errorf("%s with another's key changed something: %d %s", name, got.status, got.body)
		}
		mine := f.do(r.Method, full, own, sent[name])
		if mine.status == http.StatusForbidden {
			mine = f.do(r.Method, full, admin, sent[name])
		}
		if name == "POST /backup" {
			f.sentBackup()
		}
		if (name == "POST /agent/runs/:id/answer" || name == "POST /agent/runs/:id/decision") && mine.status == http.StatusConflict { // no answer was given up, and nothing waits
			continue
		}
		if strings.HasSuffix(name, ":webhook/check") && strings.Contains(string(mine.body), "no apiSecretName") {
			continue // TestCredential
		}
		if mine.status >= 400 && mine.status != http.StatusUnprocessableEntity { // a command takes no follow-ups
			t.Errorf("%s with its own key: %d %s", name, mine.status, mine.body)
		}
	}
}
