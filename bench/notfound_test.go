package bench

import (
	"bufio"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"
	"time"
)

// BenchmarkNotFound (R16) is how long answers 404 take, in turn, for webhooks that are
// disabled or deleted beside one that never was: disabled-of-unknown and deleted-of-unknown are the medians of the
// one by the other, and the -us the medians' differences. control-of-unknown and control-us are those of a server
// that verifies a signature before it looks whether its webhook is enabled: the least leak that a mistake makes, which
// the benchmark must see. It fails if a difference is above 2 µs and 3 % with a t of Welch above 10, and if
// the control's is not; use -benchtime 6000x or more.
func BenchmarkNotFound(b *testing.B) {
	plain, address := freeAddress(b), freeAddress(b)
	startPlain(b, plain)
	p := serveProgram(b, address)
	deleted := p.path("slack")
	p.run("", "git", "rm", "-q", "webhooks/slack.yaml")
	p.run("", "sh", "-c", "echo 'enabled: false' >>webhooks/github.yaml && sed -i 's/, slack, /, /' automations/a.md && git commit -qam Disable")
	p.run("", p.bin, "apply")
	disabled := p.path("github")
	unknown := disabled[:strings.LastIndexByte(disabled, '/')+1] + "whk_" + strings.Repeat("0", 22)
	body := strings.Repeat(" ", 2<<10)
	kinds := []struct{ name, address, path string }{
		{"unknown", address, unknown},
		{"disabled", address, disabled},
		{"deleted", address, deleted},
		{"early", plain, "/early/unknown"},
		{"control", plain, "/early/disabled"},
	}
	took := make([][]time.Duration, len(kinds))
	asks := make([]func(), len(kinds))
	for i, k := range kinds {
		request := fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: x\r\nX-Hub-Signature-256: sha256=%s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", k.path, strings.Repeat("0", 64), len(body), body)
		asks[i] = func() {
			conn, err := net.Dial("tcp", k.address) // the server closes it after an answer 404
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			began := time.Now()
			if _, err := conn.Write(request); err != nil {
				b.Fatal(k.name, err)
			}
			if status, err := readAnswer(bufio.NewReader(conn)); status != "404" || err != nil {
				b.Fatal(k.name, status, err)
			}
			took[i] = append(took[i], time.Since(began))
		}
	}
	b.ResetTimer()
	for range b.N {
		// In any order, because what came before tells in the time too.
		for _, i := range rand.Perm(3) {
			asks[i]()
		}
		for _, i := range rand.Perm(2) {
			asks[3+i]()
		}
	}
	b.StopTimer()
	for _, pair := range [][2]int{{0, 1}, {0, 2}, {3, 4}} {
		name := kinds[pair[1]].name
		of, with := took[pair[0]], took[pair[1]]
		t := welch(with, of)
		a, c := 1000*median(of), 1000*median(with) // µs
		b.ReportMetric(c/a, name+"-of-unknown")
		b.ReportMetric(c-a, name+"-us")
		if leaks := math.Abs(c-a) > max(2, a*0.03) && math.Abs(t) > 10; b.N >= 5000 && leaks != (name == "control") {
			b.Errorf("%s: %.1f µs beside %.1f µs, t %.1f: a leak is seen: %v", name, c, a, t, leaks)
		}
	}
}

// welch is the t of Welch's test of two samples, without the tenth of each that took longest: the machine did
// something else then.
func welch(a, b []time.Duration) float64 {
	var mean, spread [2]float64
	for i, all := range [][]time.Duration{a, b} {
		slices.Sort(all)
		all = all[:len(all)-len(all)/10]
		n := float64(len(all))
		for _, x := range all {
			mean[i] += x.Seconds() / n
		}
		for _, x := range all {
			spread[i] += (x.Seconds() - mean[i]) * (x.Seconds() - mean[i]) / (n - 1) / n
		}
	}
	return (mean[0] - mean[1]) / math.Sqrt(spread[0]+spread[1])
}
