package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"triphammer/cmd/triphammer/client"
	"triphammer/cmd/triphammer/client/exit"
	"triphammer/cmd/triphammer/client/settings"
	"triphammer/server/run/task"
	"triphammer/server/secret"
	"triphammer/server/store"
	"triphammer/server/worker/executor/kubernetes"
)

// Where runs are executed: the values of --executor.
const (
	localExecutor = "local"
	kubeExecutor  = kubernetes.Isolation
)

// executorOptions are the flags of where runs are executed (SPEC 17.5).
type executorOptions struct {
	kind string
	kube kubernetes.Config
}

func (o *executorOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.kind, "executor", localExecutor, "where runs are executed: local (on this machine, see --isolation) or kubernetes (a Job for each attempt)")
	o.clusterFlags(f)
	f.DurationVar(&o.kube.Pending, "kube-pending", kubernetes.DefaultPending, "how long a run may wait for a node, its image and its volumes")
}

// clusterFlags are those that preflight has too.
func (o *executorOptions) clusterFlags(f *pflag.FlagSet) {
	f.StringVar(&o.kube.Kubeconfig, "kubeconfig", "", "file that says where the cluster is (default: $KUBECONFIG, ~/.kube/config, or the cluster that this program runs in)")
	f.StringVar(&o.kube.Context, "kube-context", "", "context of the file of --kubeconfig (default: its current one)")
	f.StringVar(&o.kube.Namespace, "kube-namespace", "", "namespace of the runs (default: that of the context, or of this program)")
	f.StringVar(&o.kube.Image, "kube-image", "", "image of runs in the cluster whose definitions name none")
	f.StringVar(&o.kube.Program, "kube-program-image", "", "image of Triphammer, from which pods get this program")
	f.StringVar(&o.kube.Template, "kube-template", "", "file with the PodTemplateSpec that the pods of runs are made from: nodes, tolerations, pull secrets, a runtime class")
}

// settleExecutor checks the flags.
func (o *wallOptions) settleExecutor() error {
	switch {
	case o.executor.kind != localExecutor && o.executor.kind != kubeExecutor:
		return exit.With(exit.Usage, "--executor is local or kubernetes, not %q", o.executor.kind)
	case o.executor.kind == localExecutor:
		return nil
	case o.walls.Isolation != "auto":
		return exit.With(exit.Usage, "--isolation is for runs on this machine, and --executor kubernetes puts them into a cluster")
	case o.executor.kube.Program == "":
		return exit.With(exit.Usage, "--executor kubernetes needs --kube-program-image IMAGE: an image of Triphammer, from which the pods of runs get this program")
	}
	if file := o.executor.kube.Kubeconfig; file != "" {
		o.walls.Protected = append(o.walls.Protected, file)
	}
	return nil
}

// openCluster makes the executor of the cluster, if runs are executed in one.
func (in *instance) openCluster(key *secret.Key) (err error) {
	o := in.opt.executor
	if o.kind != kubeExecutor {
		return nil
	}
	cfg := o.kube
	cfg.Key = func(name string) []byte { return key.Derive("the report of the attempt " + name) }
	cfg.Installation = fmt.Sprintf("%x", key.Derive("the name of the installation")[:6])
	cfg.Limits, cfg.Network, cfg.Logger = in.opt.walls.Limits, in.opt.walls.Network, in.opt.logger
	cfg.Live = in.inProgress
	if in.cluster, err = kubernetes.New(cfg); err != nil {
		return exit.With(exit.Usage, "--executor kubernetes: %w", err)
	}
	return nil
}

// inProgress tells whether an attempt is in progress.
func (in *instance) inProgress(ctx context.Context, runID string, attempt int64) (bool, error) {
	id, err := store.ParseID[store.Run](runID)
	if err != nil {
		return false, nil //nolint:nilerr // it is no run of this store
	}
	r, err := in.store.Runs.Get(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	return err == nil && r.State == store.InProgress && r.Attempt == attempt, err
}

// runner executes the runs.
func (in *instance) runner() task.Executor {
	if in.cluster != nil {
		return in.cluster
	}
	return in.executor
}

func executorCommand() *cobra.Command {
	return client.Noun("executor", "Check where runs are executed", client.Noun(kubeExecutor, "Runs as Jobs of a Kubernetes cluster", clusterPreflightCommand()))
}

func clusterPreflightCommand() *cobra.Command {
	o := &executorOptions{}
	var dry bool
	c := &cobra.Command{
		Use: "preflight", Short: "Check whether runs can be executed in the cluster", Args: cobra.NoArgs,
		Long: "Check whether runs can be executed in the cluster: that it answers, what this account may do there, quotas,\n" +
			"and whether it takes the Job of a run. Then start a run that does nothing, so that the images are pulled.\n\n" +
			"It has the settings of serve and worker. The exit status is 1 if something has to be cured.",
		Example: "  triphammer executor kubernetes preflight --kube-namespace runs --kube-program-image registry.example.com/triphammer:1",
		RunE: func(c *cobra.Command, _ []string) error {
			if err := settings.FromEnvironment(c.Flags(), nil); err != nil {
				return err
			}
			return preflight(c, o.kube, !dry)
		},
	}
	o.clusterFlags(c.Flags())
	c.Flags().DurationVar(&o.kube.Pending, "kube-pending", 2*time.Minute, "how long the run that does nothing may wait for a node, its image and its volumes")
	c.Flags().BoolVar(&dry, "dry-run", false, "start no run")
	return c
}

func preflight(c *cobra.Command, cfg kubernetes.Config, try bool) error {
	// What preflight starts is not of the installation that serves.
	key := []byte(time.Now().String())
	cfg.Installation, cfg.Key = fmt.Sprintf("preflight-%d", os.Getpid()), func(string) []byte { return key }
	e, err := kubernetes.New(cfg)
	if err != nil {
		return exit.With(exit.Usage, "%w", err)
	}
	w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
	ok := e.Check(c.Context(), try, func(f kubernetes.Finding) {
		mark := "ok"
		if !f.OK {
			mark = "BAD"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", mark, f.What, f.Detail)
		_ = w.Flush()
	})
	if !ok {
		return exit.Silently(exit.Bad)
	}
	return nil
}
