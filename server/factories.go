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
	"triphammer/server/bodies"
	"triphammer/server/delivery"
	"triphammer/server/store"
)

// maxPush is the largest push notification that is read, in bytes. Only its signature is
// used. What was pushed is read from the repository.
const maxPush = 8 << 20

// pushSchemes are the schemes with which services sign push notifications. The first one
// whose headers the request has is used. Gitea and Forgejo also send those of GitHub.
var pushSchemes = []string{"github", "gitlab_signed", "gitlab", "forgejo", "gitea", "standard_webhooks"}

// sync makes a factory look at its repository now. With a key and ?wait=true, it applies
// the head and answers with the apply. Otherwise, and for a signed push notification, it
// only asks for a look.
func (s *Server) sync(c *gin.Context) {
	if scheme := pushScheme(c.Request); scheme != nil && c.Request.Header.Get("Authorization") == "" {
		if err := s.push(c, scheme); err != nil {
			s.failWith(c, err)
		}
		return
	}
	if s.require(store.ScopeOperate)(c); !c.IsAborted() {
		serve(on(aFactory, s.look))(c)
	}
}

// look applies the head and answers with the apply if the request has ?wait=true.
// Otherwise it only asks for a look.
func (s *Server) look(ctx context.Context, c *call, f access.Factory) (any, error) {
	if c.Query("wait") != "true" {
		f.Kick("push")
		c.audit("factory.sync", f.Name, f.Name, "")
		c.Status(http.StatusAccepted)
		return written{}, nil
	}
	trigger := "command"
	if c.SessionID != 0 {
		trigger = "dashboard"
	}
	done, err := c.apply(ctx, f, trigger)
	if err != nil {
		return nil, err
	}
	c.audit("factory.apply", f.Name, f.Name, string(done.Outcome)+" "+done.Commit.Hash)
	return c.showDone(ctx, done)
}

// apply applies the head of a factory. The answer has no deadline, because reading a
// repository has its own limits.
func (c *call) apply(ctx context.Context, f access.Factory, trigger string) (*applier.Apply, error) {
	_ = http.NewResponseController(c.Writer).SetWriteDeadline(time.Time{})
	return f.Apply(ctx, trigger)
}

// showDone reads the record of an apply for the answer.
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

// applied applies the head, and reads the record of the apply for the answer.
func (c *call) applied(ctx context.Context, f access.Factory, trigger string) (api.Apply, error) {
	done, err := c.apply(ctx, f, trigger)
	if err != nil {
		return api.Apply{}, err
	}
	return c.showDone(ctx, done)
}

// maxReason is the largest length of the reason of a pin, in bytes.
const maxReason = 1000

// pin makes a commit that was applied before serve again, until it is unpinned or the pin
// expires. Commits that are pushed meanwhile wait.
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
		return shown, refuse("reason", "", "reason is required, of up to %d bytes: say why, for whoever finds the pin", maxReason)
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

// unpin makes the factory follow its branch again.
func (s *Server) unpin(ctx context.Context, c *call, f access.Factory) (shown api.Apply, err error) {
	p, err := f.Unpin(ctx)
	if err != nil {
		return shown, err
	}
	c.audit("definition.unpin", f.Name, f.Name, p.Commit)
	return c.applied(ctx, f, "unpin")
}

// listFiles lists the definition files of an apply. With ?path= it answers with one file.
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
			one := api.AppliedFile{Path: f.Path, Blob: r.Definition.Blob(f.Path), Size: len(f.Data), Executable: f.Executable}
			if path != "" {
				one.Content, one.Encoding = api.EncodeContent(f.Data)
			}
			shown.Files = append(shown.Files, one)
		}
	}
	if path != "" && len(shown.Files) == 0 {
		return shown, api.Refuse(api.NotFound, "the apply has no definition file "+path)
	}
	return shown, nil
}

// diffApplies answers with the plan from one apply to another.
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

// pushScheme is the scheme with which the request is signed; nil if it is not signed.
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

// push takes a notification that is signed with the secret in SyncSecrets. If the factory
// is unknown or has no such secret, the body is not read, and the answer is the same in
// both cases. A notification changes no state itself, so it is not in the audit log.
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
	defer body.Release()
	data, err := readWithin(c, body, maxPush)
	if err != nil {
		return err
	}
	request := signature.Request{
		Method: http.MethodPost, URL: s.cfg.BaseURL + c.Request.URL.RequestURI(), Header: c.Request.Header, Body: data, Now: s.cfg.Now(),
	}
	if verifier.Verify(&request) != nil {
		if c.Request.ProtoMajor == 1 {
			c.Header("Connection", "close") // the same as if the body was not read
		}
		return refused
	}
	if name := c.Param("name"); !s.cfg.Data.Kick(name) {
		return api.Refuse(api.NotFound, "no factory is named "+name)
	}
	c.Status(http.StatusAccepted)
	return nil
}

// readWithin reads a body of at most limit bytes within its budget. Its error is a Refusal.
func readWithin(c *gin.Context, body *bodies.Reader, limit int64) ([]byte, error) {
	data, err := body.Read(limit)
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

// pushVerifier makes a verifier with the newest value of the secret; nil if there is no
// suitable value.
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
		s.seldom.say("push "+name, func(times int) { // anybody can cause this line
			s.cfg.Logger.Warn("a push notification came, and the secret that --sync-secret names is not set", "secret", name, "times", times)
		})
		return nil, nil
	}
	verifier, err := scheme.Verifier(value)
	if err != nil {
		s.seldom.say("push "+name, func(times int) {
			s.cfg.Logger.Warn("a push notification came, and the secret that --sync-secret names does not suit its scheme",
				"secret", name, "scheme", scheme.Name, "times", times, "error", err)
		})
		return nil, nil
	}
	return verifier, nil
}
