package executor

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"triphammer/server/run/event"
	"triphammer/server/run/task"
	"triphammer/server/secret"
)

// pullRequest is a repository with the pull request 12 of a fork, whose head has every trick that could
// instruct an agent. It returns the head.
func (f *forge) pullRequest(t *testing.T) string {
	t.Helper()
	git(t, f.bare, "config", "uploadpack.allowFilter", "true") // as forges do
	work := t.TempDir()
	git(t, work, "clone", "-q", f.bare, ".")
	for name, text := range map[string]string{
		"AGENTS.md": "base", "sub/CLAUDE.md": "base sub\n", ".claude/settings.json": `{"base":true}`, "docs/real.md": "base linked", "code.txt": "base code",
		"only/base/GEMINI.md": "base only", ".gitattributes": "* -text\n", "bin/.mcp.json": "{}",
	} {
		write(t, work, name, text)
	}
	for name, to := range map[string]string{"CLAUDE.md": "docs/real.md", ".codex": ".claude", ".cursor": "/etc", "around/.gemini": ".."} {
		link(t, to, filepath.Join(work, name))
	}
	git(t, work, "add", ".")
	git(t, work, "commit", "-q", "-m", "two")
	git(t, work, "push", "-q", f.bare, "main")

	git(t, work, "checkout", "-q", "-b", "fork")
	for _, name := range []string{"AGENTS.md", ".claude", "only", "CLAUDE.md", "bin"} {
		if err := os.RemoveAll(filepath.Join(work, name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{
		"AGENTS.md/nested.md": "evil", "agents.md": "evil", "new/deep/CLAUDE.md": "evil", "new/.CLAUDE/settings.json": "evil", "docs/real.md": "evil", "evil.json": "evil",
		".mcp.json": "evil", "opencode.json": "evil", "code.txt": "fork code", ".gitattributes": "*.md text eol=crlf\n", "only": "evil", "sub/claude.md": "evil",
		"elsewhere/x": "evil", ".gitmodules": "[submodule \"m\"]\n\tpath = .gemini\n\turl = https://evil.invalid/x.git\n",
	} {
		write(t, work, name, text)
	}
	if err := os.MkdirAll(filepath.Join(work, ".claude"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{".claude/settings.json": "../evil.json", "CLAUDE.md": "/etc/passwd", "bin": "elsewhere", "new/.env": "../evil.json"} {
		link(t, to, filepath.Join(work, name))
	}
	git(t, work, "add", ".")
	git(t, work, "update-index", "--add", "--cacheinfo", "160000,"+git(t, work, "rev-parse", "HEAD")+",.gemini")
	git(t, work, "commit", "-q", "-m", "three")
	git(t, work, "commit", "-q", "--allow-empty", "-m", "four")
	git(t, work, "push", "-q", f.bare, "HEAD:refs/pull/12/head")
	return git(t, work, "rev-parse", "HEAD")
}

func link(t *testing.T, to, name string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(to, name); err != nil {
		t.Fatal(err)
	}
}

var instructing = []string{"AGENTS.md", "CLAUDE.md", "GEMINI.md", ".claude", ".claude.json", ".codex", ".gemini", ".cursor", ".mcp.json", ".env", ".opencode", "opencode.json"}

// TestForksHead: a run on a fork's pull request has the fork's code, but the base's files for agents,
// whatever the fork has in their place. It cannot push, and its setup sees no secret (SPEC 21.7).
func TestForksHead(t *testing.T) {
	forge := newForge(t)
	head := forge.pullRequest(t)
	e, r := newExecutor(t, 0), newRecorder()
	e.roots = forge.roots
	work := forge.task(`git rev-parse HEAD; git log --format=%s origin/main..HEAD; cat code.txt; echo
git push -q origin HEAD:refs/heads/pushed; echo "key ${KEY}"; cat ~/.codex/auth.json; echo; git status --porcelain=v1 -- code.txt evil.json
cat ~/tool; ls .. ../..; cd; find . -type f | sort; kill -0 "$(cat ../left)" 2>/dev/null && echo "a process of the setup is left"; true`)
	work.Secrets = map[string]secret.Value{"KEY": secret.New("c4nary-of-the-model")}
	work.Files = []task.File{{Path: ".codex/auth.json", Data: []byte("c4nary-of-the-file")}}
	work.Setup = []string{
		`{ env; cat ~/.codex/auth.json; } >../before 2>&1; echo again >AGENTS.md; mkdir -p later/.claude ~/.codex; ln -s ../docs/real.md later/GEMINI.md; ln -sfn /etc sub`,
		`mkdir -p ~/.claude ~/.config/opencode; echo evil | tee ~/.claude/settings.json ~/.claude.json ~/.config/opencode/opencode.json ~/.codex/config.toml ~/AGENTS.md ../CLAUDE.md ../../agents.md >/dev/null; echo good >~/tool
sleep 1000 >/dev/null 2>&1 & echo $! >../left`,
	}
	work.Foreign, work.Instructions, work.Repositories[0].ReadOnly = true, instructing, true
	work.Repositories[0].Head = &task.Head{What: "pull request 12", Fetch: "refs/pull/12/head", Base: "main", Foreign: true}
	exit, err := e.Start(t.Context(), work, r)
	if err != nil || exit.Code != 0 {
		t.Fatal(exit, err, r.said("stdout"), r.said("stderr"))
	}
	if got, want := r.said("stdout"), head+"\nfour\nthree\nfork code\nkey c4nary-of-the-model\nc4nary-of-the-file\ngood\n..:\napp\nbefore\nleft\n\n../..:\nartifacts\nattachments\ngitconfig\nhome\nprompt.md\ntmp\nworkspace\n./.codex/auth.json\n./tool\n"; got != want {
		t.Errorf("the agent printed %q, want %q", got, want)
	}
	if said := r.said("stderr"); !strings.Contains(said, "read-only for this run") {
		t.Errorf("the push says %q", said)
	}
	if refs := git(t, forge.bare, "for-each-ref", "--format=%(refname)"); refs != "refs/heads/main\nrefs/pull/12/head" {
		t.Errorf("the forge has %s", refs)
	}
	dir := filepath.Join(e.dir, "run_1", "workspace")
	if before, err := os.ReadFile(filepath.Join(dir, "before")); err != nil || strings.Contains(string(before), "c4nary") || !strings.Contains(string(before), "PATH=") {
		t.Errorf("%v: the setup sees %s", err, before)
	}
	app := filepath.Join(dir, "app")
	for name, want := range map[string]string{
		"AGENTS.md": "base", "CLAUDE.md": "base linked", "sub/CLAUDE.md": "base sub\n", ".claude/settings.json": `{"base":true}`, ".codex/settings.json": `{"base":true}`,
		"only/base/GEMINI.md": "base only", "bin/.mcp.json": "{}", "docs/real.md": "evil",
	} {
		if got, err := os.ReadFile(filepath.Join(app, name)); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v, want %q", name, got, err, want)
		}
		if info, err := os.Lstat(filepath.Join(app, name)); err != nil || !info.Mode().IsRegular() {
			t.Errorf("%s is no plain file: %v", name, err)
		}
	}
	for _, gone := range []string{"agents.md", "new/deep/CLAUDE.md", "new/.CLAUDE", "new/.env", ".mcp.json", "opencode.json", "sub/claude.md", ".gemini", "later/.claude", "later/GEMINI.md", ".cursor", "elsewhere/.mcp.json", ".env"} {
		if _, err := os.Lstat(filepath.Join(app, gone)); !os.IsNotExist(err) {
			t.Errorf("%s is there: %v", gone, err)
		}
	}
	said := of[event.Status](r)
	if !slices.ContainsFunc(said, func(s event.Status) bool {
		return strings.Contains(s.Message, "files for agents") && strings.Contains(s.Message, "those of main")
	}) {
		t.Errorf("the transcript does not say whose files for agents there are: %+v", said)
	}
	if left, _ := filepath.Glob(filepath.Join(e.dir, "run_1", ".base-*")); len(left) > 0 {
		t.Errorf("%v are left", left)
	}

	// A follow-up has the files of the base again, whatever code of the fork has done to the clone and the home since.
	work.Resume, work.Setup, work.Attempt = true, nil, 2
	poison := "echo evil >" + app + "/AGENTS.md; git -c safe.directory=* -C " + app + " update-ref refs/remotes/origin/main HEAD; git -c safe.directory=* -C " + app + " config core.hooksPath /evil; printf '[http]\\nproxy = http://127.0.0.1:1\\n' >" + filepath.Join(e.dir, "run_1", "home", ".gitconfig")
	if out, err := exec.Command("sh", "-ec", poison).CombinedOutput(); err != nil {
		t.Fatal(err, string(out))
	}
	work.Command = []string{"cat", "AGENTS.md", "sub/CLAUDE.md"}
	r = newRecorder()
	if exit, err := e.Start(t.Context(), work, r); err != nil || exit.Code != 0 || r.said("stdout") != "basebase sub\n" {
		t.Errorf("%v %v: the follow-up reads %q %q", exit, err, r.said("stdout"), r.said("stderr"))
	}
}

// TestOwnHead: a run on the repository's own head is on its branch, and can push to it.
func TestOwnHead(t *testing.T) { // SPEC 21.7
	forge := newForge(t)
	dir := t.TempDir()
	git(t, dir, "clone", "-q", forge.bare, ".")
	branch := `odd/nämé'"$(touch${IFS}x);{1}&`
	git(t, dir, "checkout", "-q", "-b", branch)
	git(t, dir, "commit", "-q", "--allow-empty", "-m", "two")
	git(t, dir, "push", "-q", forge.bare, branch)
	head := git(t, dir, "rev-parse", "HEAD")
	git(t, dir, "commit", "-q", "--allow-empty", "-m", "after the event")
	for name, tt := range map[string]struct {
		head  task.Head
		pushd string
		want  string
	}{
		"pull request": {task.Head{What: "pull request 1", Fetch: head, Branch: branch, Base: "main"}, "git push -q", branch + "\ntwo\n"},
		"push":         {task.Head{What: "pushed commit", Fetch: head, Branch: branch}, "git push -q", branch + "\n"},
		"detached":     {task.Head{What: "commit", Fetch: head, Base: "main"}, "git push -q origin HEAD:refs/heads/other", "two\n"},
	} {
		t.Run(name, func(t *testing.T) {
			e, r := newExecutor(t, 0), newRecorder()
			e.roots = forge.roots
			work := forge.task(`set -e; git branch --show-current; git log --format=%s origin/main..HEAD 2>/dev/null || true; git commit -q --allow-empty -m "mine, ` + name + `"; ` + tt.pushd) // another commit each time: what the forge has already is no fast-forward
			work.Repositories[0].Head = &tt.head
			exit, err := e.Start(t.Context(), work, r)
			if err != nil || exit.Code != 0 || r.said("stdout") != tt.want {
				t.Errorf("%v %v: printed %q, want %q: %s", exit, err, r.said("stdout"), tt.want, r.said("stderr"))
			}
			git(t, forge.bare, "update-ref", "refs/heads/"+branch, head)
		})
	}
}

// TestLostHead: a head that the repository does not have any more is said with the reason and the place.
func TestLostHead(t *testing.T) { // SPEC 21.7
	forge := newForge(t)
	for name, tt := range map[string]struct {
		head task.Head
		want string
	}{
		"commit": {task.Head{What: "pull request 12", Fetch: strings.Repeat("ab", 20)}, "about the pull request 12, and the repository " + forge.url + " does not have abab"},
		"ref":    {task.Head{What: "pull request 12", Fetch: "refs/pull/12/head", Foreign: true}, "does not have refs/pull/12/head any more"},
		"base":   {task.Head{What: "pull request 12", Fetch: "refs/heads/main", Base: "gone"}, "does not have the branch gone that it is to be merged into any more"},
	} {
		t.Run(name, func(t *testing.T) {
			e, r := newExecutor(t, 0), newRecorder()
			e.roots = forge.roots
			work := forge.task("true")
			work.Repositories[0].Head = &tt.head
			if exit, err := e.Start(t.Context(), work, r); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v %v", exit, err)
			}
		})
	}
}
