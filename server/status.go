package server

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/json"
	"errors"
	"net/http"
	"slices"

	"github.com/gin-gonic/gin"

	"triphammer/applier"
	"triphammer/server/store"
)

//go:embed openapi.yaml
var openapiDocument []byte

func (s *Server) openapi(c *gin.Context) { c.Data(http.StatusOK, "application/yaml", openapiDocument) }

// healthz tells that the process serves.
func (s *Server) healthz(c *gin.Context) { c.String(http.StatusOK, "ok\n") }

// readyz tells that deliveries can be accepted: every factory serves something
// and the store can commit.
func (s *Server) readyz(c *gin.Context) {
	for _, a := range s.cfg.Appliers {
		if state := a.State(); state.Applied == nil {
			c.String(http.StatusServiceUnavailable, "factory %s serves nothing yet\n", state.Factory)
			return
		}
	}
	if err := s.cfg.Store.Ping(c.Request.Context()); err != nil {
		c.String(http.StatusServiceUnavailable, "the store cannot commit\n")
		return
	}
	c.String(http.StatusOK, "ready\n")
}

func (s *Server) status(c *gin.Context) {
	status, err := s.Status(c.Request.Context(), who(c))
	if err != nil {
		s.failWith(c, err)
		return
	}
	if only := c.Query("factory"); only != "" {
		status.Factories = slices.DeleteFunc(status.Factories, func(f FactoryStatus) bool { return f.Name != only })
	}
	c.JSON(http.StatusOK, status)
}

// Status is what all factories serve, as far as the principal may see them.
func (s *Server) Status(ctx context.Context, p *Principal) (*Status, error) {
	out := &Status{Version: s.cfg.Version, Factories: []FactoryStatus{}, Runs: make(map[string]int64)}
	if p.Factory == "" { // the counts are those of all factories
		counts, err := s.cfg.Store.RunCounts(ctx)
		if err != nil {
			return nil, err
		}
		for state, n := range counts {
			out.Runs[string(state)] = n
		}
	}
	for _, a := range s.cfg.Appliers {
		state := a.State()
		if !p.mayTouch(state.Factory) {
			continue
		}
		f, err := s.factoryStatus(ctx, state)
		if err != nil {
			return nil, err
		}
		out.Factories = append(out.Factories, f)
	}
	return out, nil
}

func (s *Server) factoryStatus(ctx context.Context, state applier.State) (FactoryStatus, error) {
	f := FactoryStatus{
		Name: state.Factory, Repository: state.Repository, Branch: state.Branch, Path: state.Path, Head: state.Head,
		State: stateOf(state), CheckedAt: optional(state.Checked), Error: state.Error, Reason: string(state.Reason), Since: optional(state.Since), NextAttempt: optional(state.NextAttempt),
	}
	if p := state.Pin; p != nil {
		f.Pin = &Pin{Commit: p.Commit, Reason: p.Reason, By: p.By, At: p.At, Until: optional(p.Until)}
	}
	if r := state.Applied; r != nil {
		f.Applied = &AppliedRef{Commit: r.Commit.Hash, At: r.AppliedAt, ApplyID: r.ApplyID}
		f.Title = r.Definition.Name
		if f.Head == "" {
			f.Head = r.Commit.Hash
		}
	}
	last, err := s.cfg.Store.LastApply(ctx, state.Factory, "")
	switch {
	case errors.Is(err, store.ErrNotFound):
	case err != nil:
		return f, err
	default:
		f.LastApply = &LastApply{
			ID: last.ID, Commit: last.Commit, At: last.FinishedAt, Outcome: last.Outcome, Error: last.Error, Trigger: last.Trigger,
			Diagnostics: orEmptyList(last.Diagnostics),
		}
	}
	return f, nil
}

func stateOf(state applier.State) string {
	switch {
	case state.Error != "":
		return "failing"
	case state.Pin != nil:
		return "pinned"
	case state.Applied == nil:
		return "waiting"
	}
	return "live"
}

func orEmptyList(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 || string(raw) == "null" {
		return json.RawMessage("[]")
	}
	return raw
}

func hashOf(data []byte) [32]byte { return sha256.Sum256(data) }
