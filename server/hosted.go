package server

import (
	"errors"
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"

	"triphammer/server/access"
	"triphammer/server/api"
	"triphammer/server/hosted"
	"triphammer/server/listen"
	"triphammer/server/store"
)

// repositories is the path below which hosted repositories are cloned and pushed to.
const repositories = "/git/"

// HostedURL is the address at which a hosted factory is cloned.
func HostedURL(baseURL, factory string) string { return baseURL + repositories + factory + ".git" }

// refs and service answer Git (gitprotocol-http(5)).
func (s *Server) refs(c *gin.Context) { s.git(c, c.Query("service"), "/info/refs") }

func (s *Server) service(name string) gin.HandlerFunc {
	return func(c *gin.Context) { s.git(c, name, "/"+name) }
}

// git answers Git about a hosted repository. The password is an API key, whose scope read is
// enough to clone, and manage to push; the user name is of no account.
func (s *Server) git(c *gin.Context, service, path string) {
	by, err := s.gitCaller(c)
	if err != nil {
		c.Header("WWW-Authenticate", `Basic realm="triphammer"`)
		s.plain(c, err)
		return
	}
	name := strings.TrimSuffix(c.Param("repository"), ".git")
	scope := map[bool]string{true: store.ScopeManage, false: store.ScopeRead}[service == hosted.Push]
	repository := s.cfg.Place(name).Home
	switch {
	case !by.May(scope):
		err = api.Refuse(api.NotAuthorized, "this key may not do that: it takes one with the scope "+scope+" (triphammer keys create NAME --scope "+scope+")")
	case repository == nil || !by.Touches(name):
		err = api.Refuse(api.NotFound, "this server hosts no factory "+name+", or the key is not for it")
	case service != hosted.Push && service != hosted.Fetch:
		err = api.Refuse(api.InvalidRequest, "this server speaks the smart HTTP protocol of Git, which every current version has")
	}
	if err != nil {
		s.plain(c, err)
		return
	}
	listen.ReadElsewhere(c.Request) // git reads it
	call := s.admit(c, by)
	pushed := repository.Serve(c.Writer, c.Request, hosted.Visit{Path: path, Person: by.Owner, Logger: s.cfg.Logger})
	for _, p := range pushed {
		what := strings.TrimPrefix(p.Ref, "refs/heads/") + " " + p.Commit
		if p.Moved {
			call.audit("factory.push", name, name, what)
			continue
		}
		call.audit("factory.push_refused", name, name, what)
		s.cfg.Logger.Info("a push was refused; the person who pushed was told why", "factory", name, "ref", p.Ref, "commit", p.Commit, "by", by.Name)
	}
}

// gitCaller is the caller of a request of Git, which shows its key as a password.
func (s *Server) gitCaller(c *gin.Context) (*access.Caller, error) {
	_, key, ok := c.Request.BasicAuth()
	if !ok {
		return s.caller(c)
	}
	by, err := s.cfg.Data.ByKey(c.Request.Context(), key)
	if errors.Is(err, store.ErrKey) {
		return nil, api.Refuse(api.AuthenticationRequired, "the password is an API key of this server; make one with: triphammer keys create NAME --scope read")
	}
	return by, err
}

// plain answers with the text of an error, which Git shows to the person.
func (s *Server) plain(c *gin.Context, err error) {
	status, text := http.StatusInternalServerError, "internal error"
	if refusal := (*api.Refusal)(nil); errors.As(err, &refusal) {
		status, text = api.NewProblem(refusal.Code, "").Status, refusal.Detail
	} else {
		s.cfg.Logger.Error("a request of git failed", "error", err)
	}
	c.Abort()
	c.String(status, "%s\n", text)
}
