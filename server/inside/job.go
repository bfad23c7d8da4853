package inside

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

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
	if len(j.Outputs) > 0 {
		own = append(own, "TRIPHAMMER_OUTPUTS="+f.outputs())
	}
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
	asks, err := j.outputs(s)
	if err != nil {
		return Ending{}, err
	}
	defer asks.close()
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

	answered, err := asks.begin(dir)
	if err != nil {
		return Ending{}, fmt.Errorf("making the folder for outputs: %w", err)
	}
	defer answered()
	s.add(event.AgentStarted{Command: strings.Join(j.Command, " ")})
	phase := s.phase(event.PhaseAgent)
	e, err := s.run(step{Argv: j.Command, Path: program, Dir: work, Env: j.Env, Stdin: dir.prompt(), Last: true})
	phase()
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
		mode = cmp.Or(mode, 0o600)
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
	env := j.before()
	if j.Resume {
		return dir, errors.Join(j.instruct(s, f, clones, env), j.readSkills(clones, f))
	}
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
		err := j.setUp(s, f, dir, func() error {
			for i, line := range j.Setup {
				st := step{Dir: dir, Env: env, Last: j.Foreign && i == len(j.Setup)-1} // strangers' code must not go on beside the agent
				if err := j.command(s, event.PhaseSetup, []string{"/bin/sh", "-c", line}, line, st, unknown); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return "", err
		}
		done()
	}
	if j.Foreign {
		// The setup may have run code of the head.
		if err := errors.Join(j.reinstruct(f, clones), j.furnish(f)); err != nil {
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

// Self is the path of the running program, even after its file was replaced.
const Self = "/proc/self/exe"

// resolve finds the program of a command of the run. The error says where the program should be,
// because an image may lack programs of the server's machine.
func (j *Job) resolve(argv []string, dir string, env []string) (string, error) {
	name := argv[0]
	if name == task.ThisProgram && j.This != "" {
		return j.This, nil
	}
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
		return "", Never("%s is not a program that the run can reach: check the path and its mode, or allow runs to read its folder (--run-read)", name)
	}
	return "", Never("the program %q was not found: install it where the server runs, allow runs to read its folder (--run-read), or set PATH in the environment's env", name)
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
