package server

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"triphammer/applier"
	"triphammer/applier/gitrepo"
	"triphammer/schema"
	"triphammer/server/api"
	"triphammer/server/ledger"
)

// change sends a change, and reads what came of it.
func (f *fixture) change(key, base string, files map[string]*string) (status int, made api.Change, p api.Problem) {
	f.t.Helper()
	body, err := json.Marshal(api.ChangeRequest{Base: base, Message: "By hand", Files: files})
	if err != nil {
		f.t.Fatal(err)
	}
	got := f.do(http.MethodPost, "/api/v1/factories/default/changes", key, string(body))
	into := any(&p)
	if got.status < 300 {
		into = &made
	}
	if err := json.Unmarshal(got.body, into); err != nil {
		f.t.Fatal(err, string(got.body))
	}
	return got.status, made, p
}

func (f *fixture) git(args ...string) string {
	f.t.Helper()
	out, err := exec.CommandContext(f.t.Context(), "git", append([]string{"--git-dir=" + f.home.Dir()}, args...)...).CombinedOutput()
	if err != nil {
		f.t.Fatal(err, string(out))
	}
	return strings.TrimSpace(string(out))
}

func text(s string) *string { return &s }

// TestChange: a change is one commit by the person, checked and live at once; what is not
// valid changes nothing (SPEC 9.8, 18.1).
func TestChange(t *testing.T) {
	f := newFixtureWith(t, options{hosted: true})
	manage := f.key("admin", "manage")
	first := f.git("rev-parse", "main")
	applies := func() int { return strings.Count(string(f.get("/api/v1/applies", manage).body), `"outcome"`) }
	before := applies()

	status, made, _ := f.change(manage, first, map[string]*string{"automations/a.md": nil, "webhooks/two.yaml": text("secretName: S\n")})
	if status != http.StatusCreated || !made.Live || made.Waits != "" || made.Apply == nil || made.Apply.Outcome != "applied" || made.Apply.Commit != made.Commit ||
		!strings.Contains(string(made.Apply.Plan), `"webhooks/two.yaml"`) || len(made.Apply.Webhooks) != 2 || len(made.Since) != 0 {
		t.Fatalf("%d %+v", status, made)
	}
	if got := f.git("log", "-1", "--format=%H|%P|%an|%s", "main"); got != made.Commit+"|"+first+"|ada|By hand" {
		t.Error(got)
	}
	if got := f.get("/api/v1/webhooks/two", manage); got.status != http.StatusOK {
		t.Error("the new webhook does not serve:", got.status)
	}
	if got := applies(); got != before+1 {
		t.Errorf("%d applies of one change", got-before)
	}
	if audit := f.get("/api/v1/audit", manage); !strings.Contains(string(audit.body), `"factory.change"`) || !strings.Contains(string(audit.body), made.Commit+": By hand") {
		t.Error(string(audit.body))
	}
	tip := made.Commit

	status, made, _ = f.change(manage, tip, map[string]*string{"webhooks/two.yaml": text("secretName: S\n")})
	if status != http.StatusOK || !made.Unchanged || !made.Live || made.Commit != tip || applies() != before+1 {
		t.Errorf("a change that changes nothing: %d %+v", status, made)
	}

	// What is not valid, for the format and for this server.
	for _, c := range []struct{ path, text, want string }{
		{"webhooks/bad.yaml", "secretNam: S\n", "secretNam"},
		{"webhooks/bad.yaml", "secretName: UNKNOWN\n", "UNKNOWN"},
		{"factory.yaml", "name: x\n", "schemaVersion"},
	} {
		status, _, p := f.change(manage, "", map[string]*string{c.path: &c.text})
		if status != http.StatusUnprocessableEntity || p.Verdict == nil || p.Valid || len(p.Diagnostics) == 0 || p.Diagnostics[0].Path != c.path ||
			!strings.Contains(p.Message, c.path) || !strings.Contains(p.Diagnostics[0].Message, c.want) {
			t.Errorf("%s: %d %+v %+v", c.text, status, p, p.Verdict)
		}
	}
	if status, _, p := f.change(manage, "", map[string]*string{"factory.yaml": nil}); status != http.StatusUnprocessableEntity {
		t.Errorf("a factory without its file: %d %+v", status, p)
	}
	for path, why := range map[string]string{
		"../x":                   "not a path",
		".git/hooks/pre-receive": "keeps for itself", "a/.GIT./config": "keeps for itself", ".gitmodules": "keeps for itself",
		"webhooks/\u202ea.yaml": "nobody sees", "a\nb": "nobody sees", `webhooks\a.yaml`: "write /", strings.Repeat("long/", 300) + "x": "longer",
		"agents/nul.md": "a device", "COM1": "a device", "aux .x/a": "a device", "what?.yaml": "on Windows cannot", "a:b": "on Windows cannot", "dot./a": "ends with a dot", "space ": "ends with a dot or a space",
		"webhooks": "is a folder", "factory.yaml/x": "factory.yaml is a file",
	} {
		if status, _, p := f.change(manage, "", map[string]*string{path: text("x")}); status != http.StatusBadRequest || !strings.Contains(p.Detail, why) {
			t.Errorf("%q: %d %+v", path, status, p)
		}
	}
	if status, _, p := f.change(manage, "", map[string]*string{"webhooks/none.yaml": nil}); status != http.StatusBadRequest || !strings.Contains(p.Detail, "no such file") {
		t.Errorf("removing what is not there: %d %+v", status, p)
	}
	if got := f.git("for-each-ref", "--format=%(refname) %(objectname)"); got != "refs/heads/main "+tip {
		t.Error("what was refused left traces:", got)
	}
}

// TestChangeMoved: of two people who change at once, the second is told what the first one
// did. If it was to other files, both are kept.
func TestChangeMoved(t *testing.T) {
	f := newFixtureWith(t, options{hosted: true})
	manage := f.key("admin", "manage")
	base := f.git("rev-parse", "main")
	_, one, _ := f.change(manage, base, map[string]*string{"webhooks/one.yaml": text("secretName: S\n")})

	status, two, _ := f.change(manage, base, map[string]*string{"webhooks/two.yaml": text("secretName: S\n")})
	if status != http.StatusCreated || !two.Live || len(two.Since) != 1 || two.Since[0].Path != "webhooks/one.yaml" || two.Since[0].Author != "ada" ||
		two.Since[0].Commit != one.Commit || two.Since[0].Subject != "By hand" || two.Since[0].Time.IsZero() {
		t.Errorf("a change beside another: %d %+v", status, two)
	}
	status, _, p := f.change(manage, base, map[string]*string{"webhooks/one.yaml": text("enabled: false\nsecretName: S\n"), "factory.yaml": nil})
	if status != http.StatusConflict || p.Moved == nil || p.Moved.Tip != two.Commit || strings.Join(p.Moved.Paths, " ") != "webhooks/one.yaml" || len(p.Moved.Since) != 2 ||
		!strings.Contains(p.Detail, "ada") {
		t.Errorf("a change of the same file: %d %+v", status, p)
	}
	if status, _, p := f.change(manage, strings.Repeat("1", 40), map[string]*string{"README.md": text("x")}); status != http.StatusBadRequest {
		t.Errorf("an unknown base: %d %+v", status, p)
	}
	if status, _, p := f.change(manage, "--all", map[string]*string{"README.md": text("x")}); status != http.StatusBadRequest {
		t.Errorf("a base that is an option: %d %+v", status, p)
	}

	base = two.Commit
	var all sync.WaitGroup
	results := make(chan int, 6)
	for i := range cap(results) {
		all.Go(func() {
			status, _, _ := f.change(manage, base, map[string]*string{"README.md": text(strings.Repeat("x", i+1))})
			results <- status
		})
	}
	all.Wait()
	close(results)
	counts := make(map[int]int)
	for status := range results {
		counts[status]++
	}
	if counts[http.StatusCreated] != 1 || counts[http.StatusConflict] != cap(results)-1 {
		t.Error(counts)
	}
}

// TestChangeElsewhere: a factory that is not hosted here is changed where it is.
func TestChangeElsewhere(t *testing.T) {
	f := newFixture(t)
	status, _, p := f.change(f.key("admin", "manage"), "", map[string]*string{"webhooks/hook.yaml": text("")})
	if status != http.StatusConflict || !strings.Contains(p.Detail, "edit webhooks/hook.yaml in "+f.work) || !strings.Contains(p.Detail, "commit and push") {
		t.Errorf("%d %+v", status, p)
	}
}

// TestChangeRepairs: a change may leave errors that are there, and removes them one after
// the other.
func TestChangeRepairs(t *testing.T) {
	f := newFixtureWith(t, options{hosted: true})
	manage := f.key("admin", "manage")
	// As a push could: the secrets are missing on this server alone.
	commitTo(t, f.home, fstest.MapFS{"webhooks/x.yaml": {Data: []byte("secretName: X\n")}, "webhooks/y.yaml": {Data: []byte("secretName: Y\n")}})
	status, made, _ := f.change(manage, "", map[string]*string{"webhooks/x.yaml": nil})
	if status != http.StatusCreated || made.Live || !strings.Contains(made.Waits, "webhooks/y.yaml") || made.Apply.Outcome != "refused" {
		t.Errorf("the first step: %d %+v", status, made)
	}
	if status, _, p := f.change(manage, "", map[string]*string{"webhooks/z.yaml": text("secretName: Z\n")}); status != http.StatusUnprocessableEntity {
		t.Errorf("a new error: %d %+v", status, p)
	}
	if status, made, _ := f.change(manage, "", map[string]*string{"webhooks/y.yaml": nil}); status != http.StatusCreated || !made.Live {
		t.Errorf("the last step: %d %+v", status, made)
	}
}

// TestFactoryFiles: the newest files of a hosted factory, and those that serve of another.
func TestFactoryFiles(t *testing.T) {
	for name, here := range map[string]bool{"hosted": true, "elsewhere": false} {
		t.Run(name, func(t *testing.T) {
			f := newFixtureWith(t, options{hosted: here, files: fstest.MapFS{"notes/x.bin": {Data: []byte("\xff")}}})
			read := f.key("reader", "read")
			var list api.FactoryFiles
			if err := json.Unmarshal(f.get("/api/v1/factories/default/files", read).body, &list); err != nil {
				t.Fatal(err)
			}
			paths := ""
			for _, file := range list.Files {
				paths += file.Path + " "
			}
			want := "automations/a.md automations/other.md environments/e.yaml factory.yaml "
			if here { // what is no definition is not kept by an apply
				want += "notes/x.bin "
			}
			if paths != want+"webhooks/hook.yaml " || list.Commit == "" {
				t.Errorf("%q %+v", paths, list)
			}
			var file api.FileText
			got := f.get("/api/v1/factories/default/files/webhooks%2Fhook.yaml", read)
			if err := json.Unmarshal(got.body, &file); err != nil {
				t.Fatal(err)
			}
			if file.Path != "webhooks/hook.yaml" || file.Content != "secretName: S\n" || file.Size != int64(len(file.Content)) || file.Commit != list.Commit {
				t.Errorf("%s", got.body)
			}
			if got := f.get("/api/v1/factories/default/files/none", read); got.status != http.StatusNotFound {
				t.Errorf("a file that is not there: %d", got.status)
			}
			if got := f.get("/api/v1/factories/default/files/webhooks", read); got.status != http.StatusNotFound {
				t.Errorf("a folder: %d", got.status)
			}
			if got := f.get("/api/v1/factories/default/files/..%2F..%2Fx", read); got.status != http.StatusBadRequest {
				t.Errorf("a path outside: %d", got.status)
			}
		})
	}
}

// TestReadyBesideEmpty: a new factory that waits for its first commit is not called failing, and
// does not take the whole server out of service. One elsewhere that serves nothing does.
func TestReadyBesideEmpty(t *testing.T) {
	for name, want := range map[string]int{"hosted": http.StatusOK, "elsewhere": http.StatusServiceUnavailable} {
		t.Run(name, func(t *testing.T) {
			f := newFixtureWith(t, options{hosted: name == "hosted"})
			dir := filepath.Join(t.TempDir(), "empty.git")
			if out, err := exec.CommandContext(t.Context(), "git", "init", "--quiet", "--bare", dir).CombinedOutput(); err != nil {
				t.Fatal(err, string(out))
			}
			source, err := gitrepo.Open(dir, "nothing")
			if err != nil {
				t.Fatal(err)
			}
			a := applier.New(applier.Config{Factory: "fresh", Source: source, Live: f.parts.Live, Ledger: ledger.New(f.store), Logger: slog.New(slog.DiscardHandler)})
			if done, err := a.Apply(t.Context(), "start"); err != nil || done.Outcome != applier.Failed {
				t.Fatal(done, err)
			}
			f.cfg.Data.Add(a)
			if got := f.get("/readyz", ""); got.status != want {
				t.Errorf("%d %s", got.status, got.body)
			}
			overview, system := f.visitor("manager").page("GET", "/", "", 200), f.visitor("manager").page("GET", "/system", "", 200)
			fine := !strings.Contains(overview, "does not serve") && strings.Contains(system, "definitions fresh: "+api.WaitsForCommit)
			if fine != (want == http.StatusOK) {
				t.Errorf("the pages say:\n%s\n%s", overview, system)
			}
		})
	}
}

// TestChangeBesidePush: of a change and pushes at once, none is lost and none is half.
func TestChangeBesidePush(t *testing.T) {
	f := newFixtureWith(t, options{hosted: true})
	manage := f.key("admin", "manage")
	dir := filepath.Join(t.TempDir(), "clone")
	git := func(args ...string) ([]byte, error) {
		cmd := exec.CommandContext(t.Context(), "git", append([]string{
			"-c", "user.name=Ben", "-c", "user.email=ben@example.com", "-c", "http.extraHeader=Authorization: Bearer " + manage,
		}, args...)...)
		cmd.Env = append(cmd.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0")
		return cmd.CombinedOutput()
	}
	if out, err := git("clone", "--quiet", f.url+"/git/default.git", dir); err != nil {
		t.Fatal(err, string(out))
	}
	const each = 5
	var all sync.WaitGroup
	all.Go(func() {
		for n := range each {
			name := fmt.Sprintf("change%d.md", n)
			if status, made, p := f.change(manage, "", map[string]*string{name: text("x")}); status != http.StatusCreated || !made.Live {
				t.Errorf("%s: %d %+v %+v", name, status, made, p)
			}
		}
	})
	pushed := 0
	for n := range each {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("push%d.md", n)), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"add", "-A"}, {"commit", "--quiet", "-m", "Push"}} {
			if out, err := git(append([]string{"-C", dir}, args...)...); err != nil {
				t.Fatal(err, string(out))
			}
		}
		for range 20 { // others come first, so it is tried again
			if out, err := git("-C", dir, "pull", "--quiet", "--rebase", "origin", "main"); err != nil {
				t.Fatal(err, string(out))
			}
			if _, err := git("-C", dir, "push", "--quiet", "origin", "HEAD:main"); err == nil {
				pushed++
				break
			}
		}
	}
	all.Wait()
	names := f.git("ls-tree", "-r", "--name-only", "main")
	if pushed != each || strings.Count(names, "push") != each || strings.Count(names, "change") != each {
		t.Errorf("%d pushed\n%s", pushed, names)
	}
	f.git("fsck", "--full", "--no-dangling")
}

// TestChangeSize: a change has limits, and one within them works.
func TestChangeSize(t *testing.T) {
	f := newFixtureWith(t, options{hosted: true})
	manage := f.key("admin", "manage")
	tip := f.git("rev-parse", "main")
	if got := f.do(http.MethodPost, "/api/v1/factories/default/changes", manage, strings.Repeat(" ", maxPlanBody+1)); got.status != http.StatusRequestEntityTooLarge {
		t.Errorf("a body that is too large: %d %s", got.status, got.body)
	}
	if got := f.do(http.MethodPost, "/api/v1/factories/default/changes", manage, `{"files":{"README.md":"`+"\xff"+`"}}`); got.status != http.StatusBadRequest {
		t.Errorf("a body that is not UTF-8: %d %s", got.status, got.body)
	}
	everything := make(map[string]*string)
	for name := range strings.SplitSeq(f.git("ls-tree", "-r", "--name-only", "main"), "\n") {
		everything[name] = nil
	}
	if status, _, p := f.change(manage, "", everything); status != http.StatusUnprocessableEntity {
		t.Errorf("removing everything: %d %+v", status, p)
	}
	if got := f.git("rev-parse", "main"); got != tip {
		t.Error("the branch moved")
	}
	many := make(map[string]*string)
	for n := range 2000 {
		many[fmt.Sprintf("notes/%d.md", n)] = text("x")
	}
	many["notes/large.md"] = text(strings.Repeat("x", schema.MaxFile))
	if status, made, p := f.change(manage, "", many); status != http.StatusCreated || !made.Live {
		t.Errorf("many files: %d %+v %+v", status, made, p)
	}
}

// TestChangePinned: while a commit is pinned, a change is committed and waits.
func TestChangePinned(t *testing.T) {
	f := newFixtureWith(t, options{hosted: true})
	manage := f.key("admin", "manage")
	first := f.git("rev-parse", "main")
	if got := f.do(http.MethodPost, "/api/v1/factories/default/pin", manage, `{"commit":"`+first+`","reason":"Freeze"}`); got.status != http.StatusOK {
		t.Fatal(string(got.body))
	}
	status, made, _ := f.change(manage, first, map[string]*string{"webhooks/two.yaml": text("secretName: S\n")})
	if status != http.StatusCreated || made.Live || made.Apply != nil || !strings.Contains(made.Waits, "is pinned: Freeze") || f.git("rev-parse", "main") != made.Commit {
		t.Fatalf("%d %+v", status, made)
	}
	if got := f.get("/api/v1/webhooks/two", manage); got.status != http.StatusNotFound {
		t.Error("the change serves:", got.status)
	}
	if got := f.do(http.MethodDelete, "/api/v1/factories/default/pin", manage, ""); got.status != http.StatusOK {
		t.Fatal(string(got.body))
	}
	if got := f.get("/api/v1/webhooks/two", manage); got.status != http.StatusOK {
		t.Error("the change does not serve without the pin:", got.status)
	}
}
