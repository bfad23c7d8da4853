package applier

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"sync"
	"time"

	"triphammer/applier/gitrepo"
	"triphammer/factory"
	"triphammer/factory/match"
)

// Memory is a Ledger of one factory in memory. It is empty at first, and keeps no pins.
type Memory struct {
	mu         sync.Mutex
	secrets    map[string]SecretValue
	applies    []*Apply
	deliveries map[string][]delivered // by the webhook's UID, newest first
}

type delivered struct {
	id string
	at time.Time
	match.Delivery
}

// SetSecret adds a generation of a secret.
func (m *Memory) SetSecret(name, value string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.secrets == nil {
		m.secrets = make(map[string]SecretValue)
	}
	m.secrets[name] = NewSecretValue(m.secrets[name].Generation+1, value)
}

// AddDelivery keeps an accepted delivery, which came at the time.
func (m *Memory) AddDelivery(webhookUID, id string, at time.Time, d match.Delivery) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.deliveries == nil {
		m.deliveries = make(map[string][]delivered)
	}
	m.deliveries[webhookUID] = slices.Insert(m.deliveries[webhookUID], 0, delivered{id, at, d})
}

// Applies are the recorded applies, the oldest first.
func (m *Memory) Applies() []*Apply {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.applies)
}

// Secrets implements Ledger.
func (m *Memory) Secrets(_ context.Context, names []string) (map[string]SecretValue, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	values := maps.Clone(m.secrets)
	maps.DeleteFunc(values, func(name string, _ SecretValue) bool { return !slices.Contains(names, name) })
	return values, nil
}

// UIDs implements Ledger.
func (m *Memory) UIDs(_ context.Context, _ string, names []string) (map[string]string, error) {
	return inventedUIDs(names), nil
}

// Spec implements Ledger. The spec is only the prompt.
func (m *Memory) Spec(_ *factory.Factory, a *factory.Automation) ([]byte, error) {
	return []byte(a.Prompt), nil
}

// Record implements Ledger.
func (m *Memory) Record(_ context.Context, a *Apply) (id string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	kept := *a
	kept.ID = fmt.Sprintf("apl_%d", len(m.applies)+1)
	m.applies = append(m.applies, &kept)
	return kept.ID, nil
}

// Live implements Ledger.
func (m *Memory) Live(ctx context.Context, factory string) (id string, err error) {
	a, err := m.Serving(ctx, factory)
	if a == nil {
		return "", err
	}
	return a.ID, err
}

// Serving implements Ledger.
func (m *Memory) Serving(context.Context, string) (*Apply, error) {
	for _, a := range slices.Backward(m.Applies()) {
		if a.Outcome == Applied {
			return a, nil
		}
	}
	return nil, nil
}

// Pin implements Ledger.
func (m *Memory) Pin(context.Context, string) (*Pin, error) { return nil, nil }

// Past implements Ledger.
func (m *Memory) Past(_ context.Context, _, hash string) (gitrepo.Commit, fs.FS, error) {
	for _, a := range slices.Backward(m.Applies()) {
		if a.Outcome == Applied && a.Commit.Hash == hash {
			return a.Commit, a.Snapshot.FS(), nil
		}
	}
	return gitrepo.Commit{}, nil, fmt.Errorf("commit %s was never applied", hash)
}

// EndPin implements Ledger.
func (m *Memory) EndPin(context.Context, string) error { return nil }

// Deliveries implements Ledger.
func (m *Memory) Deliveries(_ context.Context, webhookUID string, n int, visit func(id string, at time.Time, d match.Delivery) error) error {
	m.mu.Lock()
	all := m.deliveries[webhookUID]
	m.mu.Unlock()
	for _, d := range all[:min(n, len(all))] {
		if err := visit(d.id, d.at, d.Delivery); err != nil {
			return err
		}
	}
	return nil
}
