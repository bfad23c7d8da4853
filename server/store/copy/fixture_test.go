package copy

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"triphammer/server/store"
)

// TestMain is also the program that copies until it is killed.
func TestMain(m *testing.M) {
	if places := os.Getenv(copierVariable); places != "" {
		fmt.Fprintln(os.Stderr, copier(places))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

type fixture struct {
	*store.Store
	cfg store.Config
	at  time.Time
}

func (f *fixture) reopen(t testing.TB) {
	t.Helper()
	if f.Store != nil {
		check(t, f.Close())
	}
	s, err := store.Open(context.Background(), f.cfg)
	check(t, err)
	f.Store = s
}

func delivery(identity, body string, runs ...string) *store.NewDelivery {
	d := &store.NewDelivery{Payload: []byte(body), Delivery: store.Delivery{
		Factory: "default", Webhook: "hook", WebhookUID: "whk_1", Outcome: store.Accepted, Size: int64(len(body)),
		ReceivedAt: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), Identity: store.Identity{Source: store.IdentitySender, Value: identity}, ClientAddr: "192.0.2.1",
		Headers: map[string]string{"User-Agent": "test"},
	}}
	for _, name := range runs {
		d.Runs = append(d.Runs, store.NewRun{Factory: "default", Automation: name, Source: store.SourceWebhook, Title: name})
	}
	return d
}

func must[T any](t testing.TB) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		check(t, err)
		return v
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
