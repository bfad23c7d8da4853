package server

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"triphammer/server/api"

	"github.com/gin-gonic/gin"

	"triphammer/server/run"
	"triphammer/server/store"
)

// Principal is who makes a request.
type Principal struct {
	Name    string      // such as "key ci (ada)" or "local ada": for the audit log
	Kind    string      // personal, agent, local
	KeyID   store.KeyID // of an API key: names are used again, ids are not
	Owner   string      // whose runs its runs are
	Scopes  []string
	Factory string // the only one it may touch, or empty
	Expires time.Time
}

// may tells whether the scopes cover one: manage covers everything, runs and
// read what they say (SPEC 10.2).
func (p *Principal) may(scope string) bool {
	return slices.Contains(p.Scopes, store.ScopeManage) || slices.Contains(p.Scopes, scope)
}

// creator is what the runs and schedules that it makes name as theirs.
func (p *Principal) creator() (kind, name string) {
	if p.Kind == store.KeyAgent {
		return "agent", p.Owner
	}
	return "user", p.Owner
}

// caller is who asks for its runs.
func (p *Principal) caller() run.Caller {
	kind, name := p.creator()
	return run.Caller{CreatorKind: kind, CreatorName: name, Factory: p.Factory}
}

// owns tells whether it made a schedule: with this key, or with another one of
// the same person or agent.
func (p *Principal) owns(n *store.Schedule) bool {
	kind, name := p.creator()
	return n.CreatorKind == kind && n.CreatorName == name
}

// mayTouch tells whether the key reaches a factory.
func (p *Principal) mayTouch(factory string) bool { return p.Factory == "" || p.Factory == factory }

type contextKey int

const (
	localKey contextKey = iota // who is local
	connKey                    // the connection
)

// asLocal marks requests that come over the unix socket or from this process:
// whoever can open those owns the data directory, and may do everything.
func asLocal(next http.Handler, actor string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), localKey, actor)))
	})
}

const principalKey = "principal"

// require lets requests pass that have one of the scopes.
func (s *Server) require(scopes ...string) gin.HandlerFunc {
	return func(c *gin.Context) {
		p, ok := s.principal(c)
		if !ok {
			return
		}
		if !slices.ContainsFunc(scopes, p.may) {
			fail(c, api.NotAuthorized, "this needs a key with the scope "+strings.Join(scopes, " or "))
			return
		}
		c.Set(principalKey, p)
	}
}

func (s *Server) principal(c *gin.Context) (*Principal, bool) {
	if actor, ok := c.Request.Context().Value(localKey).(string); ok {
		return &Principal{Name: "local " + actor, Kind: "local", Owner: actor, Scopes: []string{store.ScopeManage}}, true
	}
	values := c.Request.Header["Authorization"]
	if len(values) == 1 {
		word, token, _ := strings.Cut(values[0], " ")
		if strings.EqualFold(word, "Bearer") {
			key, err := s.cfg.Store.KeyByToken(c.Request.Context(), strings.TrimSpace(token))
			if err == nil {
				return &Principal{
					Name: "key " + key.Name + " (" + key.Owner + ")", Kind: key.Kind, KeyID: key.ID,
					Owner: key.Owner, Scopes: key.Scopes, Factory: key.Factory, Expires: key.ExpiresAt,
				}, true
			}
			if !errors.Is(err, store.ErrKey) {
				s.failWith(c, err)
				return nil, false
			}
		}
	}
	c.Header("WWW-Authenticate", `Bearer realm="triphammer"`)
	fail(c, api.AuthenticationRequired, "send Authorization: Bearer <API key>; make a key with: triphammer keys create NAME")
	return nil, false
}

// factoryOf is the factory that a list is asked for; a key of one factory sees
// that one. It answers requests for another.
func factoryOf(c *gin.Context) (factory string, ok bool) {
	asked, only := c.Query("factory"), who(c).Factory
	if asked != "" && !who(c).mayTouch(asked) {
		fail(c, api.NotAuthorized, "the key is for another factory", api.FieldProblem{Field: "factory", Message: asked})
		return "", false
	}
	return cmp.Or(only, asked), true
}

func who(c *gin.Context) *Principal { return c.MustGet(principalKey).(*Principal) }

// audit notes a change of state (SPEC 10.4). The change has happened: a failure
// to note it is logged, not answered.
func (s *Server) audit(c *gin.Context, action, object, factory, details string) {
	origin := c.ClientIP()
	if who(c).Kind == "local" {
		origin = "local"
	}
	err := s.cfg.Store.Audit(context.WithoutCancel(c.Request.Context()), store.AuditEntry{
		Actor: who(c).Name, Action: action, Object: object, Factory: factory, Details: details, Origin: origin,
	})
	if err != nil {
		s.cfg.Logger.Error("the audit log could not be written", "action", action, "object", object, "error", err)
	}
}
