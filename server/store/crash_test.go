package store

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"triphammer/server/store/internal/engine"

	"triphammer/server/secret"
	"triphammer/server/store/storetest"
)

// victimVariable holds the folder in which this program, started again by
// TestKill, records deliveries until it is killed.
const victimVariable = "STORE_TEST_VICTIM"

func TestMain(m *testing.M) {
	if dir := os.Getenv(victimVariable); dir != "" {
		act := victim
		if os.Getenv(decidingVariable) != "" {
			act = deciding
		}
		fmt.Fprintln(os.Stderr, act(dir))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// sixteen does something with a store over and over, in 16 goroutines, until something fails. name is of no other
// call in any process.
func sixteen(dir string, do func(ctx context.Context, s *Store, name string, i int) error) error {
	ctx := context.Background()
	s, err := openIn(ctx, dir)
	if err != nil {
		return err
	}
	failed := make(chan error)
	start := strconv.FormatInt(time.Now().UnixNano(), 36)
	for worker := range 16 {
		go func() {
			for i := 0; ; i++ {
				if err := do(ctx, s, fmt.Sprint(start, "-", worker, "-", i), i); err != nil {
					failed <- err
					return
				}
			}
		}()
	}
	return <-failed
}

// victim prints the id of each delivery after it was acknowledged.
func victim(dir string) error {
	return sixteen(dir, func(ctx context.Context, s *Store, name string, _ int) error {
		d := delivery(name, fmt.Sprintf(`{"n":"%s"}`, name), "a", "b")
		d.ReplayWindow = time.Hour
		d.Runs[1].Subject, d.Runs[1].PerSubject = "github:acme/app#1", PerSubjectQueue
		r, err := s.Deliveries.Record(ctx, d)
		if err == nil {
			fmt.Printf("%s %s %s\n", r.ID, r.RunIDs[0], r.RunIDs[1]) // one write: whole or not at all
		}
		return err
	})
}

// decidingVariable makes the program decide about runs that wait for a person instead.
const decidingVariable = "STORE_TEST_DECIDING"

// deciding prints each run about which it has decided, and how.
func deciding(dir string) error {
	return sixteen(dir, func(ctx context.Context, s *Store, name string, i int) error {
		d := delivery(name, "{}", "a")
		d.Runs[0].Approval = &NewApproval{For: time.Hour}
		r, err := s.Deliveries.Record(ctx, d)
		if err != nil {
			return err
		}
		waits, err := s.Approvals.Of(ctx, r.RunIDs[0])
		if err != nil {
			return err
		}
		_, _, err = s.Approvals.Decide(ctx, Decision{Run: r.RunIDs[0], Approve: i%2 == 0, Shown: ShownOf(waits...), By: "ada", Actor: "page ada", Origin: "local"})
		if err == nil {
			fmt.Printf("%s %s .\n", r.RunIDs[0], map[bool]string{true: Approved, false: Declined}[i%2 == 0])
		}
		return err
	})
}

// TestKillDeciding: a decision, its effect and its entry in the audit log are all there or none of them, at
// whatever moment the process dies (SPEC 26.1).
func TestKillDeciding(t *testing.T) {
	dir := t.TempDir()
	check(t, os.WriteFile(filepath.Join(dir, "url"), []byte(storetest.URL(t)), 0o600))
	t.Setenv(decidingVariable, "1")
	acknowledged := make(map[string][]string)
	kill(t, dir, acknowledged)
	s := must[*Store](t)(openIn(t.Context(), dir))
	defer func() { _ = s.Close() }()
	logged := make(map[string]string)
	for _, e := range must[[][2]string](t)(engine.List(t.Context(), s.DB, func(rows *sql.Rows) (e [2]string, err error) {
		err = rows.Scan(&e[0], &e[1])
		return e, err
	}, "SELECT object, action FROM audit")) {
		logged[e[0]] += e[1]
	}
	n := 0
	for _, row := range must[[][3]string](t)(engine.List(t.Context(), s.DB, func(rows *sql.Rows) (row [3]string, err error) {
		var id RunID
		var state RunState
		var at int64
		err = rows.Scan(&id, &row[1], &state, &at)
		if row[0], row[2] = id.String(), string(state); state == "HELD" && at != untilApproved {
			row[2] = string(Queued)
		}
		return row, err
	}, "SELECT a.run_id, a.decision, r.state, r.run_at FROM approvals a JOIN runs r ON r.id = a.run_id")) {
		n++
		want := map[string][2]string{"": {"HELD", ""}, Approved: {string(Queued), "run.approve"}, Declined: {string(Cancelled), "run.decline"}}[row[1]]
		if row[2] != want[0] || logged[row[0]] != want[1] {
			t.Errorf("%s: decided %q, %s, and the audit log has %q", row[0], row[1], row[2], logged[row[0]])
		}
		if told := acknowledged[row[0]]; told != nil && told[0] != row[1] {
			t.Errorf("%s was told to be %s, and is %q", row[0], told[0], row[1])
		}
	}
	if n < len(acknowledged) || len(acknowledged) < 100 {
		t.Errorf("%d approvals are kept, and %d decisions were told", n, len(acknowledged))
	}
}

func openIn(ctx context.Context, dir string) (*Store, error) {
	key, err := secret.LoadOrCreateKey(filepath.Join(dir, "key"))
	if err != nil {
		return nil, err
	}
	url, err := os.ReadFile(filepath.Join(dir, "url"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return Open(ctx, Config{Path: filepath.Join(dir, "x.db"), URL: string(url), Key: key})
}

// TestKill (R1): nothing that was acknowledged is lost if the process dies at any
// moment, and nothing is half there (SPEC 5.4, 9.2).
func TestKill(t *testing.T) {
	dir := t.TempDir()
	check(t, os.WriteFile(filepath.Join(dir, "url"), []byte(storetest.URL(t)), 0o600))
	acknowledged := make(map[string][]string)
	for range 4 {
		kill(t, dir, acknowledged)
		s := must[*Store](t)(openIn(t.Context(), dir))
		if problems := must[[]string](t)(s.Integrity(t.Context())); len(problems) > 0 {
			t.Fatal(problems)
		}
		kept := make(map[string][]string)
		rows := must[[][2]string](t)(engine.List(t.Context(), s.DB, scanPair, "SELECT d.id, coalesce(r.id, 0) FROM deliveries d LEFT JOIN runs r ON r.delivery_id = d.id ORDER BY r.id"))
		for _, row := range rows {
			kept[row[0]] = append(kept[row[0]], row[1])
		}
		for id, runs := range acknowledged {
			if strings.Join(kept[id], " ") != strings.Join(runs, " ") {
				t.Errorf("%s was acknowledged with the runs %v, and has %v", id, runs, kept[id])
			}
		}
		for id, runs := range kept {
			if len(runs) != 2 || runs[0] == "" {
				t.Errorf("%s is half-kept: its runs are %v", id, runs)
			}
		}
		// One run of the line may start, the first one, and each run has its place (SPEC 21.5).
		var outside, starts int
		check(t, s.Read.QueryRowContext(t.Context(), "SELECT count(*) FROM runs r WHERE automation = 'b' AND NOT EXISTS (SELECT 1 FROM lines l WHERE l.run_id = r.id)").Scan(&outside))
		check(t, s.Read.QueryRowContext(t.Context(), "SELECT count(*) FROM runs WHERE automation = 'b' AND state = 'QUEUED'").Scan(&starts))
		if outside != 0 || starts != 1 {
			t.Errorf("%d runs have no place in the line, and %d of it may start", outside, starts)
		}
		// A signed body of before the crash does not come again under another identity (SPEC 5.13).
		var bare int
		check(t, s.Read.QueryRowContext(t.Context(), "SELECT count(*) FROM deliveries d WHERE NOT EXISTS (SELECT 1 FROM signed_bodies b WHERE b.id = d.id)").Scan(&bare))
		last := must[DeliveryID](t)(ParseID[Delivery](slices.Max(slices.Collect(maps.Keys(acknowledged)))))
		captured := delivery("captured", string(must[[]byte](t)(s.Deliveries.Payload(t.Context(), last))))
		captured.ReplayWindow = time.Hour
		again := (*ReplayError)(nil)
		if _, err := s.Deliveries.Record(t.Context(), captured); bare != 0 || !errors.As(err, &again) || again.Of != last {
			t.Errorf("%d deliveries have no signed body, and %s again: %v", bare, last, err)
		}
		check(t, s.Close())
	}
	t.Logf("%d acknowledged deliveries", len(acknowledged))
}

func scanPair(rows *sql.Rows) (pair [2]string, err error) {
	var delivery DeliveryID
	var run RunID
	err = rows.Scan(&delivery, &run)
	return [2]string{delivery.String(), run.String()}, err
}

// kill starts a victim, kills it amid its work, and adds what it had been told.
func kill(t *testing.T, dir string, acknowledged map[string][]string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), must[string](t)(os.Executable()))
	cmd.Env = append(os.Environ(), victimVariable+"="+dir)
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.StdoutPipe()
	check(t, err)
	check(t, cmd.Start())
	var once sync.Once
	lines, n := bufio.NewScanner(out), 0
	for lines.Scan() {
		if ids := strings.Fields(lines.Text()); len(ids) == 3 {
			acknowledged[ids[0]] = ids[1:]
		}
		if n++; n >= 500 {
			once.Do(func() { check(t, cmd.Process.Kill()) })
		}
	}
	_ = cmd.Wait() // killed
	if n < 500 {
		t.Fatalf("it died by itself: %s", complaint.String())
	}
}
