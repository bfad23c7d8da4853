package applier

import (
	"context"
	"io/fs"
	"time"

	"triphammer/applier/gitrepo"
	"triphammer/factory"
	"triphammer/factory/match"
)

// Ledger is the durable state that an Applier needs. Package server/ledger keeps it
// in the store; a Memory keeps it in the process.
type Ledger interface {
	// Secrets returns the newest values of the named secrets. It omits names that do not
	// exist.
	Secrets(ctx context.Context, names []string) (map[string]SecretValue, error)
	// UIDs returns a UID for each named webhook. Record stores new UIDs.
	UIDs(ctx context.Context, factory string, names []string) (map[string]string, error)
	// Spec makes the run spec of an automation. The applier does not look into it.
	Spec(f *factory.Factory, a *factory.Automation) ([]byte, error)
	// Record stores an apply of any outcome, in one transaction, and returns its id. Its
	// context is never cancelled, so that every recorded apply also goes live. If the
	// outcome is Applied and a.Base is no longer live, the error is ErrSuperseded.
	Record(ctx context.Context, a *Apply) (id string, err error)
	// Live is the id of the apply that serves; empty if there is none.
	Live(ctx context.Context, factory string) (id string, err error)
	// Serving is the apply that serves, with its revision built again; nil if there is none.
	Serving(ctx context.Context, factory string) (*Apply, error)
	// Pin is the pin in force; nil if there is none. Only an Applier with Config.Shared asks for it.
	Pin(ctx context.Context, factory string) (*Pin, error)
	// Past opens a commit that was applied before.
	Past(ctx context.Context, factory, hash string) (gitrepo.Commit, fs.FS, error)
	// EndPin deletes the pin of a factory if it has expired.
	EndPin(ctx context.Context, factory string) error
	// Deliveries visits the newest n accepted deliveries of a webhook, the newest first,
	// except those without a payload. It ends with the first error of visit.
	Deliveries(ctx context.Context, webhookUID string, n int, visit func(id string, at time.Time, d match.Delivery) error) error
}
