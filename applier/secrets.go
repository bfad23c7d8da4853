package applier

import (
	"context"
	"maps"
	"slices"
	"time"
)

// secretPoll is how often the worker looks for secrets that a refused commit lacks. A secret
// may appear in a folder of secret files, which sends no notification.
const secretPoll = 5 * time.Second

// SecretSet tells the Applier that a secret has a new value. If a commit was refused for
// lack of this secret, it is tried again (SPEC 4.4).
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

// lookForSecrets calls SecretSet for each lacking secret that now has another value.
func (a *Applier) lookForSecrets(ctx context.Context) {
	a.mu.Lock()
	lacked := maps.Clone(a.lacked)
	a.mu.Unlock()
	if len(lacked) == 0 {
		return
	}
	values, err := a.cfg.Ledger.Secrets(ctx, slices.Sorted(maps.Keys(lacked)))
	for name, generation := range lacked {
		// If a secret cannot be read, the apply says why.
		if v := values[name]; v.Generation != generation || err != nil && ctx.Err() == nil {
			a.SecretSet(name)
		}
	}
}
