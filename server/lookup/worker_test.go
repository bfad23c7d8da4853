package lookup

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"triphammer/server/secret"
	"triphammer/server/store"
	"triphammer/server/store/storetest"
)

// factories are Deliveries whose webhooks have APIs of their own.
type factories struct {
	store   *store.Store
	mu      sync.Mutex
	apis    map[store.DeliveryID]string
	decided chan store.DeliveryID
}

func (f *factories) API(_ context.Context, id store.DeliveryID) (API, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return API{URL: f.apis[id], Secret: secret.New(token)}, nil
}

func (f *factories) Decide(ctx context.Context, id store.DeliveryID, asked []store.Lookup) error {
	_, _, err := f.store.Lookups.Record(ctx, id, asked, nil, nil)
	f.decided <- id
	return err
}

// TestHangingAPI: while an API hangs, the questions of other webhooks are answered, however many wait
// for it; and no more than some are asked of it at a time.
func TestHangingAPI(t *testing.T) {
	const hanging, waiting = 20, 52
	var mu sync.Mutex
	open, most := make(map[string]int), 0
	hung := make(chan struct{}, hanging*waiting)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if name := r.URL.Path[1:3]; name != "ok" {
			mu.Lock()
			open[name]++
			most = max(most, open[name])
			mu.Unlock()
			hung <- struct{}{}
			<-r.Context().Done()
			return
		}
		_, _ = w.Write([]byte(`[{"filename":"a"}]`))
	}))
	defer api.Close()

	dir := t.TempDir()
	key, err := secret.LoadOrCreateKey(filepath.Join(dir, "key"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(t.Context(), store.Config{Path: filepath.Join(dir, "db"), URL: storetest.URL(t), Key: key, Unfenced: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	f := &factories{store: s, apis: make(map[store.DeliveryID]string), decided: make(chan store.DeliveryID, 100)}
	deliver := func(webhook string, n int) store.DeliveryID {
		t.Helper()
		f.mu.Lock()
		defer f.mu.Unlock()
		recorded, err := s.Deliveries.Record(t.Context(), &store.NewDelivery{
			Delivery: store.Delivery{Factory: "default", Webhook: webhook, WebhookUID: webhook, Outcome: store.Accepted, Identity: store.Identity{Source: "test", Value: fmt.Sprint(n)}, ReceivedAt: time.Now()},
			Payload:  []byte("{}"), Waiting: []store.Lookup{{Provider: "github", Name: "pull_request_files", Args: fmt.Sprintf("acme/api %d", n)}},
		})
		if err != nil {
			t.Fatal(err)
		}
		f.apis[recorded.ID] = api.URL + "/" + webhook
		return recorded.ID
	}
	hangs := func(n int) string { return fmt.Sprintf("%02d", n) }
	for n := range waiting {
		deliver(hangs(0), n)
		for hook := range hanging {
			if hook > 0 && n < 2 {
				deliver(hangs(hook), n)
			}
		}
	}
	w := New(Config{Store: s, Deliveries: f, Observe: func(string, string) {}, Now: time.Now, Logger: slog.New(slog.DiscardHandler)})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- w.Run(ctx) }()
	for range perWebhook + 2*(hanging-1) { // all that may be asked is
		<-hung
	}
	for n := range 3 {
		id := deliver("ok", n)
		w.Wake()
		select {
		case got := <-f.decided:
			if got != id {
				t.Errorf("decided %v, not %v", got, id)
			}
		case <-time.After(10 * time.Second): // a third of what a request may take
			t.Fatal("a quick API waits for one that hangs")
		}
	}
	mu.Lock()
	if most != perWebhook {
		t.Errorf("%d questions of one webhook at a time", most)
	}
	mu.Unlock()
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
