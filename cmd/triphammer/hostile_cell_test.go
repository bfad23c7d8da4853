package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"triphammer/cmd/triphammer/client"
	"triphammer/cmd/triphammer/host"
	"triphammer/server/api"
	"triphammer/server/worker/executor"
	"triphammer/server/worker/executor/containertest"
)

// outside is what the test sees around a hostile agent.
type outside struct {
	*world
	targets
	column
	program   string                        // the hostile agent and its victims
	network   *network                      // in which all of them are
	environs  map[string]hostileEnvironment // what runs are started in, by name
	secrets   map[string][]byte             // files that nobody may read, by their names in targets
	bystander string                        // secrets of the victims
	neighbour string
	before    os.FileInfo // the program that runs start with, if the walls need a copy of it
	attacked  string      // id of the run of the hostile agent
	said      map[string]answered
	outlived  bool
	used      map[string]api.Run // runs that used more than they may, by environment

	standing chan struct{} // control: closed when what stands for the server has ended
}

// hostileEnvironment is an environment whose agent is one of the programs of hostileMain.
type hostileEnvironment struct {
	args     []string
	settings string // further lines of its file
	secret   string // of a victim
}

const noRaceSleep = "GORACE=atexit_sleep_ms=0"

func (e hostileEnvironment) file(t *testing.T, program string) string {
	t.Helper()
	command, err := json.Marshal(append([]string{program, hostileCommand}, e.args...))
	if err != nil {
		t.Fatal(err)
	}
	name, value, _ := strings.Cut(noRaceSleep, "=")
	return fmt.Sprintf("%scommand: %s\nenv: {%s: %q, VICTIM_SECRET: %q}\n", e.settings, command, name, value, e.secret)
}

// hostileProgram is a copy of this program that everybody can run.
func hostileProgram(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "hostile")
	text, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(path, text, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// escapesOf starts a server, lets a hostile agent try everything, and returns what it has
// reached, by the names of the escapes.
func escapesOf(t *testing.T, c column) map[string]bool {
	mark := fmt.Sprintf("m%x", time.Now().UnixNano())
	o := &outside{
		column: c, network: newNetwork(t), bystander: rand.Text(), neighbour: rand.Text(), secrets: make(map[string][]byte), said: make(map[string]answered),
		used: make(map[string]api.Run), standing: make(chan struct{}),
	}
	o.world = &world{t: t, dir: t.TempDir(), addr: freeAddress(t), network: o.network}
	w := o.world
	bin := filepath.Join(w.dir, "bin")
	at := func(name string) string { return filepath.Join(w.dir, name) }
	o.targets = targets{
		Mark: mark, Dir: w.dir, Data: at("data"), Runs: at("runs"), Config: at("config.yaml"), TLSKey: at("tls.key"), Secrets: at("secrets"), Home: w.dir,
		Repo: at("repo"), Bin: bin, Mine: at("mine"), Setuid: filepath.Join(bin, "setuid"),
	}
	for _, dir := range []string{bin, at("secrets"), at(".ssh"), at("bystander"), at("standin"), at("open"), at("runs")} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	o.program = hostileProgram(t, bin)
	sleep := fmt.Sprintf("6%d", time.Now().UnixNano())
	hold := "60" // seconds: a busy machine takes its time to measure
	if c.control {
		hold = "3" // nobody ends it
	}
	holdShared := hold
	if c.wall() == executor.None {
		holdShared = "3" // it is the machine's: nobody ends it there either
	}
	o.environs = map[string]hostileEnvironment{
		"agent": {args: []string{"agent"}}, "outlive": {args: []string{"outlive", sleep}}, "kill": {args: []string{"kill"}},
		"neighbour": {args: []string{"victim", "neighbour", mark}, secret: o.neighbour},
		"offline":   {args: []string{"dial", "offline"}, settings: "network: off\n"},
		"listed":    {args: []string{"dial", "listed"}, settings: "network: [api.example.com]\n"},
		"memory":    {args: []string{"use", "memory", hold}, settings: "resources: {memoryMb: 256}\n"},
		"memfd":     {args: []string{"use", "memfd", hold}, settings: "resources: {memoryMb: 256}\n"},
		"shm":       {args: []string{"use", sharedFile + mark, holdShared}, settings: "resources: {memoryMb: 256}\n"},
		"unnamed":   {args: []string{"use", "unnamed", hold}, settings: "resources: {diskMb: 16}\n"},
		"processes": {args: []string{"use", "processes", hold}, settings: "resources: {processes: 60}\n"},
		"disk":      {args: []string{"use", "disk", hold}, settings: "resources: {diskMb: 16}\n"},
	}
	files := map[string]string{"factory.yaml": factoryYAML}
	for name, e := range o.environs {
		files["environments/"+name+".yaml"] = e.file(t, o.program)
	}
	w.write(files)
	w.git("init", "-q", "--initial-branch=main")
	w.git("config", "receive.denyCurrentBranch", "ignore")
	w.push()
	o.makeSecrets(bin, at)
	t.Cleanup(func() {
		_, _, _ = os.Remove(inTemp(&o.targets)), os.Remove(inShared(&o.targets)), os.Remove(sharedFile+mark) // if it has made them
		if w.cmd != nil {
			w.kill()
		}
		if t.Failed() && w.logs != nil {
			t.Log(w.logs)
		}
	})
	o.Bystander = o.bystands("bystander", nil)

	if c.isolation == executor.Container {
		containertest.MakeImage(t)
	}
	w.startWith(func(cmd *exec.Cmd) {
		cmd.Env = append(cmd.Env, "PATH="+filepath.Dir(binary)+":"+bin+":"+os.Getenv("PATH"), "TRIPHAMMER_ISOLATION="+c.wall(), "TRIPHAMMER_RUN_USER=",
			"TRIPHAMMER_CONTAINER_PROGRAM="+c.engine(), "TRIPHAMMER_CONTAINER_IMAGE="+containertest.Image, "TRIPHAMMER_CONTAINER_OPTIONS="+containertest.Options,
			"TRIPHAMMER_RUN_READ="+filepath.Dir(binary)+","+bin)
	}, "--config", o.Config, "--tls-cert", at("tls.crt"), "--tls-key", o.TLSKey, "--secrets-dir", o.Secrets, "--workspaces", o.Runs)
	o.Server = w.cmd.Process.Pid
	if c.control {
		o.Server = o.bystands("standin", o.standing).PID
	}
	for name, file := range map[string]string{"key": "key", "admin": host.AdminKeyFile, "database": host.StoreFile} {
		text, err := os.ReadFile(filepath.Join(o.Data, file))
		if err != nil {
			t.Fatal(err)
		}
		o.secrets[name] = text
	}
	o.secrets[linkedFile] = []byte(rand.Text())
	if err := os.WriteFile(filepath.Join(o.Data, linkedFile), o.secrets[linkedFile], 0o600); err != nil {
		t.Fatal(err)
	}
	o.tryAll(sleep)
	got := make(map[string]bool)
	for _, e := range escapes {
		got[e.name] = e.seen(t, o, o.said[e.name].Said)
		t.Logf("%-70s %v %.100s %s", e.name, got[e.name], o.said[e.name].Said, o.said[e.name].Err)
	}
	return got
}

// tryAll starts the victim that is another run, and lets the hostile agent try all escapes.
func (o *outside) tryAll(sleep string) {
	t := o.t.(*testing.T)
	t.Helper()
	var neighbour string
	o.starting("neighbour", "x", func(id string) { neighbour = id })
	o.Neighbour = awaitVictim(t, filepath.Join(o.Runs, neighbour, "workspace"))
	if !o.control { // in a run, it may not know its own number
		o.Neighbour.PID = someProcess(t, func(line string) bool { return strings.HasSuffix(line, "\x00victim\x00neighbour\x00"+o.Mark+"\x00") })
	}
	if o.Neighbour.PID == 0 {
		t.Fatal("the victim has gone")
	}
	var err error
	if o.before, err = os.Stat(filepath.Join(o.Runs, ".triphammer")); errors.Is(err, fs.ErrNotExist) {
		o.before = nil
	} else if err != nil {
		t.Fatal(err)
	}
	prompt, err := json.Marshal(o.targets)
	if err != nil {
		t.Fatal(err)
	}
	if r := o.starting("agent", string(prompt), func(id string) { o.attacked = id })(); r.State != "SUCCEEDED" {
		t.Fatalf("the hostile agent: %s %s\n%s", r.State, r.StatusMessage, o.told())
	}
	text, err := os.ReadFile(filepath.Join(o.Runs, o.attacked, "workspace", hostileSeen))
	if err == nil {
		err = json.Unmarshal(text, &o.said)
	}
	if err != nil {
		t.Fatal(err)
	}
	using := make(map[string]func() api.Run)
	for _, environment := range []string{"memory", "memfd", "shm", "processes", "disk", "unnamed"} {
		using[environment] = o.start(environment, "x")
	}
	for environment, wait := range using {
		o.used[environment] = wait()
	}
	bystander, err := json.Marshal(o.Bystander)
	if err != nil {
		t.Fatal(err)
	}
	for _, environment := range []string{"offline", "listed"} {
		o.start(environment, string(bystander))() // it may be refused
	}
	o.start("outlive", "x")()
	outlives := func() int {
		return someProcess(t, func(line string) bool { return strings.HasPrefix(line, "sleep\x00"+sleep) })
	}
	o.outlived = outlives() != 0
	for pid := outlives(); pid != 0; pid = outlives() {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
	}
}

// start starts an environment: a run, or for the control the program alone. wait tells how it
// ended.
func (o *outside) start(environment, prompt string) (wait func() api.Run) {
	o.t.Helper()
	return o.starting(environment, prompt, func(string) {})
}

// starting is start, and tells the id at once.
func (o *outside) starting(environment, prompt string, started func(id string)) (wait func() api.Run) {
	o.t.Helper()
	if o.control {
		started(environment)
		return o.startAlone(environment, prompt)
	}
	id := strings.Fields(o.run("", "runs", "create", "--prompt", prompt, "--environment", environment))[0]
	started(id)
	return func() (r api.Run) {
		o.t.Helper()
		_ = o.command("runs", "watch", id).Run() // its status tells whether the run has failed
		if o.serves() {
			o.decode(&r, "runs", "show", id, "-o", "json")
		}
		return r
	}
}

// printedFile is what takes the output of a program that startAlone has started.
const printedFile = "printed"

// startAlone starts the program of an environment as the server's user, below a program that
// stands for its supervisor, without a run.
func (o *outside) startAlone(environment, prompt string) (wait func() api.Run) {
	t := o.t
	t.Helper()
	dir := filepath.Join(o.Runs, environment)
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"workspace", "home", "tmp", "artifacts"} {
		err := os.MkdirAll(at(name), 0o755)
		if err == nil && o.user != nil {
			err = os.Chown(at(name), int(o.user.Uid), int(o.user.Gid))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), o.program, append([]string{hostileCommand, "standin"}, o.environs[environment].args...)...)
	cmd.Dir, cmd.Stdin, cmd.WaitDelay = at("workspace"), strings.NewReader(prompt), 2*time.Second
	cmd.Env = []string{
		noRaceSleep, "PATH=" + os.Getenv("PATH"), "HOME=" + at("home"), "TMPDIR=" + at("tmp"), "TRIPHAMMER_ARTIFACTS=" + at("artifacts"),
		"TRIPHAMMER_RUN_ID=" + environment, "VICTIM_SECRET=" + o.environs[environment].secret,
	}
	printed, err := os.Create(at(printedFile))
	if err == nil && o.user != nil {
		err = printed.Chown(int(o.user.Uid), int(o.user.Gid))
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = printed.Close() }()
	cmd.Stdout, cmd.Stderr = printed, t.Output()
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: o.user}
	if err := o.network.do(cmd.Start); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { <-ended })
	return func() api.Run {
		err := <-ended
		ended <- err
		if err != nil {
			return api.Run{State: "FAILED", StatusMessage: err.Error()}
		}
		return api.Run{State: "SUCCEEDED"}
	}
}

// serves tells whether the server, or what stands for it, is still there.
func (o *outside) serves() bool {
	if !o.control {
		return o.command("status").Run() == nil
	}
	select {
	case <-o.standing:
		return false
	case <-time.After(5 * time.Second):
		return true
	}
}

// told is what the supervisor of the hostile agent has told.
func (o *outside) told() string {
	o.t.Helper()
	if o.control {
		text, err := os.ReadFile(filepath.Join(o.Runs, o.attacked, printedFile))
		if err != nil {
			o.t.Fatal(err)
		}
		return string(text)
	}
	return o.run("", "runs", "logs", "--full", o.attacked)
}

// linksRead tells whether a file outside, to which the agent has left links in its workspace and
// among its artifacts, is in the transcript or in an artifact that is stored.
func (o *outside) linksRead() bool {
	o.t.Helper()
	folder := filepath.Join(o.dir, "downloaded")
	said := ""
	if o.control { // whoever just reads the folder
		folder = filepath.Join(o.Runs, o.attacked, "artifacts")
	} else {
		o.run("", "runs", "artifacts", o.attacked, "--download", folder)
		said = o.told() + o.run("", "runs", "show", o.attacked, "-o", "json")
	}
	plain := false
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if text, readErr := os.ReadFile(path); readErr == nil { // it follows links
			said += string(text)
			plain = plain || d.Name() == plainArtifact && string(text) == o.Mark
		}
		return err
	})
	if err != nil || !plain {
		o.t.Fatalf("the artifact that is a plain file was not found: %v", err)
	}
	return strings.Contains(said, string(o.secrets[linkedFile]))
}

// hooksRun tells whether a program that the agent has left in a repository ran outside. As the
// control, somebody uses Git there.
func (o *outside) hooksRun() bool {
	o.t.Helper()
	if o.control {
		cmd := exec.Command("git", "-C", filepath.Join(o.Runs, o.attacked, "workspace", "clone"), "status")
		cmd.Env, cmd.SysProcAttr = environment(o.dir), &syscall.SysProcAttr{Credential: o.user}
		if out, err := cmd.CombinedOutput(); err != nil {
			o.t.Fatalf("%v\n%s", err, out)
		}
	}
	_, err := os.Lstat(filepath.Join(o.Dir, "open", "trap-"+o.Mark))
	return err == nil
}

// makeSecrets makes the files that nobody may read, and lets the users of the test reach what
// they may.
func (o *outside) makeSecrets(bin string, at func(string) string) {
	t := o.t.(*testing.T)
	t.Helper()
	secretFile := func(name, path string, mode os.FileMode, text []byte) {
		t.Helper()
		if text == nil {
			text = []byte(rand.Text() + "\n")
		}
		o.secrets[name] = text
		if err := os.WriteFile(path, text, mode); err != nil {
			t.Fatal(err)
		}
	}
	secretFile("config", o.Config, 0o600, []byte("# "+rand.Text()+"\nrate-limit: 60\n"))
	certificate, key := selfSigned(t)
	secretFile("tls", o.TLSKey, 0o600, key)
	secretFile("certificate", at("tls.crt"), 0o644, certificate)
	secretFile("secrets", filepath.Join(o.Secrets, "S2"), 0o600, nil)
	secretFile("home", at(".ssh/id_ed25519"), 0o600, nil)
	secretFile("mine", o.Mine, 0o600, nil)
	err := errors.Join(exec.Command("cp", "/usr/bin/id", o.Setuid).Run(), os.Chmod(at("open"), 0o777),
		os.Chmod(filepath.Dir(o.dir), 0o711), os.Chmod(o.dir, 0o755))
	if err != nil {
		t.Fatal(err)
	}
	if !o.root {
		o.plainUser()
	}
	if os.Geteuid() == 0 {
		if err := errors.Join(os.Chown(o.Setuid, 12345, 0), os.Chmod(o.Setuid, os.ModeSetuid|0o755)); err != nil {
			t.Fatal(err)
		}
	}
}

// bystands starts a victim outside of all runs, in its folder. It closes ended when the victim
// has ended.
func (o *outside) bystands(name string, ended chan struct{}) victim {
	t := o.t.(*testing.T)
	t.Helper()
	dir := filepath.Join(o.dir, name)
	log, err := os.Create(filepath.Join(dir, "log"))
	if err == nil {
		_, err = log.WriteString("Nothing to see here.\n")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(o.program, hostileCommand, "victim", name, o.Mark)
	cmd.Dir, cmd.Env, cmd.Stderr = dir, []string{noRaceSleep, "VICTIM_SECRET=" + o.bystander}, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: o.user, Pdeathsig: syscall.SIGKILL}
	if o.user != nil {
		if err := log.Chown(int(o.user.Uid), int(o.user.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	if err := o.network.do(cmd.Start); err != nil {
		t.Fatal(err)
	}
	gone := make(chan struct{})
	go func() {
		_ = cmd.Wait() // it is killed
		if ended != nil {
			close(ended)
		}
		close(gone)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		<-gone
		dropQueue(o.bystander)
	})
	return awaitVictim(t, dir)
}

// decode reads what a command prints in JSON.
func (w *world) decode(into any, args ...string) {
	w.t.Helper()
	if err := json.Unmarshal([]byte(w.run("", args...)), into); err != nil {
		w.t.Fatal(err)
	}
}

// awaitVictim waits until a victim has told of itself.
func awaitVictim(t *testing.T, dir string) (v victim) {
	t.Helper()
	err := client.WaitFor(t.Context(), 20*time.Second, "a victim is not there", func() (bool, error) {
		text, err := os.ReadFile(filepath.Join(dir, victimReady))
		return err == nil && json.Unmarshal(text, &v) == nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// someProcess finds a process by its command line, in which a zero byte ends each word, as
// this machine numbers it; 0: there is none.
func someProcess(t *testing.T, matches func(line string) bool) int {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil || len(all) == 0 {
		t.Fatal(all, err)
	}
	for _, path := range all {
		if line, err := os.ReadFile(path); err == nil && matches(string(line)) {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			if err != nil {
				t.Fatal(err)
			}
			return pid
		}
	}
	return 0
}

// selfSigned is a certificate of 127.0.0.1, and its key.
func selfSigned(t *testing.T) (certificate, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
}
