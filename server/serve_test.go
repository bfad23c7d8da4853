package server

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"triphammer/server/listen"
	"triphammer/server/listen/listentest"
	"triphammer/server/store"
)

// socketKey is what the socket of a fixture has to be shown.
const socketKey = "socket-key"

// serve runs Serve on fresh listeners until the test stops it.
func (f *fixture) serve(l listen.Listeners) (stop func() error) {
	f.t.Helper()
	ctx, cancel := context.WithCancel(f.t.Context())
	done := make(chan error, 1)
	go func() { done <- f.Serve(ctx, l, socketKey) }()
	stopped := false
	stop = func() error {
		stopped = true
		cancel()
		return <-done
	}
	f.t.Cleanup(func() {
		if !stopped {
			_ = stop()
		}
	})
	return stop
}

func listenOn(t *testing.T, network, address string) net.Listener {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestLocalAdministrator: whoever opens the socket in the data directory needs
// no key, and the audit log says that it was local; over TCP a key is needed
// (SPEC 13.5).
func TestLocalAdministrator(t *testing.T) {
	f := newFixture(t)
	socket := filepath.Join(t.TempDir(), "s")
	tcp := listenOn(t, "tcp", "127.0.0.1:0")
	stop := f.serve(listen.Listeners{TCP: tcp, Unix: listenOn(t, "unix", socket)})
	local := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	key := "" // shown on the socket
	put := func(client *http.Client, base string) int {
		req, _ := http.NewRequest(http.MethodPut, base+"/api/v1/secrets/LOCAL", strings.NewReader(`{"value":"a-long-enough-value"}`))
		if key != "" {
			req.Header.Set("Authorization", "Bearer "+key)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	for _, key = range []string{"", "another-key", "socket-ke", "socket-key2"} { // SPEC 14.4
		if status := put(local, "http://local"); status != http.StatusUnauthorized {
			t.Errorf("over the socket with the key %q: %d", key, status)
		}
	}
	key = socketKey
	if status := put(local, "http://local"); status != http.StatusOK {
		t.Errorf("over the socket: %d", status)
	}
	if status := put(http.DefaultClient, "http://"+tcp.Addr().String()); status != http.StatusUnauthorized {
		t.Errorf("over TCP: %d", status)
	}
	entries, err := f.store.Audit.List(t.Context(), store.AuditQuery{Limit: 1})
	if err != nil || len(entries) != 1 || entries[0].Origin != "local" || !strings.HasPrefix(entries[0].Actor, "local ") {
		t.Errorf("audit %+v, %v", entries, err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if _, err := net.Dial("unix", socket); err == nil {
		t.Error("the socket still accepts")
	}
}

// TestLocalActor: who owns the process has a name without a login shell too
// (SPEC 10.2).
func TestLocalActor(t *testing.T) {
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("USER", "")
	if got := localActor(); got != me.Username {
		t.Errorf("without USER it is %q, not %q", got, me.Username)
	}
	t.Setenv("USER", "ada")
	if got := localActor(); got != "ada" {
		t.Errorf("with USER=ada it is %q", got)
	}
}

// TestDrain: a stop takes no more connections, on any listener, and lets what
// was taken finish.
func TestDrain(t *testing.T) {
	f := newFixture(t)
	tcp := listenOn(t, "tcp", "127.0.0.1:0")
	socket := filepath.Join(t.TempDir(), "s")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f.Serve(ctx, listen.Listeners{TCP: tcp, Unix: listenOn(t, "unix", socket)}, socketKey) }()
	conn, err := net.Dial("tcp", tcp.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	// The server invites the body: the request is in its handler.
	head := "POST " + ingress + f.uids()["hook"] + " HTTP/1.1\r\nHost: x\r\n" + auth + "\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n"
	if _, err := io.WriteString(conn, head); err != nil {
		t.Fatal(err)
	}
	invited := make([]byte, len("HTTP/1.1 100 Continue\r\n\r\n"))
	if _, err := io.ReadFull(conn, invited); err != nil {
		t.Fatal(err)
	}
	cancel()
	for _, l := range []string{"tcp " + tcp.Addr().String(), "unix " + socket} {
		network, address, _ := strings.Cut(l, " ")
		for deadline := time.Now().Add(10 * time.Second); ; {
			other, err := net.Dial(network, address)
			if err != nil {
				break
			}
			_ = other.Close()
			if time.Now().After(deadline) {
				t.Fatalf("%s still accepts while another listener drains", l)
			}
		}
	}
	select {
	case err := <-done:
		t.Fatalf("stopped before the request was answered: %v", err)
	default:
	}
	if _, err := io.WriteString(conn, `{}`); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, len("HTTP/1.1 202"))
	if _, err := io.ReadFull(conn, answer); err != nil || string(answer) != "HTTP/1.1 202" {
		t.Errorf("%s, %v", answer, err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestLeave: a server that is to stop answers 503 on /readyz, and goes on accepting. Each answer,
// also of a request from before, closes its connection, so that no client sends into a connection
// that is cut (SPEC 17.1).
func TestLeave(t *testing.T) {
	dir := t.TempDir()
	listentest.WritePair(t, dir, "x", time.Now().Add(time.Hour))
	encrypted := listen.Listeners{CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem")}
	for protocol, l := range map[int]listen.Listeners{1: {}, 2: encrypted} {
		f := newFixture(t)
		l.TCP = listenOn(t, "tcp", "127.0.0.1:0")
		f.serve(l)
		base := map[int]string{1: "http://", 2: "https://"}[protocol] + l.TCP.Addr().String()
		client := &http.Client{Transport: &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
		defer client.CloseIdleConnections()
		reused := false
		ask := func(method, path string, body io.Reader) int {
			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { reused = i.Reused }})
			req, err := http.NewRequestWithContext(ctx, method, base+path, body)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+hookSecret)
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, resp.Body); err != nil {
				t.Error(err)
			}
			_ = resp.Body.Close()
			if resp.ProtoMajor != protocol {
				t.Errorf("%s speaks %s", base, resp.Proto)
			}
			return resp.StatusCode
		}
		hook := ingress + f.uids()["hook"]
		if status := ask("GET", "/readyz", nil); status != http.StatusOK {
			t.Fatalf("/readyz answers %d", status)
		}
		// The body of this one comes when the server is already leaving.
		body, send := io.Pipe()
		go func() {
			_, _ = io.WriteString(send, "{")
			f.Leave()
			_, _ = io.WriteString(send, "}")
			_ = send.Close()
		}()
		if status := ask("POST", hook, body); status != http.StatusAccepted || !reused {
			t.Errorf("%s: a request from before is answered %d; on an old connection: %v", base, status, reused)
		}
		for range 2 {
			// In HTTP/2 a request may still go out on the connection whose GOAWAY is under way: it is
			// answered as well.
			answers := func(want int, method, path, body string) {
				for deadline := time.Now().Add(10 * time.Second); ; {
					if status := ask(method, path, strings.NewReader(body)); status != want {
						t.Errorf("%s: %s is answered %d, want %d", base, path, status, want)
					}
					if !reused {
						return
					}
					if protocol == 1 || time.Now().After(deadline) {
						t.Errorf("%s: %s goes out on an old connection", base, path)
						return
					}
				}
			}
			answers(http.StatusServiceUnavailable, "GET", "/readyz", "")
			answers(http.StatusAccepted, "POST", hook, "{}")
		}
	}
}

// TestHTTP2: TLS offers HTTP/2, on which the ingress answers alike.
func TestHTTP2(t *testing.T) {
	f := newFixture(t)
	dir := t.TempDir()
	listentest.WritePair(t, dir, "x", time.Now().Add(time.Hour))
	tcp := listenOn(t, "tcp", "127.0.0.1:0")
	f.serve(listen.Listeners{TCP: tcp, CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem")})
	client := &http.Client{Transport: &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer client.CloseIdleConnections()
	for token, want := range map[string]int{hookSecret: http.StatusAccepted, "no": http.StatusUnauthorized} {
		req, _ := http.NewRequest(http.MethodPost, "https://"+tcp.Addr().String()+ingress+f.uids()["hook"], strings.NewReader(`{}`))
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.ProtoMajor != 2 || resp.StatusCode != want {
			t.Errorf("%s %d, want %d", resp.Proto, resp.StatusCode, want)
		}
	}
}

// TestCertificateShown: status and metrics show the certificate of a server (SPEC 13.3).
func TestCertificateShown(t *testing.T) {
	f := newFixture(t)
	dir := t.TempDir()
	end := time.Now().Add(24 * time.Hour).Truncate(time.Second)
	listentest.WritePair(t, dir, "x", end)
	tcp := listenOn(t, "tcp", "127.0.0.1:0")
	f.serve(listen.Listeners{TCP: tcp, CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem")})
	conn, err := tls.Dial("tcp", tcp.Addr().String(), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	if status := f.get("/api/v1/status", f.key("reader", "read")).body; !strings.Contains(string(status), `"problem":"the TLS certificate `) {
		t.Error("status does not show it:", string(status))
	}
	if metrics := f.get("/metrics", f.key("scraper", "read")).body; !strings.Contains(string(metrics), "triphammer_tls_certificate_expiry_timestamp_seconds "+strconv.FormatFloat(float64(end.Unix()), 'g', -1, 64)) {
		t.Error("no metric:", string(metrics))
	}
}
