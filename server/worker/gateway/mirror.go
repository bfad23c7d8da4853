package gateway

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"triphammer/server/disk"
	"triphammer/server/secret"
)

// Limits of the mirrors.
const (
	maxMirror    = 10 << 30        // bytes that a forge sends for a mirror at once, and that an answer has
	freeShare    = 4               // neither takes more than this part of what is free on the disk
	largeTime    = time.Hour       // a repository that was too large is not tried again for so long
	maxPacks     = 100             // a mirror with more is made anew, because Git gets slow and old commits stay
	turnTime     = 2 * time.Minute // a clone does not wait longer for other runs that use the mirror
	mostMirrored = 4               // requests of a run for a repository that a mirror answers: the agent could ask for ever
	mostWants    = 8               // commits in a request
	maxAsk       = 4 << 10         // bytes of a request
)

// Mirrors are what a worker keeps of the repositories that its runs clone (SPEC 15.10). A mirror is a bare
// repository. It belongs to one repository, secret and factory, and holds the commits that were cloned, without
// their history. No run reaches its files.
//
// A mirror proves nothing: for each clone, Git asks the forge, with the credential of the run, for exactly the
// commits that the run wants. It tells the forge what the mirror has, so the forge sends only what is new. Only
// what the forge has granted then is handed on. So a credential that was revoked and a branch that has moved
// act at once.
type Mirrors struct {
	dir  string
	most int64 // maxMirror, but for tests

	mu    sync.Mutex
	turns map[string]chan struct{} // by the name of the mirror; who has put something in has the turn
}

// NewMirrors makes the mirrors of a worker, in a folder that nobody else uses. The folder around it is there.
func NewMirrors(dir string) *Mirrors {
	return &Mirrors{dir: dir, most: maxMirror, turns: make(map[string]chan struct{})}
}

// Remove removes a mirror, unless a run uses it now.
func (m *Mirrors) Remove(path string) error {
	turn := m.turn(filepath.Base(path))
	select {
	case turn <- struct{}{}:
		defer func() { <-turn }()
		return os.RemoveAll(path)
	default:
		return nil
	}
}

func (m *Mirrors) turn(name string) chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.turns[name] == nil {
		m.turns[name] = make(chan struct{}, 1)
	}
	return m.turns[name]
}

// readAsk reads the commits that a request asks for (https://git-scm.com/docs/protocol-v2, fetch), if it is for
// commits without their history and tells of none that the client has, as clones with --depth=1 do. Else there
// are no commits.
func readAsk(body []byte) (wants []string) {
	told := make(map[string]bool)
	for len(body) > 0 {
		n, err := strconv.ParseUint(string(body[:min(4, len(body))]), 16, 16)
		if err != nil || len(body) < max(4, int(n)) || n == 2 || n == 3 {
			return nil
		}
		line := strings.TrimSuffix(string(body[4:max(4, n)]), "\n") // empty: a delimiter, or the end
		body = body[max(4, n):]
		name, _, _ := strings.Cut(line, "=")
		id, want := strings.CutPrefix(line, "want ")
		switch {
		case want && objectID.MatchString(id):
			wants = append(wants, id)
		case slices.Contains([]string{"", "command=fetch", "thin-pack", "no-progress", "include-tag", "ofs-delta", "deepen 1", "done"}, line):
			told[line] = true
		case !slices.Contains([]string{"agent", "object-format", "session-id"}, name):
			return nil
		}
	}
	slices.Sort(wants)
	if wants = slices.Compact(wants); !told["command=fetch"] || !told["deepen 1"] || !told["done"] || len(wants) > mostWants {
		return nil
	}
	return wants
}

// mirrored answers a request for a clone from the mirror. If it returns false, the request is as it came, to be
// passed on; the transcript says why, if it is one that a mirror answers.
func (g *Gateway) mirrored(w http.ResponseWriter, r *http.Request, s *served, c *credential) bool {
	if g.mirrors == nil || r.Header.Get("Git-Protocol") != "version=2" || r.Header.Get("Content-Encoding") != "" {
		return false
	}
	body, _ := io.ReadAll(io.LimitReader(r.Body, maxAsk))                // whoever reads on meets the error again
	r.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body), r.Body)) // the server closes it
	f := &source{g: g, s: s, c: c, ask: body, wants: readAsk(body), token: secret.RandomText(43)}
	if len(f.wants) == 0 || s.mirrored.Add(1) > mostMirrored {
		return false
	}
	file, err := f.mirrored(r.Context())
	if err != nil {
		if r.Context().Err() == nil {
			g.services.told.add(fmt.Sprintf("the clone of %s comes whole from its forge, because the mirror of this worker cannot be used: %v", s.url, err))
		}
		return false
	}
	defer func() { _ = file.Close() }()
	if info, err := file.Stat(); err == nil {
		g.services.told.add(fmt.Sprintf("the clone of %s is %s from the mirror of this worker, for which the forge sent %s", s.url, disk.Bytes(info.Size()), disk.Bytes(f.sent.Load())))
	}
	w.Header().Set("Content-Type", "application/x-git-upload-pack-result")
	w.Header().Set("Cache-Control", "no-cache")
	_, _ = io.Copy(w, file) // the run may be gone
	return true
}

// source is the way of Git to one forge while it brings a mirror up to date. It adds the credential, and counts.
type source struct {
	g     *Gateway
	s     *served
	c     *credential
	ask   []byte   // the request of the run
	wants []string // the commits that it asks for
	dir   string   // of the mirror
	most  int64    // bytes that the forge may send, and that the answer may have
	token string   // Git must show it

	sent  atomic.Int64 // bytes, by the forge
	asked atomic.Int32 // requests that the forge has granted, but for the first

	mu  sync.Mutex
	err error // why the forge did not serve
}

// mirrored brings the mirror up to date and has it answer the request, in a file without a name, which the caller
// closes. So nothing of an answer that fails is sent, and a run that reads slowly keeps nobody from the mirror.
func (f *source) mirrored(ctx context.Context) (*os.File, error) {
	m := f.g.mirrors
	of := sha256.Sum256([]byte(strings.Join([]string{f.g.factory, f.s.Secret, f.s.url.String()}, "\x00")))
	name := hex.EncodeToString(of[:16])
	turn := m.turn(name)
	select {
	case turn <- struct{}{}:
		defer func() { <-turn }()
	case <-time.After(turnTime):
		return nil, fmt.Errorf("other runs have used it for %v", turnTime)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	f.dir = filepath.Join(m.dir, name)
	if info, err := os.Stat(f.dir); err == nil && info.Mode().IsRegular() { // stands for a repository that was too large
		if time.Since(info.ModTime()) < largeTime {
			return nil, errLarge
		}
		_ = os.Remove(f.dir)
	}
	room, err := disk.Measure(filepath.Dir(m.dir))
	if err != nil {
		return nil, err
	}
	f.most = min(m.most, room.Free/freeShare)
	var file *os.File
	if err = f.fetch(ctx); err == nil {
		file, err = f.answer(ctx, m.dir)
	}
	switch {
	case errors.Is(err, errLarge):
		err = errors.Join(err, os.RemoveAll(f.dir), os.WriteFile(f.dir, nil, 0o600))
	case err != nil && ctx.Err() == nil && f.failure() == nil && !strings.Contains(err.Error(), "remote error: "): // it may be damaged
		err = errors.Join(err, os.RemoveAll(f.dir))
	}
	return file, err
}

var errLarge = fmt.Errorf("it takes more than %s, or than a quarter of what is free on the disk", disk.Bytes(maxMirror))

// ready makes what Git needs for a mirror, and removes what a Git that was killed has left behind. Tags are
// fetched again, because the forge may have moved them.
func (f *source) ready(address string) error {
	if packs, _ := filepath.Glob(filepath.Join(f.dir, "objects", "pack", "*.pack")); len(packs) > maxPacks {
		if err := os.RemoveAll(f.dir); err != nil {
			return err
		}
	}
	err := errors.Join(os.RemoveAll(filepath.Join(f.dir, "refs", "tags")),
		os.MkdirAll(filepath.Join(f.dir, "objects"), 0o700), os.MkdirAll(filepath.Join(f.dir, "refs"), 0o700))
	err = errors.Join(err, filepath.WalkDir(f.dir, func(path string, d fs.DirEntry, err error) error {
		name := filepath.Base(path)
		if err == nil && !d.IsDir() && (strings.HasSuffix(name, ".lock") || strings.HasPrefix(name, "tmp_") || strings.HasPrefix(name, "shallow_")) {
			err = os.Remove(path)
		}
		return err
	}))
	// No deltas are sought: what the forge has packed well stays so, and a clone costs little time.
	settings := "[core]\nbare = true\nrepositoryFormatVersion = 0\n[protocol]\nversion = 2\n[fetch]\nunpackLimit = 1\n[gc]\nauto = 0\n[maintenance]\nauto = false\n" +
		"[pack]\nwindow = 0\nthreads = 1\n[http \"" + address + "\"]\nextraHeader = Authorization: Bearer " + f.token + "\n"
	if f.sum().Size() == sha256.Size {
		settings += "[core]\nrepositoryFormatVersion = 1\n[extensions]\nobjectFormat = sha256\n"
	}
	now := time.Now()
	return errors.Join(err, os.WriteFile(filepath.Join(f.dir, "config"), []byte(settings), 0o600),
		os.WriteFile(filepath.Join(f.dir, "HEAD"), []byte("ref: refs/heads/main\n"), 0o600), os.Chtimes(f.dir, now, now))
}

// sum is the hash that the repository is made with.
func (f *source) sum() hash.Hash {
	if len(f.wants[0]) == 2*sha256.Size {
		return sha256.New()
	}
	return sha1.New()
}

// git runs Git outside of all walls. It knows no settings but those of the mirror, and no credential. The error has
// what it said.
func (f *source) git(ctx context.Context, stdin io.Reader, stdout io.Writer, args ...string) error {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.WaitDelay = f.dir, stdin, stdout, 5*time.Second
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + f.dir, "GIT_DIR=" + f.dir, "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_ATTR_NOSYSTEM=1",
		"GIT_TERMINAL_PROMPT=0", "GIT_ALLOW_PROTOCOL=http", "GIT_PROTOCOL=version=2", "LC_ALL=C",
	}
	var said bytes.Buffer
	cmd.Stderr = &bounded{&said, maxAsk}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	err := cmd.Run()
	if cmd.Process != nil { // its processes are children of this process, if that is a subreaper
		for gone := error(nil); gone == nil || errors.Is(gone, syscall.EINTR); {
			_, gone = syscall.Wait4(-cmd.Process.Pid, nil, 0, nil)
		}
	}
	if text := clip(string(f.c.hide.Redact(said.Bytes()))); err != nil && text != "" {
		err = fmt.Errorf("git %s: %w: %s", args[0], err, text)
	}
	return err
}

// bounded takes so many bytes.
type bounded struct {
	to   io.Writer
	left int64
}

func (b *bounded) Write(part []byte) (int, error) {
	if b.left -= int64(len(part)); b.left < 0 {
		return 0, errLarge
	}
	return b.to.Write(part)
}

// answer has the mirror answer the request.
func (f *source) answer(ctx context.Context, temp string) (*os.File, error) {
	file, err := os.CreateTemp(temp, "answer-")
	if err != nil {
		return nil, err
	}
	if err = errors.Join(os.Remove(file.Name()), f.sound()); err == nil {
		to := &bounded{file, f.most}
		if err = f.git(ctx, bytes.NewReader(f.ask), to, "upload-pack", "--strict", "--stateless-rpc", f.dir); to.left < 0 {
			err = errLarge
		}
	}
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}

// sound compares the packs with the checksums at their ends. Git does not, and sends what it finds.
func (f *source) sound() error {
	packs, err := filepath.Glob(filepath.Join(f.dir, "objects", "pack", "*.pack"))
	for _, path := range packs {
		file, openErr := os.Open(path)
		if openErr != nil {
			return openErr
		}
		sum, end := f.sum(), make([]byte, f.sum().Size())
		length, err := file.Seek(int64(-len(end)), io.SeekEnd)
		if err == nil {
			_, err = io.ReadFull(file, end)
		}
		if err == nil {
			_, err = io.Copy(sum, io.NewSectionReader(file, 0, length))
		}
		_ = file.Close()
		if err != nil || !bytes.Equal(end, sum.Sum(nil)) {
			return errors.Join(errors.New("a pack is damaged"), err)
		}
	}
	return err
}

// fetch fetches what is asked for into the mirror. It succeeds only if the forge has granted each of the commits now.
func (f *source) fetch(ctx context.Context) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: f, ErrorLog: nowhere, ReadHeaderTimeout: connectTime, BaseContext: func(net.Listener) context.Context { return ctx }}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(l)
	}()
	defer func() {
		_ = server.Close()
		<-ended
	}()
	address := "http://" + l.Addr().String() + "/"
	if err := f.ready(address); err != nil {
		return err
	}
	args := []string{"fetch", "--quiet", "--depth=1", "--no-recurse-submodules", address}
	for _, id := range f.wants {
		args = append(args, "+"+id+":refs/kept/"+id)
	}
	// The last pattern matches nothing. It keeps Git from listing all refs of the forge, for the sake of tags.
	err = f.git(ctx, nil, nil, append(args, "refs/triphammer/none/*:refs/triphammer/none/*")...)
	if forge := f.failure(); forge != nil {
		return forge
	}
	if err == nil && f.asked.Load() < 2 { // for the tags, and for the commits; Git could think that it has all
		err = errors.New("the forge was not asked for the commits")
	}
	return err
}

// ServeHTTP passes on a request of Git to the forge.
func (f *source) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	shown := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	to := *f.s.url
	to.Path += r.URL.Path
	to.RawQuery = r.URL.RawQuery
	if subtle.ConstantTimeCompare([]byte(shown), []byte(f.token)) != 1 {
		answer(w, http.StatusForbidden, errors.New("this is the way of a mirror to its forge"))
		return
	}
	proxy := f.g.toForge(f.s, f.c, fetching, &to)
	check := proxy.ModifyResponse
	proxy.ModifyResponse = func(resp *http.Response) error {
		err := check(resp)
		if resp.Body = (&sourceBody{resp.Body, f}); err == nil && r.Method == http.MethodPost {
			f.asked.Add(1)
		}
		return err
	}
	proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, err error) {
		if no := (*forgeRefusal)(nil); !errors.As(err, &no) {
			err = f.s.unreached(err)
		}
		f.failed(err)
		answer(w, http.StatusBadGateway, err)
	}
	proxy.ServeHTTP(w, r)
}

// failed keeps the first reason why the forge did not serve.
func (f *source) failed(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = cmp.Or(f.err, err)
}

func (f *source) failure() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// sourceBody is the body of an answer of a forge.
type sourceBody struct {
	io.ReadCloser
	f *source
}

func (b *sourceBody) Read(part []byte) (int, error) {
	n, err := b.ReadCloser.Read(part)
	switch {
	case b.f.sent.Add(int64(n)) > b.f.most:
		b.f.failed(errLarge)
		return 0, errLarge
	case err != nil && !errors.Is(err, io.EOF):
		b.f.failed(b.f.s.unreached(err))
	}
	return n, err
}
