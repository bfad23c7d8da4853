package server

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"triphammer/applier"
	"triphammer/server/access"
	"triphammer/server/api"
	"triphammer/server/disk"
	"triphammer/server/store"
	"triphammer/server/terms"
)

//go:embed openapi.yaml
var openapiDocument []byte

func (s *Server) openapi(c *gin.Context) {
	c.Data(http.StatusOK, "application/yaml", s.document)
}

// documentAt is the document of a server whose addresses begin with base.
func documentAt(base string) []byte {
	return bytes.Replace(openapiDocument, []byte("\nservers:\n  - url: /\n"), []byte("\nservers:\n  - url: "+base+"/\n"), 1)
}

// healthz answers that the process serves.
func (s *Server) healthz(c *gin.Context) { c.String(http.StatusOK, "ok\n") }

// readyz tells whether deliveries can be accepted: every factory that has a commit serves
// something, and the store can commit.
func (s *Server) readyz(c *gin.Context) {
	if s.door.Leaving() {
		c.String(http.StatusServiceUnavailable, "this server is stopping\n")
		return
	}
	if factory, waits := s.cfg.Data.Waiting(s.empty); waits {
		c.String(http.StatusServiceUnavailable, "factory %s serves nothing yet\n", factory)
		return
	}
	if s.cfg.Behind != nil {
		if why := s.cfg.Behind(); why != "" {
			c.String(http.StatusServiceUnavailable, "this server does not serve what is live: %s\n", why)
			return
		}
	}
	if err := s.ping(c.Request.Context()); err != nil {
		c.String(http.StatusServiceUnavailable, "no delivery can be taken: %v\n", err)
		return
	}
	c.String(http.StatusOK, "ready\n")
}

// empty tells whether a factory waits for its first commit here. Others need not wait for that.
func (s *Server) empty(state applier.State) bool {
	return s.cfg.Place(state.Factory).Home != nil && state.Head == "" && state.Applied == nil && state.Reason == applier.NoBranch
}

// pingTime is how long a test commit of the store may take.
const pingTime = 5 * time.Second

func (s *Server) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pingTime)
	defer cancel()
	return s.cfg.Data.Health().Ping(ctx)
}

// pingSeldom is ping, but for pages no more than once a second while all is well: every
// page asks.
func (s *Server) pingSeldom(ctx context.Context) error {
	now := s.cfg.Now().UnixNano()
	_, page := ctx.Value(callerKey).(*access.Caller)
	if last := s.pinged.Load(); page && now >= last && now-last < int64(time.Second) {
		return nil
	}
	err := s.ping(ctx)
	if err == nil {
		s.pinged.Store(now)
	}
	return err
}

// storage is the state of the disk and the store.
func (s *Server) storage(ctx context.Context) api.Storage {
	out := api.Storage{Problems: []string{}, Volumes: []api.Volume{}}
	level := disk.Enough
	if s.cfg.Disk != nil {
		states, err := s.cfg.Disk.All()
		if err != nil {
			out.Problems = append(out.Problems, err.Error())
		}
		for _, state := range states {
			p := api.Volume{Name: state.Volume, FreeBytes: state.Free, TotalBytes: state.Total}
			if state.Files > 0 {
				p.FreeFiles = &state.FreeFiles
			}
			out.Volumes = append(out.Volumes, p)
			if problem := state.Problem(); problem != "" {
				out.Problems = append(out.Problems, problem)
			}
			level = max(level, state.Level)
		}
		if level > disk.Enough {
			out.Problems = append(out.Problems, "new runs wait until there is room")
		}
	}
	out.Problems = append(out.Problems, s.cfg.Data.Health().Problems()...)
	out.State = level.String()
	if err := s.pingSeldom(ctx); err != nil {
		out.State = "failing"
		out.Problems = append(out.Problems, "no delivery is taken: "+err.Error())
	}
	return out
}

// status is the status of the factories that the caller may use.
func (s *Server) status(ctx context.Context, c *call) (*api.Status, error) {
	out := &api.Status{Version: s.cfg.Version, BaseURL: s.cfg.BaseURL, Factories: []api.FactoryStatus{}, Runs: make(map[string]int64), Storage: s.storage(ctx), Clock: s.clock()}
	if cert := s.certificate.Load(); cert != nil {
		out.Certificate = (*api.Certificate)(cert.State())
	}
	if s.cfg.Isolation != nil {
		out.Isolation = s.cfg.Isolation()
	}
	if s.cfg.Machine != nil {
		out.Machine = s.cfg.Machine()
	}
	if all, err := c.Whole(); err == nil { // the counts include all factories
		counts, err := all.Runs.Counts(ctx)
		if err != nil {
			return nil, err
		}
		for state, n := range counts {
			out.Runs[string(state)] = n
		}
	}
	var err error
	out.Factories, err = s.factories(ctx, c)
	return out, err
}

// maxUnanswered is how many answers that could not be told a status lists of each factory.
const maxUnanswered = 20

// factories are the factories that the caller may use, or with ?factory= one of them.
func (s *Server) factories(ctx context.Context, c *call) ([]api.FactoryStatus, error) {
	all := []api.FactoryStatus{}
	for _, f := range c.Factories() {
		if only := c.Query("factory"); only != "" && only != f.Name {
			continue
		}
		shown, err := s.getFactory(ctx, c, f)
		if err != nil {
			return nil, err
		}
		all = append(all, shown)
	}
	return all, nil
}

func (s *Server) listFactories(ctx context.Context, c *call) (api.List[api.FactoryStatus], error) {
	all, err := s.factories(ctx, c)
	return api.List[api.FactoryStatus]{Entries: all}, err
}

func (s *Server) clock() api.Clock {
	c := s.cfg.Data.Health().Clock()
	return api.Clock{Now: c.Now.UTC(), Expected: c.Expected.UTC(), DoubtedUntil: api.Time(c.Until), Problem: c.Doubted()}
}

// acceptClock makes the server trust the clock, even if it jumped.
func (s *Server) acceptClock(ctx context.Context, c *call, all *store.Store) (api.Clock, error) {
	was := s.clock()
	if err := all.AcceptClock(ctx); err != nil {
		return was, err
	}
	c.audit("clock.accept", was.Now.Format(time.RFC3339), "", "expected "+was.Expected.Format(time.RFC3339))
	return s.clock(), nil
}

func (s *Server) getFactory(ctx context.Context, _ *call, factory access.Factory) (api.FactoryStatus, error) {
	state := factory.State()
	f := api.FactoryStatus{
		Name: state.Factory, Repository: state.Repository, Branch: state.Branch, Path: state.Path, Head: state.Head,
		State: s.stateOf(state), Pin: state.Pin, CheckedAt: api.Time(state.Checked), LookingSince: api.Time(state.Looking),
		Received: state.Progress.Received, Said: state.Progress.Said,
		Error: state.Error, Reason: string(state.Reason), Since: api.Time(state.Since), NextAttempt: api.Time(state.NextAttempt),
		Paused: terms.Each(factory.Pauses(), func(p store.Pause) api.Paused { return api.Paused{Kind: p.Kind, Name: p.Name, Pause: showPause(p)} }),
	}
	place := s.cfg.Place(state.Factory)
	if f.Links = place.Links; place.Home != nil {
		f.Hosted, f.CloneURL = true, HostedURL(s.cfg.BaseURL, state.Factory)
	}
	if r := state.Applied; r != nil {
		f.Applied = &api.AppliedRef{Commit: r.Commit.Hash, At: r.AppliedAt, ApplyID: r.ApplyID}
		f.Title = r.Definition.Name
		f.Head = cmp.Or(f.Head, r.Commit.Hash)
	}
	unanswered, err := factory.Unanswered(ctx, s.cfg.Now(), maxUnanswered)
	if err != nil {
		return f, err
	}
	for _, a := range unanswered {
		shown := api.Unanswered{
			RunID: a.RunID.String(), ID: a.RunID.String(), Automation: a.Automation, Provider: a.Provider, Kind: a.Kind, Detail: a.Detail, At: a.UpdatedAt,
		}
		if a.OfDelivery() {
			shown.RunID, shown.DeliveryID = "", a.DeliveryID.String()
			shown.ID = shown.DeliveryID
		}
		f.Unanswered = append(f.Unanswered, shown)
	}
	undone, err := factory.Undone(ctx, s.cfg.Now(), maxUnanswered)
	if err != nil {
		return f, err
	}
	for _, o := range undone {
		f.Undone = append(f.Undone, api.Unanswered{
			RunID: o.RunID.String(), ID: o.RunID.String(), Automation: o.Automation, Provider: o.Provider, Kind: o.Kind, Detail: o.Detail, At: o.UpdatedAt,
		})
	}
	asked, err := factory.Asked(ctx, maxUnanswered)
	if err != nil {
		return f, err
	}
	for _, o := range asked {
		f.Questions = append(f.Questions, *showQuestion(o, o.Automation))
	}
	if n, newest, err := factory.SameBodies(ctx, s.cfg.Now()); err != nil {
		return f, err
	} else if n > 0 {
		f.SameBodies = &api.SameBodies{Count: n, Newest: newest.String()}
	}
	last, err := factory.LastApply(ctx)
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

func (s *Server) stateOf(state applier.State) string {
	switch {
	case s.empty(state):
		return "waiting" // every hosted factory begins so: nothing is wrong
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
