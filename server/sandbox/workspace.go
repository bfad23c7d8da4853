package sandbox

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"triphammer/server/run"
)

// workspace is the folder of one run: the files that the agent gets, and the folder in
// which it works. The runs of a conversation work in the folder of the first one.
type workspace struct {
	root   string // runs/<id>
	shared string // runs/<id> of the conversation
	work   string // its workspace
	home   string
	prompt string // file
	env    []string
}

// newWorkspace makes the folder of the run afresh. A run that resumes needs the workspace
// and the home of its conversation.
func (p *Process) newWorkspace(t *run.Task) (*workspace, error) {
	for _, id := range []string{t.RunID, sharedBy(t)} {
		if id == "" || filepath.Base(id) != id || !filepath.IsLocal(id) {
			return nil, fmt.Errorf("%q is not the id of a run", id)
		}
	}
	root, shared := filepath.Join(p.dir, t.RunID), filepath.Join(p.dir, sharedBy(t))
	w := &workspace{
		root: root, shared: shared, work: filepath.Join(shared, "workspace"), home: filepath.Join(shared, "home"), prompt: filepath.Join(root, "prompt.md"),
	}
	if t.Resume {
		for _, dir := range []string{w.work, w.home} {
			if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
				return nil, run.ErrNoWorkspace
			}
		}
	}
	if err := w.fill(t, p.path); err != nil {
		return nil, fmt.Errorf("making the workspace: %w", err)
	}
	return w, nil
}

// sharedBy is the run in whose folder the runs of a conversation work.
func sharedBy(t *run.Task) string { return cmp.Or(t.Workspace, t.RunID) }

func (w *workspace) fill(t *run.Task, searchPath string) error {
	if err := removeAll(w.root); err != nil {
		return err
	}
	attachments, temp := filepath.Join(w.root, "attachments"), filepath.Join(w.root, "tmp")
	made := []string{w.root, attachments, temp}
	if !t.Resume {
		made = append(made, w.work, w.home)
	}
	for _, dir := range made {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
	}
	if err := os.WriteFile(w.prompt, []byte(t.Prompt), 0o600); err != nil {
		return err
	}
	for _, a := range t.Attachments {
		if a.Name == "" || filepath.Base(a.Name) != a.Name || !filepath.IsLocal(a.Name) {
			return fmt.Errorf("%q is not the name of an attachment", a.Name)
		}
		if err := os.WriteFile(filepath.Join(attachments, a.Name), a.Data, 0o600); err != nil {
			return err
		}
	}
	// Only what is listed here reaches the agent, never the server's own
	// variables (SPEC 9.4). Later ones win.
	vars := map[string]string{"PATH": searchPath, "HOME": w.home, "TMPDIR": temp, "LANG": "C.UTF-8"}
	maps.Copy(vars, t.Env)
	for name, v := range t.Secrets {
		vars[name] = v.Reveal()
	}
	maps.Copy(vars, t.Vars)
	vars[runVariable] = t.RunID
	vars["TRIPHAMMER_PROMPT_FILE"] = w.prompt
	vars["TRIPHAMMER_ATTACHMENTS"] = attachments
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		w.env = append(w.env, name+"="+vars[name])
	}
	return nil
}

// close notes when the run ended, for Sweep.
func (w *workspace) close(now time.Time) {
	_ = os.Chtimes(w.root, now, now) // the agent may have removed it
	_ = os.Chtimes(w.shared, now, now)
}

// gitEnv is the environment of a clone: it never asks, and speaks no protocol
// that runs a command of the URL's choice.
func (w *workspace) gitEnv() []string {
	return append(slices.Clone(w.env), "GIT_TERMINAL_PROMPT=0", "GIT_ALLOW_PROTOCOL=file:git:http:https:ssh")
}

// clone is the commands that put one repository into the workspace.
type clone struct {
	dir      string
	commands [][]string
}

// exactRef matches refs that `git clone --branch` does not accept.
var exactRef = regexp.MustCompile(`^(refs/.*|[0-9a-f]{40}|[0-9a-f]{64})$`)

func (w *workspace) clones(repositories []run.Repository) ([]clone, error) {
	var all []clone
	taken := make(map[string]bool)
	for _, r := range repositories {
		name := r.Path
		if name == "" {
			name = strings.TrimSuffix(path.Base(strings.TrimRight(strings.ReplaceAll(r.URL, ":", "/"), "/")), ".git")
		}
		if !filepath.IsLocal(name) || name == "." {
			return nil, fmt.Errorf("the repository %s has no usable folder name: give it a path", r.URL)
		}
		if taken[name] {
			return nil, fmt.Errorf("two repositories want the folder %s: give one of them another path", name)
		}
		taken[name] = true
		c := clone{dir: filepath.Join(w.work, name)}
		switch {
		case r.Ref == "":
			c.commands = [][]string{{"git", "clone", "--quiet", "--no-local", "--depth=1", "--", r.URL, name}}
		case exactRef.MatchString(r.Ref):
			c.commands = [][]string{
				{"git", "init", "--quiet", "--initial-branch=main", "--", name},
				{"git", "-C", name, "remote", "add", "--", "origin", r.URL},
				{"git", "-C", name, "fetch", "--quiet", "--depth=1", "origin", r.Ref},
				{"git", "-C", name, "checkout", "--quiet", "--detach", "FETCH_HEAD"},
			}
		default:
			c.commands = [][]string{{"git", "clone", "--quiet", "--no-local", "--depth=1", "--branch=" + r.Ref, "--", r.URL, name}}
		}
		all = append(all, c)
	}
	return all, nil
}

// self is the running program, also after its file was replaced.
const self = "/proc/self/exe"

// resolve finds the program of a command in the PATH of the run. The word `triphammer`
// means this program.
func resolve(argv []string, dir string, env []string) (string, error) {
	name := argv[0]
	switch {
	case name == "triphammer":
		return self, nil
	case strings.Contains(name, "/"):
		full := name
		if !filepath.IsAbs(full) {
			full = filepath.Join(dir, full)
		}
		if !executable(full) {
			return "", fmt.Errorf("%s is not a program: check the path and its mode", name)
		}
		return full, nil
	}
	searched := ""
	for _, v := range env {
		if value, ok := strings.CutPrefix(v, "PATH="); ok {
			searched = value
		}
	}
	for _, d := range filepath.SplitList(searched) {
		if full := filepath.Join(d, name); filepath.IsAbs(d) && executable(full) {
			return full, nil
		}
	}
	return "", fmt.Errorf("the program %q was not found in PATH (%s): install it where the server runs, or set PATH in the environment's env", name, searched)
}

func executable(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// removeAll also removes read-only folders, such as module caches.
func removeAll(dir string) error {
	err := os.RemoveAll(dir)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	walkErr := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() {
			return os.Chmod(name, 0o700) // before WalkDir reads it
		}
		return nil
	})
	return errors.Join(os.RemoveAll(dir), walkErr)
}
