package server

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"

	"triphammer/server/access"
	"triphammer/server/api"
	"triphammer/server/store"
)

type contextKey int

const (
	localKey  contextKey = iota // the name of a local caller
	callerKey                   // the caller of a request that a page or a tool makes inside
)

// asLocal marks requests that come over the unix socket or from this process. Their caller
// owns the data directory, and may do everything.
func asLocal(next http.Handler, actor string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), localKey, actor)))
	})
}

// require refuses requests whose caller has none of the scopes.
func (s *Server) require(scopes ...string) gin.HandlerFunc {
	return func(c *gin.Context) {
		by, err := s.caller(c)
		if err == nil && !slices.ContainsFunc(scopes, by.May) {
			err = api.Refuse(api.NotAuthorized, "this needs a key with the scope "+strings.Join(scopes, " or "))
		}
		if err != nil {
			s.failWith(c, err)
			return
		}
		s.admit(c, by)
	}
}

// caller is the caller of a request to the API.
func (s *Server) caller(c *gin.Context) (*access.Caller, error) {
	if actor, ok := c.Request.Context().Value(localKey).(string); ok {
		return access.Local(actor), nil
	}
	if by, ok := c.Request.Context().Value(callerKey).(*access.Caller); ok {
		return by, nil
	}
	if values := c.Request.Header["Authorization"]; len(values) == 1 {
		word, token, _ := strings.Cut(values[0], " ")
		if strings.EqualFold(word, "Bearer") {
			by, err := s.cfg.Data.ByKey(c.Request.Context(), strings.TrimSpace(token))
			if !errors.Is(err, store.ErrKey) {
				return by, err
			}
		}
	}
	c.Header("WWW-Authenticate", `Bearer realm="triphammer"`)
	return nil, api.Refuse(api.AuthenticationRequired, "send Authorization: Bearer <API key>; make a key with: triphammer keys create NAME")
}
