package server

import (
	"errors"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

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
	if done.ID == "" {
		fail(c, "resource-unavailable", done.Error)
		return
	}
	stored, err := s.cfg.Store.ApplyByID(c.Request.Context(), done.ID)
	if err != nil {
		s.failWith(c, err)
		return
	}
	c.JSON(http.StatusOK, showApply(stored))
}

// pushScheme is how the request is signed, or nil.
func pushScheme(r *http.Request) *signature.Scheme {
	for _, name := range pushSchemes {
		scheme, ok := signature.Lookup(name)
		if !ok {
			continue
		}
		for _, form := range scheme.Forms {
			if r.Header.Get(form.Signature) != "" {
				return scheme
			}
		}
	}
	return nil
}

// push takes the notification of a service that knows the secret named by
// SyncSecret. Whoever does not know it learns nothing, not even whether there is
// such a factory. A notification changes nothing by itself, so there is no entry
// in the audit log.
func (s *Server) push(c *gin.Context, scheme *signature.Scheme) {
	body := bodyReader{c: c, budget: s.strangers, patience: s.patience}
	defer body.release()
	_ = http.NewResponseController(c.Writer).SetReadDeadline(time.Now().Add(s.bodyTime))
	data, err := body.read(maxPush)
	switch {
	case errors.Is(err, delivery.ErrTooLarge):
		c.Header("Connection", "close")
		fail(c, "request-too-large", "")
		return
	case err != nil:
		c.Header("Connection", "close")
		fail(c, "resource-unavailable", "the body could not be read; try again")
		return
	}
	verifier, err := s.pushVerifier(c, scheme)
	if err != nil {
		s.failWith(c, err)
		return
	}
	request := signature.Request{Method: http.MethodPost, URL: s.cfg.BaseURL + c.Request.URL.RequestURI(), Header: c.Request.Header, Body: data, Now: s.cfg.Now()}
	if verifier == nil || verifier.Verify(&request) != nil {
		fail(c, "authentication-required", "the signature is not one of the secret that --sync-secret names")
		return
	}
	for _, a := range s.cfg.Appliers {
		if a.State().Factory == c.Param("name") {
			a.Kick("push")
			c.Status(http.StatusAccepted)
			return
		}
	}
	fail(c, "resource-not-found", "no factory is named "+c.Param("name"))
}

// pushVerifier checks against the newest value of the secret; nil if there is
// none, or none that suits.
func (s *Server) pushVerifier(c *gin.Context, scheme *signature.Scheme) (*signature.Verifier, error) {
	name := s.cfg.SyncSecret
	if name == "" {
		return nil, nil
	}
	values, err := s.cfg.Store.NewestSecrets(c.Request.Context(), []string{name})
	if err != nil {
		return nil, err
	}
	value, ok := values[name]
	if !ok {
		s.cfg.Logger.Warn("a push notification came, and the secret that --sync-secret names is not set", "secret", name)
		return nil, nil
	}
	verifier, err := scheme.Verifier(value.Value.Reveal())
	if err != nil {
		s.cfg.Logger.Warn("a push notification came, and the secret that --sync-secret names does not suit its scheme", "secret", name, "scheme", scheme.Name, "error", err)
		return nil, nil
	}
	return verifier, nil
}
