//go:build full

package main

import (
	"bufio"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"triphammer/server/api"
)

// TestReverseProxies: the configurations of nginx and Caddy in
// docs/reverse-proxy.md, run by these programs in front of a server. Webhooks pass with
// the address of the client (SPEC 5.9); with webhooks alone, nothing else does; with the
// pages, a stream comes while the run goes on.
func TestReverseProxies(t *testing.T) {
	page, err := os.ReadFile("../../docs/reverse-proxy.md")
	if err != nil {
		t.Fatal(err)
	}
	gates := t.TempDir()
	w := newWorld(t, map[string]string{
		"factory.yaml":          factoryYAML,
		"environments/env.yaml": "command: [sh, -c, 'for i in 1 2 3; do echo hammering $i; while [ ! -e " + gates + "/$TRIPHAMMER_RUN_ID.$i ]; do sleep 0.05; done; done']\n",
		"webhooks/github.yaml":  "secretName: S\nauthMode: signature\nsignatureScheme: github\n",
		"automations/a.md":      automationFile("github", "{start: [true]}"),
	})
	w.start("--trusted-proxies", "127.0.0.1/32")
	key := strings.TrimSpace(w.run("", "keys", "create", "reader", "--scope", "read,runs"))
	path := w.url("github")
	path = path[strings.Index(path, "/webhooks/w/"):]

	blocks := regexp.MustCompile("(?ms)^```(nginx|caddy) (webhooks|pages)\n(.*?)^```$").FindAllStringSubmatch(string(page), -1)
	if len(blocks) != 4 {
		t.Fatalf("docs/reverse-proxy.md has %d configurations", len(blocks))
	}
	// The address of the client is not that of the proxy.
	elsewhere := &http.Transport{DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).DialContext}
	t.Cleanup(elsewhere.CloseIdleConnections)
	ask := func(t *testing.T, method, address, body string, header http.Header) *http.Response {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second) // for the body, too
		t.Cleanup(cancel)
		req, err := http.NewRequestWithContext(ctx, method, address, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header = header.Clone()
		resp, err := elsewhere.RoundTrip(req) // redirects are not followed
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		return resp
	}
	for _, block := range blocks {
		program, publishes, text := block[1], block[2], block[3]
		t.Run(program+" "+publishes, func(t *testing.T) {
			base := "http://" + startProxy(t, program, strings.ReplaceAll(text, "127.0.0.1:8787", w.addr))
			deliver := func(body string) answer {
				t.Helper()
				mac := hmac.New(sha256.New, []byte(testSecret))
				mac.Write([]byte(body))
				resp := ask(t, "POST", base+path, body, http.Header{
					"Content-Type": {"application/json"}, "X-Github-Event": {"ping"}, "X-Github-Delivery": {t.Name() + body[:5]},
					"X-Hub-Signature-256": {"sha256=" + hex.EncodeToString(mac.Sum(nil))},
					// The client's own claim counts for nothing.
					"X-Forwarded-For": {"203.0.113.9"},
				})
				text, err := io.ReadAll(resp.Body)
				if err != nil {
					t.Fatal(err)
				}
				return answer{status: resp.StatusCode, body: string(text)}
			}

			a := deliver(`{"start": true, "by": "` + t.Name() + `"}`)
			var accepted struct {
				ID string `json:"delivery_id"`
			}
			if err := json.Unmarshal([]byte(a.body), &accepted); err != nil || a.status != 202 {
				t.Fatalf("a signed delivery: %d %s", a.status, a.body)
			}
			var d api.Delivery
			w.list(&d, "deliveries", "show", accepted.ID)
			if d.ClientAddr != "127.0.0.2" || len(d.Runs) != 1 {
				t.Errorf("the delivery has the address %q and %d runs", d.ClientAddr, len(d.Runs))
			}
			if a := deliver(`{"p": "` + strings.Repeat("x", 262144-9) + `"}`); a.status != 202 {
				t.Errorf("the largest body: %d %s", a.status, a.body)
			}
			if a := deliver(`{"q": "` + strings.Repeat("x", 262144-8) + `"}`); a.status != 413 || !strings.Contains(a.body, "too_large") {
				t.Errorf("a larger body: %d %s", a.status, a.body)
			}

			bearer := http.Header{"Authorization": {"Bearer " + key}}
			wanted := map[string]int{"/api/v1/status": 200, "/": 401, "/healthz": 200, "/webhooks/w/none": 405}
			if publishes == "webhooks" {
				wanted = map[string]int{"/api/v1/status": 404, "/": 404, "/healthz": 404, "/metrics": 404, "/webhooks": 404, "/webhooks/w/../../api/v1/status": 404, "/webhooks/w/%2e%2e/%2e%2e/api/v1/status": 404}
			}
			for path, status := range wanted {
				if resp := ask(t, "GET", base+path, "", bearer); resp.StatusCode != status {
					t.Errorf("GET %s: %d, not %d", path, resp.StatusCode, status)
				}
			}
			if publishes == "webhooks" {
				w.run("", "runs", "cancel", d.Runs[0])
				return
			}

			resp := ask(t, "GET", base+"/api/v1/agent/runs/"+d.Runs[0]+"/events", "", bearer)
			lines := bufio.NewScanner(resp.Body)
			for _, i := range []string{"1", "2", "3"} { // each is said when the one before has come
				said := false
				for !said && lines.Scan() {
					said = strings.Contains(lines.Text(), "hammering "+i)
				}
				if !said {
					t.Fatalf("the stream has not told what the run says %s: %v", i, lines.Err())
				}
				if err := os.WriteFile(filepath.Join(gates, d.Runs[0]+"."+i), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// startProxy starts the program with the configuration, without TLS and on a free
// port, and returns its address. Its connections to the server come from 127.0.0.1; those of
// the test, from 127.0.0.2.
func startProxy(t *testing.T, program, text string) string {
	t.Helper()
	dir, address := t.TempDir(), freeAddress(t)
	var cmd *exec.Cmd
	file := filepath.Join(dir, "conf")
	switch program {
	case "nginx":
		text = regexp.MustCompile(`(?m)^ *ssl_.*\n`).ReplaceAllString(text, "")
		text = strings.Replace(text, "listen 443 ssl;", "listen "+address+";", 1)
		temporary := ""
		for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
			temporary += kind + "_temp_path " + filepath.Join(dir, kind) + ";\n"
		}
		user := ""
		if os.Getuid() == 0 {
			user = "user root;\n"
		}
		text = user + "daemon off;\npid " + filepath.Join(dir, "pid") + ";\nerror_log stderr;\nevents {}\nhttp {\naccess_log off;\n" + temporary + text + "}\n"
		cmd = exec.Command("/usr/sbin/nginx", "-e", "stderr", "-p", dir, "-c", file)
	case "caddy":
		text = regexp.MustCompile(`(?m)^\S+\.example\.com \{`).ReplaceAllString(text, "http://:"+address[strings.LastIndex(address, ":")+1:]+" {\n\tbind 127.0.0.1")
		text = "{\n\tadmin off\n}\n" + text
		cmd = exec.Command("caddy", "run", "--adapter", "caddyfile", "--config", file)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	log := newLogFile(t, dir)
	cmd.Stdout, cmd.Stderr = log.file, log.file
	cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt) // nginx then ends its workers
		<-ended
		if t.Failed() {
			t.Logf("%s said:\n%s", program, log)
		}
	})
	deadline := time.After(30 * time.Second)
	for {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close()
			return address
		}
		select {
		case <-ended:
			t.Fatalf("%s has ended:\n%s\n%s", program, log, text)
		case <-deadline:
			t.Fatalf("%s does not listen: %v\n%s", program, err, log)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
