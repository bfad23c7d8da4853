package client

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"triphammer/server/api"
)

// TestSendStays: as with senders, a redirection is an answer; following it would
// carry the token to another address.
func TestSendStays(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("%s with X-Gitlab-Token %q came to another address", r.Method, r.Header.Get("X-Gitlab-Token"))
	}))
	defer elsewhere.Close()
	for _, status := range []int{301, 302, 307, 308} {
		moved := httptest.NewServer(http.RedirectHandler(elsewhere.URL, status))
		defer moved.Close()
		m := Message{Webhook: &api.Webhook{AuthMode: "signature", SignatureScheme: "gitlab", URL: moved.URL}, Body: []byte("{}"), Secret: "token"}
		for _, client := range []*http.Client{senderClient(0), forwardClient} {
			if got, _, _, err := m.Post(context.Background(), client); got != status || err != nil {
				t.Errorf("%d, %v, want %d", got, err, status)
			}
		}
	}
}
