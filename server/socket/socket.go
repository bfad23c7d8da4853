// Package socket holds the connections over which senders bring deliveries to a server that they
// cannot call (SPEC 29.1). The one sender that offers such connections is Slack, with Socket Mode.
//
// A [Manager] has a connection for each live webhook that asks for one. It opens the connection
// anew when Slack asks for that and after failures. What an envelope brings goes to Config.Receive
// like a request to the ingress; Slack gets the acknowledgement after the commit, or none.
package socket

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"triphammer/applier"
	"triphammer/server/api"
	"triphammer/server/delivery"
	"triphammer/server/githubapp"
	"triphammer/server/secret"
	"triphammer/server/store"
)

// Config is what a Manager needs. All fields are required.
type Config struct {
	Live    *applier.Live
	Store   *store.Store
	Receive func(context.Context, *delivery.Request) delivery.Answer
	// Whisper tells whoever made a click why it decides nothing.
	Whisper func(ctx context.Context, uid string, click []byte, why string) error
	Now     func() time.Time
	Logger  *slog.Logger
}

// times are the durations by which a Manager works.
type times struct {
	look        time.Duration // between two looks at secrets and pauses: nothing tells when they change
	first, most time.Duration // pauses after failures: the first is doubled up to the most
	seldom      time.Duration // pause after a refusal that another attempt would most likely meet again
	stable      time.Duration // a connection that was open for this long does not count as failed
	leave       time.Duration // how long a connection is kept that Slack is about to close
	ping        time.Duration // between two pings, and until an answer is missed
	open        time.Duration // to open a connection, and for its first message
	take        time.Duration // for the delivery of an envelope, and for its acknowledgement
}

var defaultTimes = times{
	look: 5 * time.Second, first: time.Second, most: time.Minute, seldom: 15 * time.Minute, stable: 30 * time.Second,
	leave: 15 * time.Second, ping: 30 * time.Second, open: 15 * time.Second, take: 10 * time.Second,
}

// Manager holds the connections of the live webhooks. It is safe for concurrent use.
type Manager struct {
	Config
	times
	http *http.Client
	wake chan struct{}

	mu     sync.Mutex
	runs   bool
	states map[string]api.Connection // by the UID of the webhook
}

// New makes a Manager, which opens no connection before Run.
func New(cfg Config) *Manager {
	return &Manager{
		Config: cfg, times: defaultTimes, wake: make(chan struct{}, 1), states: make(map[string]api.Connection),
		http: githubapp.Client(),
	}
}

// Wake tells the Manager that the definitions have changed.
func (m *Manager) Wake() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// State is how the connection of a webhook is; nil: this server does not know, or the webhook has
// none.
func (m *Manager) State(uid string) *api.Connection {
	m.mu.Lock()
	defer m.mu.Unlock()
	state, ok := m.states[uid]
	if !ok {
		return nil
	}
	return &state
}

// Report has all states, for Show of another server.
func (m *Manager) Report() []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	text, _ := json.Marshal(m.states) // plain data always encodes
	return text
}

// Show takes the states of the server that holds the connections, unless this one does.
func (m *Manager) Show(report []byte) {
	states := make(map[string]api.Connection)
	_ = json.Unmarshal(report, &states) // without a report, nothing is known
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.runs {
		m.states = states
	}
}

// change changes the state of a webhook.
func (m *Manager) change(uid string, change func(*api.Connection)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	state := m.states[uid]
	change(&state)
	m.states[uid] = state
}

// target is a connection that is wanted. Another target needs another connection.
type target struct {
	uid, factory, webhook string
	api                   string // address of Slack's API; empty: its own
	token                 secret.Value
}

// link is a connection that is held. done is closed after its end.
type link struct {
	target
	end  context.CancelFunc
	done chan struct{}
}

// Run holds the connections until ctx is done. It returns when all are closed.
func (m *Manager) Run(ctx context.Context) error {
	m.begin(true)
	defer m.begin(false)
	links := make(map[string]*link) // by the UID of the webhook
	defer func() {
		m.close(slices.Collect(maps.Values(links)))
	}()
	look := time.NewTicker(m.look)
	defer look.Stop()
	var told string
	for {
		wanted, err := m.wanted(ctx)
		if err == nil {
			m.follow(ctx, links, wanted)
			told = ""
		} else if text := err.Error(); ctx.Err() == nil && text != told {
			told = text
			m.Logger.Error("the secrets of connections could not be read: the connections stay as they are", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-m.wake:
		case <-look.C:
		}
	}
}

func (m *Manager) begin(runs bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.runs, m.states = runs, make(map[string]api.Connection)
}

// close ends connections, and returns after their end.
func (m *Manager) close(links []*link) {
	for _, l := range links {
		l.end()
	}
	for _, l := range links {
		<-l.done
	}
}

// wanted are the connections that the live definitions ask for, by the UID of the webhook. A
// target without a token cannot be had; the state of the webhook says why.
func (m *Manager) wanted(ctx context.Context) (map[string]target, error) {
	wanted := make(map[string]target)
	var names []string
	var hooks []*applier.Webhook
	for _, r := range m.Live.Revisions() {
		for _, w := range r.Webhooks {
			_, paused := m.Store.Pauses.Of(store.Pausable{Kind: store.KindWebhook, Factory: w.Factory, Name: w.Def.Name})
			if w.Def.AppTokenName != "" && w.Def.Enabled && !paused {
				hooks, names = append(hooks, w), append(names, w.Def.AppTokenName)
			}
		}
	}
	if len(hooks) == 0 {
		return wanted, nil
	}
	slices.Sort(names)
	values, err := m.Store.Secrets.Newest(ctx, slices.Compact(names))
	if err != nil {
		return nil, err
	}
	users := make(map[secret.Value]*applier.Webhook)
	for _, w := range hooks {
		t := target{uid: w.UID, factory: w.Factory, webhook: w.Def.Name, api: w.Def.APIURL}
		value, ok := values[w.Def.AppTokenName]
		switch user := users[value.Value]; {
		case !ok:
			m.failed(t, fmt.Errorf("there is no managed secret %s; set it (triphammer secrets set %[1]s)", w.Def.AppTokenName))
		case githubapp.Is(value.Value): // set after the apply, which refuses it
			m.failed(t, fmt.Errorf("the secret %s is a GitHub App, whose key is sent nowhere: set an app-level token (triphammer secrets set %[1]s)", w.Def.AppTokenName))
		case user != nil:
			m.failed(t, fmt.Errorf("the webhook %s of the factory %s has a connection with the same token, and Slack gives each event to one connection only", user.Def.Name, user.Factory))
		default:
			t.token, users[value.Value] = value.Value, w
		}
		wanted[w.UID] = t
	}
	return wanted, nil
}

// follow ends the connections that are not wanted any more, and opens those that are missing.
func (m *Manager) follow(ctx context.Context, links map[string]*link, wanted map[string]target) {
	var old []*link
	for uid, l := range links {
		if wanted[uid] != l.target {
			old = append(old, l)
			delete(links, uid)
		}
	}
	m.close(old)
	m.mu.Lock()
	maps.DeleteFunc(m.states, func(uid string, _ api.Connection) bool { return wanted[uid].uid == "" })
	m.mu.Unlock()
	for uid, t := range wanted {
		if links[uid] != nil || t.token.IsZero() {
			continue
		}
		holding, end := context.WithCancel(ctx)
		l := &link{t, end, make(chan struct{})}
		links[uid] = l
		go func() { // close waits for it
			defer close(l.done)
			defer end()
			m.hold(holding, t)
		}()
	}
}

// hold keeps a connection open until ctx is done.
func (m *Manager) hold(ctx context.Context, t target) {
	var open sync.WaitGroup
	defer open.Wait()
	for failures := 0; ctx.Err() == nil; {
		opened := time.Now()
		c, err := m.open(ctx, t)
		if err == nil {
			m.opened(t)
			ended := make(chan error, 1)
			open.Go(func() { ended <- m.serve(ctx, c, t) })
			select {
			case err = <-ended:
			case <-c.leaving: // it serves until Slack closes it, beside the next connection
			}
		}
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			m.failed(t, err)
		}
		if c != nil && time.Since(opened) >= m.stable {
			failures = 0
			if err == nil {
				continue
			}
		}
		failures++
		select {
		case <-ctx.Done():
		case <-time.After(m.pause(failures, err)):
		}
	}
	m.change(t.uid, func(state *api.Connection) { state.Since = nil })
}

// pause is the time until the next attempt. It is spread, so that not all servers call at once.
func (m *Manager) pause(failures int, err error) time.Duration {
	wait := min(m.first<<min(failures-1, 16), m.most)
	if f := (*refusal)(nil); errors.As(err, &f) {
		wait = max(wait, f.after)
		if f.final {
			wait = max(wait, m.seldom)
		}
		return wait + rand.N(wait/4+1)
	}
	return wait/2 + rand.N(wait/2+1)
}

func (m *Manager) opened(t target) {
	now := m.Now().UTC()
	m.change(t.uid, func(state *api.Connection) { state.Since = &now })
	m.Logger.Debug("a connection of a webhook is open", "factory", t.factory, "webhook", t.webhook)
}

// failed notes why there is no connection. It logs an error that is not the last one.
func (m *Manager) failed(t target, err error) {
	m.change(t.uid, func(state *api.Connection) { state.Since = nil })
	m.note(t, "the connection of a webhook is not open", err.Error())
}

// note keeps an error, and logs it if it is not the last one.
func (m *Manager) note(t target, what, text string) {
	now, same := m.Now().UTC(), false
	m.change(t.uid, func(state *api.Connection) {
		same = state.Error == text
		state.Error, state.ErrorAt = text, &now
	})
	if !same {
		m.Logger.Warn(what, "factory", t.factory, "webhook", t.webhook, "error", text)
	}
}
