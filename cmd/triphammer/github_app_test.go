package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"triphammer/applier/gitrepo/gittest"
	"triphammer/cmd/triphammer/client"
	"triphammer/factory/signature"
	"triphammer/server/api"
	"triphammer/server/githubapp/githubtest"
)

// appWorld is a server whose secret APP is the App of a GitHub with the private repository
// acme/app.
func appWorld(t *testing.T, files map[string]string) (*world, *githubtest.Server, string) {
	t.Helper()
	root := t.TempDir()
	bare := gittest.Bare(t, root, "acme/app.git")
	hub := githubtest.Start(t, root)
	for name, text := range files {
		files[name] = strings.ReplaceAll(text, "HUB", hub.URL)
	}
	hub.Installed["acme/app"] = 5
	hub.Permissions = map[string]string{"contents": "write", "metadata": "read", "pull_requests": "write"}
	w := newWorld(t, files)
	w.setApp(hub)
	return w, hub, bare
}

// setApp sets the secret APP.
func (w *world) setApp(hub *githubtest.Server) string {
	w.t.Helper()
	key := filepath.Join(w.dir, "app.private-key.pem")
	if err := os.WriteFile(key, []byte(hub.PEM), 0o600); err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = os.Remove(key) }()
	return w.run("", "secrets", "set", "APP", "--github-app", fmt.Sprint(hub.ID), "--key-file", key, "--api-url", hub.API())
}

// TestGitHubApp: a run clones and pushes with the token of a GitHub App, which the run does not
// have, and nobody prints the key (SPEC 24.2).
func TestGitHubApp(t *testing.T) {
	script := "git log --format=%s; git checkout -q -b triphammer/repair; git commit -q --allow-empty -m two; git push -q origin triphammer/repair && echo pushed; env; cat .git/config $GIT_CONFIG_SYSTEM; cat /proc/self/environ"
	w, hub, bare := appWorld(t, map[string]string{
		"factory.yaml": factoryYAML, "webhooks/hook.yaml": "secretName: S\nauthMode: signature\nsignatureScheme: github\napiSecretName: APP\napiURL: HUB/api/v3\n",
		"environments/env.yaml":   "repositories: [{url: HUB/acme/app.git, secret: APP}]\ncommand: [sh, -c, '" + script + "']\n",
		"environments/other.yaml": "repositories: [{url: HUB/acme/other.git, secret: APP}]\ncommand: [env]\n",
		"environments/leak.yaml":  "secrets: [APP]\ncommand: [env]\n",
		"automations/a.md":        automationFile("hook", ""),
		"automations/leak.md":     "---\nenvironmentId: leak\nsecrets: [APP]\ntriggers: [{provider: schedule, event: cron_fired, schedule: {cron: '@yearly'}}]\n---\nLeak it.\n",
	})
	w.start()
	run := func(environment, want string) (r api.Run, logs string) {
		t.Helper()
		id := strings.TrimSpace(w.run("", "runs", "create", "--environment", environment, "--prompt", "Go.", "-o", "name"))
		err := client.WaitFor(t.Context(), 30*time.Second, "the run does not end", func() (bool, error) {
			return json.Unmarshal([]byte(w.run("", "runs", "show", id, "-o", "json")), &r) == nil && r.FinishedAt != nil, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		logs = w.run("", "runs", "logs", id, "--full")
		if r.State != want || strings.Contains(logs, "ghs_") || strings.Contains(logs, "githubApp") {
			t.Fatalf("%s: %s\n%s", r.State, r.StatusMessage, logs)
		}
		return r, logs
	}
	tried := func(args ...string) string {
		out, _ := w.command(args...).CombinedOutput() // most end with an error
		return string(out)
	}
	_, logs := run("other", "FAILED")
	if !strings.Contains(logs, "is not installed on acme/other: install it at "+hub.URL+"/apps/acme-hammer/installations/new") {
		t.Errorf("it does not say where to install the App:\n%s", logs)
	}
	_, logs = run("env", "SUCCEEDED")
	if !strings.Contains(logs, "pushed") {
		t.Errorf("it did not push:\n%s", logs)
	}
	gittest.Git(t, bare, "rev-parse", "--verify", "triphammer/repair")
	granted := hub.Grants()
	if len(granted) != 1 || granted[0].Repository != "acme/app" || fmt.Sprint(granted[0].Permissions) != "map[contents:write pull_requests:write]" {
		t.Errorf("minted %+v", granted)
	}
	for _, g := range granted { // in nothing that the server keeps or says
		if out, err := exec.Command("grep", "-rl", g.Token, w.dir).CombinedOutput(); len(out) > 0 || err == nil {
			t.Errorf("the token is in %s", out)
		}
	}
	if out, _ := exec.Command("grep", "-rl", strings.Split(hub.PEM, "\n")[3], w.dir).CombinedOutput(); len(out) > 0 {
		t.Errorf("the key is in %s", out)
	}

	if listed := w.run("", "secrets", "list"); !strings.Contains(listed, "GitHub App 4711") {
		t.Errorf("secrets list: %s", listed)
	}
	if warned := w.run("", "automations", "list"); !strings.Contains(warned, "the secret APP is a GitHub App, whose key no run gets") {
		t.Errorf("nobody warns of the grant:\n%s", warned)
	}
	if said := tried("runs", "create", "--environment", "leak", "--prompt", "Go."); !strings.Contains(said, "whose key no run gets") {
		t.Errorf("a run with the key is made: %s", said)
	}
	doctor := tried("doctor")
	for _, want := range []string{"APP is acme-hammer, whose key works", "lacks issues: write (answers in issues and pull requests; the events of issues), checks: write"} {
		if !strings.Contains(doctor, want) {
			t.Errorf("doctor does not say %q:\n%s", want, doctor)
		}
	}
	hub.Change(func() {
		hub.Fault = func(rw http.ResponseWriter, _ *http.Request) bool {
			http.Error(rw, `{"message":"Bad credentials"}`, http.StatusUnauthorized)
			return true
		}
	})
	if doctor = tried("doctor"); !strings.Contains(doctor, "it does not take the App's id and key") {
		t.Errorf("doctor does not see that the key is refused:\n%s", doctor)
	}
}

// flow is a `connect github` that waits for its browser, at an address.
type flow struct {
	t       testing.TB
	cmd     *exec.Cmd
	address string
	first   string // the address of the page that begins the flow
	jar     http.CookieJar
	out     *bytes.Buffer
	rest    chan string // what the command says on standard error after the address
}

func (w *world) connect(hub *githubtest.Server, args ...string) *flow {
	w.t.Helper()
	f := &flow{t: w.t, cmd: w.command(append([]string{"connect", "github", "--github-url", hub.URL}, args...)...), out: &bytes.Buffer{}, rest: make(chan string, 1)}
	f.cmd.Env = append(f.cmd.Env, "BROWSER=none-at-all", "DISPLAY=")
	f.cmd.Stdout = f.out
	said, err := f.cmd.StderrPipe()
	if err == nil {
		err = f.cmd.Start()
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = f.cmd.Process.Kill() })
	lines := bufio.NewReader(said)
	first, _ := lines.ReadString('\n')
	f.jar, _ = cookiejar.New(nil) // which fails for no options
	f.first = regexp.MustCompile(`http://[0-9.:]+/\w+`).FindString(first)
	if f.address, _, _ = strings.Cut(f.first, "/"+path.Base(f.first)); f.address == "" {
		more, _ := io.ReadAll(lines)
		w.t.Fatalf("it says %s%s", first, more)
	}
	go func() {
		more, _ := io.ReadAll(lines)
		f.rest <- string(more)
	}()
	return f
}

// end waits for the command, and returns what it has said.
func (f *flow) end() (said string, status int) {
	f.t.Helper()
	said = <-f.rest
	err := f.cmd.Wait()
	return f.out.String() + said, exitStatus(err)
}

// browser sends a request as a browser does that follows no redirect.
func (f *flow) browser(method, address string, form url.Values) *http.Response {
	f.t.Helper()
	req, err := http.NewRequestWithContext(f.t.Context(), method, address, strings.NewReader(form.Encode()))
	if err != nil {
		f.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	client := &http.Client{Jar: f.jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// agree makes the App at GitHub, and returns where GitHub sends the browser.
func (f *flow) agree() (back string, manifest map[string]any) {
	f.t.Helper()
	page, err := io.ReadAll(f.browser(http.MethodGet, f.first, nil).Body)
	if err != nil {
		f.t.Fatal(err)
	}
	form := regexp.MustCompile(`action="([^"]+)".*name="manifest" value="([^"]+)"`).FindStringSubmatch(strings.ReplaceAll(string(page), "\n", " "))
	if form == nil {
		f.t.Fatalf("the page has no form: %s", page)
	}
	text := html.UnescapeString(form[2])
	if err := json.Unmarshal([]byte(text), &manifest); err != nil {
		f.t.Fatal(err)
	}
	return f.browser(http.MethodPost, html.UnescapeString(form[1]), url.Values{"manifest": {text}}).Header.Get("Location"), manifest
}

// TestConnectGitHub: one command makes the App, its webhook and both secrets; answers that are not
// of its flow change nothing, and a server that is restarted meanwhile takes the key (SPEC 24.2).
func TestConnectGitHub(t *testing.T) {
	hub := githubtest.Start(t, "")
	hub.Permissions["actions"] = "read"
	w := newWorld(t, map[string]string{"factory.yaml": factoryYAML})
	w.start()
	w.run("", "factories", "create", "made")
	f := w.connect(hub, "--factory", "made", "--organization", "acme")
	back, manifest := f.agree()
	if !strings.HasPrefix(back, f.address+"/made?") {
		t.Fatalf("GitHub sends the browser to %s", back)
	}
	hook, _ := manifest["hook_attributes"].(map[string]any)
	if address := fmt.Sprint(hook["url"]); !strings.Contains(address, "/webhooks/w/whk_") || manifest["public"] != false || fmt.Sprint(manifest["default_permissions"]) != "map[actions:read checks:write contents:write issues:write members:read metadata:read pull_requests:write]" {
		t.Errorf("the manifest is %v", manifest)
	}
	if asked := fmt.Sprint(hub.Asked()); !strings.Contains(asked, "POST /organizations/acme/settings/apps/new") {
		t.Errorf("GitHub was asked for %s", asked)
	}
	mine := f.jar
	f.jar = nil // another user of this machine
	for address, want := range map[string]int{f.address + "/": http.StatusNotFound, f.first: http.StatusGone, back: http.StatusBadRequest} {
		if resp := f.browser(http.MethodGet, address, nil); resp.StatusCode != want {
			t.Errorf("of another browser, %s: %s", address, resp.Status)
		}
	}
	f.jar = mine
	for _, wrong := range []string{"/made", "/made?code=x", "/made?code=x&state=y", "/made?state=" + regexp.MustCompile(`state=([^&]+)`).FindStringSubmatch(back)[1]} {
		if resp := f.browser(http.MethodGet, f.address+wrong, nil); resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %s", wrong, resp.Status)
		}
	}
	w.kill() // and start again while the command has the code
	if resp := f.browser(http.MethodGet, back, nil); resp.StatusCode != http.StatusOK {
		t.Errorf("%s: %s", back, resp.Status)
	}
	w.start()
	said, status := f.end()
	if status != 0 || !strings.Contains(said, "GITHUB_APP is the GitHub App 4711") || !strings.Contains(said, "The webhook github takes its deliveries.") || !strings.Contains(said, hub.URL+"/apps/acme-hammer/installations/new") {
		t.Fatalf("%d: %s", status, said)
	}
	if strings.Contains(said, "PRIVATE KEY") || strings.Contains(said, "the-secret-of-the-webhook") {
		t.Errorf("it prints a secret: %s", said)
	}
	if listed := w.run("", "secrets", "list"); !strings.Contains(listed, "GitHub App 4711") {
		t.Error(listed)
	}
	if doctor, _ := w.command("doctor").CombinedOutput(); !strings.Contains(string(doctor), "GITHUB_APP is acme-hammer, whose key works") || strings.Contains(string(doctor), "lacks") {
		t.Errorf("%s", doctor)
	}
	// The secret of the webhook at GitHub is the one that the server checks.
	body, header := []byte(`{"zen":"x"}`), http.Header{"X-Github-Event": {"ping"}, "X-Github-Delivery": {"1"}}
	scheme, _ := signature.Lookup("github")
	if err := scheme.Sign("the-secret-of-the-webhook-at-github", &signature.Request{Header: header, Body: body}); err != nil {
		t.Fatal(err)
	}
	if a := post(t, http.MethodPost, fmt.Sprint(hook["url"]), bytes.NewReader(body), header); a.status != http.StatusAccepted {
		t.Errorf("%+v", a)
	}

	out, err := w.command("connect", "github", "--factory", "made", "--github-url", hub.URL).CombinedOutput()
	if exitStatus(err) != 1 || !strings.Contains(string(out), "the webhook github is in use") {
		t.Errorf("again: %v %s", err, out)
	}
	out, err = w.command("connect", "github", "--factory", "made", "--webhook", "second", "--github-url", hub.URL).CombinedOutput()
	if exitStatus(err) != 1 || !strings.Contains(string(out), "there is a secret GITHUB_APP: give --secret another name") {
		t.Errorf("another App with the same secret: %v %s", err, out)
	}
	f = w.connect(hub, "--factory", "made", "--webhook", "second", "--secret", "OTHER_APP")
	if back, _ = f.agree(); f.browser(http.MethodGet, strings.Replace(back, "code=", "code=other", 1), nil).StatusCode != http.StatusOK {
		t.Error(back)
	}
	if said, status = f.end(); status == 0 || !strings.Contains(said, "does not know the code: it was used") {
		t.Errorf("%d: %s", status, said)
	}
	f = w.connect(hub, "--factory", "made", "--webhook", "second", "--secret", "OTHER_APP")
	if err := f.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if said, status = f.end(); status == 0 || !strings.Contains(said, "nothing was made there") {
		t.Errorf("%d: %s", status, said)
	}
	if listed := w.run("", "secrets", "list"); strings.Contains(listed, "OTHER_APP") {
		t.Error(listed)
	}
	out, err = w.command("connect", "github", "--factory", "default", "--github-url", hub.URL).CombinedOutput()
	if exitStatus(err) != 1 || !strings.Contains(string(out), "# webhooks/github.yaml\nauthMode: signature\nsignatureScheme: github\nsecretName: GITHUB_WEBHOOK_SECRET\nenabled: false\n") {
		t.Errorf("elsewhere: %v %s", err, out)
	}
}
