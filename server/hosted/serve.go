package hosted

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/cgi"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Services are the services of Git that a repository offers (gitprotocol-http(5)).
const (
	Fetch = "git-upload-pack"
	Push  = "git-receive-pack"
)

// Visit describes a request and the person who sends it.
type Visit struct {
	Path   string // below the repository: /info/refs, /git-upload-pack or /git-receive-pack
	Person string // a name for the log of the repository
	Logger *slog.Logger
}

const (
	// serveTime is how long one request may take, from its first byte to its last.
	serveTime = 10 * time.Minute
	// askTime is how long a clone may take to say which refs it wants. maxAsked is how many bytes
	// this may be, enough for some 40,000 refs.
	askTime  = 30 * time.Second
	maxAsked = 2 << 20
)

// Pushed is a branch or a tag that a push wanted to move.
type Pushed struct {
	Ref    string // such as refs/heads/main
	Commit string
	Moved  bool // false: the move was refused
}

// Serve answers a request of Git's smart HTTP protocol, and returns the refs that a push wanted to
// move. The caller has checked that the person may use the service.
func (r *Repository) Serve(w http.ResponseWriter, req *http.Request, v Visit) []Pushed {
	serving, service := r.fetching, req.URL.Query().Get("service")
	if v.Path == "/"+Push || service == Push {
		serving = r.pushing
	}
	control := http.NewResponseController(w) // its deadlines fail without a connection
	var asked []byte
	if v.Path == "/"+Fetch { // read the request before it takes a place in r.fetching
		_ = control.SetReadDeadline(time.Now().Add(askTime))
		var err error
		if asked, err = io.ReadAll(http.MaxBytesReader(w, req.Body, maxAsked)); err != nil {
			http.Error(w, "what the clone wants did not arrive in time and whole", http.StatusRequestTimeout)
			return nil
		}
	}
	select {
	case serving <- struct{}{}:
		defer func() { <-serving }()
	case <-req.Context().Done():
		return nil
	}
	env := append(slices.Clone(r.env), "GIT_PROJECT_ROOT="+r.cfg.Dir, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER="+line(v.Person))
	var told string // folder for the files of the hooks
	if v.Path == "/"+Push {
		var err error
		if told, err = os.MkdirTemp(r.cfg.Dir, toldFolder); err != nil {
			v.Logger.Error("a push cannot be taken", "repository", r.cfg.Dir, "error", err)
			http.Error(w, "the server cannot take a push now; its log has the reason", http.StatusServiceUnavailable)
			return nil
		}
		defer func() { _ = os.RemoveAll(told) }()
		env = append(env, askedFile+"="+filepath.Join(told, askedFile), movedFile+"="+filepath.Join(told, movedFile))
	}
	deadline := time.Now().Add(serveTime)
	_, _ = control.SetReadDeadline(deadline), control.SetWriteDeadline(deadline)
	inner := req.Clone(req.Context())
	if v.Path == "/"+Fetch {
		inner.Body = io.NopCloser(bytes.NewReader(asked))
	}
	if told != "" {
		body, refused, err := spool(w, req, filepath.Join(told, "body"))
		if err != nil { // the person has gone, or the disk is full
			v.Logger.Warn("a push cannot be read", "repository", r.cfg.Dir, "person", v.Person, "error", err)
			http.Error(w, "the push did not arrive whole", http.StatusBadRequest)
		}
		if body == nil {
			return refused
		}
		defer func() { _ = body.Close() }()
		inner.Body = body
	}
	// Without a length, as with a body in chunks, git reads until the end. If a body ends before its
	// length, because the client or this server is gone, git-http-backend would read the end for
	// ever (pipe_fixed_length in Git 2.39).
	inner.TransferEncoding = nil
	if inner.ContentLength > 0 {
		inner.ContentLength = -1
	}
	inner.URL.Path = v.Path
	if inner.URL.RawQuery = ""; v.Path == "/info/refs" {
		inner.URL.RawQuery = "service=" + url.QueryEscape(service) // only once, so that git reads the service that was allowed here
	}
	inner.Header = make(http.Header)
	encoding := "Content-Encoding"
	if told != "" {
		encoding = "" // spool has decoded it
	}
	for _, name := range []string{"Accept-Encoding", encoding, "Content-Type", "Git-Protocol", "User-Agent"} {
		if values := req.Header.Values(name); len(values) > 0 {
			inner.Header[name] = values
		}
	}
	complaints := &complaints{logger: v.Logger, person: v.Person}
	defer complaints.tell()
	(&cgi.Handler{
		Path: r.backend, Dir: r.cfg.Dir, Stderr: complaints,
		Env:    env,
		Logger: slog.NewLogLogger(v.Logger.Handler(), slog.LevelDebug), // logs, for example, that the person has gone
	}).ServeHTTP(w, inner)
	if told == "" {
		return nil
	}
	pushed, moved := refsIn(filepath.Join(told, askedFile)), refsIn(filepath.Join(told, movedFile))
	for i, p := range pushed {
		// The hook does not run for a push whose person went away before the answer.
		pushed[i].Moved = slices.Contains(moved, p) || r.at(context.WithoutCancel(req.Context()), p.Ref) == p.Commit
	}
	return pushed
}

// at is the commit or the tag that a ref names; empty: there is no such ref.
func (r *Repository) at(ctx context.Context, ref string) string {
	out, _ := r.git(ctx, nil, "rev-parse", "--verify", "--quiet", "--end-of-options", ref)
	return out
}

// toldFolder begins the names of the folders for the files of the hooks.
const toldFolder = "push-"

// maxTold bounds the bytes that are read of a hook's file, and maxPushed the refs that are
// returned, because a push can name any number of refs.
const (
	maxTold   = 1 << 20
	maxPushed = 100
)

// refsIn reads the input of a hook: for each ref the old commit, the new commit and the name
// (githooks(5)).
func refsIn(file string) (all []Pushed) {
	f, err := os.Open(file)
	if err != nil {
		return nil // the push ended before the hook
	}
	defer func() { _ = f.Close() }()
	for s := bufio.NewScanner(io.LimitReader(f, maxTold)); s.Scan() && len(all) < maxPushed; {
		if words := strings.SplitN(s.Text(), " ", 3); len(words) == 3 {
			all = append(all, Pushed{Ref: words[2], Commit: words[1]})
		}
	}
	return all
}

// complaints logs the first few lines of git's standard error.
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
