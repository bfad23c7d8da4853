//go:build full

package store

import (
	"testing"
	"time"

	"triphammer/server/store/storetest"
)

// SPEC 17.1: what another server does is not missed because its clock is behind. Who reads on
// from a mark finds each run that ended since, and the figures count it.
func TestStampsOfServers(t *testing.T) {
	ctx := t.Context()
	here := open(t)
	here.cfg.URL = storetest.Postgres(t)
	here.reopen(t)
	cfg := here.cfg
	cfg.Now = func() time.Time { return here.at.Add(-time.Second) }
	there := must[*Store](t)(Open(ctx, cfg))
	t.Cleanup(func() { _ = there.Close() })
	end := func(s *Store, identity string) {
		t.Helper()
		must[Recorded](t)(here.Deliveries.Record(ctx, delivery(identity, "{}", "a")))
		leases := must[[]Lease](t)(s.Leases.Claim(ctx, Claim{Worker: "w", Most: 1, Lease: time.Minute}))
		if len(leases) != 1 {
			t.Fatal(leases)
		}
		check(t, s.Leases.Finish(ctx, leases[0], Succeeded, "", nil))
	}
	figures := NewFigures(here.Store)
	t.Cleanup(figures.Stop)
	end(here.Store, "0")
	check(t, figures.Catch(ctx, true))
	mark := must[Mark](t)(here.Mark(ctx))
	for i, s := range []*Store{there, here.Store, there, there, here.Store} {
		end(s, string(rune('a'+i)))
		next := must[Mark](t)(here.Mark(ctx))
		if c := must[Changes](t)(here.Changes(ctx, Mark{Delivery: next.Delivery, Run: next.Run, Updated: mark.Updated, Apply: next.Apply, Audit: next.Audit}, next)); c.Runs["default"] == 0 {
			t.Errorf("the end of run %d is not seen", i)
		}
		mark = next
		check(t, figures.Catch(ctx, true))
	}
	var ended int64
	figures.Each(here.at.Add(-24*time.Hour), false, func(DeliveryFigure) {}, func(r RunFigure) { ended += r.Count })
	if ended != 6 {
		t.Errorf("the figures count %d runs", ended)
	}
}
