package bench

import (
	"bytes"
	"database/sql"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"triphammer/factory/signature"
	"triphammer/server/store/storetest"
)

// What `make loadtest` may change.
var (
	loadConnections = flag.Int("load.connections", 64, "connections of the load test")
	loadBytes       = flag.Int("load.bytes", 1<<10, "size of the bodies of the load test")
	loadRequests    = flag.Int("load.requests", 20_000, "requests of a round of its closed loop")
	loadRates       = flag.String("load.rates", "500,2000", "rates of its open loops, in deliveries a second")
	loadSeconds     = flag.Int("load.seconds", 4, "how long a round of an open loop lasts")
	loadRounds      = flag.Int("load.rounds", 5, "rounds of the load test")
)

// repeats is which delivery is a repetition: every tenth, of that which came seven before it.
const repeats, repeated = 10, 7

// traffic is deliveries of several senders: each has a body of its own, is signed by the scheme of its
// webhook, and says who it is as that sender does.
type traffic struct {
	body  []byte
	first int64     // number of the first delivery
	at    time.Time // when they are signed
}

const firstNumber = 1_000_000_000

// serial is where a body has its number: pullRequest writes a number of four digits there.
var serial = []byte(`"number":1347`)

// write writes the ith delivery as a request for one of the paths, which are in the order of schemes.
func (t *traffic) write(b *testing.B, host string, paths []string, i int, request *bytes.Buffer) {
	if i%repeats == repeats-1 {
		i -= repeated
	}
	id := strconv.FormatInt(t.first+int64(i), 10)
	body := bytes.Replace(t.body, serial, []byte(`"number":`+id), 1)
	scheme, _ := signature.Lookup(schemes[i%len(schemes)])
	header := http.Header{"Content-Type": {"application/json"}, "Content-Length": {strconv.Itoa(len(body))}}
	for _, name := range scheme.IdentityHeaders() {
		header.Set(name, id)
	}
	if err := scheme.Sign(hookSecret, &signature.Request{Method: http.MethodPost, Header: header, Body: body, Now: t.at}); err != nil {
		b.Error(err)
	}
	fmt.Fprintf(request, "POST %s HTTP/1.1\r\nHost: %s\r\n", paths[i%len(paths)], host)
	_ = header.Write(request) // a buffer
	request.WriteString("\r\n")
	request.Write(body)
}

// contender answers the deliveries of the load test.
type contender struct {
	name, does string
	address    string
	paths      []string
	pid        int
	written    func() int64    // bytes that it has made disks write
	stored     func() int64    // bytes that its store takes; nil: it has none
	rounds     map[int][]round // by rate; 0 is the closed loop
}

// round is what one round measured. The times are from the moment at which a delivery was due.
type round struct {
	rate, cpu, written, mb float64 // answers/s; µs of processors and KB written to disk for one delivery; resident MB
	took                   []time.Duration
}

// percentiles are the shares of deliveries whose times are shown; the last is the longest.
var percentiles = []float64{0.5, 0.9, 0.99, 0.999, 1}

func (r *round) ms(share float64) float64 {
	return float64(r.took[min(len(r.took)-1, int(float64(len(r.took))*share))].Microseconds()) / 1000
}

// BenchmarkLoad (R21) is the load test: Triphammer, its ceiling (gin, which reads bodies and does nothing) and a
// peer take turns with the same deliveries, in a closed loop and in open loops, and it prints the table of each,
// and every round. TRIPHAMMER_BENTHOS is the program of the peer. With TRIPHAMMER_TEST_STORE=postgres, Triphammer
// on PostgreSQL takes part too. `make loadtest` runs it.
func BenchmarkLoad(b *testing.B) {
	var rates []int
	for text := range strings.SplitSeq(*loadRates, ",") {
		rate, err := strconv.Atoi(text)
		if err != nil || rate <= 0 {
			b.Fatalf("-load.rates: %q is no rate", text)
		}
		rates = append(rates, rate)
	}
	all := contenders(b)
	load, _ := os.ReadFile("/proc/loadavg")
	fmt.Printf("\nLoad test: %d processors (%s), load before %s\n", runtime.NumCPU(), processorName(), strings.Join(strings.Fields(string(load))[:3], " "))
	fmt.Printf("bodies of %d bytes, each its own; schemes %s; every %dth delivery repeats an earlier one; %d connections; %d rounds, in turns\n\n",
		*loadBytes, strings.Join(schemes, ", "), repeats, *loadConnections, *loadRounds)
	t := &traffic{body: pullRequest(*loadBytes), first: firstNumber}
	for turn := range *loadRounds {
		for _, rate := range append([]int{0}, rates...) {
			for i := range all {
				c := &all[(i+turn)%len(all)] // nobody is always first
				r := c.measure(b, t, rate)
				c.rounds[rate] = append(c.rounds[rate], r)
				fmt.Printf("round %d %-10s %-22s %8.0f/s %7.1f us %6.1f KB %6.1f MB ", turn+1, loopOf(rate), c.name, r.rate, r.cpu, r.written, r.mb)
				for _, share := range percentiles {
					fmt.Printf(" %8.2f", r.ms(share))
				}
				fmt.Println(" ms")
			}
		}
	}
	for _, rate := range append([]int{0}, rates...) {
		fmt.Printf("\n%s: medians of the rounds, and the longest of all\n%-22s %9s %7s %7s %7s %7s %8s %8s %8s %8s %8s\n", loopOf(rate),
			"", "answers/s", "of gin", "cpu-us", "disk-KB", "MB", "p50-ms", "p90-ms", "p99-ms", "p99.9-ms", "max-ms")
		for _, c := range all {
			c.line(rate, all[0].rounds[rate])
		}
	}
	for _, c := range all {
		fmt.Printf("\n%s: %s", c.name, c.does)
		if c.stored != nil {
			fmt.Printf("; each took %d bytes of it", c.stored()*int64(len(all))/(t.first-firstNumber))
		}
	}
	fmt.Println()
}

func loopOf(rate int) string {
	if rate == 0 {
		return "closed"
	}
	return fmt.Sprintf("open %d/s", rate)
}

// measure is one round.
func (c *contender) measure(b *testing.B, t *traffic, rate int) round {
	b.Helper()
	n := *loadRequests
	if rate > 0 {
		n = rate * *loadSeconds
	}
	t.at = time.Now()
	used, wrote, began := cpuTime(b, c.pid), c.written(), time.Now()
	took := send(b, c.address, *loadConnections, n, rate, func(i int, request *bytes.Buffer) { t.write(b, c.address, c.paths, i, request) })
	if b.Failed() {
		b.FailNow()
	}
	elapsed := time.Since(began)
	t.first += int64(n)
	slices.Sort(took)
	each := float64(n)
	return round{each / elapsed.Seconds(), float64((cpuTime(b, c.pid) - used).Microseconds()) / each, float64(c.written()-wrote) / each / 1024, residentMB(c.pid), took}
}

// line prints the medians of the rounds at a rate, beside those of the ceiling.
func (c *contender) line(rate int, ceiling []round) {
	median := func(of func(i int, r *round) float64) float64 {
		var list []float64
		for i := range c.rounds[rate] {
			list = append(list, of(i, &c.rounds[rate][i]))
		}
		slices.Sort(list)
		return list[len(list)/2]
	}
	fmt.Printf("%-22s %9.0f %7.2f %7.1f %7.1f %7.1f", c.name, median(func(_ int, r *round) float64 { return r.rate }),
		median(func(i int, r *round) float64 { return r.rate / ceiling[i].rate }), median(func(_ int, r *round) float64 { return r.cpu }),
		median(func(_ int, r *round) float64 { return r.written }), median(func(_ int, r *round) float64 { return r.mb }))
	longest := 0.0
	for _, r := range c.rounds[rate] {
		longest = max(longest, r.ms(1))
	}
	for _, share := range percentiles[:len(percentiles)-1] {
		fmt.Printf(" %8.2f", median(func(_ int, r *round) float64 { return r.ms(share) }))
	}
	fmt.Printf(" %8.2f\n", longest)
}

// contenders starts them. The first is the ceiling.
func contenders(b *testing.B) []contender {
	b.Helper()
	address := freeAddress(b)
	all := []contender{{
		name: "gin", does: "reads the body, and checks and keeps nothing", address: address, pid: startPlain(b, address),
		paths: []string{"/webhooks/w/x", "/webhooks/w/x", "/webhooks/w/x"},
	}}
	triphammer := func(name, does string, env ...string) *contender {
		p := serveProgram(b, freeAddress(b), env...)
		c := contender{name: name, does: does, address: p.address, pid: p.cmd.Process.Pid}
		for _, scheme := range schemes {
			c.paths = append(c.paths, p.path(scheme))
		}
		c.stored = func() (n int64) {
			for _, end := range []string{"", "-wal"} {
				if info, err := os.Stat(filepath.Join(p.dir, "data", "triphammer.db"+end)); err == nil {
					n += info.Size()
				}
			}
			return n
		}
		all = append(all, c)
		return &all[len(all)-1]
	}
	const does = "verifies, drops repetitions, stores delivery and run; answers when the disk has confirmed them"
	triphammer("triphammer", does)
	if database := storetest.URL(b); database != "" {
		c := triphammer("triphammer, PostgreSQL", does+"; without the processors of the database, and its disk is its log", "TRIPHAMMER_STORE="+database)
		db, err := sql.Open("pgx", database)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = db.Close() })
		number := func(query string) (n int64) {
			if err := db.QueryRow("SELECT (" + query + ")::bigint").Scan(&n); err != nil {
				b.Fatal(err)
			}
			return n
		}
		c.written = func() int64 { return number("pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')") }
		c.stored = func() int64 { return number("pg_database_size(current_database())") }
	}
	if bin := os.Getenv("TRIPHAMMER_BENTHOS"); bin != "" {
		address := freeAddress(b)
		cmd := exec.Command(bin, "-c", filepath.Join("..", "testdata", "benthos", "config.yaml"))
		cmd.Env = append(os.Environ(), "ADDRESS="+address, "KEY="+hookSecret, "FILE="+filepath.Join(b.TempDir(), "deliveries"))
		start(b, cmd, address)
		all = append(all, contender{name: "benthos", does: "verifies, drops what its memory has, appends to a file; confirms nothing on the disk", address: address, paths: all[0].paths, pid: cmd.Process.Pid})
	} else {
		fmt.Println("\nno peer: TRIPHAMMER_BENTHOS does not name the program of Benthos (make loadtest builds it)")
	}
	for i := range all {
		c := &all[i]
		c.rounds = make(map[int][]round)
		if c.written == nil {
			c.written = func() int64 { return diskBytes(b, c.pid) }
		}
	}
	return all
}

// diskBytes is what a process has made the system write to disks.
func diskBytes(b *testing.B, pid int) (n int64) {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		_, _ = fmt.Sscanf(line, "write_bytes: %d", &n) // the other lines are others
	}
	return n
}

func processorName() string {
	text, _ := os.ReadFile("/proc/cpuinfo") // without it, the name is missing
	_, rest, _ := strings.Cut(string(text), "model name\t: ")
	name, _, _ := strings.Cut(rest, "\n")
	return name
}
