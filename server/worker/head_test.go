package worker_test

import (
	"crypto/rand"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"triphammer/applier/gitrepo/gittest"
	"triphammer/factory"
	"triphammer/server/run"
	"triphammer/server/secret"
	"triphammer/server/store"
	"triphammer/server/worker"
)

// pulled is a repository on a Git server, with the pull requests 1 of its own branch and 2 of a fork.
type pulled struct {
	url, bare, own, fork, merged string
}

func newPulled(t *testing.T) *pulled {
	t.Helper()
	root, dir := t.TempDir(), t.TempDir()
	bare := filepath.Join(root, "acme", "app.git")
	gittest.Git(t, "", "init", "-q", "--bare", "-b", "main", bare)
	gittest.Git(t, "", "init", "-q", "-b", "main", dir)
	commit := func(name string) string {
		for _, file := range []string{"AGENTS.md", "code"} {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(name+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		gittest.Git(t, dir, "add", ".")
		gittest.Git(t, dir, "commit", "-q", "-m", name)
		return gittest.Git(t, dir, "rev-parse", "HEAD")
	}
	p := &pulled{bare: bare}
	p.merged = commit("base")
	gittest.Git(t, dir, "push", "-q", bare, "HEAD:refs/heads/main")
	p.own = commit("own")
	gittest.Git(t, dir, "push", "-q", bare, "HEAD:refs/heads/repair", "HEAD:refs/pull/1/head")
	gittest.Git(t, dir, "checkout", "-q", "main")
	gittest.Git(t, dir, "reset", "-q", "--hard", p.merged)
	p.fork = commit("fork")
	gittest.Git(t, dir, "push", "-q", bare, "HEAD:refs/pull/2/head")
	server := httptest.NewServer(gittest.Serve(t, root).Backend)
	t.Cleanup(server.Close)
	p.url = server.URL + "/acme/app.git"
	return p
}

func (p *pulled) repository() string {
	return `"repository":{"id":1,"full_name":"acme/app","clone_url":"` + p.url + `"}`
}

func (p *pulled) pull(number int, head, repo string, more string) string {
	return fmt.Sprintf(`{"action":"opened",%s,"pull_request":{"number":%d,"head":{"sha":"%s","ref":"repair","repo":%s},"base":{"ref":"main","repo":{"id":1}}%s}}`, p.repository(), number, head, repo, more)
}

// TestRunOfHead: what a run checks out, and what it is given, for each kind of event (SPEC 21.7).
func TestRunOfHead(t *testing.T) {
	w, p := newWorld(t), newPulled(t)
	for _, name := range []string{"TOKEN", "MODEL"} {
		if _, err := w.store.Secrets.Set(t.Context(), name, secret.New("the-"+strings.ToLower(name))); err != nil {
			t.Fatal(err)
		}
	}
	w.start(worker.Config{Config: run.Config{MaxRuns: 4}}, "")
	comment := `{"action":"created",` + p.repository() + `,"issue":{"number":2,"pull_request":{"url":"x"}},"comment":{"body":"Look."}}`
	elsewhere := strings.Replace(p.pull(2, p.fork, `{"id":2}`, ""), "/acme/app.git", "/acme/other.git", 1)
	const all, some = "TOKEN=set MODEL=set", "TOKEN= MODEL=set"
	const withheld = "head of another repository: no secrets, no push"
	for name, tt := range map[string]struct {
		event, payload, ref string
		want                string // commit, AGENTS.md, branch, origin/main..HEAD; then the secrets
		belt                string
	}{
		"own":                       {"pull_request", p.pull(1, p.own, `{"id":1}`, ""), "", "own own repair own " + all, ""},
		"fork":                      {"pull_request", p.pull(2, p.fork, `{"id":2}`, ""), "", "fork base  fork " + some, withheld},
		"fork, asked for":           {"pull_request", p.pull(2, p.fork, `{"id":2}`, ""), "event", "fork base  fork " + some, withheld},
		"a fork that is gone":       {"pull_request", p.pull(2, p.fork, `null`, ""), "event", "fork base  fork " + some, withheld},
		"gone, and not asked":       {"pull_request", p.pull(2, p.fork, `null`, ""), "", "base base main  " + all, ""},
		"another ref":               {"pull_request", p.pull(2, p.fork, `{"id":2}`, ""), "main", "base base main  " + all, ""},
		"merged":                    {"pull_request", p.pull(2, p.fork, `{"id":2}`, `,"merged":true,"merge_commit_sha":"`+p.merged+`"`), "", "base base   " + all, ""},
		"comment":                   {"issue_comment", comment, "event", "fork base  2 " + some, withheld},
		"comment, and not asked":    {"issue_comment", comment, "", "base base main  " + all, ""},
		"push":                      {"push", `{"ref":"refs/heads/repair","after":"` + p.own + `",` + p.repository() + `}`, "", "own own repair 1 " + all, ""},
		"deleted branch":            {"push", `{"ref":"refs/heads/repair","after":"` + strings.Repeat("0", 40) + `",` + p.repository() + `}`, "event", "base base main  " + all, ""},
		"of another repository":     {"pull_request", elsewhere, "event", "base base main  " + all, ""},
		"no code":                   {"issues", `{"action":"opened",` + p.repository() + `,"issue":{"number":3}}`, "event", "base base main  " + all, ""},
		"checks of a fork":          {"workflow_run", `{` + p.repository() + `,"workflow_run":{"head_sha":"` + p.fork + `","head_branch":"x","head_repository":{"id":2},"pull_requests":[]}}`, "", "fork base  2 " + some, withheld},
		"checks of its own":         {"workflow_run", `{` + p.repository() + `,"workflow_run":{"head_sha":"` + p.own + `","head_branch":"repair","head_repository":{"id":1},"pull_requests":[]}}`, "", "own own repair 1 " + all, ""},
		"checks, nobody says whose": {"check_suite", `{` + p.repository() + `,"check_suite":{"head_sha":"` + p.own + `","head_branch":"repair","pull_requests":[]}}`, "event", "own base  2 " + some, withheld},
	} {
		t.Run(name, func(t *testing.T) {
			e := environment(`echo "$(git log -1 --format=%s) $(cat AGENTS.md 2>/dev/null) $(git branch --show-current) $(git log --format=%s origin/main..HEAD 2>/dev/null || git rev-list --count HEAD) TOKEN=${TOKEN:+set} MODEL=${MODEL:+set}"`)
			e.Repositories = []factory.Repository{{URL: p.url, Ref: tt.ref}}
			n := w.newRun(run.Spec{Environment: e, Secrets: []string{"MODEL", "TOKEN"}, Harness: factory.Harness{AuthSecret: "MODEL"}})
			n.Source, n.Webhook = "GITHUB_WEBHOOK", "hook"
			id := w.deliver(n, tt.event, tt.payload)
			r := w.finished(id)
			w.wants(r, store.Succeeded, "")
			if got, _, _ := strings.Cut(w.output(id, "stdout"), "\n"); strings.Join(strings.Fields(got), " ") != strings.Join(strings.Fields(tt.want), " ") {
				t.Errorf("the run has %q, want %q", got, tt.want)
			}
			belt, err := w.manager.Desk().Belt(t.Context(), r)
			if err != nil || strings.Contains(belt[1].Detail, withheld) != (tt.belt != "") {
				t.Errorf("%v: the belt says %+v", err, belt)
			}
		})
	}
}

// deliver records a delivery of GitHub that starts a run.
func (w *world) deliver(n store.NewRun, event, payload string) store.RunID {
	w.Helper()
	d := &store.NewDelivery{Payload: []byte(payload), Runs: []store.NewRun{n}}
	d.Factory, d.Webhook, d.WebhookUID, d.Outcome, d.ReceivedAt = "f", "hook", "whk_1", store.Accepted, time.Now()
	d.Headers, d.Identity = map[string]string{"X-Github-Event": event}, store.Identity{Source: store.IdentityReplay, Value: rand.Text()}
	recorded, err := w.store.Deliveries.Record(w.Context(), d)
	if err != nil {
		w.Fatal(err)
	}
	w.manager.Wake()
	return recorded.RunIDs[0]
}

// TestFollowUpOfHead: a follow-up works on the code of the first run, so it is held to the same, even when
// nobody knows any more what the event was about (SPEC 21.7).
func TestFollowUpOfHead(t *testing.T) {
	w, p := withTalker(t, worker.Config{}), newPulled(t)
	if _, err := w.store.Secrets.Set(t.Context(), "SUFFIX", secret.New("-secret")); err != nil { // the talker writes down whether it has it
		t.Fatal(err)
	}
	spec := talk("Look.")
	spec.Secrets, spec.Repositories = []string{"SUFFIX"}, []factory.Repository{{URL: p.url}}
	n := w.newRun(spec)
	n.Source, n.Webhook = "GITHUB_WEBHOOK", "hook"
	lost, _, err := w.store.Runs.Create(t.Context(), n, "", nil) // as a run whose delivery is deleted
	if err != nil {
		t.Fatal(err)
	}
	w.manager.Wake()
	for name, tt := range map[string]struct {
		first   store.RunID
		foreign bool
	}{
		"own":  {w.deliver(n, "pull_request", p.pull(1, p.own, `{"id":1}`, "")), false},
		"fork": {w.deliver(n, "pull_request", p.pull(2, p.fork, `{"id":2}`, "")), true},
		"lost": {lost.ID, true},
	} {
		w.wants(w.finished(tt.first), store.Succeeded, "")
		next, err := w.follow(tt.first, "Again.")
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range []store.RunID{tt.first, next.ID} {
			r := w.finished(id)
			w.wants(r, store.Succeeded, "")
			belt, err := w.manager.Desk().Belt(t.Context(), r)
			if err != nil || strings.Contains(belt[1].Detail, "no secrets, no push") != tt.foreign {
				t.Errorf("%s: %v: the belt says %+v", name, err, belt)
			}
		}
		turns, err := os.ReadFile(filepath.Join(w.dir, tt.first.String(), "workspace", "app", "granted"))
		if want := strings.Repeat(map[bool]string{false: "granted\n", true: "\n"}[tt.foreign], 2); err != nil || string(turns) != want {
			t.Errorf("%s: the agents had the secret %q, %v, want %q", name, turns, err, want)
		}
	}
}
