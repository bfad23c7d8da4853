package server

import (
	"context"
	"net/url"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"triphammer/server/api"
	"triphammer/server/run/event"
	"triphammer/server/store"
)

// TestWhatCameOfRuns: the list of runs says what each is about and what came of it, its page has that as
// its title, and the costs of a month are summed by automation, repository and person.
func TestWhatCameOfRuns(t *testing.T) {
	f := newFixtureWith(t, options{files: fstest.MapFS{
		"webhooks/github.yaml": {Data: []byte("secretName: S\nauthMode: signature\nsignatureScheme: github\n")},
		"automations/fix.md":   {Data: []byte("---\nenvironmentId: e\ntriggers:\n- {provider: github, event: issue_created}\n---\nDo it.\n")},
	}})
	key := f.key("reader", "read")
	f.github("issues", "1", `{"action":"opened","issue":{"id":5,"number":12,"title":"Login <b>fails","user":{"login":"ada","id":1}},"repository":{"id":1,"full_name":"acme/app","html_url":"https://github.com/acme/app"},"sender":{"login":"ada","id":1}}`)
	leases, err := f.store.Leases.Claim(t.Context(), store.Claim{Worker: "w", Most: 9, Lease: time.Hour})
	if err != nil || len(leases) != 1 {
		t.Fatal(leases, err)
	}
	l := leases[0]
	_, _, err = f.store.Usage.Record(t.Context(), l, store.Spending{Tokens: 70, CostUSD: 0.25})
	for _, failed := range []error{
		err, f.store.Transcripts.Append(t.Context(), l, []store.Event{{Seq: 1, At: time.Now(), Kind: event.KindFile, Data: []byte(`{"path":"a.go","change":"modified","diff":"@@\n+x\n"}`)}}),
	} {
		if failed != nil {
			t.Fatal(failed)
		}
	}
	if _, err := f.store.Artifacts.KeepLink(t.Context(), l, store.Artifact{RunID: l.RunID, Type: "PULL_REQUEST", Name: "Fix", URL: "https://github.com/acme/app/pull/13"}); err != nil {
		t.Fatal(err)
	}
	if err := f.store.Leases.Finish(t.Context(), l, store.Succeeded, "", nil); err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string]int{"": 1, "&person=github:ada": 1, "&person=github:ad": 0, "&person=github:ada+x": 0, "&event=Issue_": 1, "&event=push": 0, "&event=issue&state=FAILED": 0} {
		list := read[api.List[api.Run]](t, f.get("/api/v1/agent/runs?about=true"+query, key)).Entries
		if len(list) != want {
			t.Fatalf("%q selects %d runs", query, len(list))
		}
		if want == 1 && *list[0].About != (api.RunAbout{Title: "Login <b>fails", Event: "issue_created", Files: 1, Outcome: "open"}) {
			t.Errorf("the list says %+v", list[0].About)
		}
	}
	first := read[api.List[api.Run]](t, f.get("/api/v1/agent/runs?event=issue&limit=1", key))
	rest := read[api.List[api.Run]](t, f.get("/api/v1/agent/runs?event=issue&limit=1&cursor="+url.QueryEscape(first.PageInfo.NextCursor), key))
	if len(first.Entries) != 1 || len(rest.Entries) != 0 || rest.PageInfo.HasNextPage {
		t.Errorf("of the runs of an event, the pages are %+v and %+v", first, rest)
	}
	if list := read[api.List[api.Run]](t, f.get("/api/v1/agent/runs", key)).Entries; list[0].About != nil {
		t.Errorf("nobody asked, and the list says %+v", list[0].About)
	}
	stats := read[api.Stats](t, f.get("/api/v1/stats?since=720h&spent=true", key))
	one := api.SpentBy{Name: "github:acme/app", Runs: 1, Succeeded: 1, PullRequests: 1, Tokens: 70, CostUSD: 0.25}
	if s := stats.Spent; s == nil || len(s.Repositories) != 1 || s.Repositories[0] != one || len(s.People) != 1 || s.People[0].Name != "github:ada" || len(s.Automations) != 1 || s.Automations[0].Name != "fix" || s.Total.CostUSD != 0.25 {
		t.Errorf("%+v", s)
	}
	if s := read[api.Stats](t, f.get("/api/v1/stats?spent=true", f.limitedKey("elsewhere", "other", "read"))).Spent; s == nil || s.Total.Runs != 0 {
		t.Errorf("another factory's key sees %+v", s)
	}
	if s := read[api.Stats](t, f.get("/api/v1/stats", key)).Spent; s != nil {
		t.Errorf("nobody asked, and the figures have %+v", s)
	}
	page := reader{f, f.signIn(f.link(f.key("m", "read", "runs", "operate", "manage")))}
	page.shows("/runs?person="+url.QueryEscape("github:ada"), 200, "fix: Login <b>fails · acme/app#12", "github.com/acme/app/pull/13 , 1 file changed", "issue_created by github:ada")
	page.shows("/runs?event=issue_created", 200, "fix: Login <b>fails · acme/app#12")
	page.shows("/runs?event=push", 200, "No run fits these filters.")
	page.shows("/runs/"+l.RunID.String(), 200, "fix: Login <b>fails · acme/app#12", "Ended well")
	page.shows("/costs", 200, "$0.25 for 1 run that ended, 1 of them well; they opened 1 pull request: $0.25 for each", "github:acme/app 1 1 1 0 70 $0.25", "github:ada 1 1 1 0 70 $0.25")
	sheet := page.get("/costs/table.csv")
	if got := string(sheet.body); !strings.HasPrefix(got, "by,name,runs,succeeded,pull_requests,merged,merged_unchanged,tokens,cost_usd\nAutomation,fix,1,1,1,0,0,70,0.250000\nRepository,github:acme/app,1,1,1,0,0,70,0.250000\n") {
		t.Errorf("the table is\n%s", got)
	}
	// The pull request is merged, and a delivery that nothing wants says so.
	ctx, stop := context.WithCancel(t.Context())
	indexed := make(chan error)
	go func() { indexed <- f.parts.Delivery.IndexSubjects(ctx) }()
	f.github("pull_request", "2", `{"action":"closed","pull_request":{"id":6,"number":13,"html_url":"https://github.com/acme/app/pull/13","state":"closed","merged":true,"head":{"sha":"`+strings.Repeat("a", 40)+`"}},"repository":{"id":1,"full_name":"acme/app","html_url":"https://github.com/acme/app"}}`)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		is := read[api.Run](t, f.get("/api/v1/agent/runs/"+l.RunID.String(), key)).About.Outcome
		if is == "merged" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("what came of the run is %q", is)
		}
	}
	stop()
	if err := <-indexed; err != nil {
		t.Error(err)
	}
	if got := read[api.FactoryMetrics](t, f.get("/api/v1/factory/default/metrics", key)); got.RunCount != 1 || got.PRCount != 1 || got.MergedPRs != 1 {
		t.Errorf("%d runs, %d pull requests, %d merged", got.RunCount, got.PRCount, got.MergedPRs)
	}
	page.shows("/runs", 200, "github.com/acme/app/pull/13 merged")
	page.shows("/runs/"+l.RunID.String(), 200, "pull/13 ( merged )", "pull request, merged")
	page.shows("/costs", 200, "they opened 1 pull request, and 1 of these was merged: $0.25 for each merged pull request, 1 without a person's commit", "github:acme/app 1 1 1 1 70 $0.25")
	if got := harmless("=1+1"); got != "'=1+1" || harmless("a=1") != "a=1" || harmless("") != "" {
		t.Errorf("a formula becomes %q", got)
	}
}
