package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"triphammer/cmd/triphammer/client/exit"
	"triphammer/server/api"
)

// rewritten is an archive with its files changed. A change that returns no content drops its file.
func rewritten(t *testing.T, path string, change func(name string, content []byte) (string, []byte)) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for r := tar.NewReader(bytes.NewReader(text)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		content, readErr := io.ReadAll(r)
		if err := errors.Join(err, readErr); err != nil {
			t.Fatal(err)
		}
		if content == nil {
			content = []byte{}
		}
		if h.Name, content = change(h.Name, content); content == nil {
			continue
		}
		h.Size = int64(len(content))
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(content); err != nil {
			t.Fatal(err)
		}
	}
	to := filepath.Join(filepath.Dir(path), "rewritten.tar")
	if err := errors.Join(w.Close(), os.WriteFile(to, out.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
	return to
}

// TestRestoreRefuses: a backup that is not whole, or has what no backup has, is not restored.
func TestRestoreRefuses(t *testing.T) {
	t.Parallel()
	files := smallFactory()
	files["environments/env.yaml"] = "command: [sh, -c, 'echo left > \"$TRIPHAMMER_ARTIFACTS/note.txt\"']\n"
	w := newWorld(t, files)
	w.start()
	w.deliver("hook", `{}`)
	var runs []api.Run
	w.list(&runs, "runs", "list")
	w.run("", "runs", "watch", runs[0].RunID)
	w.run("", "db", "backup", "--with-key", "copy.tar")
	w.kill()
	full := filepath.Join(w.dir, "copy.tar")
	for want, change := range map[string]func(string, []byte) (string, []byte){
		"incomplete": func(name string, content []byte) (string, []byte) {
			if name == api.ArchivedEnd {
				return name, nil
			}
			return name, content
		},
		"the file of an artifact is missing": func(name string, content []byte) (string, []byte) {
			if strings.HasPrefix(name, api.ArchivedArtifacts) {
				return name, nil
			}
			return name, content
		},
		"is not what was stored": func(name string, content []byte) (string, []byte) {
			if strings.HasPrefix(name, api.ArchivedArtifacts) {
				return name, []byte("right\n")
			}
			return name, content
		},
		"no backup has": func(name string, content []byte) (string, []byte) {
			if strings.HasPrefix(name, api.ArchivedArtifacts) {
				return "artifacts/../../x", content
			}
			return name, content
		},
	} {
		changed := rewritten(t, full, change)
		for _, args := range [][]string{{"--verify"}, {"--data", "new"}} {
			if out := w.fails(exit.Bad, append([]string{"db", "restore", changed}, args...)...); !strings.Contains(out, want) {
				t.Errorf("%v: %q instead of %q", args, out, want)
			}
		}
		if left, _ := filepath.Glob(filepath.Join(w.dir, "new", "*")); len(left) > 0 {
			t.Errorf("%s: it left %v", want, left)
		}
	}
	w.run("", "db", "restore", full, "--data", "new")
}
