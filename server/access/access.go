// Package access is who calls, and what of the server's data that caller may
// touch. The HTTP surface has no other way to the data: it holds a Data, which gives
// a View to a Caller, and all that a View gives is of a factory that its caller may
// touch. So no handler can forget to ask.
package access

import (
	"context"
	"slices"
	"time"

	"triphammer/applier"
	"triphammer/server/delivery"
	"triphammer/server/run"
	"triphammer/server/store"
)

// Caller is who makes a request.
type Caller struct {
	Name    string      // such as "key ci (ada)" or "local ada": for the audit log
	Kind    string      // personal, agent, local
	KeyID   store.KeyID // of an API key: names are used again, ids are not
	Owner   string      // whose runs its runs are
	Scopes  []string
	Factory string // the only one it may touch, or empty
	Expires time.Time
}

// Local is somebody who owns the data directory, and may do everything.
func Local(actor string) *Caller {
	return &Caller{Name: "local " + actor, Kind: "local", Owner: actor, Scopes: []string{store.ScopeManage}}
}

// page is somebody who is signed in to the pages.
func page(actor string) *Caller {
	return &Caller{Name: "page " + actor, Kind: store.KeyPersonal, Owner: actor, Scopes: []string{store.ScopeManage}}
}

// May tells whether the scopes cover one: manage covers everything, runs and
// read what they say (SPEC 10.2).
func (c *Caller) May(scope string) bool {
	return slices.Contains(c.Scopes, store.ScopeManage) || slices.Contains(c.Scopes, scope)
}

// Creator is what the runs and schedules that it makes name as theirs.
func (c *Caller) Creator() (kind, name string) {
	if c.Kind == store.KeyAgent {
		return "agent", c.Owner
	}
	return "user", c.Owner
}

// Owns tells whether it made a schedule: with this key, or with another one of
// the same person or agent.
func (c *Caller) Owns(n *store.Schedule) bool {
	kind, name := c.Creator()
	return n.CreatorKind == kind && n.CreatorName == name
}

// Touches tells whether the caller reaches a factory.
func (c *Caller) Touches(factory string) bool { return c.Factory == "" || c.Factory == factory }

// Config is what a Data needs.
type Config struct {
	Store    *store.Store
	Live     *applier.Live
	Appliers []*applier.Applier
	// Load rebuilds what an apply made live.
	Load     func(ctx context.Context, id store.ApplyID) (*applier.Revision, error)
	Delivery *delivery.Service
	Runs     *run.Manager
}

// Data is what a server has of all factories. Its methods are for requests that
// nobody answers for: of the ingress, of health, of those who prove who they are.
type Data struct{ cfg Config }

// New makes a Data.
func New(cfg Config) *Data { return &Data{cfg} }

// View is the data as far as a caller may touch them.
func (d *Data) View(c *Caller) *View { return &View{c, d} }

// ByKey is the caller that has an API key; store.ErrKey if it opens nothing.
func (d *Data) ByKey(ctx context.Context, token string) (*Caller, error) {
	key, err := d.cfg.Store.KeyByToken(ctx, token)
	if err != nil {
		return nil, err
	}
	return &Caller{
		Name: "key " + key.Name + " (" + key.Owner + ")", Kind: key.Kind, KeyID: key.ID,
		Owner: key.Owner, Scopes: key.Scopes, Factory: key.Factory, Expires: key.ExpiresAt,
	}, nil
}

// BySession is the caller that has a session of the pages; store.ErrNotFound if
// there is no such session.
func (d *Data) BySession(ctx context.Context, token string) (*Caller, error) {
	actor, err := d.cfg.Store.Session(ctx, token)
	return page(actor), err
}

// SignIn turns a login link, once, into a session of the pages.
func (d *Data) SignIn(ctx context.Context, link string, life time.Duration) (session string, c *Caller, err error) {
	session, actor, err := d.cfg.Store.RedeemLoginLink(ctx, link, life)
	return session, page(actor), err
}

// SignOut ends a session, and says whose it was.
func (d *Data) SignOut(ctx context.Context, token string) (*Caller, error) {
	c, err := d.BySession(ctx, token)
	if err == nil {
		err = d.cfg.Store.EndSession(ctx, token)
	}
	return c, err
}

// Receive takes what came for a webhook, from whoever knows its address.
func (d *Data) Receive(ctx context.Context, r *delivery.Request) delivery.Answer {
	return d.cfg.Delivery.Receive(ctx, r)
}

// ReadsStrangers tells whether a webhook reads the bodies of senders that have not
// proved anything: it verifies signatures.
func (d *Data) ReadsStrangers(uid string) bool {
	w, ok := d.cfg.Live.Webhook(uid)
	return ok && w.Verifier != nil && w.Verifier.NeedsBody()
}

// Kick makes a factory look at its repository, and tells whether there is such a
// factory.
func (d *Data) Kick(factory string) bool {
	for _, a := range d.cfg.Appliers {
		if a.State().Factory == factory {
			a.Kick("push")
			return true
		}
	}
	return false
}

// PushSecret is the newest value of a secret that services sign push notifications
// with.
func (d *Data) PushSecret(ctx context.Context, name string) (value string, ok bool, err error) {
	values, err := d.cfg.Store.NewestSecrets(ctx, []string{name})
	v, ok := values[name]
	if err != nil || !ok {
		return "", false, err
	}
	return v.Value.Reveal(), true, nil
}

// Waiting names a factory that serves nothing yet, if there is one.
func (d *Data) Waiting() (factory string, waits bool) {
	for _, a := range d.cfg.Appliers {
		if state := a.State(); state.Applied == nil {
			return state.Factory, true
		}
	}
	return "", false
}

// Health is what is known of the store as a whole.
type Health interface {
	Ping(ctx context.Context) error // an error tells why nothing can be committed
	Problems() []string
	Clock() store.Clock
}

// Health is how the store is.
func (d *Data) Health() Health { return d.cfg.Store }
