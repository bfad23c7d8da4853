package hosted

import (
	"bufio"
	"io"
	"log/slog"
	"net/http"
	"net/http/cgi"
	"slices"
	"strings"
	"time"
)

// Services are the services of Git that a repository offers (gitprotocol-http(5)).
const (
	Fetch = "git-upload-pack"
	Push  = "git-receive-pack"
)

// Visit is who asks, for what.
type Visit struct {
	Path   string // below the repository: /info/refs, /git-upload-pack or /git-receive-pack
	Person string // a name for the log of the repository
	Logger *slog.Logger
}

// serveTime is how long one request may take, from its first byte to its last.
const serveTime = 10 * time.Minute

// Serve answers a request of Git's smart HTTP protocol. The caller has checked that the
// person may use the service.
func (r *Repository) Serve(w http.ResponseWriter, req *http.Request, v Visit) {
	select {
	case r.serving <- struct{}{}:
		defer func() { <-r.serving }()
	case <-req.Context().Done():
		return
	}
	deadline := time.Now().Add(serveTime)
	control := http.NewResponseController(w)
	_, _ = control.SetReadDeadline(deadline), control.SetWriteDeadline(deadline) // they fail without a connection
	inner := req.Clone(req.Context())
	// git reads until the end if it is told no length, as with a body in chunks.
	inner.TransferEncoding = nil
	inner.URL.Path = v.Path
	inner.Header = make(http.Header)
	for _, name := range []string{"Accept-Encoding", "Content-Encoding", "Content-Type", "Git-Protocol", "User-Agent"} {
		if values := req.Header.Values(name); len(values) > 0 {
			inner.Header[name] = values
		}
	}
	complaints := &complaints{logger: v.Logger, person: v.Person}
	defer complaints.tell()
	(&cgi.Handler{
		Path: r.backend, Dir: r.cfg.Dir, Stderr: complaints,
		Env:    append(slices.Clone(r.env), "GIT_PROJECT_ROOT="+r.cfg.Dir, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER="+line(v.Person)),
		Logger: slog.NewLogLogger(v.Logger.Handler(), slog.LevelDebug), // such as that the person has gone
	}).ServeHTTP(w, inner)
}

// complaints logs what git says to the server, and no more than a few lines of it.
type complaints struct {
	logger *slog.Logger
	person string
	text   strings.Builder
}

const maxComplaints = 2 << 10

func (c *complaints) Write(p []byte) (int, error) {
	c.text.Write(p[:min(len(p), max(0, maxComplaints-c.text.Len()))])
	return len(p), nil
}

func (c *complaints) tell() {
	for s := bufio.NewScanner(io.LimitReader(strings.NewReader(c.text.String()), maxComplaints)); s.Scan(); {
		c.logger.Warn("git says", "person", c.person, "said", s.Text())
	}
}
