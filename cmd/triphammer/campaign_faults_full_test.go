//go:build full

package main

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"triphammer/server/store/storetest"
)

// leaderTime bounds the time until another server leads (SPEC 17.3).
const leaderTime = 15 * time.Second

// leaderWatch follows who leads.
type leaderWatch struct {
	mu      sync.Mutex
	address string // by which the leader reaches the store; empty: nobody leads
	changes []time.Time
}

// watch looks who leads until ctx ends.
func (l *leaderWatch) watch(ctx context.Context, c *fleet) {
	terms := int64(-1)
	for ctx.Err() == nil {
		var address string
		var now int64
		asking, cancel := context.WithTimeout(ctx, time.Second)
		err := c.db.QueryRowContext(asking, `SELECT coalesce((SELECT host(a.client_addr) FROM pg_locks l JOIN pg_stat_activity a USING (pid)
			WHERE l.locktype = 'advisory' AND l.granted AND l.classid = x'5472'::int AND l.objid = x'70480002'::int AND a.datname = current_database() LIMIT 1), ''),
			(SELECT last_value FROM leaders)`).Scan(&address, &now)
		cancel()
		l.mu.Lock()
		if err == nil {
			if l.address = address; now != terms && terms >= 0 {
				l.changes = append(l.changes, time.Now())
			}
			terms = now
		}
		l.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (l *leaderWatch) leads(n *node) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.address == n.machine.cables[0].thereAddress
}

// since is the time from a moment to the next leadership.
func (l *leaderWatch) since(at time.Time) (took time.Duration, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i, _ := slices.BinarySearchFunc(l.changes, at, time.Time.Compare)
	if i == len(l.changes) {
		return 0, false
	}
	return l.changes[i].Sub(at), true
}

// faultPlan is how many faults of each kind the driver causes.
type faultPlan struct{ kills, cuts, pauses, restarts int }

// stopSignals are how the store is stopped, in turn.
var stopSignals = []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGKILL}

// suffer causes the faults, each as soon as deliveries are acknowledged again after the one
// before. Cuts and pauses go on meanwhile.
func (c *fleet) suffer(plan faultPlan, leader *leaderWatch) {
	c.t.Helper()
	var faults []string
	for kind, count := range map[string]int{"kill": plan.kills, "cut": plan.cuts, "pause": plan.pauses, "restart": plan.restarts} {
		faults = append(faults, slices.Repeat([]string{kind}, count)...)
	}
	rand.Shuffle(len(faults), func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })
	var going sync.WaitGroup
	defer going.Wait()
	restarts, longest := 0, time.Duration(0)
	for i, kind := range faults {
		if c.t.Failed() || c.t.Context().Err() != nil {
			return
		}
		var n *node
		if kind != "restart" {
			c.await("a node without a fault", func() bool { n = c.spare(); return n != nil })
		}
		f := faultEvent{kind: kind, at: time.Now(), led: n != nil && leader.leads(n)}
		if n != nil {
			role := "worker"
			if n.server {
				role = "server"
			}
			f.kind = kind + " of a " + role
			if f.led {
				f.kind = kind + " of the leader"
			}
		}
		c.mu.Lock()
		c.events = append(c.events, f)
		c.mu.Unlock()
		switch kind {
		case "kill":
			down := time.Duration(rand.IntN(1500)) * time.Millisecond
			c.say("fault %d: %s, %s, down for %v", i, f.kind, n.name, down)
			n.kill()
			going.Go(func() {
				c.pass(down)
				n.start()
				n.release()
			})
		case "cut":
			way, lasts := rand.IntN(cutWays), time.Duration(1000+rand.IntN(14000))*time.Millisecond
			c.say("fault %d: %s, %s, in the way %d, for %v", i, f.kind, n.name, way, lasts)
			if err := n.machine.cut(way); err != nil {
				c.t.Error(err)
			}
			going.Go(func() {
				c.pass(lasts)
				n.machine.heal()
				c.say("%s is not cut off any more", n.name)
				n.release()
			})
		case "pause":
			lasts := time.Duration(1000+rand.IntN(11000)) * time.Millisecond
			c.say("fault %d: %s, %s, for %v", i, f.kind, n.name, lasts)
			n.signal(syscall.SIGSTOP)
			going.Go(func() {
				c.pass(lasts)
				n.signal(syscall.SIGCONT)
				c.say("%s goes on", n.name)
				n.release()
			})
		case "restart":
			how, down := stopSignals[restarts%len(stopSignals)], time.Duration(rand.IntN(3000))*time.Millisecond
			restarts++
			c.say("fault %d: restart of the store by %v, down for %v", i, how, down)
			c.postgres.Stop(how)
			c.pass(down)
			if err := c.postgres.Start(); err != nil {
				c.t.Fatal(err)
			}
		}
		begun := time.Now()
		c.await("an acknowledgement after a "+kind, func() bool { return c.acknowledged(begun) >= 5 })
		if took := time.Since(begun); took > longest {
			longest = took
			c.say("deliveries are acknowledged again after %v", took)
		}
		c.pass(time.Duration(200+rand.IntN(600)) * time.Millisecond)
	}
}

// pass lets a time pass, or the test end.
func (c *fleet) pass(d time.Duration) {
	select {
	case <-time.After(d):
	case <-c.t.Context().Done():
	}
}

// acknowledged is how many deliveries were sent and acknowledged since a moment.
func (c *fleet) acknowledged(since time.Time) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range slices.Backward(c.posts) {
		if p.ended.Before(since) {
			break
		}
		if p.begun.After(since) {
			n++
		}
	}
	return n
}

// spare is any node that has no fault, and now gets one; nil: another of its kind has one that
// goes on.
func (c *fleet) spare() *node {
	busy := make(map[bool]int)
	for _, n := range c.nodes {
		n.mu.Lock()
		if n.busy {
			busy[n.server]++
		}
		n.mu.Unlock()
	}
	for _, i := range rand.Perm(len(c.nodes)) {
		n := c.nodes[i]
		n.mu.Lock()
		free := !n.busy && n.cmd != nil && busy[n.server] < 2
		n.busy = n.busy || free
		n.mu.Unlock()
		if free {
			return n
		}
	}
	return nil
}

func (n *node) release() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.busy = false
}

// figures tells how long nothing was acknowledged after each kind of fault, and how long
// nobody led.
func (c *fleet) figures(leader *leaderWatch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	gaps, counts, elections := make(map[string]time.Duration), make(map[string]int), make(map[string]time.Duration)
	for i, f := range c.events {
		counts[f.kind]++
		until := time.Now()
		if i+1 < len(c.events) {
			until = c.events[i+1].at
		}
		last := f.at
		for _, p := range c.posts {
			if p.ended.Before(f.at) {
				continue
			}
			if p.ended.After(until) && last != f.at {
				break
			}
			gaps[f.kind] = max(gaps[f.kind], p.ended.Sub(last))
			last = p.ended
		}
		if took, ok := leader.since(f.at); f.led && ok {
			elections[f.kind] = max(elections[f.kind], took)
			if strings.HasPrefix(f.kind, "kill") && took > leaderTime {
				c.t.Errorf("%v passed until another server led", took)
			}
		}
	}
	identities := make(map[string]bool)
	for _, p := range c.posts {
		identities[p.identity] = true
	}
	c.t.Logf("%d deliveries were acknowledged, %d times; each was sent to all servers at once, %d times; %d requests were not made because a server hung; %d versions were applied",
		len(identities), len(c.posts), c.sent.Load(), c.skipped, len(c.rounds))
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		text := ""
		if counts[kind] > 0 && elections[kind] > 0 {
			text = fmt.Sprintf("; another server led after at most %v", elections[kind].Round(10*time.Millisecond))
		}
		c.t.Logf("%-22s %3d times: nothing was acknowledged for at most %v%s", kind, counts[kind], gaps[kind].Round(time.Millisecond), text)
	}
	c.t.Logf("%d processes ended by themselves: %q", len(c.exits), c.exits)
}

// TestCampaign (R8): servers and workers on one PostgreSQL are killed, cut off from it and paused, and
// it is restarted, while signed deliveries go to all servers at once and the definitions
// change. Nothing acknowledged is lost, nothing is accepted twice or decided by definitions
// that are dead, no run goes on twice at once, and none is lost (SPEC 17).
func TestCampaign(t *testing.T) {
	machines := newMachines(t, fleetServers+fleetWorkers)
	var addresses []string
	for _, m := range machines {
		addresses = append(addresses, m.store)
	}
	postgres, err := storetest.NewServer(addresses, []string{machineNetwork})
	if err != nil {
		t.Fatal("this test needs PostgreSQL (the package postgresql): ", err)
	}
	t.Cleanup(func() {
		if err := postgres.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Run("faults", func(t *testing.T) { suffering(t, postgres, machines) })
	// Without what prevents it, each flaw is there, and is found.
	t.Run("no identities", func(t *testing.T) { withoutIdentities(t, postgres, machines) })
	t.Run("no fence", func(t *testing.T) { withoutFence(t, postgres, machines) })
	if *campaign { // the race detector makes processes too slow for it
		t.Run("no leases", func(t *testing.T) { withoutLeases(t, postgres, machines) })
	}
}

// demand fails the test if the flaw was not found.
func (f flaws) demand(c *fleet, kind string) {
	c.t.Helper()
	if len(f[kind]) == 0 {
		c.t.Errorf("it was not found that %s; found: %v", kind, f)
	} else {
		c.say("found %d times that %s: %s", len(f[kind]), kind, f[kind][0])
	}
}

// lose takes a delivery and a run out of the store, and demands that this is found.
func (c *fleet) lose() {
	for _, statement := range []string{
		"DELETE FROM deliveries WHERE id = (SELECT min(id) FROM deliveries d WHERE outcome = 'accepted' AND NOT EXISTS (SELECT 1 FROM runs WHERE delivery_id = d.id))",
		"DELETE FROM runs WHERE id = (SELECT max(id) FROM runs)",
	} {
		if _, err := c.db.ExecContext(c.t.Context(), statement); err != nil {
			c.t.Fatal(err)
		}
	}
	found := c.check()
	found.demand(c, findLost)
	found.demand(c, findRuns)
}

// withoutIdentities lets the store find no delivery by its identity.
func withoutIdentities(t *testing.T, postgres *storetest.Server, machines []*machine) {
	c := newFleet(t, postgres, machines, fleetServers, 0, "")
	for _, statement := range []string{
		"CREATE FUNCTION other() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.identity_hash := sha256(NEW.id::text::bytea); RETURN NEW; END $$",
		"CREATE TRIGGER other BEFORE INSERT ON deliveries FOR EACH ROW WHEN (NEW.identity_hash IS NOT NULL) EXECUTE FUNCTION other()",
	} {
		if _, err := c.db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	c.loadUntil("deliveries", func() bool { return c.acknowledged(c.begun) >= 20 })
	c.check().demand(c, findTwice)
	c.stop()
}

// withoutFence lets the servers record what dead definitions decided. In each round one of them
// stands still while the others apply: it could follow them before it has a delivery to decide.
func withoutFence(t *testing.T, postgres *storetest.Server, machines []*machine) {
	c := newFleet(t, postgres, machines, fleetServers, 0, unfencedVariable)
	c.loadUntil("what a dead apply decided", func() bool {
		c.rotate(c.servers()[rand.IntN(fleetServers)])
		found := c.check()
		return len(found[findStale]) > 0 && len(found[findOldSecret]) > 0
	})
	found := c.check()
	found.demand(c, findStale)
	found.demand(c, findOldSecret)
	c.stop()
}

// withoutLeases lets a worker go on with a run that it has lost.
func withoutLeases(t *testing.T, postgres *storetest.Server, machines []*machine) {
	c := newFleet(t, postgres, machines, 1, 2, unguardedVariable)
	var sending sync.WaitGroup
	c.send("d-0-0-true-true", `{"run":true,"even":true}`, nil, &sending)
	sending.Wait()
	at := ""
	c.await("a long run", func() bool {
		_ = c.db.QueryRowContext(t.Context(), "SELECT w.names FROM runs r JOIN workers w ON w.id = r.worker WHERE r.automation = 'even' AND r.state = 'INPROGRESS'").Scan(&at)
		return at != ""
	})
	i := slices.IndexFunc(c.nodes, func(n *node) bool { return strings.Contains(at, n.name) })
	if err := c.nodes[i].machine.cut(cutBoth); err != nil {
		t.Fatal(err)
	}
	c.await("the run to go on twice at once", func() bool { return len(c.check()[findOverlap]) > 0 })
	c.check().demand(c, findOverlap)
	c.stop()
}

// loadUntil sends deliveries until a condition is true.
func (c *fleet) loadUntil(what string, done func() bool) {
	c.t.Helper()
	stop := make(chan struct{})
	sending := c.load(6, 15, 20*time.Millisecond, stop)
	defer sending.Wait()
	defer close(stop)
	c.await(what, done)
}

func suffering(t *testing.T, postgres *storetest.Server, machines []*machine) {
	plan := faultPlan{kills: 12, cuts: 4, pauses: 2, restarts: 1}
	if *campaign {
		plan = faultPlan{kills: 100, cuts: 20, pauses: 15, restarts: 5}
	}
	c := newFleet(t, postgres, machines, fleetServers, fleetWorkers, "")
	leader := &leaderWatch{}
	ctx, leave := context.WithCancel(t.Context())
	c.watching.Go(func() { leader.watch(ctx, c) })
	stop := make(chan struct{})
	sending := c.load(6, 15, 100*time.Millisecond, stop)
	rotating := make(chan struct{})
	go func() {
		defer close(rotating)
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Duration(500+rand.IntN(2000)) * time.Millisecond):
			}
			c.rotate(nil)
		}
	}()
	c.suffer(plan, leader)
	c.say("the faults are over")
	close(stop)
	sending.Wait()
	<-rotating
	if err := c.quiet(3 * time.Minute); err != nil {
		t.Error(err)
	}
	c.say("all runs have ended")
	c.check().report(c)
	c.figures(leader)
	c.lose()
	leave()
	c.stop()
}
