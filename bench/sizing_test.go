package bench

import (
	"cmp"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
)

// sizing is what `make sizing` calculates with: a load, and what was measured. Rates are of the busiest hour.
type sizing struct {
	deliveries float64 // an hour, in the busiest hour of the day
	day        float64 // deliveries of a day, as a multiple of that hour
	starting   float64 // share of deliveries that start a run
	minutes    float64 // how long a run takes, on average
	flushes    float64 // batches of events that a run stores in a second
	transcript float64 // bytes of a run's transcript in the store
	perWorker  float64 // runs at once on one worker
	servers    int

	perServer float64 // deliveries a second that one server's processors check
	hold      float64 // ms that a transaction holds the writer's lock
	row       float64 // ms that a delivery, a renewal of a lease or a batch of events adds
	claim     float64 // ms that the start or the end of a run adds
	starts    float64 // runs a second that one worker begins and ends
	stored    float64 // bytes of a delivery in the database
	logged    float64 // bytes of a delivery in the database's log
}

// aMillion is the load of docs/sizing.md, with the figures that stand there.
var aMillion = sizing{
	deliveries: 1_000_000, day: 12, starting: 0.1, minutes: 6, flushes: 0.2, transcript: 50_000, perWorker: 100, servers: 2,
	perServer: 10_000, hold: 1, row: 0.13, claim: 0.5, starts: 70, stored: 2_800, logged: 2_600,
}

var updateSizing = flag.Bool("sizing.update", false, "write the table of docs/sizing.md")

func init() {
	for name, value := range map[string]*float64{
		"deliveries": &aMillion.deliveries, "day": &aMillion.day, "starting": &aMillion.starting, "minutes": &aMillion.minutes, "flushes": &aMillion.flushes,
		"transcript": &aMillion.transcript, "per-worker": &aMillion.perWorker, "per-server": &aMillion.perServer, "hold": &aMillion.hold, "row": &aMillion.row,
		"claim": &aMillion.claim, "starts": &aMillion.starts, "stored": &aMillion.stored, "logged": &aMillion.logged,
	} {
		flag.Float64Var(value, "sizing."+name, *value, "see the type sizing")
	}
	flag.IntVar(&aMillion.servers, "sizing.servers", aMillion.servers, "see the type sizing")
}

// process is a server or a worker, and the writes that wait for its turn.
type process struct {
	rate, claims float64 // writes a second, and the share of them that start or end a run
	server       bool
	next         float64 // when the next write comes
	waiting      []float64
	cost         []float64 // ms
}

const (
	longestBatch = 256
	renewEvery   = 10.0 // seconds (server/worker)
)

// workers is how many there must be for the runs, and for their starts.
func (z *sizing) workers() int {
	runs := z.deliveries / 3600 * z.starting
	return int(math.Ceil(max(runs*z.minutes*60/z.perWorker, runs/z.starts) - 1e-9))
}

// simulate lets all processes write for so many seconds, in turns with one lock, and returns how long deliveries
// waited until they were committed, in ms.
func (z *sizing) simulate(seconds float64) (waits []float64) {
	random := rand.New(rand.NewPCG(1, 2))
	perSecond := z.deliveries / 3600
	runs := perSecond * z.starting
	workers := z.workers()
	small := runs * z.minutes * 60 * (z.flushes + 1/renewEvery) / float64(workers)
	var all []*process
	for range z.servers {
		all = append(all, &process{rate: perSecond / float64(z.servers), server: true})
	}
	for range workers {
		rate := small + 2*runs/float64(workers)
		all = append(all, &process{rate: rate, claims: 1 - small/rate})
	}
	for _, p := range all {
		p.next = random.ExpFloat64() / p.rate
	}
	for now, turn := 0.0, 0; now < seconds; turn = (turn + 1) % len(all) {
		p := all[turn]
		for p.next <= now {
			cost := z.row
			if random.Float64() < p.claims {
				cost = z.claim
			}
			p.waiting, p.cost = append(p.waiting, p.next), append(p.cost, cost)
			p.next += random.ExpFloat64() / p.rate
		}
		n := min(len(p.waiting), longestBatch)
		if n == 0 {
			if !slices.ContainsFunc(all, func(p *process) bool { return len(p.waiting) > 0 || p.next <= now }) {
				now = slices.MinFunc(all, func(a, b *process) int { return cmp.Compare(a.next, b.next) }).next
			}
			continue
		}
		took := z.hold
		for _, cost := range p.cost[:n] {
			took += cost
		}
		now += took / 1000
		for _, came := range p.waiting[:n] {
			if p.server {
				waits = append(waits, (now-came)*1000)
			}
		}
		p.waiting, p.cost = p.waiting[n:], p.cost[n:]
	}
	slices.Sort(waits)
	return waits
}

// table is what the load takes, as Markdown.
func (z *sizing) table() string {
	perSecond := z.deliveries / 3600
	runs := perSecond * z.starting
	atOnce := runs * z.minutes * 60
	perDay, giga := z.deliveries*z.day, 1e9
	waits := z.simulate(60)
	late := func(times float64) bool {
		more := *z
		more.deliveries *= times
		w := more.simulate(20)
		return len(w) == 0 || w[len(w)*99/100] > 1000
	}
	limit := 0.1
	for limit < 1000 && !late(limit*1.1) {
		limit *= 1.1
	}
	type part struct {
		what  string
		share float64
	}
	used := []part{
		{"the one writer of the database", 1 / limit},
		{"the processors of the servers", perSecond / z.perServer / float64(z.servers)},
		{"starts of runs on the workers", runs / z.starts / float64(z.workers())},
	}
	first := slices.MaxFunc(used, func(a, b part) int { return cmp.Compare(a.share, b.share) })
	var b strings.Builder
	row := func(name, format string, values ...any) {
		fmt.Fprintf(&b, "| %s | "+format+" |\n", append([]any{name}, values...)...)
	}
	b.WriteString("| what | in the busiest hour |\n| --- | --- |\n")
	row("deliveries; runs that start", "%.0f a second; %.0f a second", perSecond, runs)
	row("runs at once", "%.0f", atOnce)
	row("servers; workers", "%d; %d", z.servers, z.workers())
	row("a delivery waits for its commit", "p50 %.0f ms, p99 %.0f ms", waits[len(waits)/2], waits[len(waits)*99/100])
	for _, u := range used {
		row("use of "+u.what, "%.0f %%", u.share*100)
	}
	row("the log of the database", "%.1f MB a second for deliveries, %.1f for transcripts", perSecond*z.logged/1e6, runs*z.transcript/1e6)
	row("the store in a day", "%.0f GB of deliveries, %.0f GB of transcripts", perDay*z.stored/giga, perDay*z.starting*z.transcript/giga)
	row("the store of a year", "%.0f TB", 365*perDay*(z.stored+z.starting*z.transcript)/1e12)
	row("gives out first", "%s, at %.1f times this load (workers grow with it; a p99 of more than a second counts as too late)", first.what, 1/first.share)
	return b.String()
}

// TestSizing: the table of docs/sizing.md is what the simulation says. `make sizing` prints that of another load.
func TestSizing(t *testing.T) {
	const page, begin, end = "../docs/sizing.md", "| what | in the busiest hour |", "\n\n"
	table := aMillion.table()
	t.Log("\n" + table)
	custom := false
	flag.Visit(func(f *flag.Flag) {
		custom = custom || strings.HasPrefix(f.Name, "sizing.") && f.Name != "sizing.update"
	})
	if custom {
		return
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s has no table that begins with %q", page, begin)
	}
	wanted := before + strings.TrimSuffix(table, "\n") + end + after
	if *updateSizing {
		err = os.WriteFile(page, []byte(wanted), 0o644)
	} else if wanted != string(text) {
		t.Errorf("the table of %s is old: go test ./bench -run TestSizing -sizing.update", page)
	}
	if err != nil {
		t.Fatal(err)
	}
}
