package client

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"triphammer/server/api"
)

// TestDownloadArtifacts: no file that an agent names leaves the folder or replaces another.
func TestDownloadArtifacts(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/api/v1/agent/artifacts/art_") {
			http.NotFound(w, r)
			return
		}
		_, _ = io.WriteString(w, "hello")
	}))
	defer server.Close()
	outside, dir := t.TempDir(), filepath.Join(t.TempDir(), "new")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	cl := &Client{Base: server.URL, HTTP: server.Client()}
	for _, c := range []struct {
		name string
		size int64
		want string // of the error
	}{
		{"a/b.txt", 5, ""},
		{"a/b.txt", 5, "exists already"},
		{"../up.txt", 5, "no name of a file"},
		{"/etc/up.txt", 5, "no name of a file"},
		{"link/up.txt", 5, "--download"},
		{"short.txt", 6, "5 of 6 bytes"},
	} {
		one := api.Artifact{UID: "art_1", Data: api.ArtifactData{UID: "art_1", FilePath: c.name, Size: &c.size}}
		err := downloadArtifacts(t.Context(), cl, []api.Artifact{{UID: "art_2"}, one}, dir, io.Discard)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	if text, err := os.ReadFile(filepath.Join(dir, "a", "b.txt")); string(text) != "hello" || err != nil {
		t.Error(string(text), err)
	}
	if left, err := os.ReadDir(outside); len(left) > 0 || err != nil {
		t.Error("outside of the folder:", left, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "short.txt")); !os.IsNotExist(err) {
		t.Error("half a file stays:", err)
	}
}
