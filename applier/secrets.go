package applier

import (
	"context"
	"maps"
	"slices"
	"time"
)

// secretPoll is how often a commit that was refused for a secret looks for that: it
// may be in a folder beside the program.
const secretPoll = 5 * time.Second

// SecretSet tells that a secret has a new value: an apply that was refused for
// it is tried again (SPEC 4.4).
func (a *Applier) SecretSet(name string) {
	a.mu.Lock()
	if a.renewed == nil {
		a.renewed = make(map[string]bool)
	}
	a.renewed[name] = true
	_, waiting := a.lacked[name]
	if waiting {
		a.settled, a.lacked = "", nil
	}
	a.mu.Unlock()
	if waiting {
		a.Kick("secret")
	}
}

// lookForSecrets tells of those that were lacking and have another value now.
func (a *Applier) lookForSecrets(ctx context.Context) {
	a.mu.Lock()
	lacked := maps.Clone(a.lacked)
	a.mu.Unlock()
	if len(lacked) == 0 {
		return
	}
	values, err := a.cfg.Ledger.Secrets(ctx, slices.Sorted(maps.Keys(lacked)))
	for name, generation := range lacked {
		// Of one that cannot be read the apply says why.
		if v := values[name]; v.Generation != generation || err != nil && ctx.Err() == nil {
			a.SecretSet(name)
		}
	}
}
