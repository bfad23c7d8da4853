package server

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"time"

	"triphammer/server/api"

	"github.com/gin-gonic/gin"

	"triphammer/applier"
	"triphammer/server/disk"
	"triphammer/server/store"
)

//go:embed openapi.yaml
var openapiDocument []byte

func (s *Server) openapi(c *gin.Context) {
	document := bytes.Replace(openapiDocument, []byte("\nservers:\n  - url: /\n"), []byte("\nservers:\n  - url: "+s.base+"/\n"), 1)
	c.Data(http.StatusOK, "application/yaml", document)
}

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
	if err := s.ping(c.Request.Context()); err != nil {
		c.String(http.StatusServiceUnavailable, "no delivery can be taken: %v\n", err)
		return
	}
	c.String(http.StatusOK, "ready\n")
}

// pingTime is how long the store may take to show that it can commit.
const pingTime = 5 * time.Second

func (s *Server) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pingTime)
	defer cancel()
	return s.cfg.Store.Ping(ctx)
}

// storage tells what is wrong with the disk and the store.
func (s *Server) storage(ctx context.Context) api.Storage {
	out := api.Storage{Problems: []string{}, Places: []api.Place{}}
	level := disk.Enough
	if s.cfg.Disk != nil {
		states, err := s.cfg.Disk.All()
		if err != nil {
			out.Problems = append(out.Problems, err.Error())
		}
		for _, state := range states {
			p := api.Place{Name: state.Place, FreeBytes: state.Free, TotalBytes: state.Total}
			if state.Files > 0 {
				p.FreeFiles = &state.FreeFiles
			}
			out.Places = append(out.Places, p)
			if problem := state.Problem(); problem != "" {
				out.Problems = append(out.Problems, problem)
			}
			level = max(level, state.Level)
		}
		if level > disk.Enough {
			out.Problems = append(out.Problems, "new runs wait until there is room")
		}
	}
	out.Problems = append(out.Problems, s.cfg.Store.Problems()...)
	out.State = level.String()
	if err := s.ping(ctx); err != nil {
		out.State = "failing"
		out.Problems = append(out.Problems, "no delivery is taken: "+err.Error())
	}
	return out
}

func (s *Server) status(c *gin.Context) {
	status, err := s.Status(c.Request.Context(), who(c))
	if err != nil {
		s.failWith(c, err)
		return
	}
	if only := c.Query("factory"); only != "" {
		status.Factories = slices.DeleteFunc(status.Factories, func(f api.FactoryStatus) bool { return f.Name != only })
	}
	c.JSON(http.StatusOK, status)
}

func (s *Server) clock() api.Clock {
	c := s.cfg.Store.Clock()
	return api.Clock{Now: c.Now.UTC(), Expected: c.Expected.UTC(), DoubtedUntil: api.Time(c.Until), Problem: c.Doubted()}
}

// acceptClock says that the clock is right, also if it jumped.
func (s *Server) acceptClock(c *gin.Context) {
	if !forAll(c) {
		return
	}
	was := s.cfg.Store.Clock()
	if err := s.cfg.Store.AcceptClock(c.Request.Context()); err != nil {
		s.failWith(c, err)
		return
	}
	s.audit(c, "clock.accept", was.Now.UTC().Format(time.RFC3339), "", "expected "+was.Expected.UTC().Format(time.RFC3339))
	c.JSON(http.StatusOK, s.clock())
}

// Status is what all factories serve, as far as the principal may see them.
func (s *Server) Status(ctx context.Context, p *Principal) (*api.Status, error) {
	out := &api.Status{Version: s.cfg.Version, Factories: []api.FactoryStatus{}, Runs: make(map[string]int64), Storage: s.storage(ctx), Clock: s.clock()}
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

func (s *Server) factoryStatus(ctx context.Context, state applier.State) (api.FactoryStatus, error) {
	f := api.FactoryStatus{
		Name: state.Factory, Repository: state.Repository, Branch: state.Branch, Path: state.Path, Head: state.Head,
		State: stateOf(state), CheckedAt: api.Time(state.Checked), LookingSince: api.Time(state.Looking), Error: state.Error, Reason: string(state.Reason), Since: api.Time(state.Since), NextAttempt: api.Time(state.NextAttempt),
	}
	if p := state.Pin; p != nil {
		f.Pin = &api.Pin{Commit: p.Commit, Reason: p.Reason, By: p.By, At: p.At, Until: api.Time(p.Until)}
	}
	if r := state.Applied; r != nil {
		f.Applied = &api.AppliedRef{Commit: r.Commit.Hash, At: r.AppliedAt, ApplyID: r.ApplyID}
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
		f.LastApply = &api.LastApply{
			ID: last.ID.String(), Commit: last.Commit, At: last.FinishedAt, Outcome: last.Outcome, Error: last.Error, Trigger: last.Trigger,
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
