package gitrepo

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"triphammer/applier/gitrepo/gittest"
)

// TestImpatient: a connection on which nothing comes for a while is given up,
// however long it has lasted.
func TestImpatient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		c := &impatient{here, time.Minute, &atomic.Int64{}}
		go func() {
			for range 3 {
				time.Sleep(50 * time.Second)
				_, _ = there.Write([]byte("x"))
			}
		}()
		buf := make([]byte, 1)
		for range 3 {
			if _, err := c.Read(buf); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := c.Read(buf); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("silence: %v", err)
		}
		if _, err := c.Write(buf); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("nobody reads: %v", err)
		}
	})
}

// TestTrickle: a server that never falls silent and gets nowhere holds up a look
// for its time and no longer, over https and ssh alike.
func TestTrickle(t *testing.T) {
	bare, work := clone(t, "main")
	head := runGit(t, work, "rev-parse", "HEAD")
	s := gittest.Serve(t, filepath.Dir(bare))
	r := remote(t, RemoteConfig{URL: s.URL + "/factory.git", Timeout: 500 * time.Millisecond, Credentials: Credentials{CAFile: s.CAFile}})
	for _, at := range []string{"/info/refs", "/git-upload-pack"} {
		s.Fault(func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasSuffix(r.URL.Path, at) {
				return false
			}
			w.Header().Set("Content-Type", map[string]string{
				"/info/refs": "application/x-git-upload-pack-advertisement", "/git-upload-pack": "application/x-git-upload-pack-result",
			}[at])
			_, _ = w.Write([]byte("fff0")) // the length of a line
			tick := time.NewTicker(20 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-r.Context().Done():
					return true
				case <-tick.C:
					_, _ = w.Write([]byte("x"))
					_ = http.NewResponseController(w).Flush()
				}
			}
		})
		refused(t, r, ErrUnreachable, "given up after ")
		s.Fault(nil)
		impatience := r.Timeout
		r.Timeout = lookTime // a real fetch takes as long as the machine is busy
		remoteHead(t, r, head)
		r.Timeout = impatience
		if err := r.discard(); err != nil {
			t.Fatal(err)
		}
	}

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	var serving sync.WaitGroup
	defer serving.Wait()
	serving.Go(func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for range tick.C {
			if _, err := conn.Write([]byte("a greeting\r\n")); err != nil {
				return
			}
		}
	})
	key := filepath.Join(t.TempDir(), "key")
	gittest.Key(t, key)
	refused(t, remote(t, RemoteConfig{URL: "ssh://" + l.Addr().String() + "/f.git", Timeout: 500 * time.Millisecond, Credentials: Credentials{SSHKey: key}}), ErrUnreachable, l.Addr().String())
}

// TestSlowIsNotTooSlow: what moves on may take its time, but not for ever.
func TestSlowIsNotTooSlow(t *testing.T) {
	for name, c := range map[string]struct {
		rate int64 // bytes a second
		want time.Duration
	}{
		"silent": {0, lookTime}, "a trickle": {500, lookTime}, "almost": {goodRate / 2, lookTime}, "steady": {goodRate * 2, maxLook}, "fast": {10 << 20, maxLook},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := remote(t, RemoteConfig{URL: "https://example.com/f.git", Cache: "/nowhere"})
			ctx, cancel := context.WithCancel(t.Context())
			var receiving sync.WaitGroup
			defer receiving.Wait()
			defer cancel()
			receiving.Go(func() {
				for ctx.Err() == nil {
					r.received.Add(c.rate)
					time.Sleep(time.Second)
				}
			})
			began := time.Now()
			err := r.tooSlow(ctx)
			if took := time.Since(began); !errors.Is(err, ErrUnreachable) || took < c.want || took > c.want+lookTime {
				t.Errorf("%s: given up after %s: %v", name, took, err)
			}
			minute, end := context.WithTimeout(ctx, time.Minute)
			defer end()
			if err := r.tooSlow(minute); err != nil {
				t.Errorf("%s: an attempt that ended: %v", name, err)
			}
		})
	}
}
