package applier

import (
	"context"
	"time"
)

// Pin keeps a past commit live.
type Pin struct {
	Commit string    `json:"commit"`
	Reason string    `json:"reason"`
	By     string    `json:"by"`
	At     time.Time `json:"at"`
	Until  time.Time `json:"until,omitzero"` // zero: until it is unpinned
}

// SetPin makes the pinned commit the one that should serve, from the next attempt on. If p
// is nil, the head of the branch should serve.
func (a *Applier) SetPin(p *Pin) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pin, a.state.Pin = p, p
}

// pinned is the pin in force, or nil. It ends a pin that has expired.
func (a *Applier) pinned(ctx context.Context) (*Pin, error) {
	if a.cfg.Shared { // another server may have pinned or unpinned the factory
		p, err := a.cfg.Ledger.Pin(ctx, a.cfg.Factory)
		if err != nil {
			return nil, err
		}
		a.SetPin(p)
	}
	a.mu.Lock()
	p := a.pin
	over := p != nil && !p.Until.IsZero() && !a.cfg.Now().Before(p.Until)
	if over {
		a.pin, a.state.Pin, p = nil, nil, nil
	}
	a.mu.Unlock()
	if over {
		a.endPin(ctx)
	}
	return p, nil
}

func (a *Applier) endPin(ctx context.Context) {
	if err := a.cfg.Ledger.EndPin(context.WithoutCancel(ctx), a.cfg.Factory); err != nil {
		a.cfg.Logger.Error("the end of a pin could not be recorded; the next start tries again", "factory", a.cfg.Factory, "error", err)
	}
}
