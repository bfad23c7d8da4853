package gitrepo

import (
	"bytes"
	"context"
	"crypto/sha1"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/sideband"
	"github.com/go-git/go-git/v5/plumbing/storer"
	"github.com/go-git/go-git/v5/plumbing/transport"
)

const (
	// lookTime is the default limit of one look at a remote repository, including the
	// fetch. A look may take longer while at least goodRate bytes a second arrive, but
	// never longer than maxLook.
	lookTime = 2 * time.Minute
	goodRate = 64 << 10
	maxLook  = time.Hour
	// maxAnswer is the largest answer of a server that is read, in bytes.
	maxAnswer = 2 << 30
	// maxLoose and maxGrowth tell when a cache is fetched anew. Objects of later pushes
	// are kept as loose objects, and are never repacked. maxLoose limits their number.
	// maxGrowth limits by how many bytes the loose objects may exceed the size of the first pack.
	maxLoose  = 5000
	maxGrowth = 16 << 20
	// tooBig is the size, in bytes, from which files are not fetched. No definition is
	// that large, and a fetch needs as much memory.
	tooBig = 1 << 20
	// lastWords is the time for an ssh server to say why it does not answer.
	lastWords = 5 * time.Second
)

// The library turns thin packs off, because its own code cannot store them. unpack can.
func init() {
	transport.UnsupportedCapabilities = slices.DeleteFunc(transport.UnsupportedCapabilities, func(c capability.Capability) bool {
		return c == capability.ThinPack
	})
}

// RemoteConfig is a remote repository and its production branch.
type RemoteConfig struct {
	// URL is https://host/path, ssh://user@host/path or user@host:path. It holds
	// no credential.
	URL    string
	Branch string
	// Cache is a folder for fetched objects. It belongs to the Remote, may be deleted at
	// any time, and holds nothing secret.
	Cache string
	Credentials
	// Poll is the time between two looks of Watch. 0 means one minute.
	Poll time.Duration
	// Timeout is how long one look may take. 0 means two minutes. A fetch may take longer
	// while enough data arrives.
	Timeout time.Duration
}

// Remote is a repository on another machine. A look asks the server for the head of the
// branch, and fetches that commit without its history into a bare repository, the cache. If
// the cache is damaged, everything is fetched again.
type Remote struct {
	RemoteConfig
	url    string // for messages
	target *url.URL
	cache  *Repo

	received atomic.Int64 // bytes, by all connections
	before   atomic.Int64 // bytes received before the present look
	telling  telling      // what the server says of its work

	mu      sync.Mutex  // one attempt at a time
	suspect atomic.Bool // something in the cache could not be read
	// whole is a commit that the cache has completely, except for files that are too big.
	// So a missing file of the commit is too big.
	whole string
}

// IsRemote tells whether the name of a repository is an address, and not a path.
func IsRemote(repository string) bool {
	if strings.Contains(repository, "://") {
		return !strings.HasPrefix(repository, "file://")
	}
	host, _, short := strings.Cut(repository, ":")
	return short && host != "" && !strings.ContainsAny(host, `/\`)
}

// OpenRemote checks the address. It does not connect.
func OpenRemote(cfg RemoteConfig) (*Remote, error) {
	cfg.Branch = strings.TrimPrefix(cfg.Branch, "refs/heads/")
	if err := plumbing.NewBranchReferenceName(cfg.Branch).Validate(); err != nil {
		return nil, fmt.Errorf("%q is not a branch name", cfg.Branch)
	}
	target, err := parseRemote(cfg.URL)
	if err != nil {
		return nil, err
	}
	if cfg.Poll <= 0 {
		cfg.Poll = time.Minute
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = lookTime
	}
	return &Remote{RemoteConfig: cfg, url: target.String(), target: target, cache: &Repo{path: cfg.Cache, branch: cfg.Branch}}, nil
}

// parseRemote parses the address of a repository. It refuses an address with a
// credential, without repeating the credential.
func parseRemote(address string) (*url.URL, error) {
	if !strings.Contains(address, "://") { // user@host:path
		host, path, _ := strings.Cut(address, ":")
		user, name, named := strings.Cut(host, "@")
		if !named {
			user, name = "", host
		}
		u := &url.URL{Scheme: "ssh", Host: name, Path: path}
		if user != "" {
			u.User = url.User(user)
		}
		if !strings.HasPrefix(path, "/") {
			u.Path = "/" + path
		}
		address = u.String()
	}
	u, err := url.Parse(address)
	if err != nil {
		return nil, errors.New("the repository's address cannot be read; it is like https://example.com/team/factory.git or git@example.com:team/factory.git")
	}
	_, password := u.User.Password()
	switch {
	case u.Scheme == "https" && u.User != nil, u.Scheme == "http" && u.User != nil, password:
		return nil, fmt.Errorf("the address of the repository on %s holds a credential, which would show in many places: leave it out, and give --git-token-file FILE (and --git-username NAME)",
			u.Hostname())
	case u.Scheme == "http" && !isLoopback(u.Hostname()):
		return nil, fmt.Errorf("%s: over http anybody in between can read the credential and change the definitions; use https", u)
	case u.Scheme != "https" && u.Scheme != "http" && u.Scheme != "ssh":
		return nil, fmt.Errorf("%s: a repository is read over https or ssh", u)
	case u.Hostname() == "" || strings.HasPrefix(u.Hostname(), "-") || strings.Trim(u.Path, "/") == "":
		return nil, fmt.Errorf("%s names no repository; an address is like https://example.com/team/factory.git", u)
	case u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("the address of the repository on %s has a part after ? or #, which no repository has", u.Hostname())
	}
	return u, nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Describe names the repository and the branch.
func (r *Remote) Describe() (repository, branch string) { return r.url, r.Branch }

// Head is the newest commit of the production branch. It fetches the commit if the cache
// lacks it. Besides the errors of Repo.Head it returns ErrDenied, ErrUnreachable and
// ErrMisconfigured. All of them may be temporary.
func (r *Remote) Head(ctx context.Context) (Commit, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.before.Store(r.received.Load())
	r.telling.begin()
	attempt, giveUp := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer giveUp(nil)
	watching.Go(func() { giveUp(r.tooSlow(attempt)) })
	if r.suspect.Swap(false) {
		if err := r.discard(); err != nil {
			return Commit{}, err
		}
	}
	c, spoiled, err := r.update(attempt)
	if spoiled {
		if err := r.discard(); err != nil {
			return Commit{}, err
		}
		c, _, err = r.update(attempt)
	}
	if err != nil && attempt.Err() != nil {
		return Commit{}, context.Cause(attempt)
	}
	return c, err
}

// tooSlow waits until an attempt has lasted too long for the data that has arrived, and then
// returns an error. It returns nil if the attempt ends before.
func (r *Remote) tooSlow(attempt context.Context) error {
	began, before := time.Now(), r.received.Load()
	for {
		tick := time.NewTimer(r.Timeout)
		select {
		case <-attempt.Done():
			tick.Stop()
			return nil
		case <-tick.C:
		}
		now, took := r.received.Load(), time.Since(began).Round(time.Second)
		if now-before < int64(r.Timeout.Seconds()*goodRate) || took >= maxLook {
			return fmt.Errorf("%w: %s: given up after %s; in the last %s it sent %d bytes (--git-timeout)",
				ErrUnreachable, r.url, took, r.Timeout, now-before)
		}
		before = now
	}
}

// Tree opens a folder of a commit that Head returned. If the cache turns out to be
// damaged, the next Head fetches everything again.
func (r *Remote) Tree(ctx context.Context, hash, dir string) (fs.FS, error) {
	tree, err := r.cache.Tree(ctx, hash, dir)
	if err != nil {
		if !errors.Is(err, ErrNoFolder) && ctx.Err() == nil {
			r.suspect.Store(true)
		}
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	tree.(*treeFS).partial = hash == r.whole
	tree.(*treeFS).damaged = func() { r.suspect.Store(true) }
	return tree, nil
}

// discard deletes the cache. r.mu is held.
func (r *Remote) discard() error {
	r.whole = ""
	if err := os.RemoveAll(r.Cache); err != nil {
		return fmt.Errorf("the cache of %s: %w", r.url, err)
	}
	return nil
}

// update looks at the branch, and fetches its head if the cache lacks it. spoiled tells
// that a damaged cache may have caused the error.
func (r *Remote) update(ctx context.Context) (c Commit, spoiled bool, err error) {
	if err := os.MkdirAll(r.Cache, 0o700); err != nil {
		return Commit{}, false, fmt.Errorf("the cache of %s: %w", r.url, err)
	}
	s, err := r.connect(ctx)
	if err != nil {
		return Commit{}, false, err
	}
	defer s.close()
	hash, ok := s.refs.References[plumbing.NewBranchReferenceName(r.Branch).String()]
	if !ok {
		var names []string
		for name := range s.refs.References {
			if branch, is := strings.CutPrefix(name, "refs/heads/"); is {
				names = append(names, branch)
			}
		}
		return Commit{}, false, missingBranch(r.url, r.Branch, names)
	}
	find := func(o *objects) (plumbing.Hash, error) {
		whole, err := o.storage.Shallow()
		if err == nil && !slices.Contains(whole, hash) {
			err = ErrNoCommit
		}
		return hash, err
	}
	if c, _, err := r.cache.resolve(ctx, Commit{}, find); err == nil {
		return c, false, nil
	}
	if err = r.fetch(ctx, s, hash); err == nil {
		if c, _, err = r.cache.resolve(ctx, Commit{}, find); err != nil {
			return c, ctx.Err() == nil, err // the cache does not have what it was just given
		}
	}
	if spoiled = errors.Is(err, ErrCorrupt) || errors.Is(err, ErrNoRepository) || errors.Is(err, ErrUnsupported); spoiled {
		return c, true, err
	}
	return c, false, r.explain(err, s.authorized)
}

// fetch puts one commit into the cache. The server does not send again what the cache has
// of the last commit. When the cache has grown too large, the server sends everything,
// and that replaces the old objects.
func (r *Remote) fetch(ctx context.Context, s *session, hash plumbing.Hash) (err error) {
	defer survive(&err)
	if !isRepository(r.Cache) {
		// The folder holds at most the beginning of a repository.
		if err := errors.Join(r.discard(), os.MkdirAll(r.Cache, 0o700)); err != nil {
			return err
		}
		if _, err := git.PlainInit(r.Cache, true); err != nil {
			return fmt.Errorf("%w: making the cache: %w", ErrCorrupt, err)
		}
	}
	o, err := openObjects(r.Cache)
	if err != nil {
		return err
	}
	stored, err := r.stored()
	if err != nil {
		return err
	}
	req, err := s.wanting(hash, o, !stored.overgrown())
	if err != nil {
		return err
	}
	answer, err := s.pack(ctx, req)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Close() }()
	var pack io.Reader = answer
	var bands *sideband.Demuxer
	switch {
	case req.Capabilities.Supports(capability.Sideband64k):
		bands = sideband.NewDemuxer(sideband.Sideband64k, answer)
	case req.Capabilities.Supports(capability.Sideband):
		bands = sideband.NewDemuxer(sideband.Sideband, answer)
	}
	if bands != nil {
		bands.Progress = &r.telling
		pack = bands
	}
	arriving := &arrivingPack{r: pack, sum: sha1.New()}
	if len(req.Haves) > 0 {
		err = unpack(o.storage, arriving)
	} else {
		err = packfile.UpdateObjectStorage(o.storage, arriving)
	}
	switch {
	case err != nil && arriving.whole():
		// For example, a large file that was left out has become smaller, or a file of the
		// cache was cut off. The error can be the same as after a broken connection.
		return fmt.Errorf("%w: the cache cannot take what the server sent: %w", ErrCorrupt, err)
	case err != nil:
		return err
	}
	if err := o.storage.SetShallow([]plumbing.Hash{hash}); err != nil {
		return fmt.Errorf("%w: the cache: %w", ErrCorrupt, err)
	}
	if r.whole = ""; len(req.Haves) == 0 {
		if req.Filter != "" {
			r.whole = hash.String()
		}
		if err := r.replace(stored); err != nil {
			return err
		}
	}
	// The reference is only for people who look into the cache. Reads use the hash.
	_ = o.storage.SetReference(plumbing.NewHashReference(plumbing.NewBranchReferenceName(r.Branch), hash))
	return nil
}

// wanting asks for a commit, without its history and large files if the server can do that.
// onTop tells that the server may send differences to objects of the cache.
func (s *session) wanting(hash plumbing.Hash, cache *objects, onTop bool) (*packp.UploadPackRequest, error) {
	req := packp.NewUploadPackRequestFromCapabilities(s.refs.Capabilities)
	req.Wants = []plumbing.Hash{hash}
	if s.refs.Capabilities.Supports(capability.Shallow) {
		if err := req.Capabilities.Set(capability.Shallow); err != nil {
			return nil, err
		}
		req.Depth = packp.DepthCommits(1)
	}
	if s.refs.Capabilities.Supports(capability.Filter) {
		if err := req.Capabilities.Set(capability.Filter); err != nil {
			return nil, err
		}
		req.Filter = packp.FilterBlobLimit(tooBig, "")
	}
	// The two commits have no common history in the cache. A server then leaves out
	// objects that the client has only if it may send differences to them: a thin pack.
	if !onTop || !req.Capabilities.Supports(capability.ThinPack) {
		return req, nil
	}
	last, err := cache.storage.Shallow()
	if err != nil {
		return nil, fmt.Errorf("%w: the cache: %w", ErrCorrupt, err)
	}
	for _, have := range last {
		if _, err := cache.commit(have); err == nil {
			req.Shallows, req.Haves = append(req.Shallows, have), append(req.Haves, have)
		}
	}
	return req, nil
}

// unpack stores the objects of a thin pack one by one. A thin pack holds differences to
// objects that are stored already, and cannot be read without them.
func unpack(storage storer.EncodedObjectStorer, pack io.Reader) error {
	parser, err := packfile.NewParserWithStorage(packfile.NewScanner(pack), storage)
	if err == nil {
		_, err = parser.Parse()
	}
	return err
}

// arrivingPack reads a pack, and knows whether it came whole: the last bytes of a pack are
// the SHA-1 of all others (gitformat-pack).
type arrivingPack struct {
	r    io.Reader
	sum  hash.Hash
	last []byte // the newest bytes, at most as many as the sum has; sum does not include them
}

func (p *arrivingPack) Read(b []byte) (int, error) {
	n, err := p.r.Read(b)
	p.last = append(p.last, b[:n]...)
	if more := len(p.last) - p.sum.Size(); more > 0 {
		p.sum.Write(p.last[:more]) // never fails
		p.last = append(p.last[:0], p.last[more:]...)
	}
	return n, err
}

// whole reads what nobody has read yet, and tells whether the pack came whole.
func (p *arrivingPack) whole() bool {
	_, err := io.Copy(io.Discard, p)
	return err == nil && bytes.Equal(p.sum.Sum(nil), p.last)
}

// stored lists the files of the cache that hold objects.
type stored struct {
	packs, loose           []string // without their folder objects
	packsBytes, looseBytes int64
}

// overgrown tells whether the cache may hold many objects that the newest commit does not
// need.
func (s stored) overgrown() bool {
	return len(s.packs) > 1 || len(s.loose) > maxLoose || s.looseBytes > s.packsBytes+maxGrowth
}

// stored lists the files of the cache, and deletes those that an interrupted attempt left.
func (r *Remote) stored() (s stored, err error) {
	root := filepath.Join(r.Cache, "objects")
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		switch name, _ := filepath.Rel(root, path); {
		case strings.HasPrefix(d.Name(), "tmp_"):
			return os.Remove(path)
		case filepath.Ext(name) == ".pack":
			s.packs, s.packsBytes = append(s.packs, name), s.packsBytes+info.Size()
		case len(filepath.Dir(name)) == 2:
			s.loose, s.looseBytes = append(s.loose, name), s.looseBytes+info.Size()
		}
		return nil
	})
	if err != nil {
		return s, fmt.Errorf("%w: the cache: %w", ErrCorrupt, err)
	}
	return s, nil
}

// replace deletes the objects of before, after a new pack that needs none of them has
// arrived.
func (r *Remote) replace(before stored) error {
	now, err := r.stored()
	if err != nil {
		return err
	}
	gone := before.loose
	if len(now.packs) > len(before.packs) { // else what came was there
		for _, pack := range before.packs {
			gone = append(gone, strings.TrimSuffix(pack, "pack")+"idx", pack)
		}
	}
	for _, name := range gone {
		if err := os.Remove(filepath.Join(r.Cache, "objects", name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("the cache of %s: %w", r.url, err)
		}
	}
	return nil
}
