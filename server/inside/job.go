package inside

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"mime"
	"net"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"triphammer/server/inside/limits"
	"triphammer/server/inside/relay"
	"triphammer/server/run/event"
	"triphammer/server/run/task"
)

// ErrCut ends a job that was ordered to stop.
var ErrCut = errors.New("the attempt was ordered to stop")

// Folder is the folder of a run, with the files that the agent gets, changes and makes.
type Folder struct{ Root string }

// Workspace is where the agent works.
func (f Folder) Workspace() string { return filepath.Join(f.Root, "workspace") }

// Home is the home folder of the agent.
func (f Folder) Home() string { return filepath.Join(f.Root, "home") }

// Temp is the folder for the agent's temporary files.
func (f Folder) Temp() string        { return filepath.Join(f.Root, "tmp") }
func (f Folder) prompt() string      { return filepath.Join(f.Root, "prompt.md") }
func (f Folder) attachments() string { return filepath.Join(f.Root, "attachments") }
func (f Folder) artifacts() string   { return filepath.Join(f.Root, "artifacts") }
func (f Folder) gitConfig() string   { return filepath.Join(f.Root, "gitconfig") }

// environ are all variables of the run. No other variables reach the agent, above all not the
// server's (SPEC 9.4). Only the inside of the walls knows the variables that name the run's
// folder. Later variables win.
func (j *Job) environ(f Folder) []string {
	own := slices.Concat(
		[]string{"HOME=" + f.Home(), "TMPDIR=" + f.Temp(), "LANG=C.UTF-8", "GIT_CONFIG_SYSTEM=" + f.gitConfig()}, // a definition may have others
		j.Env,
		[]string{"TRIPHAMMER_PROMPT_FILE=" + f.prompt(), "TRIPHAMMER_ATTACHMENTS=" + f.attachments(), "TRIPHAMMER_ARTIFACTS=" + f.artifacts()},
	)
	if !j.Inherit {
		return inherit(nil, own)
	}
	return j.Tools.after(inherit(os.Environ(), own))
}

// do executes the job inside the walls. s runs the steps, one after the other.
func (j *Job) do(s *supervising) Ending {
	exit, err := j.steps(s)
	if err != nil {
		final := (*task.FinalError)(nil)
		exit = Ending{Code: -1, Error: err.Error(), Cut: errors.Is(err, ErrCut), Final: errors.As(err, &final)}
	}
	if j.Bounded {
		exit.Exceeded = limits.OwnExceeded()
	}
	return exit
}

func (j *Job) steps(s *supervising) (Ending, error) {
	dir := Folder{j.Root}
	if err := os.Chdir(dir.Root); err != nil {
		return Ending{}, fmt.Errorf("the folder of the run is not there inside the walls: %w", err)
	}
	j.Env = j.environ(dir)
	if j.Offline {
		if err := offline(); err != nil {
			return Ending{}, err
		}
	}
	for _, f := range j.Forwards {
		stop, err := f.begin()
		if err != nil {
			return Ending{}, fmt.Errorf("connecting the network of the run: %w", err)
		}
		defer stop()
	}
	if err := j.fill(dir); err != nil {
		return Ending{}, fmt.Errorf("making the workspace: %w", err)
	}
	work, err := j.prepare(s, dir)
	if err != nil {
		return Ending{}, err
	}
	program, err := j.resolve(j.Command, work, j.Env)
	if err == nil && j.Image != "" && j.Program != "" { // the shell that starts the program would say less
		_, err = j.resolve([]string{j.Program}, work, j.Env)
	}
	if err != nil {
		return Ending{}, fmt.Errorf("the agent cannot be started: %w", err)
	}
	git := j.asked(s, dir)
	before, err := takeSnapshot(dir.Workspace(), dir.Root, j.folders(), git(false))
	if err != nil {
		return Ending{}, fmt.Errorf("looking at the workspace: %w", err)
	}
	defer before.close()

	s.add(event.AgentStarted{Command: strings.Join(j.Command, " ")})
	done := s.phase(event.PhaseAgent)
	e, err := s.run(step{Argv: j.Command, Path: program, Dir: work, Env: j.Env, Stdin: dir.prompt(), Last: true})
	done()
	if err != nil {
		return Ending{}, fmt.Errorf("the agent did not run to its end: %w", err)
	}
	s.add(event.Ended{ExitCode: e.Code, Signal: e.Signal, Stopped: e.Cut})
	defer s.phase(event.PhaseCollect)()
	if err := j.collect(s, dir, before, git(true), work); err != nil {
		s.add(event.Status{Message: "what the agent left is not listed completely: " + err.Error()})
	}
	return e, nil
}

// offline says that there is a network where there must be none.
func offline() error {
	all, err := net.Interfaces()
	if err != nil {
		return fmt.Errorf("looking whether the run has a network: %w", err)
	}
	for _, i := range all {
		if i.Flags&net.FlagUp != 0 && i.Flags&net.FlagLoopback == 0 {
			return fmt.Errorf("the network of this run is to be off, but inside its walls there is the interface %s", i.Name)
		}
	}
	return nil
}

// inherit are the variables of a run in an image: the image's variables, without Triphammer's,
// and the run's own, which win.
func inherit(image, own []string) []string {
	byName := make(map[string]string)
	for _, v := range append([]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, append(image, own...)...) {
		name, _, _ := strings.Cut(v, "=")
		byName[name] = v
	}
	for _, v := range image {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "TRIPHAMMER_") && !slices.Contains(own, byName[name]) {
			delete(byName, name)
		}
	}
	return slices.Sorted(maps.Values(byName))
}

// Forward is an address on the run's own loopback, and the outside socket that its connections
// go to. The socket is in the run's folder, which is the supervisor's working directory.
type Forward struct {
	Address string `json:"address"`
	Socket  string `json:"socket"`
}

// A run without the network of the machine reaches only these.
var (
	ProxyForward   = Forward{"127.0.0.1:3128", "proxy.sock"}
	GatewayForward = Forward{"127.0.0.1:3129", "git.sock"}
)

// begin passes the run's connections on until stop is called.
func (f Forward) begin() (stop func(), err error) {
	l, err := net.Listen("tcp", f.Address)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = relay.Forward(ctx, l, f.Socket) // after an error, the run reaches nothing
	}()
	return func() { cancel(); <-done }, nil
}

// fill makes the folders, and the files that the agent gets.
func (j *Job) fill(f Folder) error {
	fresh := []string{f.attachments(), f.artifacts()}
	if !j.Resume {
		fresh = append(fresh, f.Workspace(), f.Home())
	}
	for _, dir := range fresh {
		if err := RemoveAll(dir); err != nil {
			return err
		}
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
	}
	if err := RemoveAll(f.prompt()); err != nil {
		return err
	}
	if err := os.WriteFile(f.prompt(), []byte(j.Prompt), 0o600); err != nil {
		return err
	}
	if err := j.configureGit(f); err != nil {
		return err
	}
	for _, a := range j.Attachments {
		if a.Name == "" || filepath.Base(a.Name) != a.Name || !filepath.IsLocal(a.Name) {
			return fmt.Errorf("%q is not the name of an attachment", a.Name)
		}
		if err := os.WriteFile(filepath.Join(f.attachments(), a.Name), a.Data, 0o600); err != nil {
			return err
		}
	}
	if j.Foreign && !j.Resume {
		return nil // strangers' code in a setup command must neither read nor replace the files for the home
	}
	return j.furnish(f)
}

// furnish puts the files of the harness into the home.
func (j *Job) furnish(f Folder) error {
	home, err := os.OpenRoot(f.Home())
	if err != nil {
		return err
	}
	defer func() { _ = home.Close() }()
	for _, file := range j.Files {
		mode := os.FileMode(file.Mode)
		if mode == 0 {
			mode = 0o600
		}
		if err := home.MkdirAll(path.Dir(file.Path), 0o700); err != nil {
			return err
		}
		if err := home.WriteFile(file.Path, file.Data, mode); err != nil {
			return err
		}
	}
	return nil
}

// configureGit makes Git clone repositories of this machine that belong to another user, and
// reach private repositories through their gateway. The committer is the author too, unless
// the machine, a setup command or the agent names an author. Replacements of objects do not
// act, because they show other files than a commit has.
func (j *Job) configureGit(f Folder) error {
	text := "[user]\n"
	for _, v := range j.Env {
		for name, key := range map[string]string{"GIT_COMMITTER_NAME": "name", "GIT_COMMITTER_EMAIL": "email"} {
			if value, is := strings.CutPrefix(v, name+"="); is {
				text += fmt.Sprintf("\t%s = \"%s\"\n", key, gitQuoted(value))
			}
		}
	}
	text += "[include]\n\tpath = /etc/gitconfig\n" + j.GitSettings + "[core]\n\tuseReplaceRefs = false\n[safe]\n"
	for _, dir := range j.Trusted {
		quoted := gitQuoted(dir)
		text += fmt.Sprintf("\tdirectory = \"%s\"\n\tdirectory = \"%s\"\n", quoted, path.Join(quoted, ".git"))
	}
	return os.WriteFile(f.gitConfig(), []byte(text), 0o600)
}

// gitQuoted is a value in the quotes of a configuration file of Git.
func gitQuoted(value string) string {
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(value)
}

// prepare clones the repositories and runs the setup commands. It returns the
// agent's working directory (SPEC 13.11).
func (j *Job) prepare(s *supervising, f Folder) (string, error) {
	dir := f.Workspace()
	clones, err := clonesOf(j.Repositories, dir)
	if err != nil {
		return "", err
	}
	if len(clones) > 0 {
		dir = clones[0].dir
	}
	if j.Resume {
		return dir, j.readSkills(clones, f)
	}
	env := j.before()
	if len(clones) > 0 {
		done := s.phase(event.PhaseClone)
		for _, c := range clones {
			if err := j.clone(s, f, c, env); err != nil {
				return "", err
			}
		}
		if err := j.instruct(s, f, clones, env); err != nil {
			return "", err
		}
		done()
	}
	if len(j.Setup) > 0 {
		done := s.phase(event.PhaseSetup)
		for _, line := range j.Setup {
			if err := j.command(s, event.PhaseSetup, []string{"/bin/sh", "-c", line}, line, step{Dir: dir, Env: env}, unknown); err != nil {
				return "", err
			}
		}
		done()
	}
	if j.Foreign {
		// The setup may have run code of the head.
		if err := errors.Join(j.reinstruct(clones), j.furnish(f)); err != nil {
			return "", fmt.Errorf("making the workspace after the setup: %w", err)
		}
	}
	return dir, j.readSkills(clones, f)
}

// before are the variables of the commands that run before the agent.
func (j *Job) before() []string {
	return slices.DeleteFunc(slices.Clone(j.Env), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains(j.Withheld, name)
	})
}

func (j *Job) clone(s *supervising, f Folder, c *clone, env []string) error {
	for _, argv := range c.commands {
		meaning := func(said string) string { return cmp.Or(c.gone(said), unread(c.url, j.Image, said)) }
		if err := j.command(s, event.PhaseClone, argv, strings.Join(argv, " "), step{Dir: f.Workspace(), Env: gitEnv(env)}, meaning); err != nil {
			return err
		}
	}
	return nil
}

// unknown is a meaning for command: it knows the meaning of no message.
func unknown(string) string { return "" }

// command runs one command that must succeed. If it fails, meaning explains the command's last
// words to people; empty: the words are not known.
func (j *Job) command(s *supervising, phase string, argv []string, shown string, st step, meaning func(said string) string) (err error) {
	if st.Path, err = j.resolve(argv, st.Dir, st.Env); err != nil {
		return fmt.Errorf("%s failed: %w", phase, err)
	}
	st.Argv = argv
	s.add(event.Status{Message: phase + ": " + shown})
	began := Now()
	e, err := s.run(st)
	if errors.Is(err, ErrCut) {
		return err
	} else if err != nil {
		return fmt.Errorf("%s failed: %s: %w", phase, shown, err)
	}
	s.add(event.Command{
		Phase: phase, Command: shown, ExitCode: &e.Code, Signal: e.Signal, Failed: e.Code != 0,
		DurationMS: Now().Sub(began).Milliseconds(),
	})
	switch {
	case e.Cut:
		return ErrCut
	case e.Signal != "":
		return fmt.Errorf("%s failed: %s: it was ended by %s", phase, shown, e.Signal)
	case e.Code != 0 && meaning(e.Said) != "":
		return fmt.Errorf("%s failed: %s (%s: %s)", phase, meaning(e.Said), shown, e.Said)
	case e.Code != 0 && e.Said != "":
		return fmt.Errorf("%s failed: %s: exit status %d: %s", phase, shown, e.Code, e.Said)
	case e.Code != 0:
		return fmt.Errorf("%s failed: %s: exit status %d", phase, shown, e.Code)
	}
	return nil
}

// collect reports the changed files, and sends the patches and the artifacts (SPEC 15.6).
func (j *Job) collect(s *supervising, f Folder, before *snapshot, git view, work string) error {
	first, err := filepath.Rel(f.Workspace(), work)
	if err != nil {
		return err
	}
	all, ignored, err := before.changes(git, first)
	var patches []*patch
	room, diffs, unlisted := maxPatches, maxDiffs, make(map[string]int)
	for i, c := range all {
		if len(patches) == 0 || patches[len(patches)-1].repository != c.repository {
			patches = append(patches, &patch{repository: c.repository, made: before.roots[c.repository], parent: before.repository(c.repository)})
		}
		p := patches[len(patches)-1]
		old, now := before.contents(c)
		size := p.body.Len()
		whole := p.add(c, old, now, before.open, size+room)
		room -= p.body.Len() - size
		if i >= maxChanges {
			unlisted[c.repository]++
			continue
		}
		file := c.describe(old, now, diffs)
		diffs -= len(file.Diff)
		if !whole {
			file.Omitted = cmp.Or(file.Omitted, "there is no room") + "; it is not in the patch either"
		}
		s.add(file)
	}
	for _, dir := range slices.Sorted(maps.Keys(unlisted)) {
		s.add(event.File{Path: dir + "/", Change: event.FileModified, Files: int64(unlisted[dir]), Omitted: fmt.Sprintf("%d changed files are listed", maxChanges)})
	}
	for i, name := range slices.Sorted(maps.Keys(ignored)) {
		if i == maxIgnored {
			rest := 0
			for _, n := range slices.Sorted(maps.Keys(ignored))[i:] {
				rest += ignored[n]
			}
			s.add(event.File{Path: "./", Change: event.FileIgnored, Files: int64(rest)})
			break
		}
		s.add(event.File{Path: strings.ToValidUTF8(name, "\uFFFD"), Change: event.FileIgnored, Files: int64(ignored[name])})
	}
	taken := make(map[string]bool)
	for _, p := range patches {
		name := patchName(p.repository, first)
		for n := 2; taken[name]; n++ {
			name = patchName(fmt.Sprint(p.repository, "-", n), first)
		}
		taken[name] = true
		text := p.text(name)
		s.keep(event.Artifact{Type: event.ArtifactFile, Name: name, Size: int64(len(text))}, strings.NewReader(text))
		if len(p.without) > 0 {
			s.add(event.Status{Message: fmt.Sprintf("%s is incomplete: it leaves out %d of %d changed files, and names them", name, len(p.without), p.files)})
		}
	}
	return errors.Join(err, j.artifacts(s, f.artifacts()))
}

// patchName is the name of the patch of a repository; first is the repository in which the agent
// works.
func patchName(repository, first string) string {
	if repository == first {
		return "changes.patch"
	}
	if repository == "." {
		repository = "workspace"
	}
	plain := regexp.MustCompile(`[^A-Za-z0-9._]+`).ReplaceAllString(repository, "-")
	return fmt.Sprintf("changes-%s.patch", plain[:min(len(plain), 100)])
}

// folders are the folders of the run's repositories in its workspace.
func (j *Job) folders() (names []string) {
	clones, _ := clonesOf(j.Repositories, "") // prepare has reported the error
	for _, c := range clones {
		names = append(names, path.Clean(c.dir))
	}
	return names
}

// Limits of asking Git what it ignores.
const (
	askTime    = 5 * time.Second // for all repositories; a stopped run has KillWait for all its steps
	maxAnswers = 16 << 20        // bytes of a list
)

// asked gives git's view of a repository, before and after the agent. git runs inside the walls
// like the agent, because the settings of a repository can name programs. Without git, no file
// is ignored. If git does not answer after the agent, the answer from before stays.
func (j *Job) asked(s *supervising, f Folder) func(after bool) view {
	type answer struct {
		asked      bool
		ignored    []string
		submodules map[string]blobID
	}
	known, until := make(map[string]*answer), time.Now().Add(askTime)
	return func(after bool) view {
		if after {
			until = time.Now().Add(askTime)
		}
		return func(dir string) ([]string, map[string]blobID) {
			a, before := known[dir]
			if !before {
				a = &answer{asked: after}
				known[dir] = a
			}
			_, plain := os.Lstat(filepath.Join(f.Workspace(), dir, ".gitmodules"))
			left := time.Until(until)
			if left <= 0 || !after && !j.Resume && len(j.Setup) == 0 && plain != nil { // a fresh clone has only files that Git tracks
				return a.ignored, a.submodules
			}
			if ignored, submodules, err := j.ask(s, f, dir, after, left); err == nil {
				a.ignored = ignored
				if !after || a.asked { // without an answer from before, there is nothing to compare with
					a.asked, a.submodules = true, submodules
				}
			}
			return a.ignored, a.submodules
		}
	}
}

// ask asks git which files it ignores in a repository, and which folders with only such files,
// and for the commits of the submodules.
func (j *Job) ask(s *supervising, f Folder, dir string, after bool, most time.Duration) (ignored []string, submodules map[string]blobID, err error) {
	temp, err := os.MkdirTemp(f.Root, ".asked-*")
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = RemoveAll(temp) }()
	const script = `exec 2>/dev/null </dev/null; git() { command git -c core.fsmonitor=false ls-files "$@"; }
git -z --others --ignored --exclude-standard --directory >"$1/ignored" && git --stage | sed -n 's/^160000 //p' >"$1/submodules"`
	st := step{
		Dir: filepath.Join(f.Workspace(), dir), Env: append(gitEnv(j.Env), "GIT_OPTIONAL_LOCKS=0"), Last: after, AfterStop: after,
		Argv: []string{"timeout", "-s", "KILL", fmt.Sprintf("%.3f", most.Seconds()), "sh", "-c", script, "sh", temp},
	}
	if st.Path, err = j.resolve(st.Argv, st.Dir, st.Env); err != nil {
		return nil, nil, err
	}
	if e, err := s.run(st); err != nil || e.Code != 0 {
		return nil, nil, errors.Join(err, fmt.Errorf("git ended with %d", e.Code))
	}
	read := func(name, end string) []string {
		file, readErr := os.Open(filepath.Join(temp, name))
		if readErr != nil {
			err = readErr
			return nil
		}
		defer func() { _ = file.Close() }()
		text, readErr := io.ReadAll(io.LimitReader(file, maxAnswers))
		err = cmp.Or(err, readErr)
		return strings.Split(strings.TrimSuffix(string(text), end), end)
	}
	ignored, submodules = read("ignored", "\x00"), make(map[string]blobID)
	for _, line := range read("submodules", "\n") {
		id, name, _ := strings.Cut(line, " ")
		_, name, _ = strings.Cut(name, "\t")
		if plain, err := strconv.Unquote(name); err == nil { // unusual characters
			name = plain
		}
		if commit, err := hex.DecodeString(id); err == nil && len(commit) == len(blobID{}) && filepath.IsLocal(name) {
			submodules[name] = blobID(commit)
		}
	}
	return ignored, submodules, err
}

// Limits of the folder of artifacts.
const (
	maxArtifacts = 100
	maxLinks     = 64 << 10 // bytes of the file of links
	linksFile    = "links"
)

// artifacts sends the files and links that the agent left in its folder of artifacts.
func (j *Job) artifacts(s *supervising, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil // the agent has removed the folder
	}
	defer func() { _ = root.Close() }()
	count := 0
	return walkDir(root, ".", func(name string, d fs.DirEntry) error {
		switch {
		case d.IsDir() && strings.Count(name, "/") >= maxDepth:
			return fs.SkipDir
		case !d.Type().IsRegular():
			return nil
		}
		info, err := root.Lstat(name)
		if err != nil {
			return nil // it is gone
		}
		if count++; count > maxArtifacts {
			return fmt.Errorf("there are more than %d artifacts", maxArtifacts)
		}
		file, err := root.OpenFile(name, os.O_RDONLY|openNonblock, 0)
		if err != nil {
			return nil // it is gone
		}
		defer func() { _ = file.Close() }()
		if name == linksFile {
			text, err := io.ReadAll(io.LimitReader(file, maxLinks))
			for line := range strings.Lines(string(text)) {
				if line = strings.TrimSpace(strings.ToValidUTF8(line, "\uFFFD")); line != "" {
					s.keep(linkOf(line), strings.NewReader(""))
				}
			}
			return err
		}
		a := event.Artifact{Type: event.ArtifactFile, Name: strings.ToValidUTF8(name, "\uFFFD"), Size: info.Size()}
		if strings.HasPrefix(mime.TypeByExtension(path.Ext(name)), "image/") {
			a.Type = event.ArtifactScreenshot
		}
		s.keep(a, io.LimitReader(file, info.Size()))
		return nil
	})
}

// linkOf reads a line of the file of links: a URL, and optionally a title after it. The server
// decides whether it is a link, and of which type.
func linkOf(line string) event.Artifact {
	address, title, _ := strings.Cut(line, " ")
	return event.Artifact{Name: strings.TrimSpace(title), URL: address}
}

// gitEnv is the environment of a clone. It keeps git from asking questions, and from protocols
// that run a command of the URL's choice. It makes messages English, for unread.
func gitEnv(env []string) []string {
	return append(slices.Clone(env), "LC_ALL=C", "GIT_TERMINAL_PROMPT=0", "GIT_ALLOW_PROTOCOL=file:git:http:https:ssh")
}

// clone has the commands that put one repository into the workspace.
type clone struct {
	dir      string
	url      string // only for a repository without a secret
	commands [][]string

	of           task.Repository
	instructions []task.File // those of the base, below dir; only if the head is another repository's
}

// exactRef matches refs that `git clone --branch` does not accept.
var exactRef = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(refs/.*|[0-9a-f]{40}|[0-9a-f]{64})$`) })

func clonesOf(repositories []task.Repository, work string) ([]*clone, error) {
	var all []*clone
	taken := make(map[string]bool)
	for _, r := range repositories {
		name := r.Path
		if name == "" {
			name = strings.TrimSuffix(path.Base(strings.TrimRight(strings.ReplaceAll(r.URL, ":", "/"), "/")), ".git")
		}
		if !filepath.IsLocal(name) || name == "." {
			return nil, Never("the repository %s has no usable folder name: give it a path", r.URL)
		}
		if taken[name] {
			return nil, Never("two repositories want the folder %s: give one of them another path", name)
		}
		taken[name] = true
		c := &clone{dir: filepath.Join(work, name), of: r}
		if r.Secret == "" { // of a private repository, the gateway says more
			c.url = r.URL
		}
		switch {
		case r.Head != nil:
			c.commands = checkoutOf(r, name)
		case r.Ref == "":
			c.commands = [][]string{{"git", "clone", "--quiet", "--no-local", "--depth=1", "--", r.URL, name}}
		case exactRef().MatchString(r.Ref):
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

// Self is the path of the running program, even after its file was replaced.
const Self = "/proc/self/exe"

// resolve finds the program of a command of the run. The error says where the program should be,
// because an image may lack programs of the server's machine.
func (j *Job) resolve(argv []string, dir string, env []string) (string, error) {
	name := argv[0]
	full, isPath := find(name, dir, env), strings.Contains(name, "/")
	switch {
	case full != "":
		return full, nil
	case j.Image != "" && isPath:
		return "", Never("%s is not a program that the run can reach: check the path and its mode in the image %s", name, j.Image)
	case j.Image != "":
		return "", Never("the program %q was not found in the image %s: add it to the image, name another image (dockerImage), or set PATH in the environment's env", name, j.Image)
	case j.Inherit:
		return "", Never("the program %q was not found where --isolation-command starts runs: install it there, or set PATH in the environment's env", name)
	case isPath:
		return "", Never("%s is not a program that the run can reach: check the path and its mode, or let runs read its folder (--run-read)", name)
	}
	return "", Never("the program %q was not found: install it where the server runs, let runs read its folder (--run-read), or set PATH in the environment's env", name)
}

// find finds a program in the PATH of env; empty: the program is not there. The word
// `triphammer` means this program.
func find(name, dir string, env []string) string {
	if name == task.ThisProgram {
		return Self
	}
	var tried []string
	switch {
	case filepath.IsAbs(name):
		tried = []string{name}
	case strings.Contains(name, "/"):
		tried = []string{filepath.Join(dir, name)}
	default:
		searched := ""
		for _, v := range env {
			if value, ok := strings.CutPrefix(v, "PATH="); ok {
				searched = value
			}
		}
		for _, d := range filepath.SplitList(searched) {
			if filepath.IsAbs(d) {
				tried = append(tried, filepath.Join(d, name))
			}
		}
	}
	for _, full := range tried {
		if Executable(full) && (!strings.Contains(full, toolsFolder+"/") || starts(full, env)) {
			return full
		}
	}
	return ""
}

// Never makes an error that every further attempt would meet (task.FinalError).
func Never(format string, args ...any) error {
	return &task.FinalError{Err: fmt.Errorf(format, args...)}
}

// Executable tells whether a file can be started.
func Executable(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// Encode makes a ToldEvent.
func Encode(e event.Event) (ToldEvent, error) {
	data, err := json.Marshal(e)
	return ToldEvent{Kind: e.Kind(), Data: data}, err
}
