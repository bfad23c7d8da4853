// Package access decides which data of the server a caller may use. A [Data] gives each
// [Caller] a [View], which returns only things of factories that the caller may use. The
// HTTP surface has no other access to the data, so no handler can forget the check.
package access

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"triphammer/applier"
	"triphammer/server/answer"
	"triphammer/server/delivery"
	"triphammer/server/run"
	"triphammer/server/store"
)

// Caller is who makes a request.
type Caller struct {
	Name      string              // for the audit log, such as "key ci (ada)" or "local ada"
	Kind      string              // personal, agent, local
	KeyID     store.KeyID         // the API key, or the key that began the session; unlike a name, an id is never used again
	SessionID store.PageSessionID // the session of the pages
	Owner     string              // the owner of runs that the caller creates
	Scopes    []string
	Factory   string // the only factory that the caller may use; empty: all
	Expires   time.Time
}

// Local is a caller who owns the data directory, and may do everything.
func Local(actor string) *Caller {
	return &Caller{Name: "local " + actor, Kind: "local", Owner: actor, Scopes: []string{store.ScopeManage}}
}

// page is a caller who is signed in to the pages.
func page(n *store.PageSession) *Caller {
	return &Caller{
		Name: "page " + n.Person, Kind: store.KeyPersonal, KeyID: n.KeyID, SessionID: n.ID, Owner: n.Person,
		Scopes: []string{ScopeOf(n.Role)}, Expires: n.ExpiresAt,
	}
}

// May tells whether the caller has a scope, or a scope that includes it (SPEC 10.2).
func (c *Caller) May(scope string) bool {
	return slices.ContainsFunc(c.Scopes, func(has string) bool {
		return has == scope || has == store.ScopeManage ||
			has == store.ScopeOperate && (scope == store.ScopeRead || scope == store.ScopeRuns)
	})
}

// Roles are the roles of people on the pages, the least first. Each role is a scope (SPEC 10.3).
var Roles = []string{"viewer", "operator", "manager"}

// ScopeOf is the scope of a role; empty: there is no such role.
func ScopeOf(role string) string {
	return map[string]string{"viewer": store.ScopeRead, "operator": store.ScopeOperate, "manager": store.ScopeManage}[role]
}

// Role is the highest role whose scope the caller has; empty: none.
func (c *Caller) Role() string {
	for _, role := range slices.Backward(Roles) {
		if c.May(ScopeOf(role)) {
			return role
		}
	}
	return ""
}

// Creator is the creator of the runs and schedules that the caller makes.
func (c *Caller) Creator() (kind, name string) {
	if c.Kind == store.KeyAgent {
		return "agent", c.Owner
	}
	return "user", c.Owner
}

// Owns tells whether the caller made a schedule, with this key or with another key of the same
// person or agent.
func (c *Caller) Owns(n *store.Schedule) bool {
	kind, name := c.Creator()
	return n.CreatorKind == kind && n.CreatorName == name
}

// Touches tells whether the caller may use a factory.
func (c *Caller) Touches(factory string) bool { return c.Factory == "" || c.Factory == factory }

// Config is what a Data needs.
type Config struct {
	Store    *store.Store
	Live     *applier.Live
	Appliers []*applier.Applier // Data.Add adds more
	// Load rebuilds the revision of an apply.
	Load     func(ctx context.Context, id store.ApplyID) (*applier.Revision, error)
	Delivery *delivery.Service
	Runs     *run.Desk
	Answers  *answer.Worker
}

// Data is the data of all factories. Its methods are for requests without a Caller:
// deliveries, health checks, and requests that authenticate.
type Data struct {
	cfg     Config
	figures *store.Figures

	mu       sync.RWMutex
	appliers []*applier.Applier
}

// New makes a Data.
func New(cfg Config) *Data {
	return &Data{cfg: cfg, figures: store.NewFigures(cfg.Store), appliers: slices.Clone(cfg.Appliers)}
}

// Add adds a factory.
func (d *Data) Add(a *applier.Applier) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.appliers = append(d.appliers, a)
}

// Applier is the applier of a factory; nil: there is no such factory.
func (d *Data) Applier(factory string) *applier.Applier {
	for _, a := range d.factories() {
		if a.State().Factory == factory {
			return a
		}
	}
	return nil
}

// factories are the appliers of all factories. Callers must not change the slice.
func (d *Data) factories() []*applier.Applier {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return slices.Clip(d.appliers)
}

// Stop ends work in the background.
func (d *Data) Stop() { d.figures.Stop() }

// View is the part of the data that a caller may use.
func (d *Data) View(c *Caller) *View { return &View{c, d} }

// ByKey is the caller with an API key. The error is store.ErrKey if the key is not valid.
func (d *Data) ByKey(ctx context.Context, token string) (*Caller, error) {
	key, err := d.cfg.Store.Keys.ByToken(ctx, token)
	if err != nil {
		return nil, err
	}
	return &Caller{
		Name: "key " + key.Name + " (" + key.Owner + ")", Kind: key.Kind, KeyID: key.ID,
		Owner: key.Owner, Scopes: key.Scopes, Factory: key.Factory, Expires: key.ExpiresAt,
	}, nil
}

// BySession is the caller with a session of the pages. The error is store.ErrNotFound if there
// is no such session, or if it has ended.
func (d *Data) BySession(ctx context.Context, token string) (*Caller, error) {
	n, err := d.cfg.Store.Sessions.ByToken(ctx, token)
	if err != nil {
		return nil, err
	}
	return page(n), nil
}

// Lives checks that the key of a caller still works and its session goes on. If not, the error
// is store.ErrKey.
func (d *Data) Lives(ctx context.Context, c *Caller) error {
	return d.cfg.Store.Sessions.CallerLives(ctx, c.KeyID, c.SessionID)
}

// LoginLink says for whom a link is. The error is store.ErrNotFound if the link does not work.
func (d *Data) LoginLink(ctx context.Context, token string) (*store.LoginLink, error) {
	return d.cfg.Store.Sessions.LoginLink(ctx, token)
}

// DropLoginLink makes a link useless.
func (d *Data) DropLoginLink(ctx context.Context, token string) error {
	return d.cfg.Store.Sessions.DropLoginLink(ctx, token)
}

// SignIn turns a login link into a session of the pages. A link works once.
func (d *Data) SignIn(ctx context.Context, link string, from store.Visitor) (token string, c *Caller, err error) {
	token, n, err := d.cfg.Store.Sessions.RedeemLoginLink(ctx, link, from)
	if err != nil {
		return "", nil, err
	}
	return token, page(n), nil
}

// Open makes a session of the pages for a person who signed in at a provider.
func (d *Data) Open(ctx context.Context, l store.LoginLink, from store.Visitor) (token string, c *Caller, err error) {
	token, n, err := d.cfg.Store.Sessions.Open(ctx, l, from)
	if err != nil {
		return "", nil, err
	}
	return token, page(n), nil
}

// SignOut ends a session, and returns its caller.
func (d *Data) SignOut(ctx context.Context, token string) (*Caller, error) {
	c, err := d.BySession(ctx, token)
	if err == nil {
		_, err = d.cfg.Store.Sessions.End(ctx, c.SessionID)
	}
	return c, err
}

// Receive takes a request for a webhook, from any sender.
func (d *Data) Receive(ctx context.Context, r *delivery.Request) delivery.Answer {
	return d.cfg.Delivery.Receive(ctx, r)
}

// ReadsStrangers tells whether a webhook reads the bodies of unauthenticated senders, which it
// does to verify signatures.
func (d *Data) ReadsStrangers(uid string) bool {
	w, ok := d.cfg.Live.Webhook(uid)
	return ok && w.Verifier != nil && w.Verifier.NeedsBody()
}

// Kick makes a factory look at its repository. It returns false if there is no such
// factory.
func (d *Data) Kick(factory string) bool {
	for _, a := range d.factories() {
		if a.State().Factory == factory {
			a.Kick("push")
			return true
		}
	}
	return false
}

// PushSecret is the newest value of the secret with which services sign push
// notifications.
func (d *Data) PushSecret(ctx context.Context, name string) (value string, ok bool, err error) {
	values, err := d.cfg.Store.Secrets.Newest(ctx, []string{name})
	v, ok := values[name]
	if err != nil || !ok {
		return "", false, err
	}
	return v.Value.Reveal(), true, nil
}

// Paused finds the pause of a webhook or an automation.
func (d *Data) Paused(kind, factory, name string) (store.Pause, bool) {
	return d.cfg.Store.Pauses.Of(store.Pausable{Kind: kind, Factory: factory, Name: name})
}

// Waiting is the name of a factory that serves nothing yet; false: there is none. It passes over
// factories that are excused.
func (d *Data) Waiting(excused func(applier.State) bool) (factory string, waits bool) {
	for _, a := range d.factories() {
		if state := a.State(); state.Applied == nil && !excused(state) {
			return state.Factory, true
		}
	}
	return "", false
}

// Health is the state of the store as a whole.
type Health interface {
	Ping(ctx context.Context) error // the error says why nothing can be committed
	Problems() []string
	Clock() store.Clock
}

// Changes tells what has changed in the store, in all factories.
type Changes interface {
	Mark(ctx context.Context) (store.Mark, error)
	Changes(ctx context.Context, from, to store.Mark) (store.Changes, error)
}

// Changes tells what has changed in the store.
func (d *Data) Changes() Changes { return d.cfg.Store }

// Serving is a text for each factory. The text changes when another revision serves, or when the
// reason changes why a newer commit does not serve.
func (d *Data) Serving() map[string]string {
	all := make(map[string]string)
	for _, a := range d.factories() {
		state, applied := a.State(), ""
		if state.Applied != nil {
			applied = state.Applied.ApplyID
		}
		all[state.Factory] = fmt.Sprint(applied, state.Head, state.Pin, state.Error)
	}
	return all
}

// Health is the state of the store.
func (d *Data) Health() Health { return d.cfg.Store }
