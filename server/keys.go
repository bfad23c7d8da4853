package server

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"time"

	"triphammer/server/api"

	"github.com/gin-gonic/gin"

	"triphammer/schema"
	"triphammer/server/store"
)

var scopes = []string{store.ScopeRuns, store.ScopeManage, store.ScopeRead}

func (s *Server) listKeys(c *gin.Context) {
	if !forAll(c) {
		return
	}
	keys, err := s.cfg.Store.Keys(c.Request.Context())
	if err != nil {
		s.failWith(c, err)
		return
	}
	all := make([]api.Key, len(keys))
	for i, k := range keys {
		all[i] = showKey(k)
	}
	c.JSON(http.StatusOK, gin.H{"keys": all, "page_info": api.PageInfo{}})
}

func showKey(k *store.Key) api.Key {
	return api.Key{
		ID: k.ID.String(), Name: k.Name, Kind: k.Kind, Owner: k.Owner, Scopes: k.Scopes, Factory: k.Factory, CreatedAt: k.CreatedAt,
		ExpiresAt: api.Time(k.ExpiresAt), RevokedAt: api.Time(k.RevokedAt), LastUsedAt: api.Time(k.LastUsedAt),
	}
}

// createKey makes a key and shows it, once (SPEC 10.2).
func (s *Server) createKey(c *gin.Context) {
	if !forAll(c) {
		return
	}
	body, ok := readRequest(c)
	if !ok {
		return
	}
	var req api.CreateKey
	if err := decode(body, &req); err != nil {
		s.failWith(c, err)
		return
	}
	k := store.Key{Name: req.Name, Kind: store.KeyPersonal, Owner: cmp.Or(req.Owner, who(c).Owner), Scopes: req.Scopes, Factory: req.Factory}
	if req.Agent != "" {
		k.Kind, k.Owner = store.KeyAgent, req.Agent
	}
	if len(k.Scopes) == 0 {
		k.Scopes = []string{store.ScopeRuns}
	}
	if req.ExpiresSeconds > 0 {
		k.ExpiresAt = s.cfg.Store.Latest().Add(time.Duration(req.ExpiresSeconds) * time.Second)
	}
	if problem, ok := checkKey(k, req); !ok {
		fail(c, api.InvalidRequest, problem.Message, problem)
		return
	}
	if problem, ok := s.checkAgent(req); !ok {
		fail(c, api.InvalidRequest, problem.Message, problem)
		return
	}
	made, token, err := s.cfg.Store.CreateKey(c.Request.Context(), k)
	if err != nil {
		s.failWith(c, err)
		return
	}
	s.audit(c, "key.create", made.Name, made.Factory, fmt.Sprintf("%s of %s, scopes %v", made.Kind, made.Owner, made.Scopes))
	shown := showKey(made)
	shown.Key = token.Reveal()
	c.JSON(http.StatusCreated, shown)
}

func checkKey(k store.Key, req api.CreateKey) (api.FieldProblem, bool) {
	switch {
	case k.Name == "" || len(k.Name) > 100:
		return api.FieldProblem{Field: "name", Message: "a key needs a name of at most 100 bytes"}, false
	case req.Agent != "" && req.Owner != "":
		return api.FieldProblem{Field: "owner", Message: "a key belongs to a person or to an agent, not to both"}, false
	case req.ExpiresSeconds < 0:
		return api.FieldProblem{Field: "expires_seconds", Message: "a key cannot expire in the past"}, false
	}
	for _, scope := range k.Scopes {
		if !slices.Contains(scopes, scope) {
			return api.FieldProblem{Field: "scopes", Message: fmt.Sprintf("%q is no scope: they are runs, manage, read", scope)}, false
		}
	}
	return api.FieldProblem{}, true
}

// checkAgent refuses a key for an agent that no definition has. While a factory
// serves nothing, nobody can say which agents it has: then any name will do.
func (s *Server) checkAgent(req api.CreateKey) (api.FieldProblem, bool) {
	if req.Agent == "" {
		return api.FieldProblem{}, true
	}
	var known []string
	live := 0
	for _, r := range s.cfg.Live.Revisions() {
		if req.Factory != "" && r.Factory != req.Factory {
			continue
		}
		live++
		for _, a := range r.Definition.Agents {
			known = append(known, a.Name)
		}
	}
	served := 0
	for _, a := range s.cfg.Appliers {
		if req.Factory == "" || a.State().Factory == req.Factory {
			served++
		}
	}
	if live == 0 || live < served || slices.Contains(known, req.Agent) {
		return api.FieldProblem{}, true
	}
	hint := "the definitions have no agent"
	if len(known) > 0 {
		hint = schema.OneOf(req.Agent, known)
	}
	message := fmt.Sprintf("no agent is named %q", req.Agent)
	if hint != "" {
		message += ": " + hint
	}
	return api.FieldProblem{Field: "agent", Message: message}, false
}

// revokeKey ends a key at once, and what hangs on it: its open streams, the
// sessions and links that were made with it, and its schedules.
func (s *Server) revokeKey(c *gin.Context) {
	if !forAll(c) {
		return
	}
	k, ended, err := s.cfg.Store.RevokeKey(c.Request.Context(), c.Param("name"))
	if err != nil {
		s.failWith(c, err)
		return
	}
	s.streams.revoke(k.ID)
	s.audit(c, "key.revoke", k.Name, k.Factory, fmt.Sprintf("ended %d sessions and %d links, paused %d schedules", ended.Sessions, ended.LoginLinks, ended.Schedules))
	shown := showKey(k)
	shown.Ended = &api.Ended{Sessions: ended.Sessions, LoginLinks: ended.LoginLinks, Schedules: ended.Schedules}
	c.JSON(http.StatusOK, shown)
}

func (s *Server) listAudit(c *gin.Context) {
	limit, ok := limitOf(c)
	if !ok || !forAll(c) {
		return
	}
	cursor, ok := cursorOf[store.AuditEntry](c)
	if !ok {
		return
	}
	entries, err := s.cfg.Store.AuditLog(c.Request.Context(), cursor, limit+1)
	if err != nil {
		s.failWith(c, err)
		return
	}
	entries, info := page(entries, limit, func(e store.AuditEntry) string { return e.ID.String() })
	all := make([]api.AuditEntry, len(entries))
	for i, e := range entries {
		all[i] = api.AuditEntry{ID: e.ID.String(), At: e.At, Actor: e.Actor, Action: e.Action, Object: e.Object, Factory: e.Factory, Details: e.Details, From: e.Origin}
	}
	c.JSON(http.StatusOK, gin.H{"entries": all, "page_info": info})
}
