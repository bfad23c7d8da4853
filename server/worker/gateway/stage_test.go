package gateway

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"triphammer/applier/gitrepo/gittest"
	"triphammer/schema/output"
	"triphammer/server/run/task"
)

// staging are rules whose pushes wait, and the packs that were kept.
func staging(rules task.Pushes) (task.Pushes, *[][]byte) {
	kept := new([][]byte)
	rules.Waits = time.Hour
	rules.Stage = func(_ context.Context, content io.Reader) (output.Pack, error) {
		all, err := io.ReadAll(content)
		if err == nil {
			*kept = append(*kept, all)
		}
		return output.Pack{Artifact: "art", SHA256: "sum", Bytes: int64(len(all))}, err
	}
	return rules, kept
}

// waiting are the pushes that wait.
func (w *gatewayWorld) waiting() (all []*output.Push) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.pushed {
		if e.Waits == "" {
			continue
		}
		r, err := output.Parse([]byte(e.Waits))
		if err != nil || r.Kind != output.PushKind || r.Push == nil || r.Push.Ref != e.Ref || r.Push.New != e.New {
			w.t.Fatalf("%v %+v", err, e)
		}
		all = append(all, r.Push)
	}
	return all
}

// TestStage: a push that waits for a person is judged as any other, succeeds for Git, and does not reach the
// forge before it is sent; then it arrives once, unless the branch has moved (SPEC 23.3).
func TestStage(t *testing.T) {
	rules, kept := staging(task.Pushes{Max: 3})
	w, work := pushWorld(t, rules)
	bare := filepath.Join(w.root, "example/app.git")
	before := gittest.Git(t, bare, "for-each-ref")
	push := func(refs ...string) string {
		out, err := w.git(work, append([]string{"push", "origin"}, refs...)...)
		if err != nil || !strings.Contains(out, strings.TrimSpace(waitingNote)) {
			t.Fatal(err, out)
		}
		return gittest.Git(t, work, "rev-parse", "HEAD")
	}
	w.must(work, "commit", "-q", "--allow-empty", "-m", "first")
	push("HEAD:triphammer/new")
	w.must(work, "commit", "-q", "--allow-empty", "-m", "second\n\nand more")
	second := push("HEAD:triphammer/new")                  // which the forge does not have yet
	push("HEAD:triphammer/new", "HEAD:triphammer/another") // and once more, together with another one
	w.must(work, "checkout", "-q", "-b", "theirs", "origin/triphammer/theirs")
	w.must(work, "commit", "-q", "--allow-empty", "-m", "on top of theirs")
	ours := push("theirs:triphammer/theirs")
	for args, want := range map[string]string{
		"HEAD:main": "default branch only if", "HEAD:other": "a run pushes to triphammer/*", ":triphammer/theirs": "a run deletes nothing", "HEAD:triphammer/four": "push.max of the automation: 3",
		"-f origin/main:triphammer/theirs": "does not rewrite what",
	} {
		if out, err := w.git(work, append([]string{"push", "origin"}, strings.Fields(args)...)...); err == nil || !strings.Contains(out, want) {
			t.Errorf("%s: %v %s", args, err, out)
		}
	}
	if after := gittest.Git(t, bare, "for-each-ref"); after != before || slices.ContainsFunc(w.seen(), func(r string) bool { return strings.HasPrefix(r, "POST") && strings.HasSuffix(r, pushing) }) {
		t.Fatalf("the forge was reached: %s\n%q", after, w.seen())
	}
	all := w.waiting()
	if len(all) != 5 || len(*kept) != 4 {
		t.Fatalf("%d pushes, %d packs", len(all), len(*kept))
	}
	if p := all[1]; p.New != second || !none(p.Old) || p.Commits != 2 || !slices.Equal(p.Subjects, []string{"second", "first"}) || p.Secret != "FORGE" || p.Repository != w.forge.URL+"/example/app.git" {
		t.Errorf("%+v", p)
	}
	if p := all[4]; p.New != ours || p.Commits != 1 || p.Old != gittest.Git(t, bare, "rev-parse", "triphammer/theirs") {
		t.Errorf("%+v", p)
	}

	send := func(n, pack int) (no *PushError) {
		t.Helper()
		err := w.gateway.Send(t.Context(), all[n], bytes.NewReader((*kept)[pack]))
		if err != nil && !errors.As(err, &no) {
			t.Fatal(err)
		}
		return no
	}
	posts := 0
	// What the forge says of the first push is lost. The second attempt finds it there.
	w.fault(func(rw http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPost {
			return false
		}
		if posts++; posts > 1 {
			return false
		}
		w.forge.Backend.ServeHTTP(&deaf{header: make(http.Header)}, r)
		panic(http.ErrAbortHandler)
	})
	if no := send(1, 1); no == nil || !no.Unsure {
		t.Errorf("whose outcome is lost: %v", no)
	}
	if no := send(1, 1); no != nil || posts != 1 || gittest.Git(t, bare, "rev-parse", "triphammer/new") != second {
		t.Errorf("again: %v, %d requests", no, posts)
	}
	// One pack serves each of its branches.
	if no := send(3, 2); no != nil || gittest.Git(t, bare, "rev-parse", "triphammer/another") != second {
		t.Errorf("%v", no)
	}
	gittest.Git(t, bare, "update-ref", "refs/heads/triphammer/theirs", "main")
	if no := send(4, 3); no == nil || !no.Final || !strings.Contains(no.Error(), "triphammer/theirs of "+w.forge.URL+"/example/app.git has moved since the run pushed: it is at "+gittest.Git(t, bare, "rev-parse", "main")) {
		t.Errorf("moved: %v", no)
	}
	gittest.Git(t, bare, "update-ref", "-d", "refs/heads/triphammer/theirs")
	if no := send(4, 3); no == nil || !no.Final || !strings.Contains(no.Error(), "it is not there any more") {
		t.Errorf("deleted: %v", no)
	}
	all[4].Old = strings.Repeat("0", 40)
	(*kept)[3] = append([]byte("PACK"), make([]byte, all[4].Pack.Bytes-4)...)
	if no := send(4, 3); no == nil || !no.Final || !strings.Contains(no.Error(), "the forge refused it") {
		t.Errorf("a pack that is none: %v", no)
	}
	for status, final := range map[int]bool{http.StatusForbidden: true, http.StatusBadGateway: false, http.StatusTooManyRequests: false} {
		w.fault(func(rw http.ResponseWriter, _ *http.Request) bool { rw.WriteHeader(status); return true })
		if no := send(0, 0); no == nil || no.Final != final || no.Unsure {
			t.Errorf("%d: %+v", status, no)
		}
		w.fault(func(rw http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodPost {
				rw.WriteHeader(status)
			}
			return r.Method == http.MethodPost
		})
		if no := send(4, 3); no == nil || no.Final != final || no.Unsure != (status >= 500) {
			t.Errorf("%d of the push itself: %+v", status, no)
		}
	}
}

// deaf is the answer to a client that has gone.
type deaf struct{ header http.Header }

func (d *deaf) Header() http.Header         { return d.header }
func (d *deaf) Write(b []byte) (int, error) { return len(b), nil }
func (d *deaf) WriteHeader(int)             {}

// TestStageRefused: what cannot be kept or read is refused, and nobody is asked about it.
func TestStageRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		rules task.Pushes
		stage error
		want  string
	}{
		"much":    {rules: task.Pushes{MaxBytes: 10_000}, want: "a run pushes at most 10000 bytes"},
		"no room": {stage: errors.New("the disk is full"), want: "it could not be kept for a person: the disk is full"},
	} {
		t.Run(name, func(t *testing.T) {
			rules, kept := staging(tt.rules)
			if tt.stage != nil {
				rules.Stage = func(context.Context, io.Reader) (output.Pack, error) { return output.Pack{}, tt.stage }
			}
			w, work := pushWorld(t, rules)
			noise := make([]byte, 100_000)
			_, _ = rand.Read(noise)
			if err := os.WriteFile(filepath.Join(work, "big"), noise, 0o600); err != nil {
				t.Fatal(err)
			}
			w.must(work, "add", ".")
			w.must(work, "commit", "-q", "-m", "big")
			out, err := w.git(work, "push", "origin", "HEAD:triphammer/big")
			w.end()
			if err == nil || !strings.Contains(out, tt.want) || len(w.waiting())+len(*kept) != 0 || !slices.ContainsFunc(w.pushed, refusedPush) {
				t.Errorf("%v %s, told %+v", err, out, w.pushed)
			}
		})
	}
	rules, kept := staging(task.Pushes{})
	w, _ := pushWorld(t, rules)
	main := gittest.Git(t, filepath.Join(w.root, "example/app.git"), "rev-parse", "main")
	head := packet(strings.Repeat("0", 40)+" "+main+" refs/heads/triphammer/x\x00 report-status") + flush
	if _, text := w.send(http.MethodPost, "/example/app.git/git-receive-pack", w.bearer(), head+"no pack"); !strings.Contains(text, "ng refs/heads/triphammer/x the pack is not as Git writes packs") {
		t.Errorf("%q", text)
	}
	if len(w.waiting())+len(*kept) != 0 {
		t.Errorf("%v", w.waiting())
	}
}
