package store

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"triphammer/server/store/internal/engine"
)

const million = 1_000_000

// stock records n deliveries; every second one has started a run that has
// ended, from age ago until now, without waiting for the disk.
func (f *fixture) stock(t testing.TB, n int, age time.Duration) {
	t.Helper()
	ctx := t.Context()
	end := f.at
	const chunk = 10_000
	for done := 0; done < n; {
		check(t, f.Do(ctx, func(tx *engine.Tx) error {
			for range min(chunk, n-done) {
				f.at = end.Add(-age + age/time.Duration(n)*time.Duration(done))
				if err := f.record(tx, numbered(done, f.at)); err != nil {
					return err
				}
				done++
			}
			return nil
		}))
	}
	check(t, f.Do(ctx, func(tx *engine.Tx) error {
		f.at = end
		return tx.Exec("UPDATE runs SET state = 'SUCCEEDED' WHERE state = 'QUEUED'")
	}))
}

// numbered is a delivery of about 1 KB that does not compress much.
func numbered(i int, at time.Time) *NewDelivery {
	var text []byte
	for part := range 9 {
		sum := sha256.Sum256(fmt.Append(nil, i, part))
		text = append(text, sum[:]...)
	}
	body := fmt.Sprintf(`{"action":"opened","number":%d,"text":"%s","more":"%s"}`, i, base64.StdEncoding.EncodeToString(text), base64.StdEncoding.EncodeToString(text))
	d := delivery(fmt.Sprint("dlv", i), body)
	if i%2 == 0 {
		d = delivery(fmt.Sprint("dlv", i), body, "a")
	}
	d.ReceivedAt = at
	return d
}

// steady records deliveries at a rate for as long as during takes, and returns how
// long each took from the moment that it was due.
func (f *fixture) steady(t testing.TB, rate int, first int, during func()) []time.Duration {
	t.Helper()
	over := make(chan struct{})
	go func() {
		defer close(over)
		during()
	}()
	var all []time.Duration
	var mu sync.Mutex
	var wg sync.WaitGroup
	start := time.Now()
	for i := 0; ; i++ {
		due := start.Add(time.Duration(i) * time.Second / time.Duration(rate))
		if wait := time.Until(due); wait > 0 {
			select {
			case <-time.After(wait):
			case <-over:
				wg.Wait()
				slices.Sort(all)
				return all
			}
		}
		wg.Go(func() {
			if _, err := f.Deliveries.Record(context.Background(), numbered(first+i, due)); err != nil {
				t.Error(err)
			}
			took := time.Since(due)
			mu.Lock()
			all = append(all, took)
			mu.Unlock()
		})
	}
}

func at(sorted []time.Duration, share float64) time.Duration {
	return sorted[min(len(sorted)-1, int(float64(len(sorted))*share))]
}

// record is Deliveries.Record on the writer.
func (f *fixture) record(tx *engine.Tx, d *NewDelivery) error {
	_, err := f.Deliveries.record(tx, d, encodeDelivery(d, new([]byte)))
	return err
}

// BenchmarkRetention is how long a delivery takes at 1,000 a second without and
// with the deletion of what is old: half of a million. Both are measured in turn.
//
// base-p99-ms and p99-ms are medians of the rounds, ratio that of their ratios;
// deleted/s is how fast it went under this load, wal-MB how long the log grew.
func BenchmarkRetention(b *testing.B) {
	f := open(b)
	f.stock(b, million, 14*24*time.Hour)
	f.reopen(b) // with a log that is short again
	check(b, f.bind(b.Context()))
	began := 0
	const rounds, each = 5, 6 * time.Second
	var bases, others, ratios []float64
	var deleted int64
	wal := int64(0)
	ms := func(sorted []time.Duration) float64 { return float64(at(sorted, 0.99).Microseconds()) / 1000 }
	b.ResetTimer()
	for range rounds {
		without := f.steady(b, 1000, million+began, func() { time.Sleep(each) })
		began += len(without)
		with := f.steady(b, 1000, million+began, func() {
			ctx, cancel := context.WithTimeout(b.Context(), each)
			defer cancel()
			n, err := f.Deliveries.Prune(ctx, Retention{Keep: 50, Age: 7 * 24 * time.Hour})
			if deleted += n; err != nil && ctx.Err() == nil {
				b.Error(err)
			}
		})
		began += len(with)
		if info, err := os.Stat(f.cfg.Path + "-wal"); err == nil {
			wal = max(wal, info.Size())
		}
		b.Logf("p50 %v p99 %v max %v without, %v %v %v with", at(without, .5), at(without, .99), at(without, 1), at(with, .5), at(with, .99), at(with, 1))
		bases, others, ratios = append(bases, ms(without)), append(others, ms(with)), append(ratios, ms(with)/ms(without))
	}
	for _, all := range [][]float64{bases, others, ratios} {
		slices.Sort(all)
	}
	b.ReportMetric(bases[rounds/2], "base-p99-ms")
	b.ReportMetric(others[rounds/2], "p99-ms")
	b.ReportMetric(ratios[rounds/2], "ratio")
	b.ReportMetric(float64(deleted)/(rounds*each.Seconds()), "deleted/s")
	b.ReportMetric(float64(wal)/(1<<20), "wal-MB")
}

// BenchmarkBackup is how long a backup of a million deliveries takes while others
// come, and how long these take beside it and without one.
func BenchmarkBackup(b *testing.B) {
	f := open(b)
	f.stock(b, million, 14*24*time.Hour)
	f.reopen(b)
	began := 0
	for _, rate := range []int{1, 20, 200, 1000} {
		b.Run(fmt.Sprintf("rate=%d", rate), func(b *testing.B) {
			for range b.N {
				var took time.Duration
				with := f.steady(b, rate, million+began, func() {
					start := time.Now()
					copied, err := f.DB.Backup(b.Context(), nil)
					if took = time.Since(start); err != nil {
						b.Error(err)
						return
					}
					info, err := copied.Stat()
					if err != nil || copied.Close() != nil {
						b.Error(err)
					}
					b.ReportMetric(float64(info.Size())/(1<<20), "MB")
				})
				began += len(with)
				without := f.steady(b, rate, million+began, func() { time.Sleep(min(took, 20*time.Second)) })
				began += len(without)
				b.Logf("backup %v; p50 %v p99 %v max %v without, %v %v %v with", took, at(without, .5), at(without, .99), at(without, 1), at(with, .5), at(with, .99), at(with, 1))
				b.ReportMetric(took.Seconds(), "s")
				b.ReportMetric(float64(at(without, .99).Microseconds())/1000, "base-p99-ms")
				b.ReportMetric(float64(at(with, .99).Microseconds())/1000, "p99-ms")
			}
		})
	}
}

// BenchmarkStored is how fast deliveries are recorded in a store with a million of
// them, beside an empty one, in turn. ratio is the median over the rounds of the
// one rate by the other, cpu-ratio that of the processor time for a delivery, and
// written-KB and empty-written-KB are what was written for one, checkpoints
// included.
func BenchmarkStored(b *testing.B) {
	const rounds, each, workers = 5, 20_000, 64
	stored, empty := open(b), open(b)
	stored.stock(b, million, 6*24*time.Hour)
	stored.reopen(b)
	began := million
	run := func(f *fixture) (rate, cpu, written float64) {
		next := make(chan int, each)
		for range each {
			next <- began
			began++
		}
		close(next)
		from, wrote, start := processorTime(b), writtenBytes(b), time.Now()
		var all sync.WaitGroup
		for range workers {
			all.Go(func() {
				for i := range next {
					if _, err := f.Deliveries.Record(b.Context(), numbered(i, f.at)); err != nil {
						b.Error(err)
					}
				}
			})
		}
		all.Wait()
		took := time.Since(start).Seconds()
		return each / took, float64((processorTime(b) - from).Microseconds()) / each, (writtenBytes(b) - wrote) / each / 1024
	}
	names := []string{"ratio", "cpu-ratio", "acked/s", "empty-acked/s", "cpu-us", "empty-cpu-us", "written-KB", "empty-written-KB"}
	figures := make([][]float64, len(names))
	run(empty)
	b.ResetTimer()
	for range rounds {
		rate, cpu, written := run(stored)
		rate0, cpu0, written0 := run(empty)
		for i, v := range []float64{rate / rate0, cpu / cpu0, rate, rate0, cpu, cpu0, written, written0} {
			figures[i] = append(figures[i], v)
		}
	}
	for i, all := range figures {
		slices.Sort(all)
		b.ReportMetric(all[rounds/2], names[i])
	}
}

// writtenBytes is what this process has handed to the system to write.
func writtenBytes(b *testing.B) float64 {
	b.Helper()
	text, err := os.ReadFile("/proc/self/io")
	check(b, err)
	var n float64
	for line := range strings.Lines(string(text)) {
		_, _ = fmt.Sscanf(line, "wchar: %f", &n) // the other lines are others
	}
	return n
}
