//go:build full

package copy

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"triphammer/server/store"

	"triphammer/server/store/storetest"
)

// TestSchemas: the tables and columns of both engines are the same, with their types, their
// primary keys, and whether they can be empty.
func TestSchemas(t *testing.T) {
	from := Place{Path: filepath.Join(t.TempDir(), "a.db")}
	lite := must[side](t)(openFileTarget(t.Context(), from.Path, from))
	defer lite.close()
	pg := must[side](t)(openPostgresTarget(t.Context(), storetest.Postgres(t), from))
	defer pg.close()
	one, two := must[[]*table](t)(lite.tables(t.Context())), must[[]*table](t)(pg.tables(t.Context()))
	if len(one) < 30 {
		t.Fatalf("%d tables", len(one))
	}
	for _, d := range differences(one, two) {
		t.Error(d)
	}
	check(t, pg.exec(t.Context(), "ALTER TABLE runs ALTER COLUMN title DROP NOT NULL"))
	check(t, pg.exec(t.Context(), "ALTER TABLE pins ADD COLUMN more BIGINT"))
	if d := differences(one, must[[]*table](t)(pg.tables(t.Context()))); len(d) != 3 {
		t.Errorf("%q", d)
	}
}

// TestCopyWhileServed: a database that servers use is not copied, and none that is being copied
// is served.
func TestCopyWhileServed(t *testing.T) {
	f, first := furnished(t)
	check(t, f.Close())
	second := Place{URL: storetest.Postgres(t)}
	if _, err := Copy(t.Context(), first, second, nil); err != nil {
		t.Fatal(err)
	}
	served := second
	served.URL += "?application_name=mine&search_path=other" // as PGAPPNAME and PGOPTIONS may say
	s := f.in(t, served)
	dir := t.TempDir()
	third := Place{Path: filepath.Join(dir, "c.db"), Artifacts: filepath.Join(dir, "artifacts")}
	if _, err := Copy(t.Context(), second, third, nil); !errors.Is(err, store.ErrOthers) {
		t.Errorf("from a store that is served: %v", err)
	}
	check(t, s.Close())
	from := must[side](t)(openSource(t.Context(), second))
	if _, err := Copy(t.Context(), second, third, nil); !errors.Is(err, store.ErrOthers) {
		t.Errorf("from a store that is being copied: %v", err)
	}
	from.close()
	if _, err := Copy(t.Context(), second, third, nil); err != nil {
		t.Error(err)
	}
}

// TestBackupOfDatabase: a backup of a store that servers use is a file that db restore takes,
// with the content of artifacts.
func TestBackupOfDatabase(t *testing.T) {
	f, first := furnished(t)
	check(t, f.Close())
	second := Place{URL: storetest.Postgres(t), Path: filepath.Join(t.TempDir(), "triphammer.db")}
	if _, err := Copy(t.Context(), first, second, nil); err != nil {
		t.Fatal(err)
	}
	s := f.in(t, second)
	must[store.Recorded](t)(s.Deliveries.Record(t.Context(), delivery("late", `{}`, "a")))
	copied := must[*os.File](t)(Backup(t.Context(), s.Store))
	path := filepath.Join(t.TempDir(), "restored.db")
	check(t, os.WriteFile(path, must[[]byte](t)(io.ReadAll(copied)), 0o600))
	check(t, copied.Close())
	restored := s.in(t, Place{Path: path})
	if r := must[*store.Report](t)(restored.Check(t.Context())); len(r.Problems) > 0 || r.Rows["runs"] != 61 || r.Rows["artifacts"] != 10 {
		t.Errorf("%+v", r)
	}
	check(t, s.Close())
	if r := must[*store.Report](t)(store.CheckDatabase(t.Context(), second.URL)); len(r.Problems) > 0 || r.Rows["runs"] != 61 {
		t.Errorf("%+v", r)
	}
	if left := must[[]os.DirEntry](t)(os.ReadDir(filepath.Dir(second.Path))); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestCopyToFullDisk: a copy whose target has no room for an artifact ends with that reason.
func TestCopyToFullDisk(t *testing.T) {
	f, first := furnished(t)
	check(t, f.Close())
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=2m"); err != nil {
		t.Fatal("a small file system (the test needs root): ", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	second := Place{Path: filepath.Join(t.TempDir(), "b.db"), Artifacts: dir}
	if _, err := Copy(t.Context(), first, second, nil); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("without room: %v", err)
	}
}
