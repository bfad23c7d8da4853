package server

import (
	"strings"
	"testing"

	"triphammer/server/store"
)

// TestUnknownPage: a person who follows an old link gets a page, a program a problem, also
// where the address of a page is asked by a method that it does not have.
func TestUnknownPage(t *testing.T) {
	f := newFixture(t)
	f.spec = nil
	const browser = "text/html,application/xhtml+xml,*/*;q=0.8"
	for _, c := range []struct {
		request, accept, kind, want string
		status                      int
	}{
		{"GET /nothing", browser, "text/html", "There is no page at this address.", 404},
		{"GET /runs/a/b/c", browser, "text/html", "Not found", 404},
		{"DELETE /runs", browser, "text/html", "There is no page", 405},
		{"GET /nothing", "", "application/problem+json", "no route has this path", 404},
		{"GET /nothing", "*/*", "application/problem+json", "no route has this path", 404},
		{"GET /api/v1/nothing", browser, "application/problem+json", "no route has this path", 404},
		{"GET " + ingress + "nobody", browser, "", "", 405},
	} {
		method, path, _ := strings.Cut(c.request, " ")
		got := f.do(method, path, "", "", "Accept", c.accept)
		if got.status != c.status || !strings.HasPrefix(got.header.Get("Content-Type"), c.kind) || !strings.Contains(string(got.body), c.want) {
			t.Errorf("%s, %s: %d %s\n%s", c.request, c.accept, got.status, got.header.Get("Content-Type"), got.body)
		}
		if c.kind == "text/html" && got.header.Get("Content-Security-Policy") != contentPolicy {
			t.Errorf("%s: another policy", c.request)
		}
	}
}

// TestLastBackup: the page of the system says when the last backup was taken, to those who
// may read the audit log.
func TestLastBackup(t *testing.T) {
	f := newFixture(t)
	b := f.visitor("manager")
	b.page("GET", "/system", "", 200, "None was taken as far back as the audit log goes.")
	if got := f.do("POST", "/api/v1/backup", f.key("admin", "manage"), ""); got.status != 200 {
		t.Fatal(got.status)
	}
	f.sentBackup()
	b.page("GET", "/system", "", 200, "The last one was taken just now", ", by ", " bytes.")
	if text := f.visitor("viewer").page("GET", "/system", "", 200, "Backup"); strings.Contains(text, "last one was taken") {
		t.Error("a viewer reads of the audit log")
	}
}

// sentBackup waits until the audit log says that a backup was sent, which is after its answer.
func (f *fixture) sentBackup() {
	f.t.Helper()
	waitUntil(f.t, "nobody knows that the backup was sent", func() bool {
		log, err := f.store.Audit.List(f.t.Context(), store.AuditQuery{Limit: 1})
		return err != nil || log[0].Action == "store.backup_sent"
	})
}
