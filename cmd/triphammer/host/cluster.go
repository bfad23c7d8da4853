package host

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"triphammer/applier"
	"triphammer/cmd/triphammer/client/exit"
	"triphammer/server/api"
	"triphammer/server/hosted"
	"triphammer/server/store"
)

// shared tells whether other servers may use the store.
func (in *instance) shared() bool { return in.store.Shared() }

const (
	// followEvery is how often it is looked what other servers applied, if nothing tells.
	followEvery = time.Second
	// followRest is the time between two looks. A delivery that an earlier apply decided does
	// not wait for the next one: it looks for itself.
	followRest = 100 * time.Millisecond
	// reportEvery is how often the leader looks whether there is something to report, and
	// checkedEvery how often it reports that it has looked at a repository and found nothing.
	reportEvery  = time.Second
	checkedEvery = 15 * time.Second
)

// role is what a server does that leads, or that does not.
type role struct {
	*instance
	attend context.CancelFunc // ends the answers to kicks of a server that does not lead
	ended  *sync.WaitGroup
}

// rest begins to answer kicks only: the leader watches the repositories.
func (r *role) rest(ctx context.Context) {
	ctx, stop := context.WithCancel(ctx)
	r.attend, r.ended = stop, &sync.WaitGroup{}
	for _, a := range r.appliers {
		r.ended.Go(func() { a.Attend(ctx) })
	}
}

// rise ends that, because this server leads from now on.
func (r *role) rise() {
	r.attend()
	r.ended.Wait()
}

// work does what one server at a time does, whenever this one leads. It calls begin with each
// part and the part's name.
func (in *instance) work(ctx context.Context, parts func(begin func(what string, part func(context.Context) error)), failed func(what string, err error)) {
	r := &role{instance: in}
	r.rest(ctx)
	defer r.rise()
	in.store.Lead(ctx, func(leading context.Context) {
		r.rise()
		defer r.rest(ctx)
		in.leads.Store(true)
		defer in.leads.Store(false)
		var working sync.WaitGroup
		parts(func(what string, part func(context.Context) error) {
			working.Go(func() {
				if err := part(leading); err != nil && leading.Err() == nil {
					failed(what, err)
				}
			})
		})
		if in.shared() {
			working.Go(func() { in.report(leading) })
		}
		working.Wait()
	})
}

// keepUp makes this server serve and show what other servers changed, until ctx is done.
func (in *instance) keepUp(ctx context.Context) {
	if !in.shared() {
		return
	}
	changed := in.store.Changed()
	poll := time.NewTicker(followEvery)
	defer poll.Stop()
	rest := time.NewTimer(0)
	defer rest.Stop()
	var kicked time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-rest.C:
		}
		err := in.catchUp(ctx)
		if ctx.Err() != nil {
			return
		}
		in.noteBehind(err)
		if in.leads.Load() && time.Since(kicked) >= followEvery {
			kicked = time.Now()
			in.schedule.Kick()
			in.lookups.Wake()
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-poll.C:
		}
		rest.Reset(followRest)
	}
}

func (in *instance) catchUp(ctx context.Context) error {
	var reports map[string][]byte
	var errs []error
	if !in.leads.Load() {
		var err error
		if reports, err = in.store.Applies.Reports(ctx); err != nil {
			return err
		}
		in.sockets.Show(reports[socketReport])
	}
	for _, a := range in.appliers {
		err := a.Follow(ctx)
		if !errors.Is(err, store.ErrWentBack) {
			delete(in.again, a.State().Factory)
		} else if !in.again[a.State().Factory] {
			in.again[a.State().Factory] = true
			if done, _ := a.Apply(ctx, "recovery"); done != nil && done.Outcome == applier.Applied {
				err = nil
			}
		}
		if err == nil {
			var pin *applier.Pin
			if pin, err = in.ledger.Pin(ctx, a.State().Factory); err == nil {
				a.SetPin(pin)
			}
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("factory %s: %w", a.State().Factory, err))
		}
		var r applier.Report
		if text := reports[a.State().Factory]; text != nil && json.Unmarshal(text, &r) == nil {
			a.Show(r)
		}
	}
	return errors.Join(errs...)
}

// noteBehind remembers why this server does not serve what is live, and tells it once.
func (in *instance) noteBehind(err error) {
	was := in.behind.Load()
	switch {
	case err == nil && was != nil:
		in.behind.Store(nil)
		in.opt.logger.Info("this server follows the others again")
	case err != nil && (was == nil || *was != err.Error()):
		text := err.Error()
		in.behind.Store(&text)
		in.opt.logger.Error("this server cannot follow what the others apply: until it can, it answers deliveries with 503", "error", err)
	}
}

// lag says why this server does not serve what is live; empty: it does.
func (in *instance) lag() string {
	if why := in.behind.Load(); why != nil {
		return *why
	}
	return ""
}

// socketReport is the name of the report about connections to senders. No factory can have it.
const socketReport = "connections to senders"

// report tells the other servers what this one finds in the repositories, and how its connections
// to senders are, until ctx is done.
func (in *instance) report(ctx context.Context) {
	told := make(map[string]applier.Report)
	var sockets []byte
	tick := time.NewTicker(reportEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if now := in.sockets.Report(); !bytes.Equal(now, sockets) {
			if err := in.store.Applies.SetReport(ctx, socketReport, now); err == nil { // else it is told at the next tick
				sockets = now
			}
		}
		for _, a := range in.appliers {
			state := a.State()
			now, was := state.Report(), told[state.Factory]
			if now.Checked.Sub(was.Checked) < checkedEvery {
				now.Checked = was.Checked
			}
			if now == was {
				continue
			}
			text, err := json.Marshal(now)
			if err == nil {
				err = in.store.Applies.SetReport(ctx, state.Factory, text)
			}
			if err != nil && ctx.Err() == nil {
				in.opt.logger.Warn("the other servers could not be told how a factory stands", "factory", state.Factory, "error", err)
				continue
			}
			told[state.Factory] = now
		}
	}
}

// whyNotHosted is why a factory cannot live on one of several servers.
const whyNotHosted = "a hosted factory lives in the data directory of one machine, and the servers of a shared store (--store) must be alike: " +
	"keep its repository where all of them can read it, and give --repo"

// checkHosted refuses factories that live here, if other servers use the store too.
func (in *instance) checkHosted() error {
	if !in.shared() {
		return nil
	}
	names, err := hosted.Kept(filepath.Join(in.dir, HostedFolder))
	if err != nil {
		return err
	}
	for _, f := range in.opt.factories {
		if f.hosted {
			names = append(names, f.name)
		}
	}
	if len(names) > 0 {
		return exit.With(exit.Usage, "factory %s: %s", strings.Join(names, ", "), whyNotHosted)
	}
	return nil
}

// refuseHosted is the answer to who wants to make a factory here.
func refuseHosted() error { return api.Refuse(api.NotSupported, whyNotHosted) }
