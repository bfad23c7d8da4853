package oidc_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"triphammer/server/oidc"
	"triphammer/server/oidc/oidctest"
)

// astray sends requests for tokens to another address.
type astray struct{ to string }

func (a astray) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Path != "/token" {
		return http.DefaultTransport.RoundTrip(r)
	}
	return &http.Response{StatusCode: http.StatusTemporaryRedirect, Header: http.Header{"Location": {a.to + "/elsewhere"}}, Body: http.NoBody, Request: r}, nil
}

// TestRedirectedToken: the code and the secret of the client go to the provider alone.
func TestRedirectedToken(t *testing.T) {
	var asked atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	t.Cleanup(other.Close)
	p, err := oidc.New(oidc.Config{
		Issuer: oidctest.Start(t).URL, ClientID: oidctest.ClientID, Secret: func() (string, error) { return oidctest.ClientSecret, nil },
		Rules: []oidc.Rule{{Role: "viewer", Claim: "subject", Value: "1"}}, Client: &http.Client{Transport: astray{other.URL}},
	})
	if err != nil {
		t.Fatal(err)
	}
	_, flow, err := p.Begin(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.Finish(t.Context(), flow, url.Values{"state": {flow.State}, "code": {"x"}})
	if err == nil || !strings.Contains(err.Error(), "status 307") || asked.Load() != 0 {
		t.Errorf("%v; asked %d times", err, asked.Load())
	}
}
