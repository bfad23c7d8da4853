package client

import (
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"triphammer/server/api"
)

// TestUserName: without a login shell the operating system knows who it is
// (SPEC 10.2).
func TestUserName(t *testing.T) {
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"SUDO_USER", "USER", "LOGNAME"} {
		t.Setenv(name, "")
	}
	if got := UserName(); got != me.Username {
		t.Errorf("%q, not %q", got, me.Username)
	}
	t.Setenv("LOGNAME", "ada")
	if got := UserName(); got != "ada" {
		t.Errorf("%q, not ada", got)
	}
}

// TestFactoryParameter: a client sends its factory with each request that takes it, and with no
// other, because the server refuses it there.
func TestFactoryParameter(t *testing.T) {
	document, err := os.ReadFile(filepath.Join("..", "..", "..", "server", "openapi.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	cl := &Client{factory: "payments"}
	method, route, takes := "", "", false
	check := func() {
		below, isAPI := strings.CutPrefix(route, api.Base)
		if sent := cl.inFactory(method, below) != below; isAPI && sent != takes {
			t.Errorf("%s %s: the factory is sent: %t; the route takes it: %t", method, route, sent, takes)
		}
		takes = false
	}
	for line := range strings.Lines(string(document)) {
		line = strings.TrimRight(line, "\n")
		switch word := strings.TrimSuffix(strings.TrimSpace(line), ":"); {
		case strings.HasPrefix(line, "  /"):
			check()
			method, route = "", word
		case slices.Contains([]string{"    get:", "    post:", "    put:", "    patch:", "    delete:"}, line):
			check()
			method = strings.ToUpper(word)
		case strings.HasPrefix(line, "        - {name: factory, in: query,"):
			takes = true
		}
	}
	check()
	for path, want := range map[string]string{
		"/webhooks/ci/setup": "/webhooks/ci/setup?factory=payments", "/agent/runs?limit=5": "/agent/runs?limit=5&factory=payments",
		"/deliveries?factory=other": "/deliveries?factory=other", "/keys": "/keys",
	} {
		if got := cl.inFactory("GET", path); got != want {
			t.Errorf("%s became %s, not %s", path, got, want)
		}
	}
}
