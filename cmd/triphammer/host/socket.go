package host

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"triphammer/cmd/triphammer/client"
)

// lockPatience is how long to wait for the data directory. Commands hold it only for a
// moment.
const lockPatience = 5 * time.Second

const (
	SocketName = "server.sock"
	// AdminKeyFile proves to the server that a caller on its socket owns the data directory:
	// runs cannot read it (SPEC 14.4).
	AdminKeyFile = "admin.key"
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

// SocketClient makes a client of the server that runs on a data directory.
func SocketClient(ctx context.Context, dir string) (*client.Client, error) {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		path, release, err := inFolder(dir, SocketName)
		if err != nil {
			return nil, err
		}
		defer release()
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}
	transport := &http.Transport{DialContext: dial}
	keyed := keyedTransport{transport, filepath.Join(dir, AdminKeyFile)}
	cl := &client.Client{HTTP: &http.Client{Transport: keyed}, Base: "http://local", Close: transport.CloseIdleConnections}
	// A connection alone does not prove that a server runs. When a server is killed while
	// it starts a child, the child can hold the socket for a moment longer.
	ctx, cancel := context.WithTimeout(ctx, lockPatience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, cl.Base+"/healthz", nil)
	if err != nil {
		return nil, err
	}
	resp, err := cl.HTTP.Do(req)
	if err != nil {
		cl.Close()
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
