package store

import (
	"crypto/sha256"
	"slices"
	"testing"
	"time"
)

// TestWorkerHosts: a run that asks for a worker waits for one of that name, says so, and
// keeps no other run waiting (SPEC 15.2).
func TestWorkerHosts(t *testing.T) {
	s := open(t)
	ctx := t.Context()
	waiting := s.asked(t, NewRun{Spec: []byte(`{"worker_host":"attic"}`)})
	other := s.asked(t, NewRun{Spec: []byte(`{"worker_host":"cellar"}`)})
	anywhere := s.asked(t, NewRun{})
	if r := must[*Run](t)(s.Runs.Get(ctx, waiting)); r.State != Queued || r.StatusMessage != "waits for a worker named attic" {
		t.Errorf("%s %q", r.State, r.StatusMessage)
	}
	if got := idsOf(s.claimed(t)); !slices.Equal(got, []RunID{anywhere}) {
		t.Errorf("a server without a name got %v", got)
	}
	attic := Claim{Worker: "w", Most: 100, Lease: time.Minute, Hosts: []string{"garage", "attic"}}
	if got := idsOf(must[[]Lease](t)(s.Leases.Claim(ctx, attic))); !slices.Equal(got, []RunID{waiting}) {
		t.Errorf("attic got %v", got)
	}
	if r := must[*Run](t)(s.Runs.Get(ctx, waiting)); r.State != InProgress || r.StatusMessage != "" {
		t.Errorf("%s %q", r.State, r.StatusMessage)
	}
	if r := must[*Run](t)(s.Runs.Get(ctx, other)); r.State != Queued {
		t.Errorf("%s", r.State)
	}
}

// TestKeepSpecs: the specs of a restored revision are stored, so that its runs start.
func TestKeepSpecs(t *testing.T) {
	s := open(t)
	ctx := t.Context()
	spec := []byte(`{"agent":"new"}`)
	hash := sha256.Sum256(spec)
	if _, err := s.Specs.Get(ctx, hash); err == nil {
		t.Fatal("it is there already")
	}
	for range 2 {
		check(t, s.Specs.Keep(ctx, map[[32]byte][]byte{hash: spec}))
		if got := must[[]byte](t)(s.Specs.Get(ctx, hash)); string(got) != string(spec) {
			t.Errorf("%s", got)
		}
	}
}
