package server

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"triphammer/schema"
	"triphammer/server/access"
	"triphammer/server/api"
	"triphammer/server/store"
	"triphammer/server/terms"
)

func (s *Server) listKeys(ctx context.Context, _ *call, all *store.Store) (api.List[api.Key], error) {
	keys, err := all.Keys.List(ctx)
	return listOf(keys, showKey), err
}

func showKey(k *store.Key) api.Key {
	return api.Key{
		ID: k.ID.String(), Name: k.Name, Kind: k.Kind, Owner: k.Owner, Scopes: k.Scopes, Factory: k.Factory, CreatedAt: k.CreatedAt,
		ExpiresAt: api.Time(k.ExpiresAt), RevokedAt: api.Time(k.RevokedAt), LastUsedAt: api.Time(k.LastUsedAt),
	}
}

// createKey makes a key. Only its answer shows the key (SPEC 10.2).
func (s *Server) createKey(ctx context.Context, c *call, all *store.Store) (shown api.Key, err error) {
	req, err := body[api.CreateKey](c)
	if err != nil {
		return shown, err
	}
	k := store.Key{Name: req.Name, Kind: store.KeyPersonal, Owner: cmp.Or(req.Owner, c.Owner), Scopes: req.Scopes, Factory: req.Factory}
	if req.Agent != "" {
		k.Kind, k.Owner = store.KeyAgent, req.Agent
	}
	if len(k.Scopes) == 0 {
		k.Scopes = []string{store.ScopeRuns}
	}
	if req.ExpiresSeconds > 0 {
		k.ExpiresAt = all.Latest().Add(time.Duration(req.ExpiresSeconds) * time.Second)
	}
	if err := cmp.Or(checkKey(k, req), checkAgent(c, req)); err != nil {
		return shown, err
	}
	made, token, err := all.Keys.Create(ctx, k)
	if err != nil {
		return shown, err
	}
	c.audit("key.create", made.Name, made.Factory, fmt.Sprintf("%s of %s, scopes %s", made.Kind, made.Owner, strings.Join(made.Scopes, ", ")))
	shown = showKey(made)
	shown.Key = token.Reveal()
	return shown, nil
}

func checkKey(k store.Key, req api.CreateKey) error {
	wrong := func(field, message string) error { return refuse(field, message, "%s", message) }
	switch {
	case k.Name == "" || len(k.Name) > 100:
		return wrong("name", "a key needs a name of at most 100 bytes")
	case req.Agent != "" && req.Owner != "":
		return wrong("owner", "a key belongs to a person or to an agent, not to both")
	case req.ExpiresSeconds < 0:
		return wrong("expires_seconds", "a key cannot expire in the past")
	}
	for _, scope := range k.Scopes {
		if !slices.Contains(terms.Scopes, scope) {
			return wrong("scopes", fmt.Sprintf("%q is no scope: they are %s", scope, strings.Join(terms.Scopes, ", ")))
		}
	}
	return nil
}

// checkAgent refuses a key for an agent that no definition has. While a factory serves
// nothing, its agents are not known, so any name is accepted.
func checkAgent(c *call, req api.CreateKey) error {
	if req.Agent == "" {
		return nil
	}
	served := 0
	for _, f := range c.Factories() {
		if req.Factory == "" || f.Name == req.Factory {
			served++
		}
	}
	live := c.Revisions(req.Factory)
	var known []string
	for _, r := range live {
		for _, a := range r.Definition.Agents {
			known = append(known, a.Name)
		}
	}
	if len(live) == 0 || len(live) < served || slices.Contains(known, req.Agent) {
		return nil
	}
	hint := "the definitions have no agent"
	if len(known) > 0 {
		hint = schema.OneOf(req.Agent, known)
	}
	message := fmt.Sprintf("no agent is named %q", req.Agent)
	if hint != "" {
		message += ": " + hint
	}
	return refuse("agent", message, "%s", message)
}

// revokeKey ends a key at once. It also ends the open streams of the key, and the sessions
// and links that were made with it, and pauses its schedules.
func (s *Server) revokeKey(ctx context.Context, c *call, all *store.Store) (shown api.Key, err error) {
	k, ended, err := all.Keys.Revoke(ctx, c.Param("name"))
	if err != nil {
		return shown, err
	}
	s.streams.revoke(func(by *access.Caller) bool { return by.KeyID == k.ID })
	c.audit("key.revoke", k.Name, k.Factory,
		fmt.Sprintf("ended %s and %s, paused %s", terms.Counted(ended.Sessions, "session"), terms.Counted(ended.LoginLinks, "link"), terms.Counted(ended.Schedules, "schedule")))
	shown = showKey(k)
	shown.Ended = (*api.Ended)(&ended)
	return shown, nil
}

func (s *Server) listAudit(ctx context.Context, c *call, all *store.Store) (shown api.List[api.AuditEntry], err error) {
	cursor, limit, err := from[store.AuditEntry](c)
	if err != nil {
		return shown, err
	}
	q := store.AuditQuery{Actor: c.Query("actor"), Action: c.Query("action"), Object: c.Query("object"), Before: cursor, Limit: limit + 1}
	for name, at := range map[string]*time.Time{"since": &q.Since, "until": &q.Until} {
		if text := c.Query(name); text != "" {
			if *at, err = time.Parse(time.RFC3339, text); err != nil {
				return shown, refuse(name, text, "%s is a time such as 2026-12-01T08:00:00Z", name)
			}
		}
	}
	entries, err := all.Audit.List(ctx, q)
	return listPage(entries, limit, func(e store.AuditEntry) string { return e.ID.String() }, func(e store.AuditEntry) api.AuditEntry {
		return api.AuditEntry{
			ID: e.ID.String(), At: e.At, Actor: e.Actor, Action: e.Action,
			Object: e.Object, Factory: e.Factory, Details: e.Details, From: e.Origin,
		}
	}), err
}
