package bodies

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"triphammer/server/delivery"
)

// TestBodies: what is charged, and who is dropped for whom.
func TestBodies(t *testing.T) {
	ada, bob := netip.MustParsePrefix("192.0.2.1/32"), netip.MustParsePrefix("192.0.2.2/32")
	take := func(t *testing.T, b *Budget, u *upload, n int64) {
		t.Helper()
		if err := b.take(t.Context(), u, n, time.Minute); err != nil {
			t.Fatalf("take %d: %v", n, err)
		}
	}
	// budget is full of ada's two uploads and bob's, the slowest first; ada has her share.
	budget := func(t *testing.T) (b *Budget, uploads [3]*upload, aborted *[]int) {
		aborted = &[]int{}
		b = NewBudget(4, 3, func(netip.Prefix) {})
		for i, network := range []netip.Prefix{bob, ada, ada} {
			uploads[i] = &upload{network: network, abort: func() { *aborted = append(*aborted, i) }}
			take(t, b, uploads[i], 1)
		}
		take(t, b, uploads[1], 1) // which makes it the fastest
		return b, uploads, aborted
	}
	for name, c := range map[string]struct {
		network netip.Prefix
		n       int64
		whole   []int // uploads that have come whole meanwhile
		dropped []int
	}{
		"the slowest of all":              {netip.Prefix{}, 1, nil, []int{0}},
		"as many as are needed":           {netip.Prefix{}, 2, nil, []int{0, 2}},
		"the slowest of one that had its": {ada, 1, nil, []int{2}},
		"of another network":              {bob, 2, nil, []int{0, 2}},
		"not what has come whole":         {netip.Prefix{}, 1, []int{0}, []int{2}},
	} {
		t.Run(name, func(t *testing.T) {
			b, uploads, aborted := budget(t)
			for _, i := range c.whole {
				if !b.whole(uploads[i]) {
					t.Fatal("it was dropped already")
				}
			}
			u := &upload{network: c.network, abort: func() { t.Error("the newcomer was dropped") }}
			take(t, b, u, c.n)
			if !slices.Equal(*aborted, c.dropped) {
				t.Errorf("dropped %v, want %v", *aborted, c.dropped)
			}
			for _, i := range c.dropped {
				if err := b.take(t.Context(), uploads[i], 1, time.Minute); !errors.Is(err, delivery.ErrNoMemory) || b.whole(uploads[i]) {
					t.Errorf("upload %d goes on: %v", i, err)
				}
			}
			for _, u := range append(uploads[:], u) {
				b.release(u)
			}
			if b.held != 0 || len(b.shares) != 0 || b.reading.Len() != 0 {
				t.Errorf("not given back: %d bytes, %v, %d reading", b.held, b.shares, b.reading.Len())
			}
		})
	}
	t.Run("waits for what is whole", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b, uploads, _ := budget(t)
			for _, u := range uploads {
				b.whole(u)
			}
			late := &upload{network: bob}
			began := time.Now()
			if err := b.take(t.Context(), late, 1, time.Second); !errors.Is(err, delivery.ErrNoMemory) || time.Since(began) != time.Second {
				t.Errorf("without room: %v after %v", err, time.Since(began))
			}
			b.release(late)
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := b.take(ctx, late, 1, time.Second); !errors.Is(err, context.Canceled) {
				t.Errorf("a sender that has gone: %v", err)
			}
			b.release(late)
			time.AfterFunc(time.Second/2, func() { b.release(uploads[2]) })
			take(t, b, late, 1)
		})
	})
}
