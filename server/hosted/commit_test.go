package hosted

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func agree(context.Context, string, string) error { return nil }

func (r *Repository) must(t *testing.T, c Change) string {
	t.Helper()
	done, err := r.Commit(t.Context(), c, agree)
	if err != nil {
		t.Fatal(err)
	}
	return done.Hash
}

// TestCommit: a change is one commit with its author, and what is refused leaves nothing.
func TestCommit(t *testing.T) {
	r := open(t)
	at := time.Unix(1_700_000_000, 0)
	odd := `webhooks/a "b" é.yaml` // comes by a push: Windows has no such names
	first := r.must(t, Change{
		Author: "Ada <ada>\ncommitter Eve <e> 1 +0000\x7f", Message: "Begin\r\n\n\x00Because.\n\n", Time: at,
		Files: map[string][]byte{"factory.yaml": []byte("name: x\n"), "run.sh": {}, "a": {}, "d/b": {}},
	})
	// A script keeps its mode, a file becomes a folder, and a folder a file.
	dir := clone(t, serve(t, r))
	if err := os.Mkdir(filepath.Join(dir, "webhooks"), 0o700); err != nil {
		t.Fatal(err)
	}
	commitFile(t, dir, odd, []byte("x"))
	for _, args := range [][]string{{"update-index", "--chmod=+x", "run.sh"}, {"commit", "--quiet", "-m", "Mode"}, {"push", "--quiet"}} {
		if out, err := command(t, dir, args...); err != nil {
			t.Fatal(err, out)
		}
	}
	second := r.must(t, Change{Author: "Ben", Message: "More", Time: at, Files: map[string][]byte{
		odd: []byte("x\ndone\n"), "run.sh": []byte("true"), "a": nil, "a/b": []byte("y"), "d/b": nil, "d": {},
	}})
	if got := r.show(t, "log", "--format=%an|%cn|%s|%b|%at|%H", "--reverse", "main"); !strings.HasPrefix(got,
		"Ada adacommitter Eve e 1 +0000|Ada adacommitter Eve e 1 +0000|Begin|Because.\n|1700000000|"+first+"\n") ||
		!strings.HasSuffix(got, "Ben|Ben|More||1700000000|"+second) {
		t.Errorf("%q", got)
	}
	there, err := r.entries(t.Context(), "main")
	if want := map[string]string{"a/b": "100644", "d": "100644", "factory.yaml": "100644", "run.sh": "100755", odd: "100644"}; err != nil || !maps.Equal(there, want) {
		t.Errorf("%q %v", there, err)
	}
	if got := r.show(t, "show", "main:"+odd); got != "x\ndone" {
		t.Errorf("%q", got)
	}
	r.show(t, "fsck", "--strict", "--no-dangling")
	refused := errors.New("no")
	for _, tt := range []struct {
		name  string
		c     Change
		check func(context.Context, string, string) error
		want  error
	}{
		{"the same", Change{Base: second, Files: map[string][]byte{"factory.yaml": []byte("name: x\n")}}, agree, ErrNothing},
		{"no files", Change{}, agree, ErrNothing},
		{"refused", Change{Files: map[string][]byte{"x": {}}}, func(context.Context, string, string) error { return refused }, refused},
		{"no end of pushes", Change{Files: map[string][]byte{"x": {}}}, func(ctx context.Context, _, parent string) error {
			next := r.show(t, "-c", "user.name=Eve", "-c", "user.email=e@example.com", "commit-tree", "-p", parent, "-m", "next", parent+"^{tree}")
			r.show(t, "update-ref", "refs/heads/main", next)
			return nil
		}, errRaced},
	} {
		if _, err := r.Commit(t.Context(), tt.c, tt.check); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
		if refs := r.show(t, "for-each-ref", "--format=%(refname)"); refs != "refs/heads/main" {
			t.Errorf("%s: left %s", tt.name, refs)
		}
	}
}

// TestCommitBesidePush: a push that comes while a change is checked is under the change.
func TestCommitBesidePush(t *testing.T) {
	r := open(t)
	base := r.must(t, Change{Files: map[string][]byte{"a": []byte("1"), "b": []byte("1")}})
	dir := clone(t, serve(t, r))
	commitFile(t, dir, "b", []byte("2"))
	checks := 0
	done, err := r.Commit(t.Context(), Change{Base: base, Files: map[string][]byte{"a": []byte("2")}}, func(context.Context, string, string) error {
		if checks++; checks == 1 {
			if out, err := command(t, dir, "push", "--quiet"); err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
		}
		return nil
	})
	if err != nil || checks != 2 || len(done.Since) != 1 || done.Since[0].Path != "b" || done.Since[0].Author != "Ada" {
		t.Fatal(done, checks, err)
	}
	if got := r.show(t, "show", "main:a") + r.show(t, "show", "main:b"); got != "22" {
		t.Error("one of the two is lost:", got)
	}
	if _, err := r.Commit(t.Context(), Change{Base: base, Files: map[string][]byte{"b": []byte("3")}}, agree); err == nil || !strings.Contains(err.Error(), "others changed b") {
		t.Error(err)
	}
	if out, err := command(t, dir, "push", "origin", "HEAD:refs/triphammer/pending"); err == nil {
		t.Error("a push to a hidden ref:", out)
	}
}

// TestSince: who changed what is told by the newest commit to each file, over merges, names
// that are odd and names that look like the output of git.
func TestSince(t *testing.T) {
	r := open(t)
	base := r.must(t, Change{Files: map[string][]byte{"keep": {}, "gone": []byte("1")}})
	dir := clone(t, serve(t, r))
	commitFile(t, dir, ":100644 100644 a b M", []byte("1"))
	for _, args := range [][]string{
		{"checkout", "--quiet", "-b", "side"},
		{"rm", "--quiet", "gone"},
		{"commit", "--quiet", "-m", "Remove\nx"},
		{"checkout", "--quiet", "main"},
		{"merge", "--quiet", "--no-ff", "-m", "Merge it", "side"},
		{"push", "--quiet", "origin", "main"},
	} {
		if out, err := command(t, dir, args...); err != nil {
			t.Fatal(err, out)
		}
	}
	done, err := r.Commit(t.Context(), Change{Base: base, Files: map[string][]byte{"new": {}}}, agree)
	if err != nil || len(done.Since) != 2 {
		t.Fatal(done, err)
	}
	for i, want := range []string{":100644 100644 a b M|:100644 100644 a b M", "gone|Merge it"} {
		if got := done.Since[i].Path + "|" + done.Since[i].Subject; got != want || done.Since[i].Commit == "" {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestHostileCommit: whatever a change holds, it is one commit with exactly these files, or it is
// refused and nothing has happened.
func TestHostileCommit(t *testing.T) {
	for _, c := range []struct {
		author, message, name string
		content               []byte
	}{
		{"Ada", "Begin", "webhooks/a.yaml", []byte("x")},
		{"Ada <a>\nfrom refs/heads/main\n", "x\ndata 3\nfoo\n", "a\nD b", []byte("\nM 100644 inline c\ndata 0\n")},
		{"\xff", "\x00", `a"b\n`, []byte("done\n")},
		{"", "", ".git/config", []byte{}},
		{"a", "b", "factory.yaml/x", []byte("\xff\x00")},
	} {
		author, message, name, content := c.author, c.message, c.name, c.content
		r := open(t)
		before, err := r.Tip(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		done, err := r.Commit(t.Context(), Change{Author: author, Message: message, Files: map[string][]byte{name: content}}, agree)
		after, tipErr := r.Tip(t.Context())
		if tipErr != nil {
			t.Fatal(tipErr)
		}
		if bad := (*BadError)(nil); errors.As(err, &bad) || errors.Is(err, ErrNothing) {
			if after != before {
				t.Fatalf("%v, and the branch moved", err)
			}
			continue
		}
		if err != nil {
			t.Fatalf("%q: %v", name, err)
		}
		if after != done.Hash || done.Parent != before {
			t.Fatalf("%+v, %s after %s", done, after, before)
		}
		files, err := r.entries(t.Context(), after)
		if err != nil || len(files) != 1 || files[name] == "" {
			t.Fatalf("%q %v", files, err)
		}
		if got, err := r.run(t.Context(), nil, r.cfg.Dir, "cat-file", "blob", after+":"+name); err != nil || got != strings.TrimSuffix(string(content), "\n") {
			t.Fatalf("%q, not %q: %v", got, content, err)
		}
		r.show(t, "fsck", "--strict", "--no-dangling")
	}
}

// TestTidy: many changes do not pile up packs or objects.
func TestTidy(t *testing.T) {
	r := open(t)
	r.show(t, "config", "gc.autoPackLimit", "1")
	for n := range 3 {
		files := make(map[string][]byte) // git keeps so many as a pack
		for i := range 150 {
			files[fmt.Sprintf("notes/%d.md", i)] = fmt.Appendf(nil, "%d %d", n, i)
		}
		r.must(t, Change{Files: files})
	}
	if got := r.show(t, "count-objects", "-v"); !strings.Contains(got, "\npacks: 1\n") {
		t.Error(got)
	}
}
