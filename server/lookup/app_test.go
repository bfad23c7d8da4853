package lookup

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"triphammer/server/githubapp/githubtest"
	"triphammer/server/secret"
)

// TestApp: an App is asked for tokens of the repository and the permission of the question, and
// its key goes nowhere (SPEC 24.2).
func TestApp(t *testing.T) {
	hub := githubtest.Start(t, "")
	hub.Installed["acme/api"] = 5
	c, app := NewClient(time.Now), API{URL: hub.API(), Secret: hub.Secret(t)}
	labels, err := c.Ask(t.Context(), app, question("github pull_request_labels acme/api 7"))
	if err != nil || !slices.Equal(labels, []string{"bug"}) {
		t.Fatal(labels, err)
	}
	if got := fmt.Sprint(hub.Grants()[0].Permissions); got != "map[pull_requests:read]" {
		t.Error("the token may", got)
	}
	hub.Change(func() { hub.Installed["acme"] = 6 })
	if got, err := c.Ask(t.Context(), app, question("github sender_membership acme ada 1")); err != nil || len(got) != 1 || got[0] != "member" {
		t.Error(got, err)
	}
	var me struct{ Login string }
	if err := c.github(t.Context(), app, "/user", &me); err != nil || me.Login != "acme-hammer[bot]" {
		t.Error(me, err)
	}
	// Without a base, a pull request that an agent asks for goes into the default branch (SPEC 23.1).
	var repository struct {
		Main string `json:"default_branch"`
	}
	err = c.Do(t.Context(), app, Request{Method: http.MethodGet, Path: "/repos/acme/api", Into: &repository})
	if grants := hub.Grants(); err != nil || repository.Main != "main" || fmt.Sprint(grants[len(grants)-1].Permissions) != "map[metadata:read]" {
		t.Errorf("the repository: %v, %v", err, grants)
	}
	for _, path := range []string{"/repos/acme", "/repos/acme/api/", "/repos/acme/api/hooks", "/user/repos"} {
		if err := c.Do(t.Context(), app, Request{Method: http.MethodPatch, Path: path}); err == nil || !strings.Contains(err.Error(), "cannot ask for") {
			t.Errorf("%s: %v", path, err)
		}
	}
	elsewhere := githubtest.Start(t, "")
	for text, c := range map[string]struct {
		api  API
		want string
	}{
		"github pull_request_labels acme/other 7": {app, "is not installed on acme/other: install it at " + hub.URL + "/apps/acme-hammer/installations/new"},
		"github pull_request_labels acme/api 8":   {API{elsewhere.API(), hub.Secret(t)}, "its token is not sent elsewhere"},
		"slack user_names U1":                     {app, "cannot ask for /users.info"},
		"github pull_request_labels acme/api 9":   {API{hub.API(), secret.New(`{"githubApp": {"id": 1, "key": "x"}}`)}, "private-key.pem"},
	} {
		_, err := NewClient(time.Now).Ask(t.Context(), c.api, question(text))
		if f := (*failure)(nil); !errors.As(err, &f) || !strings.Contains(f.text, c.want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if asked := elsewhere.Asked(); len(asked) != 0 {
		t.Errorf("another server was asked for %q", asked)
	}
}

// TestRefusedToken: a token that GitHub does not take any more, as after the App was removed and installed
// again, is replaced at once, because a refusal for good is not tried again (SPEC 22.3).
func TestRefusedToken(t *testing.T) {
	hub := githubtest.Start(t, "")
	hub.Installed["acme/api"] = 5
	c, app := NewClient(time.Now), API{URL: hub.API(), Secret: hub.Secret(t)}
	ask := func() error {
		_, err := c.Ask(t.Context(), app, question("github pull_request_labels acme/api 7"))
		return err
	}
	if err := ask(); err != nil {
		t.Fatal(err)
	}
	old := "Bearer " + hub.Grants()[0].Token
	hub.Change(func() {
		hub.Fault = func(w http.ResponseWriter, r *http.Request) bool {
			if r.Header.Get("Authorization") == old {
				w.WriteHeader(http.StatusUnauthorized)
			}
			return r.Header.Get("Authorization") == old
		}
	})
	if err := ask(); err != nil || len(hub.Grants()) != 2 {
		t.Errorf("the old token: %v, %d tokens", err, len(hub.Grants()))
	}
	hub.Change(func() {
		hub.Fault = func(w http.ResponseWriter, r *http.Request) bool {
			if refused := strings.Contains(r.URL.Path, "/repos/acme/api/pulls/"); refused {
				w.WriteHeader(http.StatusUnauthorized)
				return true
			}
			return false
		}
	})
	if err := ask(); err == nil || !strings.Contains(err.Error(), "answered 401") || len(hub.Grants()) != 3 {
		t.Errorf("each token: %v, %d tokens", err, len(hub.Grants()))
	}
}
