package executor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"triphammer/server/run/event"
	"triphammer/server/run/task"
)

func TestRepositories(t *testing.T) { // SPEC 9.4, 13.11
	origin := filepath.Join(t.TempDir(), "app.git")
	git(t, "", "init", "-q", "-b", "main", origin)
	git(t, origin, "commit", "-q", "--allow-empty", "-m", "one")
	first := git(t, origin, "rev-parse", "HEAD")
	git(t, origin, "commit", "-q", "--allow-empty", "-m", "two")
	git(t, origin, "branch", "other", first)
	p, r := newExecutor(t, 0), newRecorder()
	work := sh(`basename "$PWD"; git log --format=%s; cd ../b; git log --format=%s; git branch --show-current; cd ../sub/c; git log --format=%s; echo changed >file`)
	work.Repositories = []task.Repository{{URL: origin}, {URL: "file://" + origin, Ref: "other", Path: "b"}, {URL: origin, Ref: first, Path: "sub/c"}}
	exit, err := p.Start(t.Context(), work, r)
	if err != nil || exit.Code != 0 {
		t.Fatal(exit, err, r.said("stderr"))
	}
	if got, want := r.said("stdout"), "app\ntwo\none\nother\none\n"; got != want {
		t.Errorf("stdout %q, want %q", got, want)
	}
	if got := of[event.File](r); len(got) != 1 || got[0].Path != "sub/c/file" {
		t.Errorf("files %+v: .git is not looked at", got)
	}
	work.Repositories = []task.Repository{{URL: origin}, {URL: "file://" + origin}}
	if _, err := p.Start(t.Context(), work, r); err == nil || !strings.Contains(err.Error(), "two repositories want the folder app") {
		t.Errorf("error %v", err)
	}
}

// TestPlainWork: what a developer does every day works between walls: commits without any
// settings, renames and links between folders, and a push to a repository beside (SPEC 14.2).
func TestPlainWork(t *testing.T) {
	p, r := newExecutor(t, 0), newRecorder()
	work := sh(`set -e
git init -q --bare ../home/there.git
git init -q here && cd here
mkdir one two && echo a >one/a && echo b >one/b
git add . && git commit -qm first && git log --format='%an %ae %cn'
git mv one/a two/a && ln one/b two/linked && mkdir two/below && echo c >two/below/c && git mv -k one two/moved
rm -f two/linked && git add . && git commit -qm second
git push -q ../../home/there.git HEAD:refs/heads/main
git -C ../../home/there.git ls-tree -r --name-only main
git replace HEAD HEAD~1 && git log -1 --format=%s
`)
	work.Vars["GIT_COMMITTER_NAME"], work.Vars["GIT_COMMITTER_EMAIL"] = `Tri"ph\ammer`, "run_1@runs.invalid"
	exit, err := p.Start(t.Context(), work, r)
	if err != nil || exit != (task.Exit{}) {
		t.Fatal(exit, err, r.said("stdout"), r.said("stderr"))
	}
	if got, want := r.said("stdout"), "Tri\"ph\\ammer run_1@runs.invalid Tri\"ph\\ammer\ntwo/a\ntwo/below/c\ntwo/moved/b\nsecond\n"; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// TestDaysWork: a run does what a developer does in a day, with real git: it branches, installs
// 3,000 files, renames, builds, commits, rebases onto what others have pushed, stashes, uses a
// worktree and a submodule, changes a line of a large lockfile, and pushes. Git applies its
// patches elsewhere, and the trees are the same then (SPEC 15.6).
func TestDaysWork(t *testing.T) {
	base := t.TempDir()
	library, origin := filepath.Join(base, "library"), filepath.Join(base, "app")
	for _, dir := range []string{library, origin} {
		git(t, "", "init", "-q", "-b", "main", dir)
	}
	write(t, library, "lib.txt", "one\n")
	write(t, origin, ".gitignore", "node_modules/\n*.log\n")
	write(t, origin, "src/one/a.txt", "a\nb\nc\n")
	write(t, origin, "src/deep/data.txt", "data\n")
	write(t, origin, "build.sh", "cat src/*/*.txt >out.txt; echo built >build.log\n")
	write(t, origin, "logo.bin", "\x00\x01\x02")
	write(t, origin, "old.txt", "old\n")
	write(t, origin, "package-lock.json", strings.Repeat(`{"name": "a", "version": "1.0.0"},`+"\n", 17_000)+"end\n")
	for _, dir := range []string{library, origin} {
		if dir == origin {
			git(t, origin, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", library, "lib")
		}
		git(t, dir, "add", ".")
		git(t, dir, "commit", "-q", "-m", "first")
	}
	first := git(t, origin, "rev-parse", "HEAD")

	p, r := newExecutor(t, 0), newRecorder()
	work := sh(`set -ex
there=$HOME/there.git
git clone -q --bare "$ORIGIN" $there
git remote set-url origin $there
git switch -qc work
for i in 1 2 3; do mkdir -p node_modules/$i && (cd node_modules/$i && seq 1000 | split -l 1 -a 4); done
mkdir src/two && git mv src/one/a.txt src/two/b.txt
printf 'a\nB\nc\n' >src/two/b.txt
sh build.sh
git add . && git commit -qm 'Move and build'

git clone -q $there ../other
(cd ../other && echo theirs >theirs.txt && git add . && git commit -qm Theirs && git push -q)
git fetch -q origin && git rebase -q origin/main
echo more >>src/deep/data.txt && git stash -q && git stash pop -q
sed -i '9000s/1.0.0/2.0.0/' package-lock.json
printf '\000\377' >logo.bin && : >empty && ln -s src/deep link && chmod +x build.sh && rm old.txt
git -c protocol.file.allow=always submodule --quiet update --init
(cd lib && echo two >>lib.txt && git commit -qam 'In the submodule')
git worktree add -q ../tree -b side
(cd ../tree && echo side >side.txt && git add . && git commit -qm Side && git push -q origin side)
git add . && git commit -qm Rest && git push -q origin work
git -C $there log --format=%s work
git ls-files --stage`)
	work.Repositories = []task.Repository{{URL: origin}, {URL: library, Path: "beside"}}
	work.Vars["ORIGIN"], work.Vars["GIT_COMMITTER_NAME"], work.Vars["GIT_COMMITTER_EMAIL"] = origin, "a", "a@example.com"
	exit, err := p.Start(t.Context(), work, r)
	if err != nil || exit != (task.Exit{}) {
		t.Fatal(exit, err, r.said("stdout"), r.said("stderr"))
	}
	log, tree, _ := strings.Cut(r.said("stdout"), "first\n")
	if want := "Rest\nMove and build\nTheirs\n"; log != want {
		t.Errorf("pushed\n%swant\n%s", log, want)
	}

	var listed []string
	var totals event.Totals
	for _, f := range of[event.File](r) {
		totals.Add(f)
		if strings.HasPrefix(f.Path, "app/") {
			listed = append(listed, strings.TrimPrefix(f.Path, "app/")+" "+f.Change)
		}
	}
	want := []string{
		"build.sh modified", "empty created", "lib modified", "link created", "logo.bin modified", "old.txt deleted", "out.txt created", "package-lock.json modified",
		"src/deep/data.txt modified", "src/one/a.txt deleted", "src/two/b.txt created", "theirs.txt created",
		"lib/lib.txt created", "build.log ignored", "node_modules ignored",
	}
	if !slices.Equal(listed, want) {
		t.Errorf("listed\n%q, want\n%q", listed, want)
	}
	if totals.Ignored != 3001 {
		t.Errorf("%d ignored files changed", totals.Ignored)
	}
	for _, s := range of[event.Status](r) {
		if strings.Contains(s.Message, "incomplete") || strings.Contains(s.Message, "completely") {
			t.Error(s.Message)
		}
	}

	clone := filepath.Join(t.TempDir(), "app")
	git(t, "", "clone", "-q", origin, clone)
	git(t, clone, "checkout", "-q", first)
	for _, name := range []string{"changes.patch", "changes-app-lib.patch"} {
		write(t, clone, name, r.kept[name])
		lines := strings.SplitN(r.kept[name], "\n", 3)
		if want := `. Apply them in a clone of "app":`; !strings.HasSuffix(lines[0], want) {
			t.Errorf("it begins with %q, want %q", lines[0], want)
		}
		cmd := exec.CommandContext(t.Context(), "sh", "-c", strings.TrimPrefix(lines[1], "#"))
		cmd.Dir = clone
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", lines[1], err, out)
		}
		if err := os.Remove(filepath.Join(clone, name)); err != nil {
			t.Fatal(err)
		}
	}
	if got := git(t, clone, "ls-files", "--stage"); got != strings.TrimSpace(tree) {
		t.Errorf("the tree is\n%s\nnot\n%s", got, tree)
	}
	if text, err := os.ReadFile(filepath.Join(clone, "lib/lib.txt")); err != nil || string(text) != "one\ntwo\n" {
		t.Errorf("in the submodule: %q, %v", text, err)
	}
	if text := r.kept["changes.patch"]; len(text) > 10_000 || !strings.Contains(text, "\n# A submodule has another commit. ") {
		t.Errorf("the patch has %d bytes:\n%s", len(text), text[:min(len(text), 500)])
	}
	if names := slices.Sorted(maps.Keys(r.kept)); !slices.Equal(names, []string{"changes-app-lib.patch", "changes-other.patch", "changes-tree.patch", "changes.patch"}) {
		t.Errorf("artifacts %q", names)
	}
}

// TestIgnoredByStoppedRun: Git's view is asked for after a stop too, and a repository that keeps
// git waiting costs its own view alone (SPEC 15.6).
func TestIgnoredByStoppedRun(t *testing.T) {
	p, r := newExecutor(t, time.Minute), newRecorder()
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		r.await(t, "made")
		cancel(task.ErrCancelled)
	}()
	exit, err := p.Start(ctx, sh(`trap 'exit 5' INT
git init -q && echo 'out/' >.gitignore && mkdir out && echo x >out/one && echo x >src
git init -q waits && git init -q waits2 && mkfifo waits/.gitignore waits2/.gitignore && echo x >waits/file
echo made; while :; do sleep 0.05; done`), r)
	if err != nil || exit != (task.Exit{Code: 5, Stopped: true}) {
		t.Fatal(exit, err)
	}
	var listed []string
	for _, f := range of[event.File](r) {
		listed = append(listed, fmt.Sprint(f.Path, " ", f.Change, " ", f.Files))
	}
	if want := []string{".gitignore created 0", "src created 0", "waits/file created 0", "out ignored 1"}; !slices.Equal(listed, want) {
		t.Errorf("listed %q, want %q", listed, want)
	}
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	full := filepath.Join(dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(full), 0o700), os.WriteFile(full, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}
