// Package ledger connects appliers to the store. It records applies, looks up the secrets,
// UIDs, pins and deliveries that an apply needs, and rebuilds the revision of an earlier
// apply.
//
// The package does not decide what is applied (package applier does).
package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"triphammer/applier"
	"triphammer/applier/gitrepo"
	"triphammer/factory"
	"triphammer/factory/match"
	"triphammer/factory/native"
	"triphammer/server/githubapp"
	"triphammer/server/run"
	"triphammer/server/store"
)

// Ledger is the applier.Ledger of all factories of a store.
type Ledger struct{ store *store.Store }

var _ applier.Ledger = (*Ledger)(nil)

// New makes the Ledger of a store.
func New(s *store.Store) *Ledger { return &Ledger{store: s} }

// Secrets implements applier.Ledger.
func (l *Ledger) Secrets(ctx context.Context, names []string) (map[string]applier.SecretValue, error) {
	values, err := l.store.Secrets.Newest(ctx, names)
	if err != nil {
		return nil, err
	}
	out := make(map[string]applier.SecretValue, len(values))
	for name, v := range values {
		out[name] = secretValue(v)
	}
	return out, nil
}

func secretValue(v store.SecretValue) applier.SecretValue {
	value := applier.NewSecretValue(v.Generation, v.Value.Reveal())
	value.App = githubapp.Is(v.Value)
	return value
}

// UIDs implements applier.Ledger.
func (l *Ledger) UIDs(ctx context.Context, factory string, names []string) (map[string]string, error) {
	return l.store.Applies.WebhookUIDs(ctx, factory, names)
}

// Spec implements applier.Ledger.
func (l *Ledger) Spec(f *factory.Factory, a *factory.Automation) ([]byte, error) {
	return run.SpecFor(f, a).Encode()
}

// Record implements applier.Ledger.
func (l *Ledger) Record(ctx context.Context, a *applier.Apply) (id string, err error) {
	plan, err1 := json.Marshal(a.Plan)
	diagnostics, err2 := json.Marshal(a.Diagnostics)
	if err := errors.Join(err1, err2); err != nil {
		return "", err
	}
	row := &store.Apply{
		Factory: a.Factory, Repository: a.Repository, Branch: a.Branch, Commit: a.Commit.Hash, AuthorName: a.Commit.AuthorName,
		AuthorEmail: a.Commit.AuthorEmail, Subject: a.Commit.Subject, CommitTime: a.Commit.Time, Trigger: a.Trigger, Outcome: string(a.Outcome),
		Error: a.Error, Plan: plan, Diagnostics: diagnostics, StartedAt: a.StartedAt, FinishedAt: a.FinishedAt,
	}
	var files []store.File
	for _, f := range a.Snapshot.Files {
		files = append(files, store.File(f))
	}
	var specs map[[32]byte][]byte
	if a.Revision != nil {
		for _, w := range a.Revision.Webhooks {
			row.Webhooks = append(row.Webhooks, store.BoundWebhook{Name: w.Def.Name, UID: w.UID, SecretName: w.Def.SecretName, Generation: w.SecretGeneration})
		}
		specs = specsOf(a.Revision)
	}
	row.Fenced = true
	if a.Base != "" {
		if row.Base, err = store.ParseID[store.Apply](a.Base); err != nil {
			return "", err
		}
	}
	recorded, err := l.store.Applies.Record(ctx, row, files, specs)
	if errors.Is(err, store.ErrStale) {
		err = fmt.Errorf("%w: %w", applier.ErrSuperseded, err)
	}
	return recorded.String(), err
}

// Live implements applier.Ledger.
func (l *Ledger) Live(ctx context.Context, factory string) (string, error) {
	id, err := l.store.Applies.Live(ctx, factory)
	return id.String(), err
}

// Serving implements applier.Ledger.
func (l *Ledger) Serving(ctx context.Context, factory string) (*applier.Apply, error) {
	last, r, err := l.restore(ctx, factory)
	if last == nil || err != nil {
		return nil, err
	}
	a := &applier.Apply{
		ID: last.ID.String(), Factory: last.Factory, Repository: last.Repository, Branch: last.Branch, Commit: r.Commit, Trigger: last.Trigger,
		Outcome: applier.Applied, StartedAt: last.StartedAt, FinishedAt: last.FinishedAt, Revision: r,
	}
	return a, errors.Join(json.Unmarshal(last.Plan, &a.Plan), json.Unmarshal(last.Diagnostics, &a.Diagnostics))
}

// Past implements applier.Ledger. The error wraps store.ErrNotFound if the commit
// was never applied.
func (l *Ledger) Past(ctx context.Context, factory, hash string) (gitrepo.Commit, fs.FS, error) {
	a, err := l.store.Applies.Commit(ctx, factory, hash)
	if err != nil {
		return gitrepo.Commit{}, nil, err
	}
	tree, err := l.tree(ctx, a.ID)
	return commitOf(a), tree, err
}

// Deliveries implements applier.Ledger.
func (l *Ledger) Deliveries(ctx context.Context, webhookUID string, n int, visit func(id string, at time.Time, d match.Delivery) error) error {
	all, err := l.store.Deliveries.List(ctx, store.DeliveryQuery{WebhookUID: webhookUID, Outcomes: []store.Outcome{store.Accepted}, Limit: n})
	if err != nil {
		return err
	}
	for _, d := range all {
		payload, err := l.store.Deliveries.Payload(ctx, d.ID)
		if errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrDamaged) {
			continue // it was pruned meanwhile, or it is damaged and proves nothing
		}
		if err == nil {
			err = l.visit(ctx, d, payload, visit)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (l *Ledger) visit(ctx context.Context, d *store.Delivery, payload []byte, visit func(id string, at time.Time, d match.Delivery) error) error {
	lookups, err := l.store.Lookups.Of(ctx, d.ID)
	if err != nil {
		return err
	}
	sent := match.Delivery{Headers: d.Headers, Body: payload, Answers: make(map[native.Question][]string)}
	for _, a := range lookups {
		if a.State == store.LookupAnswered {
			sent.Answers[native.Question{Provider: a.Provider, Name: a.Name, Args: a.Args}] = a.Answer
		}
	}
	return visit(d.ID.String(), d.ReceivedAt, sent)
}

// Pin is the present pin of a factory; nil if the factory follows its branch.
func (l *Ledger) Pin(ctx context.Context, factory string) (*applier.Pin, error) {
	p, err := l.store.Pins.Of(ctx, factory)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	pin := applier.Pin(p)
	return &pin, nil
}

// EndPin implements applier.Ledger.
func (l *Ledger) EndPin(ctx context.Context, factory string) error {
	return l.store.Pins.End(ctx, factory)
}

// Arrived is when this server first tried to apply a commit. If it never did, that is now.
func (l *Ledger) Arrived(ctx context.Context, factory, hash string) (time.Time, error) {
	at, err := l.store.Applies.First(ctx, factory, hash)
	if errors.Is(err, store.ErrNotFound) {
		return time.Now(), nil
	}
	return at, err
}

// Restore rebuilds the revision that a factory served last, with the generations of the
// secrets that its apply used (SPEC 4.4). It returns nil if the factory has served nothing.
func (l *Ledger) Restore(ctx context.Context, factory string) (*applier.Revision, error) {
	_, r, err := l.restore(ctx, factory)
	return r, err
}

func (l *Ledger) restore(ctx context.Context, factory string) (*store.Apply, *applier.Revision, error) {
	last, err := l.store.Applies.Last(ctx, factory, string(applier.Applied))
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	restored, err := l.rebuild(ctx, last, func(ctx context.Context, names []string) (map[string]applier.SecretValue, error) {
		values := make(map[string]applier.SecretValue)
		for _, name := range names {
			values[name] = applier.SecretValue{} // a secret for a sender's API is read when the API is asked
		}
		for _, w := range last.Webhooks {
			delete(values, w.SecretName)
		}
		for _, w := range last.Webhooks {
			if w.Generation == 0 {
				continue // the webhook was disabled, and had no secret yet
			}
			v, err := l.store.Secrets.At(ctx, w.SecretName, w.Generation)
			if err != nil {
				return nil, err
			}
			values[w.SecretName] = secretValue(v)
		}
		return values, nil
	})
	if err != nil {
		return nil, nil, err
	}
	l.store.Applies.Saw(factory, last.ID, last.Webhooks)
	// A newer program makes other specs of the same definitions.
	if err := l.store.Specs.Keep(ctx, specsOf(restored)); err != nil {
		return last, restored, fmt.Errorf("storing the specs of its runs, which fail without: %w", err)
	}
	return last, restored, nil
}

// specsOf are the specs of a revision's automations, by hash.
func specsOf(r *applier.Revision) map[[32]byte][]byte {
	specs := make(map[[32]byte][]byte)
	for _, a := range r.Automations {
		specs[a.SpecHash] = a.Spec
	}
	return specs
}

// Load rebuilds the revision of an apply, to explain its decisions. The revision has no
// secrets, so it cannot verify deliveries.
func (l *Ledger) Load(ctx context.Context, id store.ApplyID) (*applier.Revision, error) {
	a, err := l.store.Applies.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	return l.rebuild(ctx, a, nil)
}

func (l *Ledger) rebuild(
	ctx context.Context, a *store.Apply, secrets func(context.Context, []string) (map[string]applier.SecretValue, error),
) (*applier.Revision, error) {
	tree, err := l.tree(ctx, a.ID)
	if err != nil {
		return nil, err
	}
	uids := make(map[string]string)
	for _, w := range a.Webhooks {
		uids[w.Name] = w.UID
	}
	built, err := applier.Build(ctx, applier.BuildInput{
		Factory: a.Factory, Commit: commitOf(a), Tree: tree, Options: factory.Options{Applied: true}, Secrets: secrets, Spec: l.Spec,
		UIDs: func(context.Context, string, []string) (map[string]string, error) { return uids, nil },
	})
	switch {
	case err != nil:
		return nil, err
	case built.Revision == nil:
		return nil, fmt.Errorf("apply %s is not valid any more: %s", a.ID, built.Diagnostics[0].Message)
	}
	built.Revision.ApplyID, built.Revision.AppliedAt = a.ID.String(), a.FinishedAt
	return built.Revision, nil
}

func commitOf(a *store.Apply) gitrepo.Commit {
	return gitrepo.Commit{Hash: a.Commit, AuthorName: a.AuthorName, AuthorEmail: a.AuthorEmail, Subject: a.Subject, Time: a.CommitTime}
}

func (l *Ledger) tree(ctx context.Context, id store.ApplyID) (fs.FS, error) {
	files, err := l.store.Applies.Files(ctx, id)
	var s applier.Snapshot
	for _, f := range files {
		s.Files = append(s.Files, applier.File(f))
	}
	return s.FS(), err
}
