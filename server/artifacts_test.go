package server

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"triphammer/server/run/event"
	"triphammer/server/store"
)

// keepFile claims the oldest run of the queue, and keeps a file, two links and a
// screenshot of it.
func (f *fixture) keepFile(name, content string) (run, artifact string) {
	f.t.Helper()
	leases, err := f.store.Leases.Claim(f.t.Context(), store.Claim{Worker: "w", Most: 1, Lease: time.Minute})
	if err != nil || len(leases) != 1 {
		f.t.Fatal(leases, err)
	}
	kept, err := f.store.Artifacts.KeepFile(f.t.Context(), leases[0], store.Artifact{Type: event.ArtifactFile, Name: name, MediaType: "text/html"}, func(w io.Writer) error {
		_, err := io.WriteString(w, content)
		return err
	})
	if err != nil {
		f.t.Fatal(err)
	}
	defer func() {
		picture := store.Artifact{Type: event.ArtifactScreenshot, Name: "page.png", MediaType: "image/png"}
		_, err := f.store.Artifacts.KeepFile(f.t.Context(), leases[0], picture, func(w io.Writer) error {
			_, err := io.WriteString(w, "PNG")
			return err
		})
		if err != nil {
			f.t.Fatal(err)
		}
	}()
	for _, a := range []store.Artifact{
		{Type: event.ArtifactPullRequest, URL: "https://git.example.com/a/b/pull/7", Name: "Seven"},
		{Type: event.ArtifactReference, URL: "https://example.com/"},
	} {
		if _, err := f.store.Artifacts.KeepLink(f.t.Context(), leases[0], a); err != nil {
			f.t.Fatal(err)
		}
	}
	return leases[0].RunID.String(), kept.ID.String()
}

// TestArtifacts: a run shows what it left in the published shape, lists select by it, and
// a download is never shown as a page (SPEC 15.6).
func TestArtifacts(t *testing.T) {
	f := newFixture(t)
	key := f.key("reader", "read")
	admin := f.key("admin", "manage")
	for range 2 {
		if got := f.do("POST", ingress+f.uids()["hook"], hookSecret, `{"n":1}`); got.status != 202 {
			t.Fatalf("%d %s", got.status, got.body)
		}
	}
	content := "<script>alert(1)</script>"
	run, artifact := f.keepFile(`out/a "b".html`, content)
	got := f.get("/api/v1/agent/runs/"+run, key)
	for path, want := range map[string]string{
		"artifacts/0/artifact_type": "FILE", "artifacts/0/data/artifact_uid": artifact, "artifacts/0/data/filename": `a "b".html`,
		"artifacts/0/data/filepath": `out/a "b".html`, "artifacts/0/data/mime_type": "text/html", "artifacts/0/data/size_bytes": "25",
		"artifacts/1/artifact_type": "PULL_REQUEST", "artifacts/1/data/url": "https://git.example.com/a/b/pull/7",
		"artifacts/2/artifact_type": "EXTERNAL_REFERENCE", "artifacts/2/data/reference_type": "link",
	} {
		if is := field(t, got, strings.Split(path, "/")...); is != want {
			t.Errorf("%s is %s, want %s", path, is, want)
		}
	}
	one := f.get("/api/v1/agent/artifacts/"+artifact, key)
	address := field(t, one, "data", "download_url")
	file := f.get(strings.TrimPrefix(address, f.url), key)
	h := file.header
	if file.status != 200 || string(file.body) != content || h.Get("Content-Type") != "application/octet-stream" ||
		h.Get("Content-Disposition") != `attachment; filename="a \"b\".html"` || h.Get("X-Content-Type-Options") != "nosniff" ||
		!strings.Contains(h.Get("Content-Security-Policy"), "sandbox") {
		t.Errorf("%d %v %s", file.status, h, file.body)
	}
	link := field(t, got, "artifacts", "1", "artifact_uid")
	for path, status := range map[string]int{
		"/api/v1/agent/artifacts/" + link:               200,
		"/api/v1/agent/artifacts/" + link + "/download": 404,
		"/api/v1/agent/artifacts/art_0000000000001":     404,
		"/api/v1/agent/artifacts/x/download":            404,
		"/artifacts/" + artifact:                        401, // a page: only with a session
	} {
		if got := f.get(path, key); got.status != status {
			t.Errorf("%s: %d, want %d: %s", path, got.status, status, got.body)
		}
	}
	for kind, want := range map[string]string{"FILE": run, "PULL_REQUEST": run, "EXTERNAL_REFERENCE": run, "SCREENSHOT": run, "PLAN": ""} {
		for _, more := range []string{"", "&sort_by=created_at", "&sort_by=title&sort_order=asc", "&state=INPROGRESS"} {
			list := f.get("/api/v1/agent/runs?artifact_type="+kind+more, key)
			if list.status != 200 || strings.Count(string(list.body), `"run_id":"`) != len(want)/len(run) || !strings.Contains(string(list.body), want) {
				t.Errorf("%s%s: %s", kind, more, list.body)
			}
		}
	}
	session := f.signIn(field(t, f.do("POST", "/api/v1/auth/links", admin, ""), "url"))
	for path, want := range map[string]string{"/runs/" + run: `href="/artifacts/` + artifact + `" download`, "/artifacts/" + artifact: content} {
		req, err := http.NewRequest(http.MethodGet, f.url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Cookie", session)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != 200 || !strings.Contains(string(body), want) {
			t.Errorf("%s: %d %s", path, resp.StatusCode, body)
		}
	}
}
