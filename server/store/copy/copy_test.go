package copy

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"triphammer/server/store"

	"triphammer/server/store/internal/engine"

	"triphammer/server/secret"
	"triphammer/server/store/storetest"
)

// copierVariable holds the places between which this program, started again, copies until it
// is killed.
const copierVariable = "STORE_TEST_COPIER"

func copier(places string) error {
	var p [2]Place
	if err := json.Unmarshal([]byte(places), &p); err != nil {
		return err
	}
	_, err := Copy(context.Background(), p[0], p[1], func(what string, done, of int64) { fmt.Println(what, done, of) })
	return err
}

// killCopy begins a copy and kills it when it has reported so many times. It tells whether the
// copy was still at work.
func killCopy(t *testing.T, from, to Place, reports int) bool {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), copierVariable+"="+string(must[[]byte](t)(json.Marshal([2]Place{from, to}))))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out := must[io.ReadCloser](t)(cmd.StdoutPipe())
	check(t, cmd.Start())
	lines := bufio.NewScanner(out)
	for n := 0; n < reports && lines.Scan(); n++ {
	}
	_ = cmd.Process.Kill()
	_, _ = io.Copy(io.Discard, out)
	_ = cmd.Wait()
	return !strings.Contains(stderr.String(), "<nil>")
}

// plain and awkward are texts that tables are filled with.
var (
	plain   = []string{"", "a", "Ünïcödé ✓ 𝄞", "'; DROP TABLE runs; --", "line\nline\ttab\\.", `{"a":"\\u0000"}`, strings.Repeat("long ", 100), "\u2028\ufeff\x01\x7f"}
	awkward = append(slices.Clone(plain), "nul\x00nul", "not \xff\xfe UTF-8", "\xed\xa0\x80", "\x00")
)

// fillTables puts rows into all tables of a store that is closed, whatever they mean.
func fillTables(t *testing.T, p Place, rows int, texts []string) {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	s := must[*fileSide](t)(openFileSide(t.Context(), p.Path, engine.Durable(nil)))
	defer s.close()
	for _, table := range must[[]*table](t)(s.tables(t.Context())) {
		if table.name == "meta" || table.name == "artifact_parts" {
			continue
		}
		var all [][]any
		for i := range rows {
			row := make([]any, len(table.columns))
			for j, c := range table.columns {
				unique := fmt.Sprintf("%06d %s ", i, c.name)
				switch {
				case c.null && random.IntN(3) == 0:
				case c.class == "number" && c.key > 0:
					row[j] = int64(i) << 30
				case c.class == "number":
					row[j] = []int64{0, 1, -1, math.MaxInt64, math.MinInt64, random.Int64()}[random.IntN(6)]
				case table.name == "artifacts" && c.name == "file":
					row[j] = "" // a link
				case c.class == "text":
					row[j] = unique + texts[random.IntN(len(texts))]
				default:
					data := make([]byte, random.IntN(100))
					for k := range data {
						data[k] = byte(random.Uint32())
					}
					row[j] = append([]byte(unique), data...)
				}
			}
			all = append(all, row)
		}
		check(t, s.insert(t.Context(), table, all))
	}
}

// furnished makes a store of one server with what servers write, artifacts too.
func furnished(t *testing.T) (*fixture, Place) {
	t.Helper()
	dir := t.TempDir()
	f := &fixture{at: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)}
	f.cfg = store.Config{Path: filepath.Join(dir, "a.db"), Key: must[*secret.Key](t)(secret.LoadOrCreateKey(filepath.Join(dir, "key"))), Now: func() time.Time { return f.at }, Artifacts: filepath.Join(dir, "artifacts")}
	f.reopen(t)
	t.Cleanup(func() { _ = f.Close() })
	ctx := t.Context()
	must[int64](t)(f.Secrets.Set(ctx, "S", secret.New("correct-horse-battery-staple")))
	for i := range 30 {
		d := delivery(fmt.Sprint(i), `{"n":`+fmt.Sprint(i)+`,"text":"`+strings.Repeat("x", 100*i)+`"}`, "a", "b")
		d.Headers["X-Odd"] = "\xff\x00"
		must[store.Recorded](t)(f.Deliveries.Record(ctx, d))
	}
	leases := must[[]store.Lease](t)(f.Leases.Claim(ctx, store.Claim{Worker: "w", Most: 5, Lease: time.Minute}))
	for i, l := range leases {
		must[store.Artifact](t)(f.Artifacts.KeepFile(ctx, l, store.Artifact{Type: "FILE", Name: "a.txt"}, func(w io.Writer) error {
			_, err := w.Write(bytes.Repeat([]byte{byte(i), 0, 0xff}, (i+1)*70_000))
			return err
		}))
		must[store.Artifact](t)(f.Artifacts.KeepLink(ctx, l, store.Artifact{Type: "PULL_REQUEST", URL: "https://example.com/" + fmt.Sprint(i)}))
	}
	return f, Place{Path: f.cfg.Path, Artifacts: f.cfg.Artifacts}
}

// place is an empty one of the engine under test.
func place(t *testing.T) Place {
	t.Helper()
	dir := t.TempDir()
	p := Place{URL: storetest.URL(t)}
	if p.URL == "" {
		p.Path, p.Artifacts = filepath.Join(dir, "b.db"), filepath.Join(dir, "artifacts")
	}
	return p
}

// in opens the store of a place with the key of another one.
func (f *fixture) in(t *testing.T, p Place) *fixture {
	t.Helper()
	other := &fixture{at: f.at, cfg: f.cfg}
	other.cfg.Path, other.cfg.URL, other.cfg.Artifacts = p.Path, p.URL, p.Artifacts
	other.reopen(t)
	t.Cleanup(func() { _ = other.Close() })
	return other
}

// TestCopy: a copy has all that the store has, on the engine under test and back, and serves
// (SPEC 17.1).
func TestCopy(t *testing.T) {
	f, first := furnished(t)
	check(t, f.Close())
	second := place(t)
	up, err := Copy(t.Context(), first, second, nil)
	if err != nil || up.Files != 5 || len(up.Damaged) > 0 || up.KeyID != f.cfg.Key.ID() || (up.Texts > 0) != (second.URL != "" && up.Texts > 0) {
		t.Fatalf("%+v: %v", up, err)
	}
	third := Place{Path: filepath.Join(t.TempDir(), "c.db"), Artifacts: filepath.Join(t.TempDir(), "artifacts")}
	down, err := Copy(t.Context(), second, third, nil)
	if err != nil || down.Texts != 0 || down.Files != 5 {
		t.Fatalf("%+v: %v", down, err)
	}
	sums := func(c *Copied) (all []CopiedTable) {
		for _, s := range c.Tables {
			if s.Name != "artifacts" && s.Name != "artifact_parts" { // the name of the file is another one
				all = append(all, s)
			}
		}
		return all
	}
	if !slices.Equal(sums(up), sums(down)) {
		t.Errorf("%v\n%v", up.Tables, down.Tables)
	}
	for _, p := range []Place{second, third} {
		s := f.in(t, p)
		if r := must[*store.Report](t)(s.Check(t.Context())); len(r.Problems) > 0 || r.Rows["runs"] != 60 || r.Rows["artifacts"] != 10 {
			t.Errorf("%s: %+v", p, r)
		}
		if v := must[store.SecretValue](t)(s.Secrets.At(t.Context(), "S", 1)); v.Value.Reveal() != "correct-horse-battery-staple" {
			t.Errorf("%s: the secret is not there", p)
		}
		if r := must[store.Recorded](t)(s.Deliveries.Record(t.Context(), delivery("3", `{}`, "a"))); !r.Duplicate {
			t.Errorf("%s: a delivery that it has is taken again", p)
		}
		newest := must[[]*store.Run](t)(s.Runs.List(t.Context(), store.RunQuery{Limit: 1}))[0].ID
		if r := must[store.Recorded](t)(s.Deliveries.Record(t.Context(), delivery("new", `{}`, "a"))); r.Duplicate || int64(r.ID) <= int64(newest) {
			t.Errorf("%s: %+v", p, r)
		}
		check(t, s.Close())
	}
}

// TestCopyAnything: each table with whatever rows is the same in the copy, and what
// PostgreSQL's text cannot have is counted; no program opens a copy that was killed, and no copy
// is made over it.
func TestCopyAnything(t *testing.T) {
	for name, texts := range map[string][]string{"plain": plain, "awkward": awkward} {
		t.Run(name, func(t *testing.T) {
			f, first := furnished(t)
			check(t, f.Close())
			fillTables(t, first, 1100, texts)
			for _, reports := range []int{1, 40} {
				half := place(t)
				if !killCopy(t, first, half, reports) {
					t.Fatal("it ended before it was killed")
				}
				cfg := f.cfg
				cfg.Path, cfg.URL = half.Path, half.URL
				if s, err := store.Open(t.Context(), cfg); !errors.Is(err, store.ErrCopying) {
					t.Fatalf("after %d reports it opens: %v %v", reports, err, s)
				}
				if _, err := Copy(t.Context(), first, half, nil); !errors.Is(err, ErrNotEmpty) {
					t.Errorf("over what is there after %d reports: %v", reports, err)
				}
			}
			second := place(t)
			up, err := Copy(t.Context(), first, second, func(what string, done, of int64) {
				if done > of {
					t.Errorf("%s: %d of %d", what, done, of)
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			if lossy := second.URL != "" && name == "awkward"; lossy != (up.Texts > 0) && name == "awkward" {
				t.Errorf("%d texts changed", up.Texts)
			}
			for _, table := range up.Tables {
				if table.Rows < 1100 && table.Name != "meta" {
					t.Errorf("%+v", table)
				}
			}
			if _, err := Copy(t.Context(), first, second, nil); !errors.Is(err, ErrNotEmpty) {
				t.Errorf("a second copy: %v", err)
			}
		})
	}
}

// TestCopyNotices: a row that is missing, further or another one in the copy is named.
func TestCopyNotices(t *testing.T) {
	f, first := furnished(t)
	check(t, f.Close())
	for _, c := range []struct{ spoil, want string }{
		{"UPDATE runs SET title = 'other' WHERE id = (SELECT max(id) FROM runs)", "the row of runs with id = "},
		{"DELETE FROM deliveries WHERE id = (SELECT min(id) FROM deliveries)", "the row of deliveries with id = "},
		{"INSERT INTO pins (factory, commit_hash, reason, pinned_by, pinned_at, until) VALUES ('f', '', '', '', 0, 0)", `the row of pins with factory = "f"`},
		{"", "the artifact art_"},
	} {
		second := place(t)
		copies := &copying{fromPlace: first, toPlace: second, convertFiles: true}
		check(t, copies.open(t.Context()))
		to := copies.to
		copies.told = func(what string, done, of int64) {
			switch {
			case what != "files of artifacts" || done < of:
			case c.spoil != "":
				check(t, to.exec(t.Context(), c.spoil))
			case second.URL != "":
				check(t, to.exec(t.Context(), "UPDATE artifact_parts SET data = set_byte(data, 0, 99)"))
			default:
				check(t, os.WriteFile(must[[]string](t)(filepath.Glob(filepath.Join(second.Artifacts, "*", "*")))[1], []byte("other"), 0o600))
			}
		}
		if err := copies.run(t.Context()); !errors.Is(err, ErrDifferent) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.spoil, err)
		}
		copies.from.close()
		to.close()
	}
}

// TestCopyRefuses: what must not be written over, is unfinished, or has another schema.
func TestCopyRefuses(t *testing.T) {
	f, first := furnished(t)
	check(t, f.Close())
	full := place(t)
	if _, err := Copy(t.Context(), first, full, nil); err != nil {
		t.Fatal(err)
	}
	_, other := furnished(t)
	if _, err := Copy(t.Context(), other, full, nil); !errors.Is(err, ErrNotEmpty) {
		t.Errorf("over another store: %v", err)
	}
	half := place(t)
	killCopy(t, first, half, 1)
	if _, err := Copy(t.Context(), half, place(t), nil); err == nil || !strings.Contains(err.Error(), "no whole store") {
		t.Errorf("from an unfinished copy: %v", err)
	}
	empty := place(t)
	empty.Path += ".none"
	if empty.URL == "" {
		if _, err := Copy(t.Context(), empty, place(t), nil); !errors.Is(err, store.ErrMissing) {
			t.Errorf("from nothing: %v", err)
		}
	}
	for schema, want := range map[string]string{"24": "start a server of this version on it once", "99": "Copy it with the newer version"} {
		s := must[*fileSide](t)(openFileSide(t.Context(), first.Path, engine.Durable(nil)))
		check(t, s.exec(t.Context(), "UPDATE meta SET value = $1 WHERE name = 'schema'", schema))
		s.close()
		if _, err := Copy(t.Context(), first, place(t), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("schema %s: %v", schema, err)
		}
	}
}

// TestCopyDamagedArtifacts: content that is gone or damaged already does not keep the rest
// back, and is named.
func TestCopyDamagedArtifacts(t *testing.T) {
	f, first := furnished(t)
	check(t, f.Close())
	files := must[[]string](t)(filepath.Glob(filepath.Join(first.Artifacts, "*", "*")))
	check(t, os.Remove(files[0]))
	check(t, os.WriteFile(files[1], []byte("other"), 0o600))
	second := place(t)
	c, err := Copy(t.Context(), first, second, nil)
	if err != nil || c.Files != 3 || len(c.Damaged) != 2 {
		t.Errorf("%+v: %v", c, err)
	}
	if r := must[*store.Report](t)(f.in(t, second).Check(t.Context())); len(r.Problems) != 2 {
		t.Errorf("%+v", r)
	}
}
