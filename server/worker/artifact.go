package worker

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"triphammer/schema/output"
	"triphammer/server/disk"
	"triphammer/server/run/event"
	"triphammer/server/run/task"
	"triphammer/server/secret"
	"triphammer/server/store"
)

// Limits of the artifacts of a run.
const (
	DefaultArtifactLimit  = 16 << 20 // bytes of one artifact
	DefaultArtifactsLimit = 64 << 20 // bytes of all artifacts of a run
	maxArtifacts          = 200
	maxArtifactName       = 255  // bytes
	maxLink               = 2048 // bytes
	// roomEvery is how much is written between two looks at the disk.
	roomEvery = 1 << 20
)

// keeper keeps the artifacts of one attempt.
type keeper struct {
	ctx     context.Context // for writes about the run
	manager *Manager
	lease   store.Lease
	hide    *secret.Redactor
	hidden  func(string) string

	links map[string]event.Artifact // by address: what the gateway opened and the agent names too is kept once
	again []*store.Artifact         // the artifacts of this attempt that another worker has kept

	mu    sync.Mutex // one at a time, so that the limits hold
	count int
	bytes int64
}

// keeper makes the keeper of an attempt, which also keeps the pushes of the task that wait for a person.
func (a *attempt) keeper(ctx context.Context, t *transcript, work *task.Task) *keeper {
	k := &keeper{ctx: ctx, manager: a.manager, lease: a.lease, hide: t.hide, hidden: t.hidden, links: make(map[string]event.Artifact)}
	work.Pushes.Stage = k.pack
	kept, err := a.manager.cfg.Store.Artifacts.Of(ctx, a.lease.RunID) // of an earlier attempt
	if err != nil {
		a.logger.Warn("reading the artifacts of a run", "error", err)
	}
	for _, one := range kept[a.lease.RunID] {
		k.count, k.bytes = k.count+1, k.bytes+one.Size
	}
	if a.adopted {
		k.again = slices.DeleteFunc(kept[a.lease.RunID], func(one *store.Artifact) bool { return one.CreatedAt.Before(a.began) })
	}
	return k
}

// keptBefore is the artifact as another worker has kept it; false: none has.
func (k *keeper) keptBefore(a event.Artifact) (event.Artifact, bool) {
	at := slices.IndexFunc(k.again, func(one *store.Artifact) bool {
		return one.Name == a.Name && one.URL == a.URL && one.MediaType != store.PackType
	})
	if at < 0 {
		return a, false
	}
	one := k.again[at]
	k.again = slices.Delete(k.again, at, at+1)
	a.ID, a.Type, a.Name, a.URL, a.Size = one.ID.String(), one.Type, one.Name, one.URL, one.Size
	return a, true
}

// Keep implements task.Sink. An artifact that is not kept is no error; the transcript has it
// with the reason. Granted secrets are redacted in every file, whatever its type, because an
// agent could make a text look like an image.
func (s sink) Keep(a event.Artifact, content io.Reader) error {
	kept, err := s.keep.artifact(a, content)
	switch reason := omitted(""); {
	case errors.Is(err, task.ErrLeft):
		return err // the worker that takes up the attempt keeps the artifact
	case errors.As(err, &reason):
		err = nil
		kept.Omitted = string(reason)
	case err != nil:
		s.transcript.logger.Error("keeping an artifact", "error", err)
		err = fmt.Errorf("keeping an artifact: %w", err)
		kept.Omitted = "the server could not store it; its log has the reason"
	}
	s.Add(kept)
	return err
}

// omitted is why an artifact is not kept, for people.
type omitted string

func (o omitted) Error() string { return string(o) }

func (k *keeper) artifact(a event.Artifact, content io.Reader) (event.Artifact, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	a.ID, a.Omitted = "", ""
	if a.Name = k.hidden(a.Name); a.URL != "" {
		return k.link(a)
	}
	a.Name = path.Clean(strings.TrimPrefix(a.Name, "/"))
	if a.Type != event.ArtifactScreenshot {
		a.Type = event.ArtifactFile
	}
	if before, ok := k.keptBefore(a); ok {
		_, err := io.Copy(io.Discard, content)
		return before, err
	}
	if !plainName(a.Name) || len(a.Name) > maxArtifactName || !utf8.ValidString(a.Name) {
		a.Name = event.Line(a.Name, 80)
		return a, omitted(fmt.Sprintf("its name is longer than %d bytes, or not plain text", maxArtifactName))
	}
	if k.count >= maxArtifacts {
		return a, omitted(fmt.Sprintf("a run can have %d artifacts", maxArtifacts))
	}
	cfg := &k.manager.cfg
	most, limit := cfg.ArtifactLimit, omitted(fmt.Sprintf("it is larger than %s (--artifact-size)", disk.Bytes(cfg.ArtifactLimit)))
	if left := cfg.ArtifactsLimit - k.bytes; left < most {
		most, limit = left, omitted(fmt.Sprintf("the artifacts of a run can have %s (--artifacts-per-run)", disk.Bytes(cfg.ArtifactsLimit)))
	}
	if a.Size > most {
		return a, limit
	}
	head := make([]byte, 512)
	n, err := io.ReadFull(content, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return a, err
	}
	kind := mediaType(a.Name, head[:n])
	if strings.HasPrefix(kind, "image/") {
		a.Type = event.ArtifactScreenshot
	}
	row := store.Artifact{Type: a.Type, Name: a.Name, MediaType: kind}
	kept, err := cfg.Store.Artifacts.KeepFile(k.ctx, k.lease, row, func(w io.Writer) error {
		to := &bounded{to: w, most: most, over: limit, watch: cfg.Disk}
		redacted := k.hide.Writer(to)
		_, err := io.Copy(redacted, io.LimitReader(io.MultiReader(bytes.NewReader(head[:n]), content), most+1))
		return errors.Join(err, redacted.Flush())
	})
	if errors.Is(err, store.ErrFull) {
		err = noRoom
	}
	if err == nil {
		k.count, k.bytes = k.count+1, k.bytes+kept.Size
		a.ID, a.Size = kept.ID.String(), kept.Size
	}
	return a, err
}

// pack keeps what Git sends with a push that waits for a person. A person approves exactly these bytes, so
// nothing in them is hidden, as in what is pushed at once. A pack that another worker has kept of this attempt
// comes again with its report: it stays the same artifact.
func (k *keeper) pack(_ context.Context, content io.Reader) (output.Pack, error) {
	cfg := &k.manager.cfg
	row := store.Artifact{Type: event.ArtifactFile, Name: "push.pack", MediaType: store.PackType}
	kept, err := cfg.Store.Artifacts.KeepFile(k.ctx, k.lease, row, func(w io.Writer) error {
		_, err := io.Copy(&bounded{to: w, most: math.MaxInt64, watch: cfg.Disk}, content) // the gateway counts
		return err
	})
	if errors.Is(err, store.ErrFull) {
		err = noRoom
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	id := kept.ID
	for _, one := range k.again {
		if err == nil && one.MediaType == row.MediaType && one.Sum == kept.Sum {
			id = one.ID
		}
	}
	return output.Pack{Artifact: id.String(), SHA256: hex.EncodeToString(kept.Sum[:]), Bytes: kept.Size}, err
}

const noRoom = omitted("there is too little room on the disk of the server")

// bounded ends a file that grows too large, or for which there is no space. So artifacts
// never use the space that the store needs.
type bounded struct {
	to            io.Writer
	written, most int64
	over          omitted
	watch         *disk.Watch // nil: the space is not checked
	looked        int64       // 1 + bytes that were written at the last look
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.written+int64(len(p)) > b.most {
		return 0, b.over
	}
	if b.watch != nil && (b.looked == 0 || b.written-b.looked >= roomEvery) {
		b.looked = b.written + 1
		if s, err := b.watch.Look(disk.Data); err != nil || s.Level != disk.Enough || s.Free-s.Floor < 2*roomEvery {
			return 0, noRoom
		}
	}
	n, err := b.to.Write(p)
	b.written += int64(n)
	return n, err
}

// link keeps a link. Its type is the type of the page that it leads to.
func (k *keeper) link(a event.Artifact) (event.Artifact, error) {
	a.URL, a.Size, a.Type = k.hidden(a.URL), 0, event.ArtifactReference
	u, err := url.Parse(a.URL)
	switch {
	case err != nil, u.Scheme != "http" && u.Scheme != "https", u.Host == "", len(a.URL) > maxLink, !plainName(a.URL):
		a.Name, a.URL = event.Line(a.Name+" "+a.URL, 80), ""
		return a, omitted(fmt.Sprintf("it is no link by http or https of at most %d bytes", maxLink))
	case u.User != nil:
		a.URL = u.Redacted()
		return a, omitted("the link has a password in it")
	case k.count >= maxArtifacts:
		return a, omitted(fmt.Sprintf("a run can have %d artifacts", maxArtifacts))
	}
	if page := pullRequest.FindStringSubmatch(u.Path); page != nil && u.Fragment == "" { // a review or a comment has a fragment
		// The page is what deliveries tell of, whatever part of it the agent names.
		a.Type, a.URL = event.ArtifactPullRequest, (&url.URL{Scheme: u.Scheme, Host: strings.ToLower(u.Host), Path: page[1]}).String()
	}
	a.Name = event.Line(a.Name, maxArtifactName/4)
	if before, ok := k.links[a.URL]; ok {
		return before, nil
	}
	if before, ok := k.keptBefore(a); ok {
		return before, nil
	}
	kept, err := k.manager.cfg.Store.Artifacts.KeepLink(k.ctx, k.lease, store.Artifact{Type: a.Type, Name: a.Name, URL: a.URL})
	if errors.Is(err, store.ErrFull) {
		err = noRoom
	}
	if err == nil {
		k.count++
		a.ID = kept.ID.String()
		k.links[a.URL] = a
	}
	return a, err
}

// pullRequest matches the paths of pull requests of GitHub, Gitea and Forgejo, of
// Bitbucket and Azure DevOps, and of merge requests of GitLab. The first part is the page.
var pullRequest = regexp.MustCompile(`^(/.+?/(?:pull|pulls|pull-requests|pullrequest|-/merge_requests|merge_requests)/[0-9]+)(?:/.*)?$`)

// plainName tells whether a name is fit for a file and for a terminal.
func plainName(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.HasPrefix(name, "../") && !strings.Contains(name, `\`) &&
		!strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) })
}

// mediaType is the type of a file by its name, or else by its beginning.
func mediaType(name string, head []byte) string {
	switch strings.ToLower(path.Ext(name)) {
	case ".svg":
		return "image/svg+xml"
	case ".patch", ".diff":
		return "text/x-diff"
	case ".json":
		return "application/json"
	case ".md":
		return "text/markdown"
	}
	kind, _, _ := strings.Cut(http.DetectContentType(head), ";")
	return kind
}
