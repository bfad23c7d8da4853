//go:build full

package main

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"triphammer/server/store"
)

// What the checker can find.
const (
	findLost      = "an acknowledged delivery is lost"
	findTwice     = "a delivery is accepted twice"
	findStale     = "a delivery was decided by an apply that was not live any more"
	findOldSecret = "a server accepted a secret that was dead"
	findRuns      = "a delivery has not the runs that it matched"
	findOverlap   = "a run went on twice at once"
	findUnended   = "a run has not ended as it should have"
)

// flaws are what is wrong, by the kind of it.
type flaws map[string][]string

func (f flaws) add(kind, format string, args ...any) {
	f[kind] = append(f[kind], fmt.Sprintf(format, args...))
}

// report tells the findings as errors.
func (f flaws) report(c *fleet) {
	for kind, all := range f {
		c.t.Errorf("%s, %d times:\n%s", kind, len(all), strings.Join(all[:min(len(all), 20)], "\n"))
	}
}

// rows reads all rows of a query.
func rows[Row any](c *fleet, scan func(*sql.Rows) (Row, error), query string) (all []Row) {
	c.t.Helper()
	result, err := c.db.QueryContext(c.t.Context(), query)
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = result.Close() }()
	for result.Next() {
		row, err := scan(result)
		if err != nil {
			c.t.Fatal(err)
		}
		all = append(all, row)
	}
	if err := result.Err(); err != nil {
		c.t.Fatal(err)
	}
	return all
}

type deliveryRow struct {
	id                store.DeliveryID
	apply, of         int64
	outcome, identity string
	runs              map[string]int // by automation
}

type applyRow struct {
	id     int64
	commit string
}

// check compares what is in the store, and what the agents noted, with what the servers have
// acknowledged.
func (c *fleet) check() flaws {
	c.t.Helper()
	found := make(flaws)
	c.mu.Lock()
	defer c.mu.Unlock()
	deliveries := rows(c, func(r *sql.Rows) (*deliveryRow, error) {
		d := &deliveryRow{runs: make(map[string]int)}
		return d, r.Scan(&d.id, &d.apply, &d.of, &d.outcome, &d.identity)
	}, "SELECT id, apply_id, duplicate_of, outcome, identity_value FROM deliveries ORDER BY id")
	applies := rows(c, func(r *sql.Rows) (a applyRow, err error) { return a, r.Scan(&a.id, &a.commit) },
		"SELECT id, commit_hash FROM applies WHERE outcome = 'applied' ORDER BY id")
	byID, byName, accepted := make(map[store.DeliveryID]*deliveryRow), make(map[string]*deliveryRow), make(map[string]*deliveryRow)
	for _, d := range deliveries {
		byID[d.id], byName[d.id.String()] = d, d
		if d.outcome == "accepted" {
			if first := accepted[d.identity]; first != nil {
				found.add(findTwice, "%s is %s and %s", d.identity, first.id, d.id)
			}
			accepted[d.identity] = d
		}
		live := len(applies) // ids are in the order of the commits
		for live > 0 && applies[live-1].id > int64(d.id) {
			live--
		}
		if d.apply != 0 && (live == 0 || applies[live-1].id != d.apply) {
			found.add(findStale, "%s (%s, %s) was decided by %s", d.id, d.identity, d.outcome, store.ApplyID(d.apply))
		}
	}
	for _, p := range c.posts {
		if d := byName[p.delivery]; d == nil || d.identity != p.identity {
			found.add(findLost, "%s (%s) was acknowledged", p.delivery, p.identity)
		} else if accepted[p.identity] == nil {
			found.add(findLost, "%s was acknowledged as %s, a duplicate of nothing", p.identity, p.delivery)
		}
		for i, r := range c.rounds {
			next := i+1 < len(c.rounds) && !p.ended.Before(c.rounds[i+1].committed)
			if !r.returned.IsZero() && p.begun.After(r.returned) && !next && p.parity != r.version%2 {
				found.add(findOldSecret, "%s, %v after version %d was applied", p.identity, p.begun.Sub(r.returned), r.version)
			}
		}
	}
	c.checkRuns(found, byID, accepted, applies)
	return found
}

// checkRuns compares the runs with the deliveries, and with what the agents noted.
func (c *fleet) checkRuns(found flaws, deliveries map[store.DeliveryID]*deliveryRow, accepted map[string]*deliveryRow, applies []applyRow) {
	ended := make(map[string]bool)
	marks, _ := os.ReadFile(filepath.Join(c.w.dir, "notes", "marks")) // no agent may have started
	for line := range strings.Lines(string(marks)) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == "end" {
			ended[words[1]] = true
		}
	}
	type runRow struct {
		id                         store.RunID
		delivery                   store.DeliveryID
		automation, state, message string
	}
	for _, r := range rows(c, func(r *sql.Rows) (o runRow, err error) {
		return o, r.Scan(&o.id, &o.delivery, &o.automation, &o.state, &o.message)
	}, "SELECT id, delivery_id, automation, state, status_message FROM runs") {
		if d := deliveries[r.delivery]; d != nil {
			d.runs[r.automation]++
		} else {
			found.add(findRuns, "run %s is of the delivery %s, which is not there", r.id, r.delivery)
		}
		switch {
		case r.state == "SUCCEEDED" && !ended[r.id.String()]:
			found.add(findUnended, "%s has SUCCEEDED, and no agent of it came to its end", r.id)
		case r.state != "SUCCEEDED" && (r.state != "FAILED" || r.automation != "extra"): // "extra" is not tried again
			found.add(findUnended, "%s of %s is %s: %s", r.id, r.automation, r.state, r.message)
		}
	}
	for _, d := range deliveries {
		var want []string
		if words := strings.Split(d.identity, "-"); d.outcome == "accepted" && words[len(words)-2] == "true" {
			want = append(want, "all")
			if words[len(words)-1] == "true" {
				want = append(want, "even")
			}
			at := slices.IndexFunc(applies, func(a applyRow) bool { return a.id == d.apply })
			if at >= 0 && c.commits[applies[at].commit]%2 == 1 {
				want = append(want, "extra")
			}
		}
		all := 0
		for _, n := range d.runs {
			all += n
		}
		if all != len(want) || slices.ContainsFunc(want, func(name string) bool { return d.runs[name] != 1 }) {
			found.add(findRuns, "%s (%s, %s) has %v, not one of each of %v", d.id, d.identity, d.outcome, d.runs, want)
		}
	}
	overlaps, _ := os.ReadFile(filepath.Join(c.w.dir, "notes", "overlaps")) // there are none, as a rule
	for line := range strings.Lines(string(overlaps)) {
		found.add(findOverlap, "%s", strings.TrimSpace(line))
	}
}
