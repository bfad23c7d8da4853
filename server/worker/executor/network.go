package executor

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"

	"triphammer/schema/output"
	"triphammer/server/inside"
	"triphammer/server/run/event"
	"triphammer/server/run/task"
	"triphammer/server/worker/gateway"
)

// wayOut serves a run outside its walls: with the proxy if its network is a list of hosts, and
// with the gateway to its private repositories, its model and its services.
type wayOut struct {
	folder   inside.Folder
	forwards []inside.Forward // for a run that cannot reach the loopback of the machine
	settings string           // of Git
	address  string           // of the gateway; empty: there is none
	gateway  *gateway.Gateway
	stops    []func()
}

// wayOut begins to serve a run. The caller closes the result, even after an error. foreign tells
// that the run does not have the loopback of this machine.
func (e *Executor) wayOut(ctx context.Context, t *task.Task, foreign bool, f inside.Folder, sink task.Sink) (*wayOut, error) {
	w := &wayOut{folder: f}
	n := t.Network.Or(e.network)
	report := func(c event.Egress) { sink.Add(c) }
	if len(n.Hosts) > 0 {
		p, err := gateway.New(gateway.Config{Hosts: n.Hosts, Own: e.own, Report: report})
		if err != nil {
			return w, fmt.Errorf("the network of the run: %w", err)
		}
		l, err := e.listen(f, inside.ProxyForward.Socket)
		if err != nil {
			return w, fmt.Errorf("the proxy of the run: %w", err)
		}
		w.forwards = append(w.forwards, inside.ProxyForward)
		w.serve(ctx, e, "the proxy of a run", p.Serve, l)
	}
	private := private(t)
	if len(private)+len(t.Services) == 0 {
		return w, nil
	}
	cfg := gateway.GatewayConfig{
		Repositories: private, Own: e.own, Report: report, Pushes: t.Pushes, Pushed: func(p event.Push) { sink.Add(p) }, Pulled: func(r event.Request) { sink.Add(r) },
		Services: t.Services, Meter: t.Meter, Tell: func(s event.Status) { sink.Add(s) }, Mirrors: e.mirrors, Factory: t.Factory,
	}
	var err error
	if e.roots != nil {
		if cfg.Roots, err = e.roots(); err != nil {
			return w, err
		}
	}
	if w.gateway, err = gateway.NewGateway(cfg); err != nil {
		return w, err
	}
	var l net.Listener
	w.address = inside.GatewayForward.Address
	if n.Limited() || foreign {
		to := inside.GatewayForward
		if !n.Limited() { // the run may share a loopback with other runs
			sum := sha256.Sum256([]byte(e.attemptName(t)))
			to.Address = fmt.Sprintf("127.%d.%d.%d:3129", sum[0], sum[1], max(1, sum[2]-1))
			w.address = to.Address
		}
		l, err = e.listen(f, to.Socket)
		w.forwards = append(w.forwards, to)
	} else if l, err = net.Listen("tcp", "127.0.0.1:0"); err == nil {
		w.address = l.Addr().String()
	}
	if err != nil {
		return w, fmt.Errorf("the gateway of the run: %w", err)
	}
	if len(private) > 0 {
		w.settings = w.gateway.Settings(w.address)
	}
	w.serve(ctx, e, "the gateway of a run", w.gateway.Serve, l)
	return w, nil
}

// private are the repositories of a task that have a credential.
func private(t *task.Task) (all []gateway.Repository) {
	for _, r := range t.Repositories {
		if r.Secret != "" {
			all = append(all, gateway.Repository{URL: r.URL, Secret: r.Secret, Credential: t.Credentials[r.Secret], Mint: minter(t, r), ReadOnly: r.ReadOnly, Branch: r.PullBranch()})
		}
	}
	return all
}

// Push performs a push to the only repository of a task that waited for a person, outside of all runs (gateway.Send).
func (e *Executor) Push(ctx context.Context, t *task.Task, p *output.Push, pack io.Reader) (err error) {
	cfg := gateway.GatewayConfig{Repositories: private(t), Own: e.own, Report: func(event.Egress) {}}
	if e.roots != nil {
		if cfg.Roots, err = e.roots(); err != nil {
			return err
		}
	}
	g, err := gateway.NewGateway(cfg)
	if err != nil {
		return err
	}
	defer g.Close()
	return g.Send(ctx, p, pack)
}

// minter makes the credential of a repository; nil: it is in Task.Credentials.
func minter(t *task.Task, r task.Repository) func(context.Context) (task.Minted, error) {
	if !t.Mints(r) {
		return nil
	}
	return func(ctx context.Context) (task.Minted, error) { return t.Mint(ctx, r) }
}

// listen listens on a socket in the folder of a run.
func (e *Executor) listen(f inside.Folder, name string) (net.Listener, error) {
	// The path by way of the folder's descriptor is short enough for a socket.
	dir, err := os.Open(f.Root)
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }()
	path := fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), name)
	_ = os.Remove(path) // of the run before, in the same folder
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	if err := e.account.own(filepath.Join(f.Root, name)); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// serve serves until the way out is closed, even while the run is being stopped.
func (w *wayOut) serve(ctx context.Context, e *Executor, what string, serve func(context.Context, net.Listener) error, l net.Listener) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := serve(ctx, l); err != nil {
			e.logger.Warn(what, "error", err)
		}
	}()
	w.stops = append(w.stops, func() { cancel(); <-done })
}

func (w *wayOut) close() {
	for _, stop := range w.stops {
		stop()
	}
	for _, to := range w.forwards {
		_ = os.Remove(filepath.Join(w.folder.Root, to.Socket))
	}
}

// explain says why a step of the run failed. It adds the last problem of the gateway.
func (w *wayOut) explain(failed string) error {
	if w.gateway != nil {
		if problem := w.gateway.Problem(); problem != nil {
			return fmt.Errorf("%s: %w", failed, problem)
		}
	}
	return errors.New(failed)
}
