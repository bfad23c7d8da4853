// Package gittest serves Git repositories to tests as code forges do: over https with a
// credential, and over ssh. The git program itself does the serving.
package gittest

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/crypto/ssh"
)

// Git runs git in dir and returns its output. The test fails if git fails.
func Git(t testing.TB, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=Ada", "GIT_AUTHOR_EMAIL=ada@example.com",
		"GIT_COMMITTER_NAME=Ada", "GIT_COMMITTER_EMAIL=ada@example.com")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// Bare makes a bare repository that takes pushes, with a commit "one" on main, at a path below root. It returns its folder.
func Bare(t testing.TB, root, path string) (bare string) {
	t.Helper()
	bare = filepath.Join(root, path)
	Git(t, root, "init", "-q", "--bare", "-b", "main", bare)
	Git(t, bare, "config", "http.receivepack", "true")
	work := t.TempDir()
	Git(t, work, "init", "-q", "-b", "main")
	Git(t, work, "commit", "-q", "--allow-empty", "-m", "one")
	Git(t, work, "push", "-q", bare, "main")
	return bare
}

// Server is git http-backend behind TLS.
type Server struct {
	*httptest.Server
	CAFile  string       // file with the certificate of the server
	Backend http.Handler // git itself, which asks for no credential

	mu     sync.Mutex
	accept func(*http.Request) bool
	fault  func(http.ResponseWriter, *http.Request) bool
	asks   string // WWW-Authenticate of a refusal
}

// Serve serves the repositories under root until the test ends.
func Serve(t testing.TB, root string) *Server {
	t.Helper()
	path, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		t.Fatal(err)
	}
	program := &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(path)), "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1"}, Stderr: io.Discard,
	}
	backend := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r = r.Clone(r.Context())
		r.Header.Del("Authorization") // CGI would put it in git's environment, which an agent without walls can read
		program.ServeHTTP(w, r)
	})
	s := &Server{Backend: backend, asks: `Basic realm="git"`}
	s.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		accept, fault, asks := s.accept, s.fault, s.asks
		s.mu.Unlock()
		switch {
		case fault != nil && fault(w, r):
		case accept != nil && !accept(r):
			w.Header().Set("WWW-Authenticate", asks)
			http.Error(w, "who are you?", http.StatusUnauthorized)
		default:
			backend.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(s.Close)
	s.CAFile = filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	if err := os.WriteFile(s.CAFile, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return s
}

// Basic makes the server demand a name and a password. An empty name means any name.
func (s *Server) Basic(name, password string) {
	s.want(`Basic realm="git"`, func(r *http.Request) bool {
		user, pass, ok := r.BasicAuth()
		return ok && pass == password && user != "" && (name == "" || user == name)
	})
}

// Bearer makes the server demand a bearer token.
func (s *Server) Bearer(token string) {
	s.want("Bearer", func(r *http.Request) bool { return r.Header.Get("Authorization") == "Bearer "+token })
}

func (s *Server) want(asks string, accept func(*http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asks, s.accept = asks, accept
}

// Fault sets a function that may answer requests instead of git. It returns true for a request
// that it answered. nil removes the function.
func (s *Server) Fault(fault func(http.ResponseWriter, *http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
}

// Wire passes connections on to a server and counts the bytes of the answers.
type Wire struct {
	Address string
	Bytes   atomic.Int64 // from the server, encryption included
}

// Tap puts a Wire in front of a server until the test ends.
func Tap(t testing.TB, server string) *Wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &Wire{Address: l.Addr().String()}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { w.pass(client, server) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); serving.Wait() })
	return w
}

func (w *Wire) pass(client net.Conn, server string) {
	defer func() { _ = client.Close() }()
	there, err := net.Dial("tcp", server)
	if err != nil {
		return
	}
	defer func() { _ = there.Close() }()
	var asking sync.WaitGroup
	asking.Go(func() {
		_, _ = io.Copy(there, client)
		_ = there.Close()
	})
	_, _ = io.Copy(client, io.TeeReader(there, w))
	_ = client.Close()
	asking.Wait()
}

// Write counts bytes.
func (w *Wire) Write(p []byte) (int, error) {
	w.Bytes.Add(int64(len(p)))
	return len(p), nil
}

// Key writes a new private key for ssh to a file and returns the public key.
func Key(t testing.TB, file string) ssh.PublicKey {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err == nil {
		err = os.WriteFile(file, pem.EncodeToMemory(block), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return signer.PublicKey()
}

// SSH serves the repositories of this machine over ssh, to one key, until the test ends.
// hostKeys are files with private keys.
func SSH(t testing.TB, client ssh.PublicKey, hostKeys ...string) (address string) {
	t.Helper()
	config := &ssh.ServerConfig{PublicKeyCallback: func(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
		if string(key.Marshal()) != string(client.Marshal()) {
			return nil, errors.New("another key")
		}
		return nil, nil
	}}
	for _, file := range hostKeys {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		signer, err := ssh.ParsePrivateKey(text)
		if err != nil {
			t.Fatal(err)
		}
		config.AddHostKey(signer)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { serveSSH(conn, config) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); serving.Wait() })
	return l.Addr().String()
}

func serveSSH(conn net.Conn, config *ssh.ServerConfig) {
	defer func() { _ = conn.Close() }()
	_, channels, requests, err := ssh.NewServerConn(conn, config)
	if err != nil {
		return
	}
	go ssh.DiscardRequests(requests) // ends with the connection
	for offered := range channels {
		channel, requests, err := offered.Accept()
		if err != nil {
			return
		}
		for r := range requests {
			if r.Type != "exec" {
				_ = r.Reply(false, nil)
				continue
			}
			_ = r.Reply(true, nil)
			var exec1 struct{ Command string }
			status := struct{ Status uint32 }{1}
			if ssh.Unmarshal(r.Payload, &exec1) == nil {
				cmd := exec.Command("sh", "-c", exec1.Command)
				cmd.Stdout, cmd.Stderr = channel, channel.Stderr()
				if in, err := cmd.StdinPipe(); err == nil {
					go func() { _, _ = io.Copy(in, channel); _ = in.Close() }() // ends with the channel
				}
				if cmd.Run() == nil {
					status.Status = 0
				}
			}
			_, _ = channel.SendRequest("exit-status", false, ssh.Marshal(status))
			_ = channel.Close()
		}
	}
}
