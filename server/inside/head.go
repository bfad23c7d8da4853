package inside

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"triphammer/server/run/event"
	"triphammer/server/run/task"
)

// headRef has the head in a clone, if the repository has no branch of that name.
const headRef = "refs/triphammer/head"

// checkoutOf are the commands that check out what the event of a run is about (SPEC 21.7). With a base,
// the clone has the whole history, so that Git knows where the head left the base; old contents of files
// come when they are asked for. Without a base, it has the commit alone, as other clones do.
func checkoutOf(r task.Repository, name string) [][]string {
	h, to := r.Head, headRef
	if h.Branch != "" {
		to = "refs/remotes/origin/" + h.Branch
	}
	from, base := baseOf(h)
	refs := []string{"origin", "+" + h.Fetch + ":" + to}
	if from != "" && base != to {
		refs = append(refs, "+"+from+":"+base)
	}
	ways := [][]string{{"--depth=1"}}
	if from != "" {
		ways = [][]string{{"--filter=blob:none"}}
	}
	if from != "" && r.Secret != "" { // a mirror has the files (SPEC 15.10), and the history follows
		ways = [][]string{{"--depth=1"}, {"--filter=blob:none", wholeHistory}}
	}
	checkout := []string{"git", "-C", name, "checkout", "--quiet", "--detach", to, "--"}
	if h.Branch != "" {
		checkout = []string{"git", "-C", name, "checkout", "--quiet", "-B", h.Branch, "--track", to, "--"}
	}
	commands := [][]string{
		{"git", "init", "--quiet", "--initial-branch=main", "--", name},
		{"git", "-C", name, "remote", "add", "--", "origin", r.URL},
	}
	for _, way := range ways {
		commands = append(commands, slices.Concat([]string{"git", "-C", name, "fetch", "--quiet"}, way, refs))
	}
	return append(commands, checkout)
}

// wholeHistory is what --unshallow means, and also does where nothing is missing.
const wholeHistory = "--depth=2147483647"

// baseOf is the base of a head: its ref at the origin, and in the clone. A stranger's head without a
// known base has the default branch as its base. Empty: there is no base.
func baseOf(h *task.Head) (from, to string) {
	switch {
	case h.Base != "":
		return "refs/heads/" + h.Base, "refs/remotes/origin/" + h.Base
	case h.Foreign:
		return "HEAD", "refs/remotes/origin/HEAD"
	}
	return "", ""
}

// gone says in plain words that the repository has lost what the event is about. It is empty if git's
// message means something else.
func (c *clone) gone(said string) string {
	h := c.of.Head
	if h == nil {
		return ""
	}
	lost := h.Fetch
	switch {
	case h.Base != "" && strings.Contains(said, "couldn't find remote ref refs/heads/"+h.Base):
		lost = "the branch " + h.Base + " that it is to be merged into"
	case !strings.Contains(said, "not our ref") && !strings.Contains(said, "couldn't find remote ref") && !strings.Contains(said, "did not send all necessary objects") && !strings.Contains(said, "unadvertised object"):
		return ""
	}
	return fmt.Sprintf("the event is about the %s, and the repository %s does not have %s any more: it was removed or rewritten after the event. Have the sender send a newer event, or name a branch as the ref of the repository",
		h.What, task.ShownURL(c.of.URL), lost)
}

// Limits of the files that instruct agents.
const (
	maxInstructions     = 10_000
	maxInstructionBytes = 64 << 20
	maxInstructionDepth = 100
)

// instruct puts the files of the base that instruct agents in the place of a stranger's (SPEC 21.7).
func (j *Job) instruct(s *supervising, f Folder, clones []*clone, env []string) error {
	for _, c := range clones {
		if c.of.Head == nil || !c.of.Head.Foreign {
			continue
		}
		if err := j.readBase(s, f, c, env); err != nil {
			return err
		}
		if err := c.instruct(j.Instructions); err != nil {
			return fmt.Errorf("%s failed: taking the files for agents from the base: %w", event.PhaseClone, err)
		}
		s.add(event.Status{Message: fmt.Sprintf("%s: the %s may come from another repository: its files for agents (AGENTS.md, CLAUDE.md and their kin) are those of %s",
			event.PhaseClone, c.of.Head.What, cmp.Or(c.of.Head.Base, "the default branch"))})
	}
	return nil
}

// reinstruct does it again, for code of the head that has run since. That code may have given agents
// instructions and settings in the home, and in the folders that the clones are in.
func (j *Job) reinstruct(f Folder, clones []*clone) error {
	for dir, before := range map[string]string{f.Home(): "", filepath.Join(f.Home(), ".config"): ".", f.Workspace(): "", f.Root: ""} { // ~/.opencode, ~/.config/opencode
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, e := range entries {
			name := filepath.Join(dir, e.Name())
			holds := func(c *clone) bool { return strings.HasPrefix(c.dir+"/", name+"/") }
			if !instructs(before+e.Name(), j.Instructions) || slices.ContainsFunc(clones, holds) {
				continue
			}
			if err := RemoveAll(name); err != nil {
				return err
			}
		}
	}
	for _, c := range clones {
		if c.of.Head != nil && c.of.Head.Foreign {
			if err := c.instruct(j.Instructions); err != nil {
				return err
			}
		}
	}
	return nil
}

// readBase reads the files of the base that instruct agents. Git checks the base out beside the
// workspace, so that neither attributes nor links of the head change what is read.
func (j *Job) readBase(s *supervising, f Folder, c *clone, env []string) error {
	_, base := baseOf(c.of.Head)
	temp, err := os.MkdirTemp(f.Root, ".base-*")
	if err != nil {
		return err
	}
	defer func() { _ = RemoveAll(temp) }()
	dir := filepath.Join(temp, "base")
	git := func(args ...string) error {
		return j.command(s, event.PhaseClone, append([]string{"git"}, args...), "git "+args[0], step{Dir: f.Workspace(), Env: gitEnv(env)}, unknown)
	}
	if j.Resume { // code of the head has run since: neither the clone nor the home says what the base is
		env = slices.DeleteFunc(slices.Clone(env), func(v string) bool { return strings.HasPrefix(v, "HOME=") })
		env = append(env, "HOME="+temp)
		args := []string{"clone", "--quiet", "--no-local", "--depth=1"}
		if c.of.Head.Base != "" {
			args = append(args, "--branch="+c.of.Head.Base)
		}
		err = git(append(args, "--", c.of.URL, dir)...)
	} else {
		err = git("-C", c.dir, "worktree", "add", "--quiet", "--detach", dir, base)
	}
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	r := instructionReader{root: root, names: j.Instructions}
	err = r.read(".", false, false, 0)
	_ = root.Close()
	if err != nil {
		return fmt.Errorf("%s failed: reading the files for agents of %s: %w", event.PhaseClone, base, err)
	}
	c.instructions = r.files
	if j.Resume {
		return nil
	}
	return git("-C", c.dir, "worktree", "remove", "--force", dir)
}

// instructs tells whether a file or folder instructs agents, by its name.
func instructs(name string, names []string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, name) })
}

type instructionReader struct {
	root  *os.Root
	names []string
	files []task.File
	bytes int64
}

// read reads what instructs agents below dir; all of it if the folder itself does. A link counts as what
// it points to in the base: the head may have something else there. Links within linked folders are
// left out, because they may go round in circles.
func (r *instructionReader) read(dir string, all, linked bool, depth int) error {
	if depth > maxInstructionDepth {
		return errors.New("the folders are too deep")
	}
	entries, err := fs.ReadDir(r.root.FS(), dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := path.Join(dir, e.Name())
		if name == ".git" {
			continue
		}
		all, link := all || instructs(e.Name(), r.names), e.Type()&fs.ModeSymlink != 0
		if !all && !e.IsDir() || link && linked {
			continue
		}
		info, err := r.root.Stat(name)
		switch {
		case err != nil && link: // it points to nothing, or out of the repository
		case err != nil:
			return err
		case info.IsDir():
			if err := r.read(name, all, linked || link, depth+1); err != nil {
				return err
			}
		case info.Mode().IsRegular():
			data, err := r.root.ReadFile(name)
			if err != nil {
				return err
			}
			if r.bytes += int64(len(data)); r.bytes > maxInstructionBytes || len(r.files) == maxInstructions {
				return fmt.Errorf("there are more than %d, or more than %d bytes", maxInstructions, maxInstructionBytes)
			}
			r.files = append(r.files, task.File{Path: name, Data: data, Mode: uint32(info.Mode().Perm())})
		}
	}
	return nil
}

// instruct removes what instructs agents, and writes what the base has.
func (c *clone) instruct(names []string) error {
	root, err := os.OpenRoot(c.dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	var found []string
	err = walkDir(root, ".", func(name string, d fs.DirEntry) error {
		switch {
		case name == ".git":
			return fs.SkipDir
		case instructs(path.Base(name), names):
			found = append(found, name)
			if d.IsDir() {
				return fs.SkipDir
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, name := range found {
		if err := RemoveAll(filepath.Join(c.dir, name)); err != nil {
			return err
		}
	}
	for _, file := range c.instructions {
		if err := makeFolders(root, path.Dir(file.Path)); err != nil {
			return err
		}
		if err := root.RemoveAll(file.Path); err != nil {
			return err
		}
		to, err := root.OpenFile(file.Path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, os.FileMode(file.Mode))
		if err != nil {
			return err
		}
		_, err = to.Write(file.Data)
		if err := errors.Join(err, to.Close()); err != nil {
			return err
		}
	}
	return nil
}

// makeFolders makes a folder and those above it, in the place of links and files of these names.
func makeFolders(root *os.Root, dir string) error {
	if dir == "." {
		return nil
	}
	if err := makeFolders(root, path.Dir(dir)); err != nil {
		return err
	}
	if info, err := root.Lstat(dir); err == nil && info.IsDir() {
		return nil
	} else if err == nil {
		if err := root.Remove(dir); err != nil {
			return err
		}
	}
	return root.Mkdir(dir, 0o755)
}
