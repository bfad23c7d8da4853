package server

import (
	"fmt"
	"net/http"
	"slices"
	"time"

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
	all := make([]Key, len(keys))
	for i, k := range keys {
		all[i] = showKey(k)
	}
	c.JSON(http.StatusOK, gin.H{"keys": all, "page_info": PageInfo{}})
}

func showKey(k *store.Key) Key {
	return Key{
		ID: k.ID, Name: k.Name, Kind: k.Kind, Owner: k.Owner, Scopes: k.Scopes, Factory: k.Factory, CreatedAt: k.CreatedAt,
		ExpiresAt: optional(k.ExpiresAt), RevokedAt: optional(k.RevokedAt), LastUsedAt: optional(k.LastUsedAt),
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
	var req CreateKey
	if err := decode(body, &req); err != nil {
		s.failWith(c, err)
		return
	}
	k := store.Key{Name: req.Name, Kind: store.KeyPersonal, Owner: firstOf(req.Owner, who(c).Owner), Scopes: req.Scopes, Factory: req.Factory}
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
		fail(c, "invalid-request", problem.Message, problem)
		return
	}
	if problem, ok := s.checkAgent(req); !ok {
		fail(c, "invalid-request", problem.Message, problem)
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

func checkKey(k store.Key, req CreateKey) (FieldProblem, bool) {
	switch {
	case k.Name == "" || len(k.Name) > 100:
		return FieldProblem{"name", "a key needs a name of at most 100 bytes"}, false
	case req.Agent != "" && req.Owner != "":
		return FieldProblem{"owner", "a key belongs to a person or to an agent, not to both"}, false
	case req.ExpiresSeconds < 0:
		return FieldProblem{"expires_seconds", "a key cannot expire in the past"}, false
	}
	for _, scope := range k.Scopes {
		if !slices.Contains(scopes, scope) {
			return FieldProblem{"scopes", fmt.Sprintf("%q is no scope: they are runs, manage, read", scope)}, false
		}
	}
	return FieldProblem{}, true
}

// checkAgent refuses a key for an agent that no definition has. While a factory
// serves nothing, nobody can say which agents it has: then any name will do.
func (s *Server) checkAgent(req CreateKey) (FieldProblem, bool) {
	if req.Agent == "" {
		return FieldProblem{}, true
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
		return FieldProblem{}, true
	}
	hint := "the definitions have no agent"
	if len(known) > 0 {
		hint = schema.OneOf(req.Agent, known)
	}
	message := fmt.Sprintf("no agent is named %q", req.Agent)
	if hint != "" {
		message += ": " + hint
	}
	return FieldProblem{"agent", message}, false
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
	shown.Ended = &Ended{ended.Sessions, ended.LoginLinks, ended.Schedules}
	c.JSON(http.StatusOK, shown)
}

func (s *Server) listAudit(c *gin.Context) {
	limit, ok := limitOf(c)
	if !ok || !forAll(c) || !goodCursor(c, "aud") {
		return
	}
	entries, err := s.cfg.Store.AuditLog(c.Request.Context(), c.Query("cursor"), limit+1)
	if err != nil {
		s.failWith(c, err)
		return
	}
	entries, info := page(entries, limit, func(e store.AuditEntry) string { return e.ID })
	all := make([]AuditEntry, len(entries))
	for i, e := range entries {
		all[i] = AuditEntry{e.ID, e.At, e.Actor, e.Action, e.Object, e.Factory, e.Details, e.Origin}
	}
	c.JSON(http.StatusOK, gin.H{"entries": all, "page_info": info})
}
