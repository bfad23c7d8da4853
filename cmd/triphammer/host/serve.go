package host

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"triphammer/applier"
	"triphammer/cmd/triphammer/client"
	"triphammer/cmd/triphammer/client/exit"
	"triphammer/cmd/triphammer/client/settings"
	"triphammer/server/disk"
	"triphammer/server/listen"
	"triphammer/server/run"
	"triphammer/server/secret"
	"triphammer/server/store"
	"triphammer/server/terms"
	"triphammer/server/tracing"
	"triphammer/server/worker"
	"triphammer/server/worker/executor"
)

func serveCommand() *cobra.Command {
	s := &serving{}
	c := &cobra.Command{
		Use:   "serve --data DIR [--repo PATH|URL | --hosted NAME]",
		Short: "Serve the production branch of a repository",
		Long: `Serve what lands on the production branch of a repository: one on this machine, bare or not, or one over https or ssh.
Without a repository, the server serves the factories that people make on its pages or with "factories create"; their
repositories live in the data directory.

Each flag can also be a variable (TRIPHAMMER_DATA, TRIPHAMMER_LISTEN …) or a key of the --config file; flags come
first, then variables, then the file. The first start makes the data directory and the key that seals the secrets
(DIR/key): keep a copy of that key apart from backups.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return serve(c, s) },
	}
	s.serveFlags(c.Flags())
	settings.Help(c)
	return c
}

// serving is a server, from its settings to its end. serve and dev share it. Each flag is
// bound to the field that it sets, where possible a field in the Config of a part. The name
// of the flag also gives the name of the variable and of the key in the configuration
// file.
type serving struct {
	instanceOptions
	factory                factoryOptions // the factory of --repo, or the common settings of those in the file
	hosted                 string         // name of the factory that lives on this server
	data, config           string
	database               sharedStore
	listen                 string
	secretsDir, secretsEnv string
	minFree                string
	keepFailed             string
	artifactSize           string
	artifactsPerRun        string
	proxies                []string
	capabilities           capabilityOptions
	signIn                 signInOptions
	listeners              listen.Listeners
	unixKey                string // that callers on the socket have to show
	shutdownDelay          time.Duration

	in     *instance
	socket func() // removes the socket
}

// onceValue is the value of a flag that can be given once.
type onceValue struct {
	pflag.Value
	given bool
}

// Set implements pflag.Value.
func (v *onceValue) Set(text string) error {
	if v.given {
		return errors.New("it is given twice: for several factories, write factories: into the file of --config")
	}
	v.given = true
	return v.Value.Set(text)
}

// serveFlags adds the flags of all settings of a server (SPEC 12).
func (s *serving) serveFlags(f *pflag.FlagSet) {
	settings.In(f, settings.Served, func(f *pflag.FlagSet) {
		s.factory.repositoryFlags(f)
		f.StringVar(&s.hosted, "hosted", "", "name of a factory whose repository lives on this server, which serves it for clone and push; instead of --repo")
		hosted := f.Lookup("hosted") // a second factory would take the place of the first
		hosted.Value = &onceValue{Value: hosted.Value}
		configFlag(f, &s.config)
	})
	s.sharedFlags(f, "127.0.0.1:8787")
	settings.In(f, settings.Listen, func(f *pflag.FlagSet) {
		f.StringVar(&s.listeners.CertFile, "tls-cert", "", "certificate file; read again when it changes")
		f.StringVar(&s.listeners.KeyFile, "tls-key", "", "key file of the certificate")
		f.StringSliceVar(&s.proxies, "trusted-proxies", nil, "networks whose X-Forwarded-For is believed, such as 10.0.0.0/8")
		f.DurationVar(&s.shutdownDelay, "shutdown-delay", 0,
			"how long the server, when it is told to stop, still accepts connections while /readyz answers 503: as long as load balancers need to notice")
	})
	settings.In(f, settings.People, s.signIn.flags)
	settings.In(f, settings.Store, func(f *pflag.FlagSet) {
		f.StringVar(&s.data, "data", "", "data directory; made if it is missing")
		s.database.flags(f)
	})
	settings.In(f, settings.Messages, func(f *pflag.FlagSet) {
		s.factory.notificationFlags(f)
		s.endFlags(f)
	})
}

// configFlag adds --config.
func configFlag(f *pflag.FlagSet, file *string) {
	f.StringVar(file, "config", "", "configuration file (YAML; its keys are the names of these settings)")
}

// sharedFlags adds the flags that serve and dev share.
func (s *serving) sharedFlags(f *pflag.FlagSet, listen string) {
	settings.In(f, settings.Listen, func(f *pflag.FlagSet) {
		f.StringVar(&s.listen, "listen", listen, "address to listen on")
		f.StringVar(&s.server.BaseURL, "base-url", "",
			"how senders and people reach the server, such as https://hammer.example.com or https://example.com/triphammer")
	})
	settings.In(f, settings.People, func(f *pflag.FlagSet) {
		f.BoolVar(&s.server.ValidateKey, "validate-key", false, "require an API key to check definitions by HTTP; otherwise anybody may")
	})
	s.runFlags(f)
	settings.In(f, settings.Runs, func(f *pflag.FlagSet) {
		f.StringSliceVar(&s.capabilities.can.WorkerHosts, "worker-host", nil, "names of this server as a worker: it executes the runs whose workerHost is one of them; others wait")
		f.StringToStringVar(&s.capabilities.can.Labels, "worker-label", nil, "labels of this server as a worker, KEY=VALUE: it executes the runs whose workerHost is KEY=VALUE, too")
		f.StringVar(&s.schedules.Missed, "missed-schedules", run.MissedSkip,
			"what to do about ticks that came while no server ran: skip them, or start one run per schedule (once)")
	})
	settings.In(f, settings.Limits, func(f *pflag.FlagSet) {
		f.IntVar(&s.deliveries.RateLimit, "rate-limit", 60, "authenticated deliveries per minute and webhook; 0: no limit")
		f.IntVar(&s.deliveries.AuthFailures, "auth-failures", 10, "failed authentications per minute, webhook and address; 0: no limit")
		f.IntVar(&s.listeners.MaxConnections, "max-connections", 0, "network connections at once; 0: what the limit of open files allows, at most 4096")
		f.IntVar(&s.listeners.MaxPerAddress, "max-connections-per-address", 256,
			"network connections at once from one address (IPv6: from one /64), except loopback and trusted proxies; 0: no such limit")
		f.IntVar(&s.runs.MaxQueued, "max-queued", 0, "runs that may wait; when the queue is full, callers are answered 429 and senders 503. 0: no limit")
		f.BoolVar(&s.deliveries.ApproveOutputs, "approve-outputs", false, "what agents ask the server to do waits for a person, also where the automation's file does not say so")
		f.Int64Var(&s.maxPerHour, "max-runs-per-hour", 60, "runs that an automation may start in an hour unless its file says otherwise; with one more it is paused. 0: no such limit")
	})
	settings.In(f, settings.Store, func(f *pflag.FlagSet) {
		f.DurationVar(&s.keep.Runs, "keep-runs", 90*24*time.Hour, "how long ended runs are kept; 0: for good")
		f.DurationVar(&s.keep.Transcripts, "keep-transcripts", 0, "how long the transcripts of ended runs are kept; 0: as long as the run")
	})
}

// runFlags adds the flags of whatever executes runs: serve, dev and worker.
func (s *serving) runFlags(f *pflag.FlagSet) {
	settings.In(f, settings.Runs, func(f *pflag.FlagSet) {
		f.IntVar(&s.runs.MaxRuns, "max-runs", 4, "runs at once; 0: queue and start none")
		f.IntVar(&s.runs.MaxPerAutomation, "max-runs-per-automation", 0, "runs of one automation at once; 0: no such limit")
		s.capabilities.flags(f)
		s.executor.flags(f)
		f.DurationVar(&s.runs.Grace, "grace", worker.DefaultGrace, "how long runs in progress may go on when this process is told to stop")
		f.DurationVar(&s.runs.Lease, "lease", store.DefaultLease, "time without contact to a shared store after which a run is taken from this process; its agent is dead by then")
		f.StringVar(&s.workspaces, "workspaces", "", "folder for the workspaces of runs, used only by this server (default: runs in the data directory)")
		f.DurationVar(&s.runs.KeepWorkspaces, "keep-workspaces", run.DefaultKeepWorkspaces, "how long the workspace of an ended run is kept; 0: it is removed at once")
		f.StringVar(&s.keepFailed, "keep-failed-workspaces", "", "how long the workspace of a run that has not SUCCEEDED is kept; 0: it is removed at once (default: as --keep-workspaces)")
		f.DurationVar(&s.runs.KeepSessions, "keep-sessions", run.DefaultKeepWorkspaces,
			"how long the session of an ended run is kept, and its workspace at least, so that follow-ups can go on with them; 0: not at all")
	})
	settings.In(f, settings.Walls, s.wallOptions.flags)
	settings.In(f, settings.Limits, func(f *pflag.FlagSet) {
		f.Float64Var(&s.runs.Budget.USDPerDay, "budget-usd-per-day", 0, "dollars that all runs may use on a day (UTC); then runs are stopped and none starts. 0: no limit")
		f.Int64Var(&s.runs.Budget.TokensPerDay, "budget-tokens-per-day", 0, "tokens that all runs may use on a day (UTC); then runs are stopped and none starts. 0: no limit")
		f.StringVar(&s.artifactSize, "artifact-size", "16MiB", "largest file that a run can leave as an artifact")
		f.StringVar(&s.artifactsPerRun, "artifacts-per-run", "64MiB", "size of all files that a run can leave as artifacts")
		f.StringVar(&s.minFree, "min-free", disk.DefaultFloor,
			"free space below which new runs wait and old workspaces are removed; below a quarter of it, the run that uses the most is stopped. 0: none")
	})
	settings.In(f, settings.Store, func(f *pflag.FlagSet) {
		f.StringVar(&s.secretsDir, "secrets-dir", "", "folder with a file for each managed secret (Docker, Kubernetes, systemd credentials)")
		f.StringVar(&s.secretsEnv, "secrets-env", "", "prefix of variables that are managed secrets, such as HAMMER_SECRET_")
	})
}

func serve(c *cobra.Command, s *serving) error {
	config, err := configFile(c.Flags(), s.config)
	if err != nil {
		return err
	}
	if err := settings.FromEnvironment(c.Flags(), config.values); err != nil {
		return err
	}
	repo := s.factory.repository.URL
	switch {
	case repo != "" && s.hosted != "":
		return exit.With(exit.Usage, "--repo and --hosted exclude each other: the definitions are in one repository")
	case repo+s.hosted != "" && len(config.factories) > 0:
		return exit.With(exit.Usage, "%s and the factories of %s exclude each other", map[bool]string{true: "--repo", false: "--hosted"}[repo != ""], config.path)
	case s.hosted != "" && !factoryNames().MatchString(s.hosted):
		return exit.With(exit.Usage, "--hosted: %q cannot name a factory: lower-case letters, digits, - and _", s.hosted)
	case s.data == "":
		return exit.With(exit.Usage, "where to keep the data? Give --data DIR (or TRIPHAMMER_DATA)")
	case s.shutdownDelay < 0:
		return exit.With(exit.Usage, "--shutdown-delay is not negative")
	case (s.listeners.CertFile == "") != (s.listeners.KeyFile == ""):
		return exit.With(exit.Usage, "--tls-cert and --tls-key go together")
	}
	s.logger = serverLog(c)
	if err := s.listeners.LoadCertificate(Now, s.logger); err != nil {
		return exit.With(exit.Usage, "--tls-cert, --tls-key: %w", err)
	}
	if s.factories, err = s.openFactories(c.Context(), c.Flags(), config); err != nil {
		return err
	}
	if err := s.tellRuns(); err != nil {
		return err
	}
	for _, p := range s.proxies {
		prefix, err := netip.ParsePrefix(p)
		if err != nil {
			return exit.With(exit.Usage, "--trusted-proxies: %w", err)
		}
		s.server.TrustedProxies = append(s.server.TrustedProxies, prefix)
	}
	if s.store, err = s.database.resolve(); err != nil {
		return err
	}
	if err := s.open(c); err != nil {
		return err
	}
	if s.in.made {
		create := ""
		if len(s.in.appliers) == 0 {
			create = "\n  triphammer factories create NAME   # a factory whose repository lives on this server"
		}
		fmt.Fprintf(c.ErrOrStderr(), `Next, in another terminal:

  export TRIPHAMMER_DATA=%s%s
  triphammer secrets set NAME        # each secret that a webhook names
  triphammer status                  # what serves, and why not something newer
  triphammer webhooks list           # the URLs for the senders
  triphammer auth login              # a link to the pages

`, s.in.dir, create)
	}
	return s.run(c.Context())
}

// openFactories opens the factory of --repo, or else the factories of the configuration
// file. A factory of the file has the server's value for each setting that it omits.
func (s *serving) openFactories(ctx context.Context, flags *pflag.FlagSet, config configuration) ([]factoryOptions, error) {
	s.hosting = s.factory.withoutRepository()
	if s.factory.repository.URL+s.hosted == "" && len(config.factories) == 0 {
		return []factoryOptions{}, nil // those that people make here
	}
	if len(config.factories) == 0 {
		s.factory.name, s.factory.hosted = cmp.Or(s.hosted, client.FactoryName), s.hosted != ""
		var err error
		if !s.factory.hosted { // its repository is in the data directory, which is not open yet
			err = s.factory.open(ctx, s.data, "")
		}
		return []factoryOptions{s.factory}, err
	}
	var all []factoryOptions
	for _, f := range config.factories {
		one := factoryOptions{name: f.name}
		own := one.flagSet()
		var err error
		own.VisitAll(func(flag *pflag.Flag) {
			value, ok := f.values[flag.Name]
			if shared := flags.Lookup(flag.Name); !ok && shared.Changed && flag.Name != "hosted" {
				// The text of a list has brackets, which Set does not accept.
				value, ok = strings.Trim(shared.Value.String(), "[]"), true
			}
			if ok && err == nil {
				err = own.Set(flag.Name, value)
			}
		})
		if err != nil {
			return nil, exit.With(exit.Usage, "%s: factory %s: %w", config.path, f.name, err)
		}
		if !one.hosted {
			if err := one.open(ctx, s.data, ""); err != nil {
				return nil, fmt.Errorf("factory %s: %w", f.name, err)
			}
		}
		all = append(all, one)
	}
	return all, nil
}

// open listens on the address and opens the data directory.
func (s *serving) open(c *cobra.Command) (err error) {
	if err := closeInherited(); err != nil {
		return err
	}
	if err := s.boundConnections(); err != nil {
		return err
	}
	tcp, err := listenTCP(c.Context(), "--listen", s.listen)
	if err != nil {
		return err
	}
	s.listeners.TCP = tcp
	if err := s.settle(); err != nil {
		return errors.Join(err, tcp.Close())
	}
	if s.in, err = openInstance(c.Context(), s.data, s.instanceOptions); err != nil {
		return errors.Join(err, tcp.Close())
	}
	s.in.announce(c.ErrOrStderr())
	if err = s.in.checkForgotten(c.Context()); err == nil {
		err = s.in.openHosted(c.Context())
	}
	if err == nil {
		err = s.in.wire()
	}
	if err == nil {
		s.in.noteBaseURL()
	}
	if err == nil {
		err = s.listenUnix()
	}
	if err != nil {
		return errors.Join(err, tcp.Close(), s.in.close())
	}
	return nil
}

// settle checks the settings, and sets the base URL to the listening address if none is
// given.
func (s *serving) settle() (err error) {
	s.make = true
	if s.schedules.Missed != run.MissedSkip && s.schedules.Missed != run.MissedOnce {
		return exit.With(exit.Usage, "--missed-schedules is skip or once, not %q", s.schedules.Missed)
	}
	s.server.BaseURL = strings.TrimSuffix(cmp.Or(s.server.BaseURL, s.defaultURL()), "/")
	if err := s.checkBaseURL(s.server.BaseURL); err != nil {
		return err
	}
	if s.server.SignIn, err = s.signIn.provider(s.server.BaseURL); err != nil {
		return err
	}
	s.walls.Protected = append(s.walls.Protected, s.signIn.secretFile, s.listeners.CertFile, s.listeners.KeyFile)
	for _, f := range s.factories {
		s.walls.Protected = append(s.walls.Protected, f.repository.TokenFile, f.repository.SSHKey, f.notify.TokenFile)
	}
	s.walls.Roots = func() (*x509.CertPool, error) { return roots(s.factories...) }
	s.walls.Own = ownAddresses(s.listeners.TCP)
	return s.settleRuns()
}

// settleRuns checks the settings of whatever executes runs.
func (s *serving) settleRuns() (err error) {
	s.runs.KeepFailed = s.runs.KeepWorkspaces
	if s.keepFailed != "" {
		if s.runs.KeepFailed, err = time.ParseDuration(s.keepFailed); err != nil {
			return exit.With(exit.Usage, "--keep-failed-workspaces: %q is no duration such as 24h", s.keepFailed)
		}
	}
	for _, keep := range []*time.Duration{&s.runs.KeepWorkspaces, &s.runs.KeepFailed, &s.runs.KeepSessions, &s.runs.Grace} {
		if *keep <= 0 {
			*keep = -1 // not at all: the zero value is the default
		}
	}
	if s.runs.Lease < minLease {
		return exit.With(exit.Usage, "--lease is at least %v", minLease)
	}
	if s.runs.ArtifactLimit, err = disk.ParseSize(s.artifactSize); err != nil {
		return exit.With(exit.Usage, "--artifact-size: %w", err)
	}
	if s.runs.ArtifactsLimit, err = disk.ParseSize(s.artifactsPerRun); err != nil {
		return exit.With(exit.Usage, "--artifacts-per-run: %w", err)
	}
	if s.floor, err = disk.ParseFloor(s.minFree); err != nil {
		return exit.With(exit.Usage, "--min-free: %w", err)
	}
	s.walls.Protected = append(s.walls.Protected, s.config, s.secretsDir, s.capabilities.mcpServers)
	s.walls.Protected = slices.DeleteFunc(s.walls.Protected, func(path string) bool { return path == "" })
	if s.runs.Capabilities, err = s.capabilities.capabilities(); err != nil {
		return err
	}
	s.warnOfUnset()
	if err := s.settleWalls(); err != nil {
		return err
	}
	s.probeMachine()
	s.secretSources, err = secretSources(s.secretsDir, s.secretsEnv)
	return err
}

// minLease is the shortest lease. A renewal takes its turn among all writes to the store.
const minLease = 5 * time.Second

const (
	// mostConnections is the largest number of connections that a server keeps open.
	mostConnections = 4096
	// leastDescriptors is how many descriptors are kept for the store, runs and
	// repositories.
	leastDescriptors = 64
)

// makeAdminKey makes the key that callers on the socket have to show.
func (s *serving) makeAdminKey() error {
	s.unixKey = secret.RandomText(32)
	path := filepath.Join(s.in.dir, AdminKeyFile)
	_ = os.Remove(path) // that of the last start, whatever its mode is
	if err := os.WriteFile(path, []byte(s.unixKey+"\n"), 0o600); err != nil {
		return fmt.Errorf("the key of the local socket: %w", err)
	}
	return nil
}

// ballast is the size, in bytes, of an unused allocation that makes garbage collections
// rarer. Without it, a heap of about 8 MB is collected 15 times a second under load, which
// is a tenth of the cost of each delivery. A higher GOGC would have the same effect, but
// would let a large heap grow to several times its size.
const ballast = 16 << 20

// run serves until ctx is done, and for the shutdown delay. Then it stops in this order:
// connections, runs, which get their grace time, and the store.
func (s *serving) run(ctx context.Context) error {
	defer runtime.KeepAlive(make([]byte, ballast)) // it is never touched, so it takes no physical memory
	told := ctx                                    // by a signal
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	working, stopWorking := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWorking()
	var workers sync.WaitGroup
	var failed failures
	background := func(what string, f func(context.Context) error) {
		workers.Go(func() {
			if err := f(working); err != nil {
				failed.add(fmt.Errorf("%s: %w", what, err))
				stop()
			}
		})
	}
	s.in.start = func(a *applier.Applier) { background("applying definitions", a.Run) } // no other server has it
	background("executing runs", s.in.worker.Run)
	background("giving first signs", s.in.answers.RunSigns)
	workers.Go(func() { s.in.keepUp(working) })
	workers.Go(func() {
		s.in.work(working, s.parts, func(what string, err error) {
			failed.add(fmt.Errorf("%s: %w", what, err))
			stop()
		})
	})
	workers.Go(func() {
		select {
		case <-ctx.Done():
		case <-told.Done():
			s.leave(ctx)
			stop()
		}
	})
	defer context.AfterFunc(ctx, func() {
		s.logger.Info("stopping: runs in progress get a moment; a second signal ends it at once")
	})()
	s.logger.Info("serving", "address", s.listeners.TCP.Addr().String(), "base_url", s.server.BaseURL, "data", s.in.dir,
		"max_connections", s.listeners.MaxConnections)
	if len(s.in.appliers) == 0 {
		s.logger.Warn("this server has no factory yet: make one on its pages or with triphammer factories create NAME, or start it with --repo")
	}
	if err := tellSystemd("READY=1"); err != nil {
		s.logger.Error("systemd is not told that this server is ready", "error", err)
	}
	s.tellIsolation()
	workers.Go(s.tellContainers)
	err := s.in.server.Serve(ctx, s.listeners, s.unixKey)
	stop()
	stopWorking()
	workers.Wait()
	s.logger.Info("stopped")
	s.socket()
	return errors.Join(err, failed.all(), s.in.close())
}

// leave waits for the shutdown delay, in which load balancers are to notice that this server is not
// ready any more, or for another signal.
func (s *serving) leave(ctx context.Context) {
	// It sees the end anyway; without the second line it kills what takes longer than TimeoutStopSec.
	_ = tellSystemd(fmt.Sprintf("STOPPING=1\nEXTEND_TIMEOUT_USEC=%d", (s.shutdownDelay + max(s.runs.Grace, 0) + time.Minute).Microseconds()))
	s.in.server.Leave()
	s.in.worker.Retire()
	if s.shutdownDelay == 0 {
		return
	}
	s.logger.Info("told to stop: /readyz answers 503, and connections are still accepted for a moment; a second signal ends that", "shutdown_delay", s.shutdownDelay)
	ctx, release := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer release()
	timer := time.NewTimer(s.shutdownDelay)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// parts begins what one server at a time does.
func (s *serving) parts(begin func(what string, part func(context.Context) error)) {
	for _, a := range s.in.appliers {
		begin("applying definitions", a.Run)
	}
	begin("firing schedules", s.in.schedule.Run)
	begin("telling others", s.in.teller.Run)
	begin("asking senders", s.in.lookups.Run)
	begin("holding connections to senders", s.in.sockets.Run)
	begin("finding subjects", s.in.received.IndexSubjects)
	begin("answering senders", s.in.answers.Run)
	if tracing.Wanted() {
		begin("tracing runs", (&tracing.Teller{Store: s.in.store, Version: client.Version, Now: Now, Logger: s.in.opt.logger}).Run)
	}
	if s.in.shared() {
		begin("ending the runs of lost workers", s.in.worker.Reap)
	}
	begin("deleting what is old", func(ctx context.Context) error {
		s.in.store.Retain(ctx, s.in.opt.keep)
		return nil
	})
}

// failures are the errors of workers.
type failures struct {
	mu     sync.Mutex
	errors []error
}

func (f *failures) add(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.errors = append(f.errors, err)
}

func (f *failures) all() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return errors.Join(f.errors...)
}

// tellIsolation logs what walls the runs have (SPEC 14.3).
func (s *serving) tellIsolation() {
	name, lacking := s.in.runner().Isolation()
	why := terms.Each(lacking, func(err error) string { return err.Error() })
	switch name {
	case "":
		s.logger.Error("no run can start: no walls can be put around it", "problems", why)
	case executor.None:
		s.logger.Warn("agents may do whatever this server's user may do, because there is no --isolation", "isolation", name)
	default:
		s.logger.Info("walls are put around the runs", "isolation", name, "stronger", why)
	}
}

// tellContainers logs which container engine runs can have.
func (s *serving) tellContainers() {
	if s.in.cluster != nil {
		return
	}
	if engine, err := s.in.executor.Containers(); err != nil {
		s.logger.Info("no run gets a container", "reason", err)
	} else {
		s.logger.Info("runs that demand an image or a container get one", "engine", engine)
	}
}

// close releases the address and the data directory, if run was not called.
func (s *serving) close() error {
	err := errors.Join(s.listeners.TCP.Close(), s.listeners.Unix.Close())
	s.socket()
	return errors.Join(err, s.in.close())
}
