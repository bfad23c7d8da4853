//go:build full

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"triphammer/server/api"
	"triphammer/server/oidc/oidctest"
)

// browser is that of a person. It goes on only where it is told to.
type browser struct {
	*http.Client
	t *testing.T
}

func newBrowser(t *testing.T) browser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return browser{&http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, t}
}

// see asks for a page, and returns where it leads.
func (b browser) see(method, address string, want int) (leads string) {
	b.t.Helper()
	req, err := http.NewRequest(method, address, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	req.Header.Set("Sec-Fetch-Site", "same-origin")
	resp, err := b.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	if resp.StatusCode != want {
		b.t.Fatalf("%s %s: %d, not %d\n%s", method, address, resp.StatusCode, want, text)
	}
	return resp.Header.Get("Location")
}

// openPage is what an open page hears.
type openPage struct {
	t     *testing.T
	lines *bufio.Scanner
	close context.CancelFunc
}

// open opens the stream of a page, after what it has heard last.
func (b browser) open(w *world, query, last string) *openPage {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	b.t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+w.addr+"/ui/events?"+query, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	resp, err := b.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = resp.Body.Close() })
	if resp.StatusCode != http.StatusOK {
		b.t.Fatalf("the stream of %s: %d", w.addr, resp.StatusCode)
	}
	return &openPage{b.t, bufio.NewScanner(resp.Body), cancel}
}

// hears waits for an event of a kind that says how many are new, and returns its id.
func (p *openPage) hears(kind string, n int64) (id string) {
	p.t.Helper()
	is := ""
	for p.lines.Scan() {
		field, value, _ := strings.Cut(p.lines.Text(), ": ")
		switch field {
		case "id":
			id = value
		case "event":
			is = value
		case "data":
			var change api.LiveChange
			if err := json.Unmarshal([]byte(value), &change); err != nil {
				p.t.Fatalf("%q: %v", value, err)
			}
			if is == kind && change.New > n {
				p.t.Fatalf("it hears of %d %s, and there are %d", change.New, kind, n)
			}
			if is == kind && change.New == n {
				return id
			}
		}
	}
	p.t.Fatalf("it does not hear %s %d: %v", kind, n, p.lines.Err())
	return ""
}

// TestPeopleOfSeveralServers: a sign-in at a provider begins at one server and ends at another
// one; an open page goes on at any of them, with nothing missed or told twice, until the session
// ends at any of them (SPEC 17.1, 18.4).
func TestPeopleOfSeveralServers(t *testing.T) {
	t.Parallel()
	const base = "http://127.0.0.1:9" // that of a load balancer, which the test is
	provider := oidctest.Start(t)
	provider.Redirect = base + "/auth/oidc/callback"
	provider.Say(oidctest.RS256, func(claims map[string]any) { claims["email"], claims["email_verified"] = "ada@example.com", true })
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte(oidctest.ClientSecret), 0o600); err != nil {
		t.Fatal(err)
	}
	c := newCluster(t, 3, clusterFiles, "--base-url", base, "--oidc-issuer", provider.URL, "--oidc-client-id", oidctest.ClientID,
		"--oidc-client-secret-file", secret, "--oidc-role", "manager=domain:example.com")
	ada := newBrowser(t)
	asks := ada.see("GET", "http://"+c.nodes[0].addr+"/auth/oidc?to="+url.QueryEscape("/runs"), http.StatusSeeOther)
	back := ada.see("GET", asks, http.StatusFound)
	if leads := ada.see("GET", c.nodes[1].on(back), http.StatusSeeOther); leads != "/runs" {
		t.Errorf("after the sign-in: %s", leads)
	}
	for _, w := range c.nodes {
		ada.see("GET", "http://"+w.addr+"/runs", http.StatusOK)
	}
	newBrowser(t).see("GET", c.nodes[2].on(back), http.StatusUnauthorized) // the answer of the provider is for that browser, and once

	hook, sent := c.url("hook"), int64(0)
	deliver := func(w *world) {
		t.Helper()
		sent++
		if got := post(t, "POST", w.on(hook), strings.NewReader(fmt.Sprintf(`{"n":%d}`, sent)), bearerOf(testSecret)); got.status != http.StatusAccepted {
			t.Fatalf("%+v", got)
		}
	}
	query := fmt.Sprintf("view=deliveries&at=%d", time.Now().UnixMilli())
	last := ""
	for i := range 6 {
		page := ada.open(c.nodes[i%3], query, last)
		deliver(c.nodes[(i+1)%3]) // while it is open
		last = page.hears("deliveries", sent)
		page.close()
		deliver(c.nodes[(i+2)%3]) // while none is
		deliver(c.nodes[i%3])
	}
	page := ada.open(c.nodes[0], query, last)
	page.hears("deliveries", sent)
	ada.see("POST", "http://"+c.nodes[1].addr+"/auth/logout", http.StatusOK)
	page.hears("ended", 0)
}
