package host

import (
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"triphammer/cmd/triphammer/client"
	"triphammer/cmd/triphammer/client/exit"
	"triphammer/server/hosted"
)

// localClient makes a client for the data directory: of the server that runs on it, or, if
// none does and the command needs none, of the same handlers in this process.
func localClient(c *cobra.Command, data string, needsServer, mayMake bool) (*client.Client, error) {
	local, silent := SocketClient(c.Context(), data)
	if silent == nil {
		return local, sameStore(c, data)
	}
	if err := noEntry(data, silent); err != nil {
		return nil, err
	}
	if needsServer {
		if err := held(data, silent); err != nil {
			return nil, err
		}
		if nearestDev() == data {
			return nil, exit.With(exit.Unreachable, "dev is not running here: start it with triphammer dev (its folder is %s)", filepath.Dir(filepath.Dir(data)))
		}
		repository, at := " --repo REPOSITORY", filepath.Join(data, HostedFolder)
		if there, _ := hosted.Names(at); len(there) > 0 {
			repository = " --hosted " + there[0]
			if kept, err := hosted.Kept(at); err == nil && len(kept) > 0 {
				repository = "" // a server finds those by itself
			}
		}
		return nil, exit.With(exit.Unreachable, "no server is running on %s; start one: triphammer serve --data %s%s%s", data, data, repository, othersHere())
	}
	// If another process holds the data directory now, it is a server that starts, or a
	// command that ends in a moment.
	var cl *client.Client
	var taken error
	err := client.WaitFor(c.Context(), lockPatience, "the data directory is held", func() (done bool, err error) {
		if cl, taken = offlineClient(c, data, mayMake); !errors.Is(taken, errLocked) {
			return true, taken
		}
		cl, silent = SocketClient(c.Context(), data)
		return silent == nil, nil
	})
	if taken != nil && silent != nil && c.Context().Err() == nil {
		if err := held(data, silent); err != nil {
			return nil, err
		}
	}
	return cl, err
}

// held is the error of a data directory that another process has locked, which did not answer
// but with err. It is nil if none has locked it.
func held(data string, err error) error {
	f, opened := os.Open(data)
	if opened != nil {
		return nil // whoever opens it next tells why not
	}
	defer func() { _ = f.Close() }() // which also unlocks it
	if locked := syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB); !errors.Is(locked, syscall.EWOULDBLOCK) {
		return nil
	}
	return silentHolder(data, err)
}

// offlineClient makes a client that answers requests in this process. It locks the data
// directory.
func offlineClient(c *cobra.Command, dir string, mayMake bool) (*client.Client, error) {
	// No server runs, so only the variables tell where its secrets are.
	sources, err := secretSources(os.Getenv("TRIPHAMMER_SECRETS_DIR"), os.Getenv("TRIPHAMMER_SECRETS_ENV"))
	if err != nil {
		return nil, err
	}
	shared, err := storeOfCommand(c, dir)
	if err != nil {
		return nil, err
	}
	in, err := openInstance(c.Context(), dir, instanceOptions{impatient: true, make: mayMake, store: shared, secretSources: sources})
	if err != nil {
		return nil, err
	}
	in.announce(c.ErrOrStderr())
	if err := in.offline(); err != nil {
		return nil, errors.Join(err, in.close())
	}
	return &client.Client{
		HTTP: &http.Client{Transport: handlerTransport{in.server.LocalHandler(client.UserName())}}, Base: "http://local", Offline: true,
		Close: func() { _ = in.close() }, // an error loses nothing: all writes are on the disk
	}, nil
}

// handlerTransport answers requests with a handler in this process.
type handlerTransport struct{ handler http.Handler }

func (t handlerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil {
		r.Body = http.NoBody
	}
	body, to := io.Pipe()
	w := &pipedResponse{header: make(http.Header), body: to, begun: make(chan struct{}), done: make(chan struct{})}
	go func() { // it ends when the body is read or closed
		defer close(w.done)
		defer func() {
			aborted := recover()
			w.WriteHeader(http.StatusOK)
			if aborted != nil {
				_ = to.CloseWithError(io.ErrUnexpectedEOF) // it never fails
				return
			}
			_ = to.Close()
		}()
		t.handler.ServeHTTP(w, r)
	}()
	<-w.begun
	return &http.Response{
		Status: http.StatusText(w.status), StatusCode: w.status, Header: w.sent, Body: pipedBody{body, w.done},
		ContentLength: -1, Request: r, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}, nil
}

// pipedResponse is an http.ResponseWriter whose body can be read while the handler writes.
type pipedResponse struct {
	header, sent http.Header
	status       int
	body         *io.PipeWriter
	once         sync.Once
	begun, done  chan struct{}
}

func (w *pipedResponse) Header() http.Header { return w.header }

func (w *pipedResponse) WriteHeader(status int) {
	w.once.Do(func() {
		w.status, w.sent = status, w.header.Clone()
		close(w.begun)
	})
}

func (w *pipedResponse) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(p)
}

// pipedBody is a body whose Close waits for the handler to end, so that the handler no
// longer uses the store.
type pipedBody struct {
	*io.PipeReader
	done chan struct{}
}

func (b pipedBody) Close() error {
	err := b.PipeReader.Close()
	<-b.done
	return err
}
