package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"triphammer/applier"
	"triphammer/applier/gitrepo"
	"triphammer/cmd/triphammer/client"
	"triphammer/cmd/triphammer/client/exit"
	"triphammer/factory"
	"triphammer/schema/output"
	"triphammer/server"
	"triphammer/server/access"
	"triphammer/server/answer"
	"triphammer/server/dashboard"
	"triphammer/server/delivery"
	"triphammer/server/disk"
	"triphammer/server/githubapp"
	"triphammer/server/hosted"
	"triphammer/server/ledger"
	"triphammer/server/lookup"
	"triphammer/server/metrics"
	"triphammer/server/notify"
	"triphammer/server/run"
	"triphammer/server/secret"
	"triphammer/server/socket"
	"triphammer/server/store"
	"triphammer/server/tracing"
	"triphammer/server/worker"
	"triphammer/server/worker/executor"
	"triphammer/server/worker/executor/kubernetes"
	"triphammer/server/worker/gateway"
)

// instanceOptions are the options of openInstance.
type instanceOptions struct {
	wallOptions

	factories []factoryOptions // nil: offline
	hosting   *factoryOptions  // settings of the factories that are made while the server runs; nil: none are

	// The settings in the Configs of the parts. wire sets the other fields.
	server     server.Config
	deliveries delivery.Config
	runs       worker.Config
	schedules  run.SchedulerConfig
	ends       notify.Runs // where the ends of runs are reported; without states, nowhere
	keep       store.RunRetention
	maxPerHour int64 // runs of an automation

	endsSecret    string // name of the secret that signs messages about runs
	workspaces    string // folder for the workspaces of runs; empty: in the data directory
	floor         disk.Floor
	secretSources []secret.Source
	store         string // address of a PostgreSQL database; empty: it is in the data directory
	impatient     bool   // do not wait for the data directory
	joins         bool   // servers have made the store and its sealing key
	make          bool   // make a data directory that is missing
	logger        *slog.Logger
}

// Now is the clock of the machine. Tests start the program with another one.
var Now = time.Now

// instance is the parts of one server, wired together.
type instance struct {
	dir        string
	opt        instanceOptions
	made       bool // the data directory is new
	configured int  // number of factories in the settings
	lock       *folderLock
	runsLock   *folderLock // of the folder of workspaces, if it is not in the data directory; otherwise nil
	executor   *executor.Executor
	cluster    *kubernetes.Executor // executes the runs in its place; nil: there is none
	disk       *disk.Watch
	store      *store.Store
	ledger     *ledger.Ledger
	live       *applier.Live
	appliers   []*applier.Applier // in the order of the options
	worker     *worker.Manager
	runs       *run.Desk // of the worker
	schedule   *run.Scheduler
	teller     *notify.Teller
	senders    *lookup.Client // of all requests to senders
	lookups    *lookup.Worker
	sockets    *socket.Manager
	received   *delivery.Service
	answers    *answer.Worker
	tells      *http.Client // for addresses that definitions name
	data       *access.Data
	metrics    *metrics.Metrics
	server     *server.Server

	start func(*applier.Applier) // starts the worker of a factory that is made while the server runs

	again  map[string]bool        // the factories that keepUp has applied anew, because the database went back; of keepUp alone
	leads  atomic.Bool            // this server does what one at a time does
	behind atomic.Pointer[string] // why this server does not serve what is live; nil: it does

	making sync.Mutex // held while a factory is made
	mu     sync.Mutex
	places map[string]server.Place // by factory
}

// openInstance locks and opens the data directory, and restores the revisions that served
// last. wire or offline makes the other parts.
func openInstance(ctx context.Context, dir string, opt instanceOptions) (*instance, error) {
	if opt.logger == nil {
		opt.logger = slog.New(slog.DiscardHandler)
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	in := &instance{dir: dir, opt: opt, live: &applier.Live{}, metrics: metrics.New(client.Version), places: make(map[string]server.Place), again: make(map[string]bool)}
	if in.lock, in.made, err = openFolder(ctx, dir, opt.make, !opt.impatient, opt.store != ""); err != nil {
		return nil, err
	}
	if err := in.chooseStore(); err != nil {
		return nil, errors.Join(err, in.close())
	}
	if err := in.openWorkspaces(ctx); err != nil {
		return nil, errors.Join(err, in.close())
	}
	keyFile := keyFileOf(dir)
	_, noKey := os.Lstat(keyFile)
	key, err := in.sealingKey(keyFile)
	if err == nil {
		err = in.reachStore(ctx, key)
	}
	if errors.Is(err, store.ErrSealingKey) && noKey != nil && in.opt.store != "" {
		return nil, errors.Join(in.otherKey(keyFile), in.close())
	}
	if errors.Is(err, store.ErrSealingKey) {
		// If `secrets reseal` was interrupted before its last step, take that step now.
		if next, missing := secret.LoadKey(secret.NextKeyFile(keyFile)); missing == nil {
			if err = in.openStore(ctx, next); err == nil {
				err = secret.TakeNextKey(keyFile)
			}
		}
	}
	if in.opt.joins && errors.Is(err, store.ErrMissing) {
		err = fmt.Errorf("%s has no store yet: start a server on it first (triphammer serve --store …)", store.NameOf(in.opt.store))
		return nil, errors.Join(exit.With(exit.Usage, "%w", err), in.close())
	}
	if err != nil {
		return nil, errors.Join(exit.With(exit.Usage, "%w", wayBack(err)), in.close())
	}
	if err := in.checkHosted(); err != nil {
		return nil, errors.Join(err, in.close())
	}
	if in.configured = len(opt.factories); opt.factories == nil {
		if in.opt.factories, err = in.known(ctx); err != nil {
			return nil, errors.Join(exit.With(exit.Usage, "%w", err), in.close())
		}
	} else if err := in.addKept(); err != nil {
		return nil, errors.Join(err, in.close())
	}
	for _, f := range in.opt.factories {
		in.restore(ctx, f.name)
	}
	return in, nil
}

// restore makes a factory serve what it served last. If that cannot be rebuilt, it serves
// nothing until the next apply.
func (in *instance) restore(ctx context.Context, name string) {
	restored, err := in.ledger.Restore(ctx, name)
	if err != nil {
		in.opt.logger.Error("the last good definitions could not be restored", "factory", name, "error", err)
	}
	if restored != nil {
		in.live.Swap(restored)
	}
}

// openWorkspaces opens the folder of the runs. When a server starts, no run is in
// progress. So their files can be deleted if the store needs the space.
func (in *instance) openWorkspaces(ctx context.Context) (err error) {
	dir := filepath.Join(in.dir, "runs")
	around := append(slices.Clone(in.opt.walls.Around), in.dir)
	if in.opt.workspaces != "" {
		around = nil
		if dir, err = filepath.Abs(in.opt.workspaces); err == nil {
			err = os.MkdirAll(dir, 0o700)
		}
		if err != nil {
			return exit.With(exit.Usage, "--workspaces: %w", err)
		}
		// Another server would take the runs of this one for ended ones.
		if in.runsLock, err = lockFolder(ctx, dir, !in.opt.impatient); errors.Is(err, errLocked) {
			return exit.With(exit.Unreachable, "--workspaces: %s is in use by another server, and can only be of one", dir)
		} else if err != nil {
			return err
		}
	}
	walls := in.opt.walls
	walls.Dir, walls.Around, walls.Logger = dir, around, in.opt.logger
	walls.Protected = append(walls.Protected, in.dir)
	if in.executor, err = executor.New(walls); err != nil {
		return exit.With(exit.Usage, "%w", err)
	}
	in.disk = disk.NewWatch(in.opt.floor, in.dir, dir)
	if in.opt.impatient {
		return nil // a server that starts meanwhile may have runs
	}
	removed, err := in.executor.Reclaim(ctx, func() bool {
		s, err := in.disk.Look(disk.Workspaces)
		return err != nil || s.Level == disk.Enough
	}, func(string) bool { return true })
	if removed > 0 {
		in.opt.logger.Warn("workspaces of runs that have ended were removed early, because there is little room on the disk", "runs", removed)
	}
	if err != nil {
		in.opt.logger.Warn("removing the files of runs that have ended", "error", err)
	}
	return nil
}

// openWalls makes dev run agents without walls, on a person's own files, where no walls work. It
// says so.
func (in *instance) openWalls(w io.Writer) {
	for _, why := range in.executor.Open() {
		fmt.Fprintf(w, "Agents run without walls, as you: %v\n", why)
	}
}

// Unfenced and Unguarded are set by tests alone, which show by them that they would notice
// (store.Config, worker.Config).
var Unfenced, Unguarded bool

const (
	// storePatience is for how long a process that starts tries to reach its database. It is
	// shorter than systemd waits for a service to begin (90 s).
	storePatience = time.Minute
	// storeRetry is the first wait between two tries. Each further one is longer, up to the
	// most.
	storeRetry, storeRetryMost = time.Second, 8 * time.Second
)

// reachStore opens the store. Servers and workers wait for a database that cannot be reached
// yet: after a power cut, all machines begin at the same time.
func (in *instance) reachStore(ctx context.Context, key *secret.Key) error {
	end := time.Now().Add(storePatience)
	for wait := storeRetry; ; wait = min(2*wait, storeRetryMost) {
		err := in.openStore(ctx, key)
		if err == nil || in.opt.impatient || !store.Away(err) || time.Now().Add(wait).After(end) {
			return err
		}
		in.opt.logger.Warn("the database cannot be reached: trying again", "store", store.NameOf(in.opt.store), "in", wait, "error", err)
		select {
		case <-ctx.Done():
			return err
		case <-time.After(wait):
		}
	}
}

func (in *instance) openStore(ctx context.Context, key *secret.Key) (err error) {
	in.store, err = store.Open(ctx, store.Config{
		Path: filepath.Join(in.dir, StoreFile), URL: in.opt.store, Key: key, Existing: in.opt.joins || !in.made && in.opt.store == "", Sources: in.opt.secretSources, Now: Now, Logger: in.opt.logger,
		Reserve: filepath.Join(in.dir, reserveFile), Artifacts: filepath.Join(in.dir, "artifacts"),
		Unfenced: Unfenced,
	})
	in.ledger = ledger.New(in.store)
	if err == nil {
		err = in.openCluster(key)
	}
	return err
}

// close releases everything. The manager and the server have stopped.
func (in *instance) close() error {
	var errs []error
	if in.store != nil {
		errs = append(errs, in.store.Close())
	}
	if in.runsLock != nil {
		errs = append(errs, in.runsLock.close())
	}
	return errors.Join(append(errs, in.lock.close())...)
}

// wire makes and connects the parts of a server.
func (in *instance) wire() error {
	if err := in.wireRuns(store.KindServe); err != nil {
		return err
	}
	in.store.Runs.Guard(in.opt.maxPerHour)
	if in.opt.deliveries.ApproveOutputs {
		in.store.Outputs.Approve(factory.DefaultApprovalTimeout)
	}
	in.teller = notify.New(in.store, Now, in.opt.logger)
	syncSecrets := make(map[string]string)
	for _, f := range in.opt.factories {
		a, err := in.addFactory(f)
		if err != nil {
			return err
		}
		in.appliers = append(in.appliers, a)
		syncSecrets[f.name] = f.syncSecret
	}
	schedules := in.opt.schedules
	schedules.Store, schedules.Live, schedules.Request, schedules.Wake = in.store, in.live, server.ScheduledRequest, in.runs.Wake
	schedules.Now, schedules.Logger = Now, in.opt.logger
	in.schedule = run.NewScheduler(schedules)

	deliveries := in.opt.deliveries
	deliveries.Live, deliveries.Store, deliveries.Wake = in.live, in.store, in.runs.Wake
	deliveries.Stopped, deliveries.KeepSessions = in.runs.Stopped, in.opt.runs.KeepSessions
	deliveries.Follow, deliveries.Shared = in.follow, in.shared()
	deliveries.Load, deliveries.Observe = in.ledger.Load, in.metrics.Delivery
	deliveries.Now, deliveries.Logger = Now, in.opt.logger
	deliveries.Ask = func() { in.lookups.Wake() }
	deliveries.Sign = func(runs []store.RunID) { in.answers.Sign(runs) }
	deliveries.API = in.senders
	in.received = delivery.New(deliveries)
	in.lookups = lookup.New(lookup.Config{Store: in.store, Deliveries: in.received, Client: deliveries.API, Observe: in.metrics.Lookup, Now: Now, Logger: in.opt.logger})

	in.sockets = socket.New(socket.Config{Live: in.live, Store: in.store, Receive: in.received.Receive, Whisper: in.received.Whisper, Now: Now, Logger: in.opt.logger})
	in.tells = githubapp.Client()
	in.answers = answer.New(answer.Config{
		Store: in.store, Client: deliveries.API, API: in.received.AnswerAPI, Waits: in.runs.WaitsFor, Link: in.publicLink, Tell: in.tell, Observe: in.metrics.Answer, Ended: in.runs.Stopped, Now: Now, Logger: in.opt.logger,
		Push: in.push,
	})

	err := in.metrics.Watch(in.store, in.disk, in.executor.Figures)
	if err != nil {
		return err
	}
	cfg := in.opt.server
	in.data = access.New(access.Config{
		Store: in.store, Live: in.live, Load: in.ledger.Load, Appliers: in.appliers, Delivery: in.received, Runs: in.runs, Answers: in.answers,
	})
	cfg.Metrics, cfg.Disk, cfg.Behind = in.metrics, in.disk, in.lag
	if !in.opt.impatient { // a command without a server starts no run
		cfg.Isolation, cfg.Machine = in.isolation, in.machine
	}
	if in.opt.hosting != nil {
		cfg.Host = in.host
	}
	cfg.Data, cfg.Place, cfg.SchedulesChanged, cfg.SyncSecrets = in.data, in.place, in.schedule.Kick, syncSecrets
	cfg.Connection = in.sockets.State
	cfg.Dir, cfg.Apps = in.dir, in.senders.Apps()
	cfg.Version, cfg.Now, cfg.Logger = client.Version, Now, in.opt.logger
	dashboard.Now = Now
	in.server, err = server.New(cfg)
	if ends := in.opt.ends; err == nil && len(ends.States) > 0 {
		ends.Secret, ends.Body, ends.Trace = in.signer(in.opt.endsSecret, "--notify-secret"), in.server.RunNotice, in.trace
		in.teller.Runs(ends)
	}
	if err == nil && !in.opt.impatient { // a command tells nobody
		err = in.store.Notices.KeepEnds(context.Background(), len(in.opt.ends.States) > 0)
	}
	return err
}

// follow makes a factory serve what is live by the store.
func (in *instance) follow(ctx context.Context, factory string) error {
	if a := in.data.Applier(factory); a != nil {
		return a.Follow(ctx)
	}
	return nil
}

// push performs a push that waited for a person.
func (in *instance) push(ctx context.Context, p *output.Push) error {
	err := in.worker.Push(ctx, p, in.executor.Push)
	if no := (*gateway.PushError)(nil); errors.As(err, &no) && no.Unsure {
		return lookup.Unsure(no.Error())
	} else if err != nil {
		return lookup.Fail(err.Error(), no != nil && no.Final)
	}
	return nil
}

// publicLink is the page of a run, if others than this machine may reach it.
func (in *instance) publicLink(id store.RunID) string {
	u, err := url.Parse(in.opt.server.BaseURL)
	if err != nil || u.Hostname() == "localhost" {
		return ""
	}
	if ip, err := netip.ParseAddr(u.Hostname()); err == nil && (ip.IsLoopback() || ip.IsUnspecified()) {
		return ""
	}
	return in.opt.server.BaseURL + "/runs/" + id.String()
}

// wireRuns makes the worker of this process, and the desk that knows of it. kind is what the worker is for others.
func (in *instance) wireRuns(kind string) error {
	runs := &in.opt.runs
	runs.Store, runs.Executor, runs.Disk, runs.Now, runs.Logger = in.store, in.runner(), in.disk, Now, in.opt.logger
	runs.Observe = in.metrics.Run
	if tracing.Wanted() {
		runs.TraceParent = tracing.Parent
	}
	in.senders = lookup.NewClient(Now)
	runs.Apps = in.senders.Apps()
	runs.Capabilities.LookPath = in.executor.LookPath
	runs.Capabilities.Unknown, runs.Shared, runs.Unguarded = in.opt.impatient, in.shared(), Unguarded
	if !in.opt.impatient { // a command executes nothing
		id, err := in.identity()
		if err != nil {
			return err
		}
		runs.Worker = store.Worker{ID: id, Kind: kind, Version: client.Version}
	}
	in.worker = worker.New(*runs)
	in.runs = in.worker.Desk()
	return nil
}

// addFactory makes the applier of a factory, and the notifications about its applies.
func (in *instance) addFactory(f factoryOptions) (*applier.Applier, error) {
	pin, err := in.ledger.Pin(context.Background(), f.name)
	if err != nil {
		return nil, err
	}
	told := func(applier.State) {}
	if f.tells() {
		cfg := f.notify
		_, cfg.Branch = f.source.Describe()
		cfg.Factory, cfg.Secret, cfg.BaseURL = f.name, in.signer(f.notifySecret, "--notify-secret"), in.opt.server.BaseURL
		if told, err = in.teller.Commits(cfg); err != nil {
			return nil, err
		}
	}
	var verify func(context.Context, string) (string, error)
	if f.verify != nil {
		arrived := func(ctx context.Context, hash string) (time.Time, error) { return in.ledger.Arrived(ctx, f.name, hash) }
		verify = func(ctx context.Context, hash string) (string, error) { return f.verify(ctx, hash, arrived) }
	}
	in.mu.Lock()
	in.places[f.name] = server.Place{Home: f.home, Links: f.links()}
	in.mu.Unlock()
	return applier.New(applier.Config{
		Factory: f.name, Source: f.source, Path: f.path, Live: in.live, Ledger: in.ledger, Pin: pin, Verify: verify, Now: Now, Logger: in.opt.logger, Lacks: in.runs.Lacks,
		Shared: in.shared(), Trial: f.trial,
		OnChange: func(s applier.State) {
			in.metrics.Applier(s)
			if r, ok := in.live.Revision(s.Factory); ok {
				in.metrics.Live(r)
			}
			in.schedule.Kick()
			in.sockets.Wake()
			told(s)
			if f.watch != nil {
				f.watch(s)
			}
		},
	}), nil
}

// baseURLFile is a file with the base URL of the last server. Commands use it to print
// URLs while no server runs.
const baseURLFile = "base-url"

func (in *instance) noteBaseURL() {
	path, text := filepath.Join(in.dir, baseURLFile), in.opt.server.BaseURL+"\n"
	if was, err := os.ReadFile(path); err == nil && string(was) == text {
		return
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		_ = os.Remove(path) // it may be incomplete
		in.opt.logger.Warn("the base URL is not noted for commands that run without this server", "error", err)
	}
}

// reserveFile is a file that reserves space on the disk for the store.
const reserveFile = "reserve"

// offline makes the parts that answer commands while no server runs. It starts none of
// them.
func (in *instance) offline() error {
	if address, err := os.ReadFile(filepath.Join(in.dir, baseURLFile)); err == nil {
		in.opt.server.BaseURL = strings.TrimSpace(string(address))
	}
	return in.wire()
}

// known are the factories that have applies in the store, for answers while no server
// runs.
func (in *instance) known(ctx context.Context) ([]factoryOptions, error) {
	names, err := in.store.Applies.Factories(ctx)
	if err != nil {
		return nil, err
	}
	kept, err := hosted.Kept(filepath.Join(in.dir, HostedFolder))
	if err != nil {
		return nil, err
	}
	for _, name := range kept {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		names = []string{client.FactoryName}
	}
	var all []factoryOptions
	for _, name := range names {
		f := factoryOptions{name: name, source: offlineSource{}}
		if last, err := in.store.Applies.Last(ctx, name, ""); err == nil {
			f.source = offlineSource{repository: last.Repository, branch: last.Branch}
		} else if !errors.Is(err, store.ErrNotFound) {
			return nil, err
		}
		all = append(all, f)
	}
	return all, nil
}

// offlineSource names the repository that a server would read, but does not read it.
type offlineSource struct{ repository, branch string }

var errOffline = errors.New("no server is running")

func (offlineSource) Head(context.Context) (gitrepo.Commit, error) {
	return gitrepo.Commit{}, errOffline
}

func (offlineSource) Tree(context.Context, string, string) (fs.FS, error) { return nil, errOffline }
func (offlineSource) Watch(context.Context, func()) error                 { return errOffline }
func (s offlineSource) Describe() (repository, branch string)             { return s.repository, s.branch }
