package gitrepo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/transport"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"
	"golang.org/x/crypto/ssh"
)

// session is a connection on which the server has told its references.
type session struct {
	refs       *packp.AdvRefs
	pack       func(context.Context, *packp.UploadPackRequest) (*packp.UploadPackResponse, error)
	close      func()
	authorized bool // a credential was sent
}

// connect opens a session with the credentials as they are now.
func (r *Remote) connect(ctx context.Context) (*session, error) {
	var s *session
	var err error
	authorized := r.TokenFile != ""
	if r.target.Scheme == "ssh" {
		s, err = r.connectSSH(ctx)
	} else {
		s, err = r.connectHTTP(ctx)
	}
	if err != nil {
		return nil, r.explain(err, authorized)
	}
	s.authorized = authorized
	return s, nil
}

func (r *Remote) connectHTTP(ctx context.Context) (*session, error) {
	token, err := r.token()
	if err != nil {
		return nil, err
	}
	r.telling.begin(token, r.basicText(token))
	var h heard
	client, err := r.httpClient(r.dial, &h)
	if err != nil {
		return nil, err
	}
	s, err := r.httpSession(ctx, client, r.basic(token))
	if errors.Is(err, transport.ErrAuthenticationRequired) && token != "" && wantsBearer(h.challenge) {
		s, err = r.httpSession(ctx, client, &githttp.TokenAuth{Token: token})
	}
	if h.sha256() {
		err = r.sha256()
	}
	if err != nil {
		client.CloseIdleConnections()
		return nil, err
	}
	pack := s.pack
	s.pack = func(ctx context.Context, req *packp.UploadPackRequest) (*packp.UploadPackResponse, error) {
		answer, err := pack(ctx, req)
		if h.page != nil { // the library's error keeps only the text of h.page
			err = h.page
		}
		return answer, err
	}
	return s, nil
}

func (r *Remote) sha256() error {
	return fmt.Errorf("%w: %s names its objects by SHA-256; use one that was made with: git init --object-format=sha1", ErrUnsupported, r.url)
}

func (r *Remote) httpSession(ctx context.Context, client *http.Client, auth githttp.AuthMethod) (*session, error) {
	endpoint, err := transport.NewEndpoint(r.target.String())
	if err != nil {
		return nil, err
	}
	// The client's own CheckRedirect refuses redirects, and says where they lead.
	up, err := githttp.NewClientWithOptions(client, &githttp.ClientOptions{RedirectPolicy: githttp.FollowRedirects}).NewUploadPackSession(endpoint, auth)
	if err != nil {
		return nil, err
	}
	refs, err := up.AdvertisedReferencesContext(ctx)
	if err != nil {
		return nil, err
	}
	return &session{refs: refs, pack: up.UploadPack, close: func() { _ = up.Close(); client.CloseIdleConnections() }}, nil
}

func (r *Remote) connectSSH(ctx context.Context) (*session, error) {
	port := cmp.Or(r.target.Port(), "22")
	address := net.JoinHostPort(r.target.Hostname(), port)
	user := cmp.Or(r.target.User.Username(), "git")
	config, closeAgent, err := r.sshConfig(ctx, user, address, r.Cache)
	if err != nil {
		return nil, err
	}
	defer closeAgent()
	conn, err := r.dial(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	// The library takes no context. Closing the connection ends whatever it waits for.
	unwatch := context.AfterFunc(ctx, func() { _ = conn.Close() })
	c, channels, requests, err := ssh.NewClientConn(conn, address, config)
	if err != nil {
		unwatch()
		return nil, errors.Join(err, conn.Close())
	}
	client := ssh.NewClient(c, channels, requests)
	s, err := r.sshSession(client)
	if err != nil {
		unwatch()
		_ = client.Close() // the error says more
		return nil, err
	}
	s.close = func() { unwatch(); _ = client.Close() }
	return s, nil
}

func (r *Remote) sshSession(client *ssh.Client) (*session, error) {
	remote, err := client.NewSession()
	if err != nil {
		return nil, err
	}
	stdin, err1 := remote.StdinPipe()
	stdout, err2 := remote.StdoutPipe()
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	said := &firstBytes{}
	remote.Stderr = said
	if err := remote.Start("git-upload-pack " + ShellQuote(r.target.Path)); err != nil {
		return nil, err
	}
	var h heard
	answer := io.TeeReader(&cutOff{stdout, maxAnswer}, &h.opening)
	refs := packp.NewAdvRefs()
	err = refs.Decode(answer)
	switch {
	case h.sha256():
		return nil, r.sha256()
	case errors.Is(err, packp.ErrEmptyAdvRefs), err == nil && refs.IsEmpty():
		return nil, transport.ErrEmptyRemoteRepository
	case err != nil:
		_ = stdin.Close()
		patience := time.AfterFunc(lastWords, func() { _ = client.Close() })
		_ = remote.Wait() // for the message on its standard error
		patience.Stop()
		switch text := said.short(); {
		case text == "":
			return nil, err
		case saysNoRepository(text):
			return nil, fmt.Errorf("%w: there is no repository at %s, or the key may not read it; the server says: %s", ErrDenied, r.url, text)
		default:
			return nil, fmt.Errorf("the server says: %s", text)
		}
	}
	transport.FilterUnsupportedCapabilities(refs.Capabilities)
	pack := func(_ context.Context, req *packp.UploadPackRequest) (*packp.UploadPackResponse, error) {
		err := errors.Join(req.Validate(), req.UploadRequest.Encode(stdin), req.UploadHaves.Encode(stdin, true))
		if err == nil {
			_, err = io.WriteString(stdin, "0009done\n")
		}
		// A quick server has already sent its answer and closed the channel. Then Close
		// returns io.EOF here.
		if end := stdin.Close(); !errors.Is(end, io.EOF) {
			err = errors.Join(err, end)
		}
		if err != nil {
			return nil, err
		}
		resp := packp.NewUploadPackResponse(req)
		return resp, resp.Decode(io.NopCloser(answer))
	}
	return &session{refs: refs, pack: pack}, nil
}

// saysNoRepository tells whether the text is a message of Git, or of a large service,
// that a repository does not exist or may not be seen.
func saysNoRepository(text string) bool {
	text = strings.ToLower(text)
	return slices.ContainsFunc([]string{
		"does not appear to be a git repository", "repository not found", "could not be found", "does not exist", "not a git repository",
		"no such file or directory",
	}, func(words string) bool { return strings.Contains(text, words) })
}

// firstBytes keeps the beginning of a server's output.
type firstBytes struct {
	mu   sync.Mutex
	text []byte
}

// maxSaid is the number of bytes that firstBytes keeps.
const maxSaid = 4 << 10

func (f *firstBytes) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.text = append(f.text, p[:min(len(p), maxSaid-len(f.text))]...)
	return len(p), nil
}

// String returns the text as one line.
func (f *firstBytes) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(strings.Fields(strings.ToValidUTF8(string(f.text), "?")), " ")
}

// short is one line of up to 300 characters.
func (f *firstBytes) short() string {
	line := []rune(f.String())
	return string(line[:min(len(line), 300)])
}
