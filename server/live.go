package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/gin-gonic/gin"

	"triphammer/server/access"
	"triphammer/server/api"
	"triphammer/server/run"
	"triphammer/server/store"
)

const (
	// watchTime is how often the watch looks for changes while pages are open.
	watchTime = 500 * time.Millisecond
	// pageTime is the least time between two messages to a page.
	pageTime = time.Second
	// shareTime is what each open page adds to the time over which messages to pages are
	// spread, because a page that hears of a change may be made again: the pages that are open
	// are made 25 times a second at most, however many there are.
	shareTime = 40 * time.Millisecond
	// mostSpread is the longest such time.
	mostSpread = 30 * time.Second
	// mostPages and mostPagesOf limit the streams of pages, in all and of one person.
	mostPages, mostPagesOf = 2000, 600
)

// watch tells open pages that something has changed. One reader looks for all of them, and
// only while there is one.
type watch struct {
	data *access.Data

	reading sync.Mutex // held by who moves the mark
	mark    store.Mark
	serving map[string]string // what serves, by factory

	mu      sync.Mutex
	pages   map[*livePage]struct{}
	stop    context.CancelFunc
	stopped chan struct{}
}

// liveViews are what a page can be told of.
var liveViews = []string{"deliveries", "runs", "definitions", "run"}

// livePage is one open page.
type livePage struct {
	by     *access.Caller
	views  []string // some of liveViews
	filter store.DeliveryCount

	wake chan struct{} // there is something to tell

	mu   sync.Mutex
	mark store.Mark
	tell map[string]bool // the views that have news
	news struct{ deliveries, runs, definitions int64 }
	run  api.LiveRun
}

// newPage joins a page that shows what was up to a mark.
func (w *watch) newPage(ctx context.Context, p *livePage, from store.Mark) (leave func(), err error) {
	w.reading.Lock()
	defer w.reading.Unlock()
	w.mu.Lock()
	own := 0
	for other := range w.pages {
		if other.by.Owner == p.by.Owner {
			own++
		}
	}
	all := len(w.pages)
	w.mu.Unlock()
	if all >= mostPages || own >= mostPagesOf {
		return nil, api.Refuse(api.Unavailable, "too many pages are open: this one does not show changes by itself")
	}
	if err := w.advance(ctx); err != nil {
		return nil, err
	}
	changes, err := w.data.Changes().Changes(ctx, from, w.mark)
	if err != nil {
		return nil, err
	}
	p.add(changes, w.mark)
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.pages) == 0 {
		reading, stop := context.WithCancel(context.WithoutCancel(ctx)) // it reads for all pages, not only for the first
		w.pages, w.stop, w.stopped = make(map[*livePage]struct{}), stop, make(chan struct{})
		go w.read(reading, w.stopped)
	}
	w.pages[p] = struct{}{}
	return func() { w.leave(p) }, nil
}

func (w *watch) leave(p *livePage) {
	w.mu.Lock()
	delete(w.pages, p)
	last, stop, stopped := len(w.pages) == 0, w.stop, w.stopped
	w.mu.Unlock()
	if last {
		stop()
		<-stopped
	}
}

// open is how many pages are open.
func (w *watch) open() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.pages)
}

// read looks for changes until nobody looks any more.
func (w *watch) read(ctx context.Context, stopped chan<- struct{}) {
	defer close(stopped)
	tick := time.NewTicker(watchTime)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			w.reading.Lock()
			_ = w.advance(ctx) // the next one tries again
			w.reading.Unlock()
		}
	}
}

// advance reads what is new, and gives it to the open pages.
func (w *watch) advance(ctx context.Context) error {
	to, err := w.data.Changes().Mark(ctx)
	if err != nil {
		return err
	}
	serving := w.data.Serving()
	w.mu.Lock()
	pages := make([]*livePage, 0, len(w.pages))
	for p := range w.pages {
		pages = append(pages, p)
	}
	w.mu.Unlock()
	if len(pages) > 0 {
		changes, err := w.data.Changes().Changes(ctx, w.mark, to)
		if err != nil {
			return err
		}
		for name, state := range serving {
			if w.serving[name] != state {
				if changes.Definitions == nil {
					changes.Definitions = make(map[string]int64)
				}
				changes.Definitions[name]++
			}
		}
		for _, p := range pages {
			p.add(changes, to)
		}
	}
	w.mark, w.serving = to, serving
	return nil
}

// add adds changes to what the page is to be told.
func (p *livePage) add(c store.Changes, to store.Mark) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mark = to
	for _, d := range c.Deliveries {
		if f := p.filter; p.concerns(d.Factory) && (f.Webhook == "" || f.Webhook == d.Webhook || f.Webhook == d.WebhookUID) &&
			(f.Outcome == "" || f.Outcome == d.Outcome || f.Outcome == "refused" && d.Refused()) &&
			(f.Stopped == "" || f.Stopped == d.Stopped || f.Stopped == store.Went && d.Stopped == "") {
			p.news.deliveries += d.Count
			p.tellOf("deliveries")
		}
	}
	count := func(view string, changes map[string]int64, total *int64) {
		for factory, n := range changes {
			if p.concerns(factory) {
				*total += n
				p.tellOf(view)
			}
		}
	}
	count("runs", c.Runs, &p.news.runs)
	count("definitions", c.Definitions, &p.news.definitions)
}

// concerns tells whether the page shows things of a factory. What has none concerns all.
func (p *livePage) concerns(factory string) bool {
	if factory == "" {
		return p.by.Factory == ""
	}
	return p.by.Touches(factory) && (p.filter.Factory == "" || p.filter.Factory == factory)
}

func (p *livePage) tellOf(view string) {
	if slices.Contains(p.views, view) {
		p.tell[view] = true
		signal(p.wake)
	}
}

// follow tells the page of a run.
func (p *livePage) follow(n *run.News) error {
	if n == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.run = api.LiveRun{State: string(n.Position.State), Events: n.Position.Seq}
	p.tellOf("run")
	return nil
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// liveEvent is one message to a page.
type liveEvent struct {
	name string
	data any
}

// take takes what there is to tell, and the mark up to which it is.
func (p *livePage) take() (events []liveEvent, to store.Mark) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, view := range p.views {
		if !p.tell[view] {
			continue
		}
		e := liveEvent{name: view}
		switch view {
		case "deliveries":
			e.data = api.LiveChange{New: p.news.deliveries}
		case "runs":
			e.data = api.LiveChange{New: p.news.runs}
		case "definitions":
			e.data = api.LiveChange{New: p.news.definitions}
		case "run":
			e.data = p.run
		}
		events = append(events, e)
	}
	clear(p.tell)
	return events, p.mark
}

// pageEvents streams to an open page that something has changed, as server-sent events:
// `deliveries`, `runs`, `definitions` with {"new": N}, how many came since the page was made,
// and `run` with {"state", "events"}. The parameters: view, which may be repeated; at, when
// the page was made, in Unix milliseconds; after, the newest delivery that it shows; factory,
// webhook, outcome and stopped, the filters of deliveries; run, after_event and state, the
// run of the view `run` and how far the page shows it. Last-Event-ID goes on after a restart.
// A last event `ended` says that the person was signed out.
func (s *Server) pageEvents(g *gin.Context) {
	c := callOf(g)
	if !c.May(store.ScopeRead) {
		s.message(g, http.StatusForbidden, "Not allowed", "This needs the scope "+store.ScopeRead+".")
		return
	}
	p := &livePage{
		by: c.Caller, wake: make(chan struct{}, 1), tell: make(map[string]bool),
		filter: store.DeliveryCount{Factory: g.Query("factory"), Webhook: g.Query("webhook"), Outcome: store.Outcome(g.Query("outcome")), Stopped: g.Query("stopped")},
	}
	asked := g.QueryArray("view")
	for _, view := range liveViews { // each once, whatever is asked
		if slices.Contains(asked, view) {
			p.views = append(p.views, view)
		}
	}
	from, err := pageMark(g)
	if err != nil {
		s.failWith(g, err)
		return
	}
	ctx, end := context.WithCancelCause(g.Request.Context())
	defer end(nil)
	defer s.streams.add(c.Caller, end)()
	if !c.stillMay() {
		end(errRevoked) // its session has ended since the request began
	}
	if expires := c.Expires; !expires.IsZero() {
		defer time.AfterFunc(expires.Sub(s.cfg.Now()), func() { end(errRevoked) }).Stop()
	}
	if g.GetHeader("Last-Event-ID") != "" && slices.Contains(p.views, "definitions") {
		p.tellOf("definitions") // what serves may have changed with the server itself
	}
	leave, err := s.watch.newPage(ctx, p, from)
	if err != nil {
		s.failWith(g, err)
		return
	}
	defer leave()
	if slices.Contains(p.views, "run") {
		r, err := c.Run(ctx, g.Query("run"))
		if err != nil {
			s.failWith(g, err)
			return
		}
		after, _ := strconv.ParseInt(g.Query("after_event"), 10, 64)
		at := run.Position{Seq: max(after, 0), State: store.RunState(g.Query("state"))}
		var following sync.WaitGroup
		following.Go(func() { _ = r.Follow(ctx, at, quietTime, p.follow) }) // it ends with the run, or with the page
		defer following.Wait()
		defer end(nil)
	}
	s.writePage(ctx, c, p)
}

// pageMark is up to where the page shows what happened.
func pageMark(g *gin.Context) (from store.Mark, err error) {
	at, err := strconv.ParseInt(cmp.Or(g.Query("at"), "0"), 10, 64)
	if err != nil || at < 0 {
		return from, invalid("at", "is not a time in Unix milliseconds")
	}
	if at > 0 {
		// What was being committed while the page was made has an older time than the page.
		from = store.MarkAt(time.UnixMilli(at).Add(-time.Second))
	}
	if id := g.GetHeader("Last-Event-ID"); id != "" {
		was := from.Delivery
		if from, err = store.ParseMark(id); err != nil {
			return from, invalid("Last-Event-ID", "is not an id of these events")
		}
		from.Delivery = was // their number is since the page was made
	}
	if after := g.Query("after"); after != "" {
		if from.Delivery, err = store.ParseID[store.Delivery](after); err != nil {
			return from, invalid("after", "is not the id of a delivery")
		}
	}
	return from, nil
}

// writePage writes what there is to tell until the page is closed.
func (s *Server) writePage(ctx context.Context, c *call, p *livePage) {
	h := c.Writer.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // a proxy must not buffer the stream
	w := &eventWriter{c: c.Context, control: http.NewResponseController(c.Writer)}
	if w.write(": open\n\n") != nil || w.flush() != nil {
		return
	}
	alive := time.NewTicker(quietTime)
	defer alive.Stop()
	next := time.NewTimer(0)
	defer next.Stop()
	<-next.C
	wake, last := p.wake, time.Time{}
	var err error
	for err == nil {
		select {
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-alive.C:
			if !c.stillMay() {
				err = errRevoked
				break
			}
			err = errors.Join(w.write(": alive\n\n"), w.flush())
		case <-wake:
			wake = nil // until it is told
			spread := min(time.Duration(s.watch.open()-1)*shareTime, mostSpread)
			next.Reset(max(time.Until(last.Add(pageTime)), rand.N(max(spread, 1))))
		case <-next.C:
			wake, last = p.wake, time.Now()
			events, to := p.take()
			for _, e := range events {
				var data []byte
				if data, err = json.Marshal(e.data); err != nil {
					break
				}
				if err = w.write(fmt.Sprintf("id: %s\nevent: %s\ndata: %s\n\n", to, e.name, data)); err != nil {
					break
				}
			}
			err = errors.Join(err, w.flush())
		}
	}
	if errors.Is(err, errRevoked) && w.write("event: ended\ndata: {}\n\n") == nil {
		_ = w.flush()
	}
}
