//go:build linux && !client

package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// lockPatience is how long to wait for the data directory. Commands hold it only for a
// moment.
const lockPatience = 5 * time.Second

const (
	socketName = "server.sock"
	// adminKeyFile proves to the server that a caller on its socket owns the data directory:
	// runs cannot read it (SPEC 14.4).
	adminKeyFile = "admin.key"
)

// inFolder returns a path of a file in a folder. The path is short enough for a socket,
// even if that of the folder is long.
func inFolder(dir, name string) (path string, release func(), err error) {
	if path := filepath.Join(dir, name); len(path) < 100 {
		return path, func() {}, nil
	}
	f, err := os.Open(dir)
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", f.Fd(), name), func() { _ = f.Close() }, nil
}

func socketClient(ctx context.Context, dir string) (*client, error) {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		path, release, err := inFolder(dir, socketName)
		if err != nil {
			return nil, err
		}
		defer release()
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}
	transport := &http.Transport{DialContext: dial}
	keyed := keyedTransport{transport, filepath.Join(dir, adminKeyFile)}
	cl := &client{http: &http.Client{Transport: keyed}, base: "http://local", close: transport.CloseIdleConnections}
	// A connection alone does not prove that a server runs. When a server is killed while
	// it starts a child, the child can hold the socket for a moment longer.
	ctx, cancel := context.WithTimeout(ctx, lockPatience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, cl.base+"/healthz", nil)
	if err != nil {
		return nil, err
	}
	resp, err := cl.http.Do(req)
	if err != nil {
		cl.close()
		return nil, err
	}
	return cl, resp.Body.Close()
}

// keyedTransport shows the key of the server that has the data directory. It reads the key
// for each request, because every start makes a new one.
type keyedTransport struct {
	http.RoundTripper
	file string
}

func (t keyedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	key, err := os.ReadFile(t.file)
	if err != nil {
		return nil, fmt.Errorf("reading the key of the local socket: %w", err)
	}
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(key)))
	return t.RoundTripper.RoundTrip(r)
}
