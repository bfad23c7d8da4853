package main

import (
	"bufio"
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"triphammer/applier/gitrepo/gittest"
	"triphammer/cmd/triphammer/client"
	"triphammer/factory/signature"
	"triphammer/server/api"
)

// proxy is a CONNECT proxy that leads everybody to one address.
func proxy(t *testing.T, to string) (address string, used *atomic.Int64) {
	used = new(atomic.Int64)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect {
			http.Error(w, "CONNECT alone", http.StatusMethodNotAllowed)
			return
		}
		used.Add(1)
		there, err := net.Dial("tcp", to)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		here, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = here.Write([]byte("HTTP/1.1 200 OK\r\n\r\n"))
		go func() { _, _ = io.Copy(there, bufio.NewReader(buffered)); _ = there.Close() }()
		go func() { _, _ = io.Copy(here, there); _ = here.Close() }()
	}))
	t.Cleanup(s.Close)
	return s.URL, used
}

// TestRemoteRepository: a server follows a repository over https through a
// proxy. Its credential is nowhere to be found, also not by an agent (SPEC 4.1,
// 4.9).
func TestRemoteRepository(t *testing.T) {
	const token = "c4nary-of-the-git-token"
	w := newWorld(t, map[string]string{
		"factory.yaml": factoryYAML, "webhooks/hook.yaml": "secretName: S\n", "automations/a.md": automationFile("hook", ""),
		"environments/env.yaml": "command: [sh, -c, 'env; cat /proc/$PPID/environ']\n",
	})
	bare := filepath.Join(w.dir, "served", "factory.git")
	w.git("clone", "-q", "--bare", ".", bare)
	w.git("remote", "add", "origin", bare)
	git := gittest.Serve(t, filepath.Dir(bare))
	git.Basic("", token)
	through, used := proxy(t, git.Listener.Addr().String())
	file := filepath.Join(w.dir, "token")
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	// The certificate is for example.com, which only the proxy can find.
	t.Setenv("HTTPS_PROXY", through)
	t.Setenv("TRIPHAMMER_GIT_TOKEN_FILE", file)
	w.start("--repo", "https://example.com/factory.git", "--git-ca-file", git.CAFile, "--poll", "1s")
	if used.Load() == 0 {
		t.Error("the proxy was not used")
	}
	if got := post(t, "POST", w.url("hook"), strings.NewReader(`{}`), http.Header{"Authorization": {"Bearer " + testSecret}}); got.status != 202 {
		t.Errorf("%+v", got)
	}

	applied := func(what string, is func(api.FactoryStatus) bool) {
		t.Helper()
		var s api.Status
		err := client.WaitFor(t.Context(), 30*time.Second, what, func() (bool, error) {
			s = api.Status{} // fields that are left out stay as they were
			w.list(&s, "status")
			return is(s.Factories[0]), nil
		})
		if err != nil {
			t.Fatalf("%v: %+v", err, s.Factories[0])
		}
	}
	w.write(map[string]string{"webhooks/second.yaml": "secretName: S\n"})
	w.push()
	w.git("push", "-q", "origin", "HEAD:main")
	applied("the push goes live", func(s api.FactoryStatus) bool { return s.Applied.Commit == s.Head && s.LastApply.Trigger == "watch" })
	w.url("second")

	// The token is replaced on the service first, and then here.
	git.Basic("", token+"2")
	applied("the service refuses the token", func(s api.FactoryStatus) bool {
		return strings.Contains(s.Error, "--git-token-file") && s.Since != nil && s.NextAttempt != nil
	})
	if err := os.WriteFile(file, []byte(token+"2"), 0o600); err != nil {
		t.Fatal(err)
	}
	applied("the new token counts", func(s api.FactoryStatus) bool { return s.Error == "" })

	var runs []api.Run
	err := client.WaitFor(t.Context(), 30*time.Second, "the run ends", func() (bool, error) {
		w.list(&runs, "runs", "list")
		return len(runs) == 1 && runs[0].State == "SUCCEEDED", nil
	})
	if err != nil {
		t.Fatal(err)
	}
	shown := w.run("", "runs", "logs", runs[0].RunID) + w.run("", "status", "-o", "json") + w.run("", "applies", "list", "-o", "json") + w.logs.String()
	if strings.Contains(shown, token) {
		t.Error("what the server shows holds the token")
	}
	for _, name := range []string{"GIT_TOKEN", "HTTPS_PROXY"} {
		if strings.Contains(w.run("", "runs", "logs", runs[0].RunID), name) {
			t.Errorf("the agent is given %s", name)
		}
	}
	w.kill()
	err = filepath.WalkDir(filepath.Join(w.dir, "data"), func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(name)
		if bytes.Contains(text, []byte(token)) {
			err = fmt.Errorf("%s holds the token", name)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestProvenance: a run and a delivery name the commit and the file that decided
// them, with the name that Git has for its content, also after another push.
func TestProvenance(t *testing.T) {
	w := newWorld(t, map[string]string{
		"factory.yaml": factoryYAML, "webhooks/hook.yaml": "secretName: S\n",
		"automations/a.md": automationFile("hook", "{n: [1]}"), "automations/b/automation.md": automationFile("hook", "{n: [2]}"),
		"environments/env.yaml": "command: ['true']\n",
	})
	w.start("--max-runs", "0")
	if got := post(t, "POST", w.url("hook"), strings.NewReader(`{"n":1}`), http.Header{"Authorization": {"Bearer " + testSecret}}); got.status != 202 {
		t.Fatalf("%+v", got)
	}
	w.run("", "runs", "create", "--prompt", "x", "--environment", "env")
	w.write(map[string]string{"webhooks/hook.yaml": "secretName: S\nenabled: true\n", "automations/a.md": automationFile("hook", "{n: [3]}"), "environments/env.yaml": "command: ['false']\n"})
	w.push()
	w.run("", "apply")

	same := func(what, commit, path, blob, want string) {
		t.Helper()
		cmd := exec.Command("git", "rev-parse", commit+":"+path)
		cmd.Dir = filepath.Join(w.dir, "repo")
		out, err := cmd.Output()
		if got := strings.TrimSpace(string(out)); err != nil || got != blob || path != want {
			t.Errorf("%s: %s@%s of %s; Git has %s, %v", what, path, blob, commit, got, err)
		}
	}
	var runs []api.Run
	w.list(&runs, "runs", "list")
	if len(runs) != 2 {
		t.Fatalf("%d runs", len(runs))
	}
	same("a run by the API", runs[0].Commit, runs[0].Path, runs[0].Blob, "environments/env.yaml")
	same("a run by a webhook", runs[1].Commit, runs[1].Path, runs[1].Blob, "automations/a.md")
	var d api.DeliveryDetail
	w.list(&d, "deliveries", "show", runs[1].DeliveryID)
	same("a delivery", d.Commit, d.Path, d.Blob, "webhooks/hook.yaml")
	if len(d.Matches) != 2 || d.Commit != runs[1].Commit {
		t.Fatalf("%+v", d)
	}
	same("a match", d.Commit, d.Matches[0].Definition, d.Matches[0].Blob, "automations/a.md")
	same("a miss", d.Commit, d.Matches[1].Definition, d.Matches[1].Blob, "automations/b/automation.md")
	if got := w.run("", "deliveries", "show", d.ID); !strings.Contains(got, "webhooks/hook.yaml@"+d.Blob[:12]) {
		t.Errorf("%s", got)
	}
}

// TestTellOthers: the service hears of each commit, and an address of what does
// not serve, in words that a receiver can verify.
func TestTellOthers(t *testing.T) {
	const key = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	heard, told := make(chan string, 100), make(chan string, 100) // neither waits for the other
	there := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.Method == http.MethodGet {
			_, _ = io.WriteString(rw, `{"protected":false}`)
			return
		}
		if r.URL.Path == "/told" {
			scheme, _ := signature.Lookup("standard_webhooks")
			v, err := scheme.Verifier(key)
			if err == nil {
				err = v.Verify(&signature.Request{Method: r.Method, Header: r.Header, Body: body, Now: time.Now()})
			}
			told <- fmt.Sprint("told ", err, " ", string(body))
			return
		}
		heard <- r.URL.Path + " " + r.Header.Get("Authorization") + " " + string(body)
	}))
	defer there.Close()
	expect := func(from chan string, parts ...string) {
		t.Helper()
		select {
		case text := <-from:
			for _, part := range parts {
				if !strings.Contains(text, part) {
					t.Errorf("heard %s without %s", text, part)
				}
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("nothing heard of %v", parts)
		}
	}
	w := newWorld(t, map[string]string{"factory.yaml": factoryYAML})
	ca, token := filepath.Join(w.dir, "ca.pem"), filepath.Join(w.dir, "status-token")
	err := errors.Join(
		os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: there.Certificate().Raw}), 0o600),
		os.WriteFile(token, []byte("st4tus"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	w.run(key, "secrets", "set", "TELL")
	w.start("--commit-status", "gitea", "--commit-status-token-file", token, "--commit-status-api", there.URL+"/api/v1", "--commit-status-project", "team/f",
		"--notify-url", there.URL+"/told", "--notify-secret", "TELL", "--git-ca-file", ca)
	expect(heard, "/api/v1/repos/team/f/statuses/", "token st4tus", `"success"`, `"triphammer/apply"`)
	expect(heard, "/api/v1/repos/team/f/statuses/", "token st4tus", `"success"`, `"triphammer/validate"`)
	w.write(map[string]string{"webhooks/bad.yaml": "colour: green\n"})
	w.push()
	expect(heard, "/api/v1/repos/team/f/statuses/", `"failure"`, "webhooks/bad.yaml:1", `"triphammer/apply"`)
	expect(heard, "/api/v1/repos/team/f/statuses/", `"failure"`, "webhooks/bad.yaml:1", `"triphammer/validate"`)
	expect(told, "told <nil> ", `"apply.failed"`, `"FF_UNKNOWN_FIELD"`)
	w.git("revert", "--no-edit", "HEAD")
	expect(heard, "/api/v1/repos/team/f/statuses/", `"success"`, `"triphammer/apply"`)
	expect(heard, "/api/v1/repos/team/f/statuses/", `"success"`, `"triphammer/validate"`)
	expect(told, "told <nil> ", `"apply.recovered"`)
	if log := w.logs.String(); strings.Contains(log, "st4tus") || strings.Contains(log, key) || strings.Contains(log, "given up") || !strings.Contains(log, "the branch is not protected") {
		t.Errorf("log: %s", log)
	}
}

// TestOnlyTheRepository: nothing that a commit or a push notification says makes
// the server ask another address.
func TestOnlyTheRepository(t *testing.T) {
	var asked atomic.Int64
	elsewhere, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	accepted := make(chan struct{})
	go func() {
		defer close(accepted)
		for {
			conn, err := elsewhere.Accept()
			if err != nil {
				return
			}
			asked.Add(1)
			_ = conn.Close()
		}
	}()
	url := "http://" + elsewhere.Addr().String() + "/other.git"
	w := newWorld(t, map[string]string{
		"factory.yaml": factoryYAML, "webhooks/hook.yaml": "secretName: S\n",
		".gitmodules": "[submodule \"x\"]\n\tpath = x\n\turl = " + url + "\n", ".lfsconfig": "[lfs]\n\turl = " + url + "\n",
		".gitattributes": "*.bin filter=lfs diff=lfs merge=lfs -text\n",
		"webhooks/.note": "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n",
	})
	w.start("--sync-secret", "S")
	w.write(map[string]string{"webhooks/second.yaml": "secretName: S\n"})
	w.push()
	body := `{"ref":"refs/heads/main","repository":{"url":"` + url + `","clone_url":"` + url + `","git_url":"` + url + `","ssh_url":"` + url + `","archive_url":"` + url + `"},"project":{"git_http_url":"` + url + `"}}`
	scheme, _ := signature.Lookup("github")
	r := &signature.Request{Method: "POST", Header: http.Header{}, Body: []byte(body), Now: time.Now()}
	if err := scheme.Sign(testSecret, r); err != nil {
		t.Fatal(err)
	}
	if got := post(t, "POST", "http://"+w.addr+"/api/v1/factories/default/sync", strings.NewReader(body), r.Header); got.status != http.StatusAccepted {
		t.Errorf("%+v", got)
	}
	w.run("", "apply")
	if got := w.run("", "webhooks", "url", "second"); !strings.Contains(got, "whk_") {
		t.Errorf("what was pushed does not serve: %s", got)
	}
	_ = elsewhere.Close()
	<-accepted
	if n := asked.Load(); n > 0 {
		t.Errorf("%d connections to what a commit names", n)
	}
}
