package server

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"triphammer/server/api"

	"github.com/gin-gonic/gin"

	"triphammer/applier"
	"triphammer/factory/signature"
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
		s.push(c, scheme)
		return
	}
	s.require(store.ScopeManage)(c)
	if c.IsAborted() {
		return
	}
	a := s.applierOf(c)
	if a == nil {
		return
	}
	name := a.State().Factory
	if c.Query("wait") != "true" {
		a.Kick("push")
		s.audit(c, "factory.sync", name, name, "")
		c.Status(http.StatusAccepted)
		return
	}
	// An apply takes as long as it takes: reading a repository has its own limits.
	_ = http.NewResponseController(c.Writer).SetWriteDeadline(time.Time{})
	done, err := a.Apply(c.Request.Context(), "command")
	if err != nil {
		s.failWith(c, err)
		return
	}
	s.audit(c, "factory.apply", name, name, string(done.Outcome)+" "+done.Commit.Hash)
	s.answerApply(c, done)
}

// answerApply answers with the record of an apply.
func (s *Server) answerApply(c *gin.Context, done *applier.Apply) {
	if done.ID == "" {
		fail(c, api.Unavailable, done.Error)
		return
	}
	stored, err := byID(c, done.ID, s.cfg.Store.ApplyByID)
	if err != nil {
		s.failWith(c, err)
		return
	}
	c.JSON(http.StatusOK, showApply(stored))
}

// maxReason is the length of a pin's reason, in bytes.
const maxReason = 1000

// pin makes a commit that was applied before serve again, until it is unpinned
// or the time has come: what is pushed meanwhile waits.
func (s *Server) pin(c *gin.Context) {
	a := s.applierOf(c)
	if a == nil {
		return
	}
	body, ok := readRequest(c)
	if !ok {
		return
	}
	var req api.PinRequest
	if err := decode(body, &req); err != nil {
		s.failWith(c, err)
		return
	}
	now, name := s.cfg.Now(), a.State().Factory
	p := store.Pin{Reason: strings.TrimSpace(req.Reason), By: who(c).Name, At: now}
	if req.Until != nil {
		p.Until = *req.Until
	}
	switch {
	case p.Reason == "" || len(p.Reason) > maxReason:
		fail(c, api.InvalidRequest, fmt.Sprintf("a pin has a reason of up to %d bytes: others will ask", maxReason), api.FieldProblem{Field: "reason", Message: ""})
		return
	case req.Until != nil && !p.Until.After(now):
		fail(c, api.InvalidRequest, "until is in the past", api.FieldProblem{Field: "until", Message: p.Until.Format(time.RFC3339)})
		return
	case len(req.Commit) < 4:
		fail(c, api.InvalidRequest, "commit is at least the first 4 digits of a commit that was applied", api.FieldProblem{Field: "commit", Message: req.Commit})
		return
	}
	past, err := s.cfg.Store.AppliedCommit(c.Request.Context(), name, req.Commit)
	if err != nil {
		s.failWith(c, err)
		return
	}
	p.Commit = past.Commit
	if err := s.cfg.Store.SetPin(c.Request.Context(), name, p); err != nil {
		s.failWith(c, err)
		return
	}
	a.SetPin(&applier.Pin{Commit: p.Commit, Reason: p.Reason, By: p.By, At: p.At, Until: p.Until})
	until := ""
	if req.Until != nil {
		until = " until " + p.Until.UTC().Format(time.RFC3339)
	}
	s.audit(c, "definition.pin", name, name, p.Commit+until+": "+p.Reason)
	s.applyPinned(c, a, "pin")
}

// unpin lets the branch rule again.
func (s *Server) unpin(c *gin.Context) {
	a := s.applierOf(c)
	if a == nil {
		return
	}
	name := a.State().Factory
	p, err := s.cfg.Store.PinOf(c.Request.Context(), name)
	if err == nil {
		err = s.cfg.Store.DeletePin(c.Request.Context(), name)
	}
	if err != nil {
		s.failWith(c, err)
		return
	}
	a.SetPin(nil)
	s.audit(c, "definition.unpin", name, name, p.Commit)
	s.applyPinned(c, a, "unpin")
}

func (s *Server) applyPinned(c *gin.Context, a *applier.Applier, trigger string) {
	_ = http.NewResponseController(c.Writer).SetWriteDeadline(time.Time{}) // as in sync
	done, err := a.Apply(c.Request.Context(), trigger)
	if err != nil {
		s.failWith(c, err)
		return
	}
	s.answerApply(c, done)
}

// applyOf finds the apply of the path, by its id or as the newest that made a
// commit live, or answers that there is none.
func (s *Server) applyOf(c *gin.Context, id string) *store.Apply {
	var a *store.Apply
	var err error
	if strings.HasPrefix(id, "apl_") {
		a, err = byID(c, id, s.cfg.Store.ApplyByID)
	} else if a, err = s.cfg.Store.AppliedCommit(c.Request.Context(), cmp.Or(who(c).Factory, c.Query("factory")), id); err == nil {
		a, err = s.cfg.Store.ApplyByID(c.Request.Context(), a.ID) // with its bindings
	}
	if err == nil && !who(c).mayTouch(a.Factory) {
		err = fmt.Errorf("apply %s: %w", id, store.ErrNotFound)
	}
	if err != nil {
		s.failWith(c, err)
		return nil
	}
	return a
}

// revisionOf rebuilds what an apply made live, or answers why not.
func (s *Server) revisionOf(c *gin.Context, a *store.Apply) *applier.Revision {
	if a.Outcome != string(applier.Applied) {
		fail(c, api.Conflict, "apply "+a.ID.String()+" was "+a.Outcome+": it made nothing live")
		return nil
	}
	r, err := s.cfg.Load(c.Request.Context(), a.ID)
	if err != nil {
		s.failWith(c, err)
		return nil
	}
	return r
}

// listFiles lists the definition files of an apply, or with ?path= gives one.
func (s *Server) listFiles(c *gin.Context) {
	a := s.applyOf(c, c.Param("id"))
	if a == nil {
		return
	}
	r := s.revisionOf(c, a)
	if r == nil {
		return
	}
	files, err := s.cfg.Store.ApplyFiles(c.Request.Context(), a.ID)
	if err != nil {
		s.failWith(c, err)
		return
	}
	shown := []api.AppliedFile{}
	for _, f := range files {
		if path := c.Query("path"); path == "" || path == f.Path {
			one := api.AppliedFile{Path: f.Path, Blob: r.Definition.Blob(f.Path), Size: len(f.Data)}
			if path != "" {
				one.Content = string(f.Data)
			}
			shown = append(shown, one)
		}
	}
	if c.Query("path") != "" && len(shown) == 0 {
		fail(c, api.NotFound, "the apply has no definition file "+c.Query("path"))
		return
	}
	c.JSON(http.StatusOK, api.ApplyFiles{ID: a.ID.String(), Commit: a.Commit, Files: shown})
}

// diffApplies plans the way from one apply to another.
func (s *Server) diffApplies(c *gin.Context) {
	var ends [2]*store.Apply
	var revisions [2]*applier.Revision
	for i, id := range []string{c.Query("from"), c.Param("id")} {
		if id == "" {
			fail(c, api.InvalidRequest, "from is the id of an apply, or a commit", api.FieldProblem{Field: "from", Message: ""})
			return
		}
		if ends[i] = s.applyOf(c, id); ends[i] == nil {
			return
		}
		if revisions[i] = s.revisionOf(c, ends[i]); revisions[i] == nil {
			return
		}
	}
	c.JSON(http.StatusOK, api.ApplyDiff{From: ends[0].ID.String(), FromCommit: ends[0].Commit, To: ends[1].ID.String(), ToCommit: ends[1].Commit, Plan: applier.Diff(revisions[0], revisions[1])})
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
func (s *Server) push(c *gin.Context, scheme *signature.Scheme) {
	verifier, err := s.pushVerifier(c, scheme)
	if err != nil {
		s.failWith(c, err)
		return
	}
	const refused = "the signature is not one of the secret that --sync-secret names"
	if verifier == nil {
		fail(c, api.AuthenticationRequired, refused)
		return
	}
	body := s.bodyOf(c, s.pushes)
	defer body.release()
	data, ok := readWithin(c, body, maxPush)
	if !ok {
		return
	}
	request := signature.Request{Method: http.MethodPost, URL: s.cfg.BaseURL + c.Request.URL.RequestURI(), Header: c.Request.Header, Body: data, Now: s.cfg.Now()}
	if verifier.Verify(&request) != nil {
		if c.Request.ProtoMajor == 1 {
			c.Header("Connection", "close") // as where nothing was read
		}
		fail(c, api.AuthenticationRequired, refused)
		return
	}
	for _, a := range s.cfg.Appliers {
		if a.State().Factory == c.Param("name") {
			a.Kick("push")
			c.Status(http.StatusAccepted)
			return
		}
	}
	fail(c, api.NotFound, "no factory is named "+c.Param("name"))
}

// readWithin reads a body of at most limit bytes within its budget, or answers why
// not.
func readWithin(c *gin.Context, body *bodyReader, limit int64) ([]byte, bool) {
	data, err := body.read(limit)
	broken := (*delivery.BodyError)(nil)
	switch {
	case err == nil:
		return data, true
	case errors.Is(err, delivery.ErrTooLarge):
		fail(c, api.RequestTooLarge, fmt.Sprintf("at most %d bytes", limit))
	case errors.As(err, &broken):
		fail(c, api.RequestTimeout, broken.Reason+": "+broken.Detail)
	default:
		c.Header("Retry-After", strconv.Itoa(delivery.BodyRetry))
		fail(c, api.Unavailable, "there is no memory for the body; try again")
	}
	return nil, false
}

// pushVerifier checks against the newest value of the secret; nil if there is
// none, or none that suits.
func (s *Server) pushVerifier(c *gin.Context, scheme *signature.Scheme) (*signature.Verifier, error) {
	name := s.cfg.SyncSecrets[c.Param("name")]
	if name == "" {
		return nil, nil
	}
	values, err := s.cfg.Store.NewestSecrets(c.Request.Context(), []string{name})
	if err != nil {
		return nil, err
	}
	value, ok := values[name]
	if !ok {
		s.seldom.say("push "+name, func(times int) { // anybody can ask
			s.cfg.Logger.Warn("a push notification came, and the secret that --sync-secret names is not set", "secret", name, "times", times)
		})
		return nil, nil
	}
	verifier, err := scheme.Verifier(value.Value.Reveal())
	if err != nil {
		s.seldom.say("push "+name, func(times int) {
			s.cfg.Logger.Warn("a push notification came, and the secret that --sync-secret names does not suit its scheme", "secret", name, "scheme", scheme.Name, "times", times, "error", err)
		})
		return nil, nil
	}
	return verifier, nil
}
