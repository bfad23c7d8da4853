package ledger

import (
	"context"
	"sync"
	"testing"

	"triphammer/applier"
	"triphammer/server/store"
)

// between calls a function once before an apply is recorded.
type between struct {
	applier.Ledger
	once sync.Once
	do   func()
}

func (b *between) Record(ctx context.Context, a *applier.Apply) (string, error) {
	if b.do != nil {
		b.once.Do(b.do)
	}
	return b.Ledger.Record(ctx, a)
}

// SPEC 17.2: servers with one store serve what any of them applies, and no apply undoes
// one that it did not know.
func TestFollow(t *testing.T) {
	s := openStore(t)
	setSecret(t, s, "S", "one")
	here, there := &between{Ledger: New(s)}, New(s)
	a, b := newFolder(t, here), newFolder(t, there)
	serves := func(f *folder, id string, webhooks int) {
		t.Helper()
		if err := f.Follow(t.Context()); err != nil {
			t.Fatal(err)
		}
		r, ok := f.live.Revision("default")
		if state := f.State(); !ok || r.ApplyID != id || len(r.Webhooks) != webhooks || state.Applied != r || state.LastApply.ID != id || state.Error != "" {
			t.Errorf("serves %+v, want %s", r, id)
		}
	}
	if err := b.Follow(t.Context()); err != nil { // there is nothing to follow
		t.Fatal(err)
	}
	first := a.apply(applier.Applied, "factory.yaml", factoryYAML, "webhooks/hook.yaml", webhookYAML)
	serves(b, first.ID, 1)
	was, _ := a.live.Webhook(first.Revision.Webhooks[0].UID)
	is, _ := b.live.Webhook(first.Revision.Webhooks[0].UID)
	if is == nil || is.SecretGeneration != was.SecretGeneration || is.Verifier == nil {
		t.Errorf("%+v", is)
	}
	second := b.apply(applier.Applied, "factory.yaml", factoryYAML, "webhooks/hook.yaml", webhookYAML, "webhooks/two.yaml", webhookYAML)
	serves(a, second.ID, 2)
	serves(b, second.ID, 2)

	// Another server applies while this one does.
	var third *applier.Apply
	here.do = func() {
		third = b.apply(applier.Applied, "factory.yaml", factoryYAML, "webhooks/two.yaml", webhookYAML)
	}
	fourth := a.apply(applier.Applied, "factory.yaml", factoryYAML+"description: newer\n", "webhooks/hook.yaml", webhookYAML)
	if third == nil || fourth.Base != third.ID {
		t.Errorf("%+v after %+v", fourth, third)
	}
	if fourth.Plan.Create == nil || len(fourth.Plan.Delete) == 0 {
		t.Errorf("the plan is not what changes from the other apply: %+v", fourth.Plan)
	}
	serves(b, fourth.ID, 1)
	all, err := s.Applies.List(t.Context(), store.ApplyQuery{Factory: "default", Limit: 10})
	if err != nil || len(all) != 4 {
		t.Errorf("%d applies, %v", len(all), err)
	}
}
