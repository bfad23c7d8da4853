package host

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"triphammer/cmd/triphammer/client/exit"
	"triphammer/cmd/triphammer/client/settings"
	"triphammer/server/store"
	"triphammer/server/terms"
)

// workerOptions is a process that executes runs, and serves nothing (SPEC 17.4).
type workerOptions struct {
	serving
	health string // address; empty: it answers nobody
}

func workerCommand() *cobra.Command {
	w := &workerOptions{}
	c := &cobra.Command{
		Use:   "worker --store URL --data DIR",
		Short: "Execute runs of a store that servers share",
		Long: `Execute runs of a store that servers share: a PostgreSQL database. A worker needs the store, the sealing key of the servers (DIR/key, or the
file that TRIPHAMMER_KEY_FILE names), and what its runs need. It listens to nobody, unless --health says where.

A definition whose workerHost is one of the names or labels (as KEY=VALUE) of a worker is executed by such a worker alone; one
without a workerHost, by any. When it is told to stop (SIGTERM), a worker takes no further runs; those that it has go on
for --grace; a second signal ends it at once. "workers drain" makes it take no further runs without stopping it.

Each flag can also be a variable (TRIPHAMMER_STORE, TRIPHAMMER_DATA …) or a key of the --config file.`,
		Example: "  TRIPHAMMER_STORE=postgres://triphammer@db/triphammer triphammer worker --data /var/lib/triphammer --name gpu --label zone=b",
		Args:    cobra.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return w.work(c) },
	}
	w.workerFlags(c.Flags())
	settings.Help(c)
	return c
}

func (w *workerOptions) workerFlags(f *pflag.FlagSet) {
	settings.In(f, settings.Served, func(f *pflag.FlagSet) {
		configFlag(f, &w.config)
		f.StringVar(&w.factory.repository.CAFile, "git-ca-file", "", "file with certificates that repositories over https may have besides those of the system")
	})
	settings.In(f, settings.Listen, func(f *pflag.FlagSet) {
		f.StringVar(&w.health, "health", "", "address, such as 127.0.0.1:9090, that answers /healthz, /readyz and /metrics; empty: none")
	})
	settings.In(f, settings.Runs, func(f *pflag.FlagSet) {
		f.StringSliceVar(&w.capabilities.can.WorkerHosts, "name", nil, "names of this worker: it executes the runs whose workerHost is one of them, and those without")
		f.StringToStringVar(&w.capabilities.can.Labels, "label", nil, "labels of this worker, KEY=VALUE: it executes the runs whose workerHost is KEY=VALUE, too")
	})
	settings.In(f, settings.Store, func(f *pflag.FlagSet) {
		f.StringVar(&w.data, "data", "", "data directory of this worker alone: its workspaces and its identity; made if it is missing")
		w.database.flags(f)
	})
	w.runFlags(f)
}

func (w *workerOptions) work(c *cobra.Command) error {
	config, err := configFile(c.Flags(), w.config)
	if err != nil {
		return err
	}
	if err := settings.FromEnvironment(c.Flags(), config.values); err != nil {
		return err
	}
	switch {
	case len(config.factories) > 0:
		return exit.With(exit.Usage, "%s: a worker has no factories: it executes the runs of all of them", config.path)
	case w.data == "":
		return exit.With(exit.Usage, "where to keep the workspaces? Give --data DIR (or TRIPHAMMER_DATA)")
	case w.runs.MaxRuns == 0:
		return exit.With(exit.Usage, "a worker with --max-runs 0 would execute nothing; to keep a worker at rest, use `triphammer workers drain NAME`")
	}
	switch w.store, err = w.database.resolve(); {
	case err != nil:
		return err
	case w.store == "":
		return exit.With(exit.Usage, `a worker shares a PostgreSQL database with servers, and none is named: give --store postgres://USER@HOST/DATABASE (or TRIPHAMMER_STORE).
A store in a file has one process: there "triphammer serve" executes the runs itself`)
	}
	w.logger, w.make, w.joins, w.factories = serverLog(c), true, true, []factoryOptions{}
	w.walls.Roots = func() (*x509.CertPool, error) { return roots(w.factory) }
	if err := w.settleRuns(); err != nil {
		return err
	}
	if w.in, err = openInstance(c.Context(), w.data, w.instanceOptions); err != nil {
		return err
	}
	w.in.announce(c.ErrOrStderr())
	return errors.Join(w.execute(c.Context()), w.in.close())
}

// execute executes runs until ctx is done.
func (w *workerOptions) execute(ctx context.Context) error {
	if err := w.in.wireRuns(store.KindWorker); err != nil {
		return err
	}
	var answer func() error
	if w.health != "" {
		var err error
		if answer, err = w.listen(ctx); err != nil {
			return err
		}
	}
	defer context.AfterFunc(ctx, func() {
		w.logger.Info("stopping: runs in progress get a moment; a second signal ends it at once", "grace", max(w.runs.Grace, 0))
	})()
	w.logger.Info("working", "worker", w.in.opt.runs.Worker.ID, "names", w.capabilities.can.WorkerHosts, "labels", w.capabilities.can.Labels, "max_runs", w.runs.MaxRuns, "data", w.in.dir)
	w.tellIsolation()
	w.tellContainers()
	err := w.in.worker.Run(ctx)
	if answer != nil {
		err = errors.Join(err, answer())
	}
	w.logger.Info("stopped")
	return err
}

// healthTime bounds a request for the health of a worker.
const healthTime = 10 * time.Second

// listen answers for the health of the worker, until the function that it returns is called.
func (w *workerOptions) listen(ctx context.Context) (stop func() error, err error) {
	l, err := listenTCP(ctx, "--health", w.health)
	if err != nil {
		return nil, err
	}
	if err := w.in.metrics.Watch(w.in.store, w.in.disk, w.in.executor.Figures); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(rw http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(rw, "ok") })
	mux.HandleFunc("GET /readyz", func(rw http.ResponseWriter, r *http.Request) {
		if why := w.unready(r.Context()); why != "" {
			http.Error(rw, why, http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(rw, "ready")
	})
	mux.Handle("GET /metrics", w.in.metrics.Handler())
	h := &http.Server{
		Handler: mux, ReadHeaderTimeout: healthTime, ReadTimeout: healthTime, WriteTimeout: healthTime, IdleTimeout: time.Minute, MaxHeaderBytes: 8 << 10,
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
	}
	ended := make(chan error, 1)
	go func() { ended <- h.Serve(l) }()
	w.logger.Info("answering for its health", "address", l.Addr().String())
	return func() error {
		err := h.Close()
		if served := <-ended; !errors.Is(served, http.ErrServerClosed) {
			err = errors.Join(err, served)
		}
		return err
	}, nil
}

// unready is why the worker takes no runs; empty: it does.
func (w *workerOptions) unready(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, healthTime/2)
	defer cancel()
	if err := w.in.store.Ping(ctx); err != nil {
		return "the store cannot be written: " + err.Error()
	}
	if name, lacking := w.in.opt.runs.Executor.Isolation(); name == "" {
		why := terms.Each(lacking, func(err error) string { return err.Error() })
		return "no walls can be put around runs: " + strings.Join(why, "; ")
	}
	return w.in.worker.Short()
}
