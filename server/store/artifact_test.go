package store

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"triphammer/server/store/internal/engine"
	"triphammer/server/store/storetest"
)

// TestMergedStays: a pull request that is merged stays so, whatever deliveries come late, again, or by a replay
// (SPEC 27.1).
func TestMergedStays(t *testing.T) {
	s, ctx := open(t), t.Context()
	hash, data := spec("web", "", "", "x")
	_, _, err := s.Runs.Create(ctx, NewRun{Factory: "default", Source: SourceAPI, SpecHash: hash, Spec: data}, "", nil)
	check(t, err)
	lease := must[[]Lease](t)(s.Leases.Claim(ctx, Claim{Worker: "w", Most: 1, Lease: time.Minute}))[0]
	const url = "https://example.com/acme/app/pull/1"
	a := must[Artifact](t)(s.Artifacts.KeepLink(ctx, lease, Artifact{Type: "PULL_REQUEST", URL: url}))
	for _, c := range [][2]string{{"open", "open"}, {"closed", "closed"}, {"open", "open"}, {"merged", "merged"}, {"open", "merged"}, {MergedWithChanges, "merged"}} {
		check(t, s.Do(ctx, func(tx *engine.Tx) error { return s.Artifacts.became(tx, "default", PullState{url, c[0]}) }))
		if is := must[*Artifact](t)(s.Artifacts.Get(ctx, a.ID)); is.Outcome != c[1] {
			t.Errorf("%s: it is %s, want %s", c[0], is.Outcome, c[1])
		}
	}
	// A later run that leaves the same link knows, and a file of that name does not.
	_, _, err = s.Runs.Create(ctx, NewRun{Factory: "default", Source: SourceAPI, SpecHash: hash, Spec: data}, "", nil)
	check(t, err)
	lease = must[[]Lease](t)(s.Leases.Claim(ctx, Claim{Worker: "w", Most: 1, Lease: time.Minute}))[0]
	for kind, want := range map[string]string{"PULL_REQUEST": "merged", "EXTERNAL_REFERENCE": ""} {
		again := must[Artifact](t)(s.Artifacts.KeepLink(ctx, lease, Artifact{Type: kind, URL: url}))
		if is := must[*Artifact](t)(s.Artifacts.Get(ctx, again.ID)); is.Outcome != want {
			t.Errorf("a later run: %s is %q, want %q", kind, is.Outcome, want)
		}
	}
}

// TestArtifactFiles: a file is kept whole or not at all; what no row names is swept; what
// is missing, damaged or too much is found by a check, and goes with its run.
func TestArtifactFiles(t *testing.T) {
	storetest.SQLite(t)
	s, ctx, dir := open(t), t.Context(), t.TempDir()
	s.Artifacts.folder = dir
	hash, data := spec("web", "", "", "x")
	_, _, err := s.Runs.Create(ctx, NewRun{Factory: "default", Source: SourceAPI, SpecHash: hash, Spec: data}, "", nil)
	check(t, err)
	lease := must[[]Lease](t)(s.Leases.Claim(ctx, Claim{Worker: "w", Most: 1, Lease: time.Minute}))[0]
	keep := func(name, content string) (Artifact, error) {
		return s.Artifacts.KeepFile(ctx, lease, Artifact{Type: "FILE", Name: name}, func(w io.Writer) error {
			_, err := io.WriteString(w, content)
			return err
		})
	}
	a, err := keep("a.txt", "hello")
	if err != nil || a.Size != 5 {
		t.Fatal(a, err)
	}
	b, err := keep("a.txt", "again") // of one name there can be two
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Artifacts.KeepLink(ctx, lease, Artifact{Type: "PULL_REQUEST", URL: "https://example.com/"}); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	if _, err := s.Artifacts.KeepFile(ctx, lease, Artifact{Name: "half"}, func(w io.Writer) error {
		_, _ = io.WriteString(w, "half")
		return broken
	}); !errors.Is(err, broken) {
		t.Errorf("a stream that breaks: %v", err)
	}
	stale := lease
	stale.Token++
	if _, err := s.Artifacts.KeepFile(ctx, stale, Artifact{Name: "stale"}, func(io.Writer) error { return nil }); !errors.Is(err, ErrFenced) {
		t.Errorf("with a lease that is lost: %v", err)
	}
	folder := filepath.Join(dir, lease.RunID.String())
	names := func() (all []string) {
		files, err := os.ReadDir(folder)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		for _, f := range files {
			all = append(all, f.Name())
		}
		return all
	}
	if got := names(); len(got) != 2 {
		t.Errorf("the folder has %v", got)
	}
	content := func(a Artifact) (string, error) {
		row, err := s.Artifacts.Get(ctx, a.ID)
		if err != nil {
			return "", err
		}
		file, err := s.Artifacts.Open(ctx, row)
		if err != nil {
			return "", err
		}
		defer func() { _ = file.Close() }()
		text, err := io.ReadAll(file)
		return string(text), err
	}
	if text, err := content(a); text != "hello" || err != nil {
		t.Error(text, err)
	}

	// A crash has left two files: one that was being written, and one whose row was not.
	for name, age := range map[string]time.Duration{"1.part": time.Minute, "2.part": 25 * time.Hour, "3": 4 * time.Hour} {
		path := filepath.Join(folder, name)
		if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Chtimes(path, time.Time{}, time.Now().Add(-age))); err != nil {
			t.Fatal(err)
		}
	}
	row, err := s.Artifacts.Get(ctx, b.ID)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, row.file), []byte("AGAIN"), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := s.Check(ctx)
	text := strings.Join(r.Problems, "\n")
	if err != nil || len(r.Problems) != 2 || !strings.Contains(text, b.ID.String()) || !strings.Contains(text, filepath.Join(folder, "3")) || r.Rows["artifacts"] != 3 {
		t.Errorf("the check says %v %v of %v", err, text, r.Rows)
	}
	if n, err := s.Artifacts.Sweep(ctx); n != 2 || err != nil || len(names()) != 3 {
		t.Errorf("%d swept, %v, left %v", n, err, names())
	}
	if err := os.Remove(filepath.Join(folder, row.file)); err != nil {
		t.Fatal(err)
	}
	if _, err := content(b); !errors.Is(err, ErrDamaged) {
		t.Errorf("a missing file: %v", err)
	}
	if r, err := s.Check(ctx); err != nil || len(r.Problems) != 1 || !strings.Contains(r.Problems[0], b.ID.String()) {
		t.Errorf("the check says %v %v", r, err)
	}

	// The run goes, and what is left of it.
	if err := s.Leases.Finish(ctx, lease, Succeeded, "", nil); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(folder, "1.part")); err != nil {
		t.Fatal(err)
	}
	s.at = s.at.Add(48 * time.Hour)
	if n, _, err := s.Runs.Prune(ctx, RunRetention{Runs: time.Hour}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if _, err := content(a); !errors.Is(err, ErrNotFound) {
		t.Errorf("after its run: %v", err)
	}
	if n, err := s.Artifacts.Sweep(ctx); n != 1 || err != nil {
		t.Errorf("%d swept, %v", n, err)
	}
	if _, err := os.Stat(folder); !os.IsNotExist(err) {
		t.Errorf("the folder of a run that is gone: %v", err)
	}
}

// TestPartsOfRow: content that a row names is not deleted: when the connection is lost while the row is committed,
// whoever keeps an artifact does not know that it is kept.
func TestPartsOfRow(t *testing.T) {
	s, ctx := open(t), t.Context()
	hash, data := spec("web", "", "", "x")
	_, _, err := s.Runs.Create(ctx, NewRun{Factory: "default", Source: SourceAPI, SpecHash: hash, Spec: data}, "", nil)
	check(t, err)
	lease := must[[]Lease](t)(s.Leases.Claim(ctx, Claim{Worker: "w", Most: 1, Lease: time.Minute}))[0]
	a := must[Artifact](t)(s.Artifacts.KeepFile(ctx, lease, Artifact{Type: "FILE", Name: "a"}, func(w io.Writer) error {
		_, err := io.WriteString(w, "hello")
		return err
	}))
	check(t, s.Artifacts.deleteParts(ctx, a.ID))
	f := must[io.ReadCloser](t)(s.Artifacts.Open(ctx, &a))
	if text, err := io.ReadAll(f); err != nil || string(text) != "hello" {
		t.Errorf("%q, %v", text, err)
	}
	check(t, s.Do(ctx, func(tx *engine.Tx) error { return tx.Exec("DELETE FROM artifacts WHERE id = $1", a.ID) }))
	check(t, s.Artifacts.deleteParts(ctx, a.ID))
	if _, err := s.Artifacts.Open(ctx, &a); !errors.Is(err, ErrDamaged) {
		t.Errorf("content that no row names stays: %v", err)
	}
}
