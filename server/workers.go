package server

import (
	"context"
	"slices"
	"strings"

	"triphammer/server/api"
	"triphammer/server/store"
	"triphammer/server/terms"
)

func (s *Server) listWorkers(ctx context.Context, c *call, _ *store.Store) (api.WorkerList, error) {
	all, err := c.Workers(ctx)
	return api.WorkerList{Workers: terms.Each(all, s.showWorker)}, err
}

// drainWorkers asks workers to start no more runs, or to start them again.
func (s *Server) drainWorkers(drain bool) func(context.Context, *call, *store.Store) (api.WorkerList, error) {
	return func(ctx context.Context, c *call, whole *store.Store) (shown api.WorkerList, err error) {
		name := c.Param("name")
		ids, err := whole.Workers.Drain(ctx, name, drain)
		if err != nil {
			return shown, err
		}
		all, err := c.Workers(ctx) // which know how this process is itself
		if err != nil {
			return shown, err
		}
		all = slices.DeleteFunc(all, func(w *store.Worker) bool { return !slices.Contains(ids, w.ID) })
		action := "worker.resume"
		if drain {
			action = "worker.drain"
		}
		c.audit(action, name, "", strings.Join(ids, ", "))
		return api.WorkerList{Workers: terms.Each(all, s.showWorker)}, nil
	}
}

func (s *Server) showWorker(w *store.Worker) api.Worker {
	shown := api.Worker{
		ID: w.ID, Name: w.Name(), Names: append([]string{}, w.Names...), Labels: w.Labels, Kind: w.Kind, Host: w.Host, Version: w.Version, Isolation: w.Isolation,
		Blocked: w.Blocked, MaxRuns: w.MaxRuns, InProgress: w.Active, StartedAt: w.StartedAt, LastHeartbeat: w.SeenAt, StoppedAt: api.Time(w.StoppedAt),
	}
	if shown.Labels == nil {
		shown.Labels = map[string]string{}
	}
	switch {
	case !w.StoppedAt.IsZero():
		shown.State = "stopped"
	case !w.Live():
		shown.State = "lost"
	case w.Drain && w.Active > 0:
		shown.State = "draining"
	case w.Drain:
		shown.State = "drained"
	case w.Blocked != "":
		shown.State = "blocked"
	case w.Active >= w.MaxRuns:
		shown.State = "full"
	default:
		shown.State = "ready"
	}
	return shown
}
