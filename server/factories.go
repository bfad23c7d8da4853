package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"triphammer/applier"
	"triphammer/factory/signature"
	"triphammer/server/access"
	"triphammer/server/api"
	"triphammer/server/delivery"
	"triphammer/server/store"
)

// maxPush is the largest push notification that is read, in bytes. Nothing but
// its signature is looked at: the repository itself says what was pushed.
const maxPush = 8 << 20

// pushSchemes are how the services sign the notification of a push; the first
// whose signature is there counts. Gitea and Forgejo send that of GitHub too.
var pushSchemes = []string{"github", "gitlab_signed", "gitlab", "forgejo", "gitea", "standard_webhooks"}

// sync makes a factory look at its repository now. With a key: with ?wait=true it
// applies the head anew and answers with the apply, otherwise it only asks for a
// look. A signed push notification only asks, too.
func (s *Server) sync(c *gin.Context) {
	if scheme := pushScheme(c.Request); scheme != nil && c.Request.Header.Get("Authorization") == "" {
		if err := s.push(c, scheme); err != nil {
			s.failWith(c, err)
		}
		return
	}
	if s.require(store.ScopeManage)(c); !c.IsAborted() {
		serve(on(aFactory, s.look))(c)
	}
}

// look answers with the apply, if the caller waits for one.
func (s *Server) look(ctx context.Context, c *call, f access.Factory) (any, error) {
	if c.Query("wait") != "true" {
		f.Kick("push")
		c.audit("factory.sync", f.Name, f.Name, "")
		c.Status(http.StatusAccepted)
		return written{}, nil
	}
	done, err := c.apply(ctx, f, "command")
	if err != nil {
		return nil, err
	}
	c.audit("factory.apply", f.Name, f.Name, string(done.Outcome)+" "+done.Commit.Hash)
	return c.showDone(ctx, done)
}

// apply applies the head of a factory. It takes as long as it takes: reading a
// repository has its own limits.
func (c *call) apply(ctx context.Context, f access.Factory, trigger string) (*applier.Apply, error) {
	_ = http.NewResponseController(c.Writer).SetWriteDeadline(time.Time{})
	return f.Apply(ctx, trigger)
}

// showDone shows the record of an apply.
func (c *call) showDone(ctx context.Context, done *applier.Apply) (shown api.Apply, err error) {
	if done.ID == "" {
		return shown, api.Refuse(api.Unavailable, done.Error)
	}
	stored, err := c.Apply(ctx, done.ID, "")
	if err != nil {
		return shown, err
	}
	return showApply(stored.Apply), nil
}

// applied applies, and shows the record of that.
func (c *call) applied(ctx context.Context, f access.Factory, trigger string) (api.Apply, error) {
	done, err := c.apply(ctx, f, trigger)
	if err != nil {
		return api.Apply{}, err
	}
	return c.showDone(ctx, done)
}

// maxReason is the length of a pin's reason, in bytes.
const maxReason = 1000

// pin makes a commit that was applied before serve again, until it is unpinned
// or the time has come: what is pushed meanwhile waits.
func (s *Server) pin(ctx context.Context, c *call, f access.Factory) (shown api.Apply, err error) {
	req, err := body[api.PinRequest](c)
	if err != nil {
		return shown, err
	}
	now := s.cfg.Now()
	p := applier.Pin{Commit: req.Commit, Reason: strings.TrimSpace(req.Reason), By: c.Name, At: now}
	until := ""
	if req.Until != nil {
		p.Until = *req.Until
		until = " until " + p.Until.UTC().Format(time.RFC3339)
	}
	switch {
	case p.Reason == "" || len(p.Reason) > maxReason:
		return shown, refuse("reason", "", "a pin has a reason of up to %d bytes: others will ask", maxReason)
	case req.Until != nil && !p.Until.After(now):
		return shown, refuse("until", p.Until.Format(time.RFC3339), "until is in the past")
	case len(req.Commit) < 4:
		return shown, refuse("commit", req.Commit, "commit is at least the first 4 digits of a commit that was applied")
	}
	if p, err = f.SetPin(ctx, p); err != nil {
		return shown, err
	}
	c.audit("definition.pin", f.Name, f.Name, p.Commit+until+": "+p.Reason)
	return c.applied(ctx, f, "pin")
}

// unpin lets the branch rule again.
func (s *Server) unpin(ctx context.Context, c *call, f access.Factory) (shown api.Apply, err error) {
	p, err := f.Unpin(ctx)
	if err != nil {
		return shown, err
	}
	c.audit("definition.unpin", f.Name, f.Name, p.Commit)
	return c.applied(ctx, f, "unpin")
}

// listFiles lists the definition files of an apply, or with ?path= gives one.
func (s *Server) listFiles(ctx context.Context, c *call, a access.Apply) (shown api.ApplyFiles, err error) {
	r, err := a.Revision(ctx)
	if err != nil {
		return shown, err
	}
	files, err := a.Files(ctx)
	if err != nil {
		return shown, err
	}
	shown = api.ApplyFiles{ID: a.ID.String(), Commit: a.Commit, Files: []api.AppliedFile{}}
	path := c.Query("path")
	for _, f := range files {
		if path == "" || path == f.Path {
			one := api.AppliedFile{Path: f.Path, Blob: r.Definition.Blob(f.Path), Size: len(f.Data)}
			if path != "" {
				one.Content = string(f.Data)
			}
			shown.Files = append(shown.Files, one)
		}
	}
	if path != "" && len(shown.Files) == 0 {
		return shown, api.Refuse(api.NotFound, "the apply has no definition file "+path)
	}
	return shown, nil
}

// diffApplies plans the way from one apply to another.
func (s *Server) diffApplies(ctx context.Context, c *call) (shown api.ApplyDiff, err error) {
	var ends [2]access.Apply
	var revisions [2]*applier.Revision
	for i, id := range []string{c.Query("from"), c.Param("id")} {
		if id == "" {
			return shown, refuse("from", "", "from is the id of an apply, or a commit")
		}
		if ends[i], err = c.Apply(ctx, id, c.Query("factory")); err != nil {
			return shown, err
		}
		if revisions[i], err = ends[i].Revision(ctx); err != nil {
			return shown, err
		}
	}
	return api.ApplyDiff{
		From: ends[0].ID.String(), FromCommit: ends[0].Commit, To: ends[1].ID.String(), ToCommit: ends[1].Commit,
		Plan: applier.Diff(revisions[0], revisions[1]),
	}, nil
}

// pushScheme is how the request is signed, or nil.
func pushScheme(r *http.Request) *signature.Scheme {
	for _, name := range pushSchemes {
		scheme, _ := signature.Lookup(name)
		for _, form := range scheme.Forms {
			if r.Header.Get(form.Signature) != "" {
				return scheme
			}
		}
	}
	return nil
}

// push takes the notification of a service that knows the secret named by
// SyncSecrets. Nothing is read where nothing could be verified: of a factory that
// is unknown, or has no such secret, which is one answer. A notification changes
// nothing by itself, so there is no entry in the audit log.
func (s *Server) push(c *gin.Context, scheme *signature.Scheme) error {
	verifier, err := s.pushVerifier(c, scheme)
	if err != nil {
		return err
	}
	refused := api.Refuse(api.AuthenticationRequired, "the signature is not one of the secret that --sync-secret names")
	if verifier == nil {
		return refused
	}
	body := s.bodyOf(c, s.pushes)
	defer body.release()
	data, err := readWithin(c, body, maxPush)
	if err != nil {
		return err
	}
	request := signature.Request{Method: http.MethodPost, URL: s.cfg.BaseURL + c.Request.URL.RequestURI(), Header: c.Request.Header, Body: data, Now: s.cfg.Now()}
	if verifier.Verify(&request) != nil {
		if c.Request.ProtoMajor == 1 {
			c.Header("Connection", "close") // as where nothing was read
		}
		return refused
	}
	if name := c.Param("name"); !s.cfg.Data.Kick(name) {
		return api.Refuse(api.NotFound, "no factory is named "+name)
	}
	c.Status(http.StatusAccepted)
	return nil
}

// readWithin reads a body of at most limit bytes within its budget.
func readWithin(c *gin.Context, body *bodyReader, limit int64) ([]byte, error) {
	data, err := body.read(limit)
	broken := (*delivery.BodyError)(nil)
	switch {
	case err == nil:
		return data, nil
	case errors.Is(err, delivery.ErrTooLarge):
		return nil, api.Refuse(api.RequestTooLarge, fmt.Sprintf("at most %d bytes", limit))
	case errors.As(err, &broken):
		return nil, api.Refuse(api.RequestTimeout, broken.Reason+": "+broken.Detail)
	}
	c.Header("Retry-After", strconv.Itoa(delivery.BodyRetry))
	return nil, api.Refuse(api.Unavailable, "there is no memory for the body; try again")
}

// pushVerifier checks against the newest value of the secret; nil if there is
// none, or none that suits.
func (s *Server) pushVerifier(c *gin.Context, scheme *signature.Scheme) (*signature.Verifier, error) {
	name := s.cfg.SyncSecrets[c.Param("name")]
	if name == "" {
		return nil, nil
	}
	value, ok, err := s.cfg.Data.PushSecret(c.Request.Context(), name)
	if err != nil {
		return nil, err
	}
	if !ok {
		s.seldom.say("push "+name, func(times int) { // anybody can ask
			s.cfg.Logger.Warn("a push notification came, and the secret that --sync-secret names is not set", "secret", name, "times", times)
		})
		return nil, nil
	}
	verifier, err := scheme.Verifier(value)
	if err != nil {
		s.seldom.say("push "+name, func(times int) {
			s.cfg.Logger.Warn("a push notification came, and the secret that --sync-secret names does not suit its scheme", "secret", name, "scheme", scheme.Name, "times", times, "error", err)
		})
		return nil, nil
	}
	return verifier, nil
}
