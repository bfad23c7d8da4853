package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"triphammer/factory/signature"
	"triphammer/server/api"
)

// world is a repository, a data directory and a server process on them.
type world struct {
	t    testing.TB
	dir  string
	addr string
	cmd  *exec.Cmd
	end  chan struct{} // closed when the process has ended
	logs *logFile
	user *syscall.Credential // whom commands run as; nil: whoever runs the tests

	network *network // of the server; nil: that of the tests

	env []string // more variables of commands

	ahead time.Duration // of the clock that they see, if it is not right
	clock string        // or the file that is their clock
}

const testSecret = "correct-horse-battery-staple"

// logFile is what a server printed. It is a file, so that it can be read while
// the server writes.
type logFile struct{ file *os.File }

func newLogFile(t testing.TB, dir string) *logFile {
	t.Helper()
	f, err := os.CreateTemp(dir, "serve-*.log")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return &logFile{f}
}

func (l *logFile) String() string {
	text, err := os.ReadFile(l.file.Name())
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// newWorld commits the files to a repository and sets the secret S.
func newWorld(t testing.TB, files map[string]string) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), addr: freeAddress(t)}
	w.write(files)
	w.git("init", "-q", "--initial-branch=main")
	w.push()
	w.run(testSecret, "secrets", "set", "S")
	w.cleanUp()
	return w
}

// cleanUp ends the server with the test, and shows what it said if the test failed.
func (w *world) cleanUp() {
	w.t.Cleanup(func() {
		if w.cmd != nil {
			w.kill()
		}
		if w.t.Failed() && w.logs != nil {
			w.t.Log(w.logs)
		}
	})
}

// freeAddress is an address that stays free while the server is down: its port
// is below those that the system gives to clients, which could otherwise connect
// to themselves.
func freeAddress(t testing.TB) string {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(10000)))
		if err != nil {
			continue
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		return l.Addr().String()
	}
	t.Fatal("no free port")
	return ""
}

func (w *world) write(files map[string]string) {
	w.t.Helper()
	for name, text := range files {
		path := filepath.Join(w.dir, "repo", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			w.t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) git(args ...string) {
	w.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Env = filepath.Join(w.dir, "repo"), environment(w.dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		w.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
}

func (w *world) push() {
	w.t.Helper()
	w.git("add", "-A")
	w.git("commit", "-q", "-m", "Next")
}

func (w *world) command(args ...string) *exec.Cmd {
	cmd := exec.Command(binary, args...)
	cmd.Dir = w.dir
	cmd.Env = append(environment(w.dir), "TRIPHAMMER_DATA="+filepath.Join(w.dir, "data"), "TRIPHAMMER_LISTEN="+w.addr)
	cmd.Env = append(cmd.Env, w.env...)
	if w.ahead != 0 || w.clock != "" {
		var err error
		if cmd.Path, err = os.Executable(); err != nil {
			w.t.Fatal(err)
		}
		cmd.Env = append(cmd.Env, clockVariable+"="+cmp.Or(w.clock, w.ahead.String()))
	}
	if cmd.SysProcAttr = (&syscall.SysProcAttr{Credential: w.user}); w.user != nil {
		cmd.Env = append(cmd.Env, "TRIPHAMMER_RUN_USER=")
	}
	return cmd
}

// run runs a command that must succeed, and returns its standard output.
func (w *world) run(stdin string, args ...string) string {
	w.t.Helper()
	cmd := w.command(args...)
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stderr = strings.NewReader(stdin), &stderr
	out, err := cmd.Output()
	if err != nil {
		w.t.Fatalf("triphammer %v: %v\n%s%s", args, err, out, stderr.String())
	}
	return string(out)
}

func (w *world) list(into any, args ...string) {
	w.t.Helper()
	if err := json.Unmarshal([]byte(w.run("", append(args, "-o", "json")...)), into); err != nil {
		w.t.Fatal(err)
	}
}

// start starts the server and waits until it serves the head.
func (w *world) start(args ...string) {
	w.t.Helper()
	w.startWith(func(*exec.Cmd) {}, args...)
}

// startWith is start with something done to the command first.
func (w *world) startWith(change func(*exec.Cmd), args ...string) {
	w.t.Helper()
	w.cmd = w.command(append([]string{"serve", "--repo", "repo"}, args...)...)
	w.logs = newLogFile(w.t, w.dir)
	w.cmd.Stderr = w.logs.file
	change(w.cmd)
	if err := w.network.do(w.cmd.Start); err != nil {
		w.t.Fatal(err)
	}
	w.end = make(chan struct{})
	go func(cmd *exec.Cmd, end chan struct{}) {
		_ = cmd.Wait() // kill ends it, or the test sees that it has ended
		close(end)
	}(w.cmd, w.end)
	w.run("", "status", "--wait", "--timeout", "30s")
}

func (w *world) kill() {
	_ = w.cmd.Process.Kill() // it may have ended
	<-w.end
	w.cmd = nil
}

func (w *world) signal(s os.Signal) {
	w.t.Helper()
	if err := w.cmd.Process.Signal(s); err != nil {
		w.t.Fatal(err)
	}
}

// ofProcess reads a figure of the server's process: its open files, or a line of
// its status in KB.
func (w *world) ofProcess(name string) int {
	w.t.Helper()
	if name == "fd" {
		all, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", w.cmd.Process.Pid))
		if err != nil {
			w.t.Fatal(err)
		}
		return len(all)
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.cmd.Process.Pid))
	if err != nil {
		w.t.Fatal(err)
	}
	n, err := strconv.Atoi(regexp.MustCompile(name + `:\s+(\d+) kB`).FindStringSubmatch(string(text))[1])
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

func (w *world) url(webhook string) string {
	w.t.Helper()
	return strings.TrimSpace(w.run("", "webhooks", "url", webhook))
}

const factoryYAML = "schemaVersion: v1alpha1\nname: Test\n"

func automationFile(webhook, payload string) string {
	if payload != "" {
		payload = ", payload: " + payload
	}
	return "---\nenvironmentId: env\ntriggers:\n- {provider: webhook, event: received, filter: {webhooks: [" + webhook + "]" + payload + "}}\n---\nDo it.\n"
}

type answer struct {
	status int
	body   string
	header http.Header
}

func post(t testing.TB, method, address string, body io.Reader, header http.Header) answer {
	t.Helper()
	req, err := http.NewRequest(method, address, body)
	if err != nil {
		t.Fatal(err)
	}
	if header != nil {
		req.Header = header
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	resp.Header.Del("Date")
	return answer{resp.StatusCode, string(text), resp.Header}
}

// TestStatuses: every status of SPEC C7.1 from the running server.
func TestStatuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]string{
		"factory.yaml": factoryYAML, "environments/env.yaml": "command: ['true']\n",
		"webhooks/token.yaml": "secretName: S\n", "webhooks/url.yaml": "secretName: S\nauthMode: url_token\n",
		"webhooks/github.yaml": "secretName: S\nauthMode: signature\nsignatureScheme: github\n",
		"webhooks/stripe.yaml": "secretName: S\nauthMode: signature\nsignatureScheme: stripe\n",
		"webhooks/off.yaml":    "secretName: S\n", "webhooks/gone.yaml": "secretName: S\n",
		"automations/a.md": automationFile("token", ""),
	})
	w.start()
	urls := make(map[string]string)
	for _, name := range []string{"token", "url", "github", "stripe", "off", "gone"} {
		urls[name] = w.url(name)
	}
	complete := strings.TrimSpace(w.run(testSecret, "webhooks", "url", "url", "--token-stdin"))
	w.write(map[string]string{"webhooks/off.yaml": "secretName: S\nenabled: false\n"})
	if err := os.Remove(filepath.Join(w.dir, "repo/webhooks/gone.yaml")); err != nil {
		t.Fatal(err)
	}
	w.push()
	w.run("", "apply")

	bearer := func() http.Header { return http.Header{"Authorization": {"Bearer " + testSecret}} }
	signed := func(scheme, body string, at time.Time) http.Header {
		s, _ := signature.Lookup(scheme)
		h := http.Header{}
		if err := s.Sign(testSecret, &signature.Request{Header: h, Body: []byte(body), Now: at}); err != nil {
			t.Fatal(err)
		}
		return h
	}
	large := strings.Repeat(" ", 262145)
	for _, c := range []struct {
		name, method, url, body string
		header                  http.Header
		status                  int
	}{
		{"accepted", "POST", urls["token"], `{"a":1}`, bearer(), 202},
		{"duplicate", "POST", urls["token"], `{"a":1}`, bearer(), 202},
		{"url token", "POST", complete, `[]`, nil, 202},
		{"github", "POST", urls["github"], `{}`, signed("github", `{}`, time.Now()), 202},
		{"stripe", "POST", urls["stripe"], `{}`, signed("stripe", `{}`, time.Now()), 202},
		{"not JSON", "POST", urls["token"], `{"a":1`, bearer(), 400},
		{"BOM", "POST", urls["token"], "\xef\xbb\xbf{}", bearer(), 400},
		{"no credential", "POST", urls["token"], `{}`, nil, 401},
		{"another body was signed", "POST", urls["github"], `{"x":1}`, signed("github", `{}`, time.Now()), 401},
		{"stale", "POST", urls["stripe"], `{}`, signed("stripe", `{}`, time.Now().Add(-6*time.Minute)), 401},
		{"wrong token", "POST", strings.Replace(urls["url"], "{token}", "nope", 1), `{}`, nil, 401},
		{"too large", "POST", urls["token"], large, bearer(), 413},
		{"GET", "GET", urls["token"], ``, nil, 405},
		{"PROPFIND", "PROPFIND", urls["token"], ``, nil, 405},
	} {
		got := post(t, c.method, c.url, strings.NewReader(c.body), c.header)
		if got.status != c.status {
			t.Errorf("%s: %+v", c.name, got)
		}
		if c.status == 405 && got.header.Get("Allow") != "POST" {
			t.Errorf("%s: Allow %q", c.name, got.header.Get("Allow"))
		}
		if got.header.Get("Location") != "" || strings.Contains(got.body, testSecret) {
			t.Errorf("%s leaks: %+v", c.name, got)
		}
	}
	// A chunked body without a length.
	if got := post(t, "POST", urls["token"], io.MultiReader(strings.NewReader(large)), bearer()); got.status != 413 {
		t.Errorf("chunked: %+v", got)
	}

	unknown := urls["token"][:len(urls["token"])-4] + "0000"
	want := post(t, "POST", unknown, strings.NewReader(`{}`), bearer())
	for _, name := range []string{"off", "gone"} {
		got := post(t, "POST", urls[name], strings.NewReader(`{}`), bearer())
		if got.status != 404 || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s answers %+v; unknown answers %+v", name, got, want)
		}
	}
	// Methods are answered alike for every UID.
	a, b := post(t, "GET", unknown, nil, nil), post(t, "GET", urls["token"], nil, nil)
	if fmt.Sprint(a) != fmt.Sprint(b) {
		t.Errorf("GET answers %+v and %+v", a, b)
	}

	// The rate: with a Retry-After. 6 of the token webhook count already.
	var limited answer
	for n := 0; n < 70 && limited.status != 429; n++ {
		limited = post(t, "POST", urls["token"], strings.NewReader(fmt.Sprint(n)), bearer())
	}
	if limited.status != 429 || limited.header.Get("Retry-After") == "" {
		t.Errorf("rate: %+v", limited)
	}
	var failed answer
	for n := 0; n < 12 && failed.status != 429; n++ {
		failed = post(t, "POST", urls["github"], strings.NewReader(fmt.Sprint(n)), nil)
	}
	if failed.status != 429 || failed.header.Get("Retry-After") == "" {
		t.Errorf("failed authentication: %+v", failed)
	}
	if got := post(t, "POST", urls["github"], strings.NewReader(`7`), signed("github", `7`, time.Now())); got.status != 202 {
		t.Errorf("the right credential after failures: %+v", got)
	}

	// A revert brings the URL back (SPEC 4.6).
	w.write(map[string]string{"webhooks/gone.yaml": "secretName: S\n"})
	w.push()
	w.run("", "apply")
	if w.url("gone") != urls["gone"] {
		t.Errorf("the URL did not come back: %s, %s", w.url("gone"), urls["gone"])
	}
	if strings.Contains(w.logs.String(), testSecret) {
		t.Error("the server's log holds the secret")
	}
	var deliveries []api.Delivery
	w.list(&deliveries, "deliveries", "list", "--limit", "0")
	labels := make(map[string]bool)
	for _, d := range deliveries {
		labels[d.Label] = true
	}
	for _, label := range []string{"Accepted", "Duplicate", "Rejected (auth)", "Rejected (invalid JSON)", "Rejected (too large)"} {
		if !labels[label] {
			t.Errorf("no entry of the log is %s: %v", label, labels)
		}
	}
	if !slices.ContainsFunc(deliveries, func(d api.Delivery) bool { return d.Reason == "timestamp_too_old" }) {
		t.Error("no entry says timestamp_too_old")
	}
}
