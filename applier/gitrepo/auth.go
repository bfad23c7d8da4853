package gitrepo

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-git/go-git/v5/plumbing/transport"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
	"golang.org/x/crypto/ssh/knownhosts"
)

// Credentials say how to sign in to a remote repository. They hold no secrets, only names
// of files and a username. The files are read at each attempt, so that a rotated
// credential takes effect at once. Their content appears in no error.
type Credentials struct {
	TokenFile  string // https: a token or password
	Username   string // https: the name that goes with the token; empty if the server accepts any name
	CAFile     string // https: PEM certificates to trust in addition to those of the system
	SSHKey     string // ssh: a private key without a passphrase; empty: use the agent at SSH_AUTH_SOCK
	KnownHosts string // ssh: a file of hosts to trust; empty: use publishedHosts
}

// publishedHosts are the host keys that the large services publish. The file says where
// each key is published.
//
//go:embed known_hosts
var publishedHosts []byte

// anyUsername is sent with a token if no username is configured.
const anyUsername = "x-access-token"

// Limits of one connection. The limit of a whole attempt is RemoteConfig.Timeout.
const (
	dialTime   = 15 * time.Second
	answerTime = time.Minute // longest time without a byte from the server
)

// dial connects to a server. The connection fails if the server is silent for longer than
// answerTime, so that a stalled fetch does not delay a newer commit.
func (r *Remote) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: dialTime}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &impatient{conn, answerTime, &r.received}, nil
}

type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// impatient is a connection that fails if a read or write takes longer than patience.
type impatient struct {
	net.Conn
	patience time.Duration
	received *atomic.Int64 // bytes
}

func (c *impatient) Read(p []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(c.patience)); err != nil {
		return 0, err
	}
	n, err := c.Conn.Read(p)
	c.received.Add(int64(n))
	return n, err
}

func (c *impatient) Write(p []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(c.patience)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// heard is what an answer shows about the server, besides the data that was requested.
type heard struct {
	challenge string // the WWW-Authenticate header of a 401
	opening   firstBytes
	page      error // set if the answer is not from a Git server
}

// sha256 tells whether the repository uses SHA-256, which this package cannot read.
func (h *heard) sha256() bool { return strings.Contains(h.opening.String(), "object-format=sha256") }

// httpClient makes a client for one attempt. It follows no redirects, because the
// credential is only for the configured address.
func (c Credentials) httpClient(dial dialer, h *heard) (*http.Client, error) {
	t := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: dial, ForceAttemptHTTP2: true,
		TLSHandshakeTimeout: dialTime, ResponseHeaderTimeout: answerTime, IdleConnTimeout: dialTime,
	}
	if c.CAFile != "" {
		pool, err := Roots(c.CAFile)
		if err != nil {
			return nil, misconfigured("--git-ca-file: %w", err)
		}
		t.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	return &http.Client{
		Transport: &bounded{t, h},
		CheckRedirect: func(next *http.Request, _ []*http.Request) error {
			to := url.URL{Scheme: next.URL.Scheme, Host: next.URL.Host, Path: strings.TrimSuffix(next.URL.Path, "/info/refs")}
			return &redirectError{to.String()}
		},
	}, nil
}

// Roots are the root certificates of the system and of the PEM files.
func Roots(files ...string) (*x509.CertPool, error) {
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		if !pool.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s holds no certificate in PEM", name)
		}
	}
	return pool, nil
}

type redirectError struct{ to string }

func (e *redirectError) Error() string {
	return "the repository has moved to " + e.to + "; if that is right, give it as --repo"
}

// bounded limits the size of an answer, and records in heard what can explain a failure.
type bounded struct {
	*http.Transport
	heard *heard
}

// notGit is an answer that does not come from a Git server.
type notGit struct{ contentType string }

func (e *notGit) Error() string {
	if e.contentType == "text/html" {
		return "the address answers with a web page, not as a Git repository does"
	}
	return fmt.Sprintf("the address answers with %q, not as a Git repository does", e.contentType)
}

// RoundTrip implements http.RoundTripper.
func (b *bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.Transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	switch resp.StatusCode {
	case http.StatusUnauthorized:
		b.heard.challenge = strings.Join(resp.Header.Values("WWW-Authenticate"), ", ")
	case http.StatusOK:
		kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
		if !strings.HasPrefix(kind, "application/x-git-upload-pack-") {
			_ = resp.Body.Close()
			b.heard.page = &notGit{kind}
			return nil, b.heard.page
		}
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.TeeReader(&cutOff{resp.Body, maxAnswer}, &b.heard.opening), resp.Body}
	return resp, nil
}

// cutOff fails at its limit, where io.LimitReader would report the end of the data.
type cutOff struct {
	io.Reader
	left int64
}

var errTooMuch = fmt.Errorf("the server sends more than %d MiB", maxAnswer>>20)

func (c *cutOff) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, errTooMuch
	}
	n, err := c.Reader.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	return n, err
}

// token reads the token file. The token is empty if no file is configured.
func (c Credentials) token() (string, error) {
	if c.TokenFile == "" {
		return "", nil
	}
	text, err := os.ReadFile(c.TokenFile)
	if err != nil {
		return "", misconfigured("--git-token-file: %w; put the token there, in a file that the server may read", err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return "", misconfigured("--git-token-file: %s does not hold one line with a token", c.TokenFile)
	}
	return token, nil
}

// misconfigured is an error in a file or setting of this server. Files are read again at
// each attempt, so their correction needs no restart.
func misconfigured(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrMisconfigured, fmt.Errorf(format, args...))
}

// basic sends the token as a password. It is used unless the server asks for a bearer
// token.
func (c Credentials) basic(token string) githttp.AuthMethod {
	if token == "" {
		return nil
	}
	return &githttp.BasicAuth{Username: cmp.Or(c.Username, anyUsername), Password: token}
}

// basicText is the token as basic sends it.
func (c Credentials) basicText(token string) string {
	if token == "" {
		return ""
	}
	return base64.StdEncoding.EncodeToString([]byte(cmp.Or(c.Username, anyUsername) + ":" + token))
}

// wantsBearer tells whether a 401 asked for a bearer token, and not for a name and a
// password.
func wantsBearer(challenge string) bool {
	challenge = strings.ToLower(challenge)
	return strings.Contains(challenge, "bearer") && !strings.Contains(challenge, "basic")
}

// sshConfig makes the configuration for one attempt to reach address. closeAgent releases
// the agent.
func (c Credentials) sshConfig(ctx context.Context, user, address, scratch string) (_ *ssh.ClientConfig, closeAgent func(), err error) {
	config := &ssh.ClientConfig{User: user, Timeout: dialTime}
	if config.HostKeyCallback, config.HostKeyAlgorithms, err = c.hostKeys(address, scratch); err != nil {
		return nil, nil, err
	}
	if c.SSHKey != "" {
		signer, err := c.sshKey()
		if err != nil {
			return nil, nil, err
		}
		config.Auth = []ssh.AuthMethod{ssh.PublicKeys(signer)}
		return config, func() {}, nil
	}
	socket := os.Getenv("SSH_AUTH_SOCK")
	if socket == "" {
		return nil, nil, misconfigured("a repository over ssh needs --git-ssh-key FILE, or an agent (SSH_AUTH_SOCK)")
	}
	conn, err := (&net.Dialer{Timeout: dialTime}).DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, nil, misconfigured("the ssh agent (SSH_AUTH_SOCK): %w", err)
	}
	config.Auth = []ssh.AuthMethod{ssh.PublicKeysCallback(agent.NewClient(conn).Signers)}
	return config, func() { _ = conn.Close() }, nil
}

func (c Credentials) sshKey() (ssh.Signer, error) {
	text, err := os.ReadFile(c.SSHKey)
	if err != nil {
		return nil, misconfigured("--git-ssh-key: %w", err)
	}
	signer, err := ssh.ParsePrivateKey(text)
	switch missing := (*ssh.PassphraseMissingError)(nil); {
	case errors.As(err, &missing):
		return nil, misconfigured("--git-ssh-key: %s has a passphrase; use a deploy key without one, or an agent (SSH_AUTH_SOCK)", c.SSHKey)
	case err != nil:
		// The parser's error is left out, because it could quote the file.
		return nil, misconfigured("--git-ssh-key: %s is not a private key that OpenSSH would read", c.SSHKey)
	}
	return signer, nil
}

// hostKeys trusts only the known hosts. It also returns the kinds of key that are known
// for the server, because the server may offer keys of other kinds as well.
func (c Credentials) hostKeys(address, scratch string) (ssh.HostKeyCallback, []string, error) {
	file := c.KnownHosts
	if file == "" {
		file = filepath.Join(scratch, "known_hosts")
		if err := os.WriteFile(file, publishedHosts, 0o600); err != nil {
			return nil, nil, err
		}
	}
	known, err := knownhosts.New(file)
	if err != nil {
		return nil, nil, misconfigured("--git-known-hosts: %w", err)
	}
	strict := func(host string, remote net.Addr, key ssh.PublicKey) error {
		err := known(host, remote, key)
		problem := (*knownhosts.KeyError)(nil)
		switch {
		case err == nil:
			return nil
		case !errors.As(err, &problem): // the key is revoked or unreadable
			return &hostKeyError{fmt.Sprintf("the host key of %s: %v", address, err)}
		case len(problem.Want) > 0:
			return &hostKeyError{fmt.Sprintf("the host key of %s is not the known one: it shows %s; somebody may be in between, or the key was replaced (then correct --git-known-hosts)",
				address, ssh.FingerprintSHA256(key))}
		}
		return &hostKeyError{fmt.Sprintf("the host %s is not known: it shows %s %s; compare that with what its operator publishes, and add it to --git-known-hosts (ssh-keyscan prints the line)",
			address, key.Type(), ssh.FingerprintSHA256(key))}
	}
	// Ask about a new key, which no host has. The refusal lists the known keys.
	public, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	probe, err := ssh.NewPublicKey(public)
	if err != nil {
		return nil, nil, err
	}
	var algorithms []string
	if problem := (*knownhosts.KeyError)(nil); errors.As(known(address, &net.TCPAddr{}, probe), &problem) {
		for _, want := range problem.Want {
			switch kind := want.Key.Type(); kind {
			case ssh.KeyAlgoRSA:
				algorithms = append(algorithms, ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256)
			default:
				algorithms = append(algorithms, kind)
			}
		}
	}
	slices.Sort(algorithms)
	return strict, slices.Compact(algorithms), nil
}

type hostKeyError struct{ text string }

func (e *hostKeyError) Error() string { return e.text }

// explain says what a failed attempt means, for the person who configured the repository.
func (r *Remote) explain(err error, authorized bool) error {
	var moved *redirectError
	var host *hostKeyError
	var page *notGit
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrMisconfigured), errors.Is(err, ErrUnsupported), errors.Is(err, ErrDenied):
		return err
	case errors.As(err, &page):
		return fmt.Errorf("%w: %s: %w; give the address that git clone takes, with no sign-in page in front of it", ErrNoRepository, r.url, page)
	case errors.As(err, &moved):
		return fmt.Errorf("%w: %s: %w", ErrUnreachable, r.url, moved)
	case errors.As(err, &host):
		return fmt.Errorf("%w: %s: %w", ErrUnreachable, r.url, host)
	case errors.Is(err, transport.ErrEmptyRemoteRepository):
		return fmt.Errorf("%w: %s waits for the first push to %q", ErrEmpty, r.url, r.Branch)
	case errors.Is(err, transport.ErrAuthenticationRequired) && !authorized:
		return fmt.Errorf("%w: %s requires a credential: give --git-token-file FILE", ErrDenied, r.url)
	case errors.Is(err, transport.ErrAuthenticationRequired), errors.Is(err, transport.ErrAuthorizationFailed):
		return fmt.Errorf("%w: %s refuses the token of --git-token-file (the username for it is --git-username)", ErrDenied, r.url)
	case errors.Is(err, transport.ErrRepositoryNotFound):
		return fmt.Errorf("%w: there is no repository at %s, or the credential may not read it", ErrDenied, r.url)
	case strings.Contains(err.Error(), "ssh: unable to authenticate"):
		return fmt.Errorf("%w: %s refuses the key (--git-ssh-key, or the agent's)", ErrDenied, r.url)
	}
	return fmt.Errorf("%w: %s: %w", ErrUnreachable, r.url, err)
}

// ShellQuote quotes a word for a shell, as git does. It also escapes the exclamation mark,
// which csh interprets even inside quotes.
func ShellQuote(s string) string { return "'" + shellSpecial.Replace(s) + "'" }

var shellSpecial = strings.NewReplacer("'", `'\''`, "!", `'\!'`)
