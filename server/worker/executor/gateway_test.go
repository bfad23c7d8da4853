package executor

import (
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"triphammer/applier/gitrepo/gittest"
	"triphammer/server/run/event"
	"triphammer/server/run/task"
	"triphammer/server/secret"
)

const forgeToken = "c4nary-of-the-forge" // that the forge accepts

// forge is a code forge with the private repository /example/app.git.
type forge struct {
	*gittest.Server
	bare, url string
}

func newForge(t *testing.T) *forge {
	t.Helper()
	root := t.TempDir()
	f := &forge{bare: filepath.Join(root, "example", "app.git")}
	for _, bare := range []string{f.bare, filepath.Join(root, "example", "app-of-others.git")} {
		git(t, "", "init", "-q", "--bare", "-b", "main", bare)
		git(t, bare, "config", "http.receivepack", "true")
		work := t.TempDir()
		git(t, work, "init", "-q", "-b", "main")
		git(t, work, "commit", "-q", "--allow-empty", "-m", "one")
		git(t, work, "push", "-q", bare, "main")
	}
	f.Server = gittest.Serve(t, root)
	f.Basic("x-access-token", forgeToken)
	f.url = f.URL + "/example/app.git"
	return f
}

// roots trust the forge.
func (f *forge) roots() (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	pool.AddCert(f.Certificate())
	return pool, nil
}

// task is a run with the private repository.
func (f *forge) task(script string) *task.Task {
	t := sh(script)
	t.Repositories = []task.Repository{{URL: f.url, Secret: "FORGE"}}
	t.Credentials = map[string]secret.Value{"FORGE": secret.New(forgeToken)}
	t.Pushes = task.Pushes{Branches: []string{"*"}, Max: 3, MaxBytes: 1 << 20}
	t.Env = map[string]string{"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.com", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@example.com"}
	return t
}

// hunt is an agent that gathers what could hold the token, in a file of its workspace.
const hunt = `
{
	env; set; git config --list --show-origin; cat "$GIT_CONFIG_SYSTEM" .git/config "$HOME"/.gitconfig "$HOME"/.git-credentials
	cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline | tr '\0' '\n'
	printf 'protocol=https\nhost=%s\npath=example/app.git\n\n' "$FORGE_HOST" | GIT_TERMINAL_PROMPT=0 GIT_ASKPASS=true git credential fill
	GIT_TRACE_CURL=1 GIT_TRACE_REDACT=0 GIT_CURL_VERBOSE=1 git ls-remote origin
	GIT_TRACE_CURL=1 GIT_TRACE_REDACT=0 GIT_CURL_VERBOSE=1 git push -q --dry-run origin HEAD:refs/heads/hunted
} > ../hunted 2>&1 || true
`

// noToken fails if a file that the run has seen or made holds the token.
func (f *forge) noToken(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(name)
		for _, form := range []string{forgeToken, base64.StdEncoding.EncodeToString([]byte("x-access-token:" + forgeToken))} {
			if strings.Contains(string(text), form) {
				t.Errorf("%s holds the token", name)
			}
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestPrivateRepository: a run clones a private repository, fetches and pushes, and so does
// its follow-up. The credential is nowhere where the run looks.
func TestPrivateRepository(t *testing.T) {
	forge := newForge(t)
	e, r := newExecutor(t, 0), newRecorder()
	e.roots = forge.roots
	script := `set -e
git remote get-url origin >/dev/null
git config remote.origin.url
git checkout -q -b repair && git commit -q --allow-empty -m "$0" && git push -q origin "HEAD:refs/heads/$0" && git fetch -q origin && git ls-remote -q origin "$0" | cut -f2
`
	work := forge.task(strings.ReplaceAll(script, "$0", "first") + hunt)
	work.Env["FORGE_HOST"] = strings.TrimPrefix(forge.URL, "https://")
	exit, err := e.Start(t.Context(), work, r)
	if err != nil || exit.Code != 0 {
		t.Fatal(exit, err, r.said("stdout"), r.said("stderr"))
	}
	if got, want := r.said("stdout"), forge.url+"\nrefs/heads/first\n"; got != want {
		t.Errorf("the agent printed %q, want %q\n%s", got, want, r.said("stderr"))
	}
	hunted, err := os.ReadFile(filepath.Join(e.dir, "run_1", "workspace", "hunted"))
	for _, seen := range []string{"Bearer", "PATH=", "Authorization:", "/example/app.git", "refs/heads/main"} {
		if err != nil || !strings.Contains(string(hunted), seen) {
			t.Errorf("%v: the agent did not see %q", err, seen)
		}
	}
	forge.noToken(t, filepath.Join(e.dir, "run_1"))
	again := newRecorder()
	work = forge.task(strings.ReplaceAll(strings.Replace(script, "-b repair", "repair", 1), "$0", "second"))
	work.Resume = true
	exit, err = e.Start(t.Context(), work, again)
	if err != nil || exit.Code != 0 || !strings.HasSuffix(again.said("stdout"), "refs/heads/second\n") {
		t.Errorf("%v %v: the follow-up printed %q and %q", exit, err, again.said("stdout"), again.said("stderr"))
	}
	if got := git(t, forge.bare, "log", "--format=%s", "second"); got != "second\nfirst\none" {
		t.Errorf("the forge has %q", got)
	}
	contacts := of[event.Egress](r)
	if len(contacts) == 0 || !contacts[0].Allowed || contacts[0].Host != "127.0.0.1" {
		t.Errorf("the transcript has the contacts %+v", contacts)
	}
	text, err := os.ReadFile(filepath.Join(e.dir, "run_1", "workspace", "app", ".git", "config"))
	if err != nil || !strings.Contains(string(text), "url = "+forge.url+"\n") {
		t.Errorf("%v: the settings of the clone: %s", err, text)
	}
}

// TestPrivateRepositoryFailures: a run says at once what is wrong with a credential.
func TestPrivateRepositoryFailures(t *testing.T) {
	forge := newForge(t)
	for _, tt := range []struct {
		name   string
		change func(*Executor, *task.Task)
		want   []string
	}{
		{
			"wrong token", func(_ *Executor, t *task.Task) { t.Credentials["FORGE"] = secret.New("w4s-never-good") },
			[]string{"clone failed: git clone", forge.url + " refuses the secret FORGE (401 Unauthorized: who are you?)", "triphammer secrets set FORGE"},
		},
		{"wrong user", func(_ *Executor, t *task.Task) { t.Credentials["FORGE"] = secret.New("ada:" + forgeToken) }, []string{"refuses the secret FORGE"}},
		{"private key", func(_ *Executor, t *task.Task) { t.Credentials["FORGE"] = secret.New("-----BEGIN\nw4s-never-good\n") }, []string{"does not hold one line with a token"}},
		{"no token", func(_ *Executor, t *task.Task) { t.Credentials = nil }, []string{"does not hold one line with a token"}},
		{"unknown certificate", func(e *Executor, _ *task.Task) { e.roots = nil }, []string{"cannot be reached", "--git-ca-file"}},
		{"two secrets", func(_ *Executor, t *task.Task) {
			t.Repositories = append(t.Repositories, task.Repository{URL: forge.url, Path: "other", Secret: "OTHER"})
			t.Credentials["OTHER"] = secret.New("an0ther")
		}, []string{"named twice"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e, r := newExecutor(t, 0), newRecorder()
			e.roots = forge.roots
			work := forge.task("echo started")
			tt.change(e, work)
			_, err := e.Start(t.Context(), work, r)
			if err == nil {
				t.Fatal("the run did not fail")
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the run says %q, want %q", err, want)
				}
			}
			if all := err.Error() + fmt.Sprint(r.events); strings.Contains(all, forgeToken) || strings.Contains(all, "w4s-never-good") || strings.Contains(all, "an0ther") {
				t.Errorf("a token shows: %s", all)
			}
		})
	}
}

// TestRepositoryWithoutSecret: a run that clones a repository over http without a credential
// says in plain words that it wants one, where, and what to do, also if a setting or another
// language would have git say it in another way.
func TestRepositoryWithoutSecret(t *testing.T) {
	forge := newForge(t)
	for _, tt := range []struct {
		name, path string
		fault      int // status of each answer; 0: that of the forge
		want       string
	}{
		{"private", "/example/app.git", 0, "wants a credential (401): it is private, or there is no such repository"},
		{"forbidden", "/example/app.git", http.StatusForbidden, "may not be read by this run (403)"},
		{"missing", "/example/none.git", http.StatusNotFound, "is not found (404): there is no such repository, or it is private"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			forge.Fault(func(w http.ResponseWriter, _ *http.Request) bool {
				if tt.fault > 0 {
					http.Error(w, "no", tt.fault)
				}
				return tt.fault > 0
			})
			for _, ref := range []string{"", "main", "refs/heads/main"} {
				e, r := newExecutor(t, 0), newRecorder()
				work := sh("echo started")
				work.Env = map[string]string{"GIT_SSL_NO_VERIFY": "1", "LANG": "de_DE.UTF-8", "LANGUAGE": "de"}
				// A user without a password does not help.
				work.Repositories = []task.Repository{{URL: strings.Replace(forge.URL, "://", "://ada@", 1) + tt.path, Ref: ref}}
				_, err := e.Start(t.Context(), work, r)
				if err == nil {
					t.Fatal("the run did not fail")
				}
				for _, want := range []string{
					"clone failed: the repository " + forge.URL + tt.path + " " + tt.want, "`triphammer secrets set NAME`", "{url: " + forge.URL + tt.path + ", secret: NAME}", "(git ",
				} {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("ref %q: the run says %q, want %q", ref, err, want)
					}
				}
				if n := strings.Index(err.Error(), "exit status"); n >= 0 {
					t.Errorf("the run says %q", err)
				}
			}
		})
	}
}

// TestReadOnlyRepository: with access: read a run fetches, and its push is refused with the
// reason before anything is sent to the forge.
func TestReadOnlyRepository(t *testing.T) {
	forge := newForge(t)
	var pushed bool
	forge.Fault(func(_ http.ResponseWriter, r *http.Request) bool {
		pushed = pushed || strings.Contains(r.URL.String(), "receive-pack")
		return false
	})
	e, r := newExecutor(t, 0), newRecorder()
	e.roots = forge.roots
	work := forge.task("git commit -q --allow-empty -m two && git push origin HEAD:refs/heads/pushed; git fetch && echo fetched")
	work.Repositories[0].ReadOnly = true
	exit, err := e.Start(t.Context(), work, r)
	if err != nil || exit.Code != 0 || r.said("stdout") != "fetched\n" {
		t.Errorf("%v %v: %q %q", exit, err, r.said("stdout"), r.said("stderr"))
	}
	if said := r.said("stderr"); !strings.Contains(said, "read-only for this run: its environment says access: read") {
		t.Errorf("the agent sees %q", said)
	}
	if pushed {
		t.Error("the forge was asked for a push")
	}
}

// TestGatewayOfAnotherRun: another run that knows where the gateway listens cannot use it, and
// it ends with its run.
func TestGatewayOfAnotherRun(t *testing.T) {
	forge := newForge(t)
	e := newExecutor(t, 0)
	e.roots = forge.roots
	asked := make(chan string)
	sink := adding(func(ev event.Event) {
		if o, ok := ev.(event.Output); ok && o.Stream == "stdout" {
			asked <- strings.TrimSpace(o.Text)
		}
	})
	victim := forge.task("git remote get-url origin; read stop < ../fifo")
	victim.Setup = []string{"mkfifo ../fifo"}
	done := make(chan error, 1)
	go func() {
		_, err := e.Start(t.Context(), victim, sink)
		done <- err
	}()
	address := ""
	select {
	case address = <-asked:
	case err := <-done:
		t.Fatal("the run ended at once:", err)
	}
	r := newRecorder()
	other := sh("git -c http.extraHeader='Authorization: Bearer wrong' ls-remote " + address + "; curl -sS " + address + "/info/refs?service=git-upload-pack; cat ../../run_1/gitconfig")
	other.RunID = "run_2"
	if _, err := e.Start(t.Context(), other, r); err != nil {
		t.Fatal(err)
	}
	said := r.said("stdout") + r.said("stderr")
	if strings.Count(said, "for Git of that run alone") != 2 || strings.Contains(said, "refs/heads") {
		t.Errorf("another run sees %q", said)
	}
	if isolation != None && strings.Contains(said, "Bearer") {
		t.Errorf("another run reads the token of the gateway: %q", said)
	}
	// A fifo that the test opens ends the run.
	fifo, err := os.OpenFile(filepath.Join(e.dir, "run_1", "workspace", "fifo"), os.O_WRONLY, 0)
	if err == nil {
		_, err = fifo.WriteString("stop\n")
		_ = fifo.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	host := strings.Split(strings.TrimPrefix(address, "http://"), "/")[0]
	if conn, err := net.Dial("tcp", host); err == nil {
		_ = conn.Close()
		t.Error("the gateway answers when its run has ended")
	}
}
