//go:build full

package store

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"
)

// lossy is a way to a server on which the answer to a COMMIT can get lost.
type lossy struct {
	net.Listener
	mu    sync.Mutex
	armed chan struct{} // closed when a COMMIT is passed on; nil: all answers arrive
	lost  []net.Conn    // on which answers do not arrive any more
}

func newLossy(t *testing.T, server string) *lossy {
	t.Helper()
	l := &lossy{Listener: must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			there, err := net.Dial("tcp", server)
			if err != nil {
				_ = client.Close()
				continue
			}
			go l.ask(there, client)
			go l.answer(client, there)
		}
	}()
	return l
}

// ask passes on what a client sends.
func (l *lossy) ask(there, client net.Conn) {
	defer func() { _ = there.Close() }()
	buffer := make([]byte, 1<<20)
	for {
		n, err := client.Read(buffer)
		if err != nil {
			return
		}
		l.mu.Lock()
		if l.armed != nil && bytes.Contains(buffer[:n], []byte("COMMIT\x00")) {
			l.lost = append(l.lost, client)
			close(l.armed)
			l.armed = nil
		}
		l.mu.Unlock()
		if _, err := there.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// answer passes on what the server answers.
func (l *lossy) answer(client, there net.Conn) {
	defer func() { _ = client.Close() }()
	buffer := make([]byte, 1<<20)
	for {
		n, err := there.Read(buffer)
		if err != nil {
			return
		}
		l.mu.Lock()
		lost := slices.Contains(l.lost, client)
		l.mu.Unlock()
		if lost {
			continue
		}
		if _, err := io.Copy(client, bytes.NewReader(buffer[:n])); err != nil {
			return
		}
	}
}

// arm lets the answer to the next COMMIT get lost.
func (l *lossy) arm() (committing <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.armed = make(chan struct{})
	return l.armed
}

// cut ends the connections on which answers got lost.
func (l *lossy) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.lost {
		_ = c.Close()
	}
	l.lost = nil
}

// TestAnswerLost (R7): when the database commits, and the connection is lost before it says so, a
// run that was claimed is executed all the same, a transcript goes on, and nothing is counted
// twice.
func TestAnswerLost(t *testing.T) {
	s := openPostgres(t)
	direct := must[*sql.DB](t)(sql.Open("pgx", s.cfg.URL))
	defer func() { _ = direct.Close() }()
	address := must[*url.URL](t)(url.Parse(s.cfg.URL))
	way := newLossy(t, address.Host)
	address.Host = way.Addr().String()
	s.cfg.URL = address.String() + "?default_query_exec_mode=cache_describe" // statements have their text each time
	s.reopen(t)
	lose := func(call func() error, committed string) {
		t.Helper()
		committing, result := way.arm(), make(chan error, 1)
		go func() { result <- call() }()
		<-committing
		until(t, func() bool {
			var n int
			check(t, direct.QueryRowContext(t.Context(), committed).Scan(&n))
			return n > 0
		})
		way.cut()
		if err := <-result; !errors.Is(err, ErrUnavailable) {
			t.Errorf("without an answer: %v", err)
		}
	}
	ctx, claim := t.Context(), Claim{Worker: "w", Most: 5, Lease: time.Minute}
	must[[]Lease](t)(s.Leases.Claim(ctx, claim))
	runs := must[Recorded](t)(s.Deliveries.Record(ctx, delivery("1", "{}", "a", "b"))).RunIDs
	lose(func() error { _, err := s.Leases.Claim(ctx, claim); return err }, "SELECT count(*) FROM runs WHERE state = 'INPROGRESS'")
	if !must[bool](t)(s.Leases.MayClaim(ctx)) {
		t.Error("there is nothing to claim, it says")
	}
	leases := must[[]Lease](t)(s.Leases.Claim(ctx, claim))
	if !slices.Equal(idsOf(leases), runs) {
		t.Fatalf("claimed %v of %v", leases, runs)
	}
	if again := must[[]Lease](t)(s.Leases.Claim(ctx, claim)); len(again) != 0 || must[bool](t)(s.Leases.MayClaim(ctx)) {
		t.Errorf("claimed again: %v", again)
	}

	events := []Event{{Seq: 1, At: s.at, Kind: "message", Data: json.RawMessage(`{"text":"one"}`)}, {Seq: 2, At: s.at, Kind: "message", Data: json.RawMessage(`{"text":"two"}`)}}
	lose(func() error { return s.Transcripts.Append(ctx, leases[0], events[:1]) }, "SELECT count(*) FROM run_events")
	check(t, s.Transcripts.Append(ctx, leases[0], events))
	if all := must[[]Event](t)(s.Transcripts.List(ctx, runs[0], 0, 10)); len(all) != 2 {
		t.Errorf("%+v", all)
	}
	use := func() error { _, _, err := s.Usage.Record(ctx, leases[0], Spending{10, 0.5}); return err }
	lose(use, "SELECT count(*) FROM spending")
	check(t, use())
	if got := must[Spending](t)(s.Usage.Today(ctx)); got != (Spending{10, 0.5}) {
		t.Errorf("spent %v", got)
	}
	check(t, s.Leases.Finish(ctx, leases[0], Succeeded, "", nil))
}
