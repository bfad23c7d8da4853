// Package bodies reads the bodies of requests within budgets of memory, so that slow senders keep no fast
// ones out.
package bodies

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"triphammer/server/delivery"
	"triphammer/server/listen"
)

// Budget is a budget of memory for the bodies of requests, in bytes. A body is charged for
// the memory that it takes while it arrives, not for its declared length. When the budget
// or the share of a network is spent, a body that needs memory takes the place of the
// slowest one: the body that has waited the longest for its next step. So fast senders get
// through, even if many slow ones try to use up the memory.
type Budget struct {
	limit, share int64 // bytes in all, and for one network
	dropped      func(network netip.Prefix)

	mu      sync.Mutex
	held    int64
	shares  map[netip.Prefix]int64
	reading list.List     // of *upload, the slowest first
	freed   chan struct{} // closed when bytes are released; nil: nobody waits
}

// Step is how many bytes of a body count as progress. It is also the smallest charge. Most
// bodies are smaller.
const Step = listen.Step

// upload is a body that is arriving, or whose request is not answered yet.
type upload struct {
	network netip.Prefix // whose share it uses; zero: no share
	abort   func()       // ends a read of the body
	held    int64
	place   *list.Element // nil: the body is complete, or was dropped
	gone    bool          // the body was dropped
}

// NewBudget makes a budget of so many bytes in all, and for one network. dropped is called for each body
// that is dropped in favour of another.
func NewBudget(limit, share int64, dropped func(netip.Prefix)) *Budget {
	return &Budget{limit: limit, share: share, dropped: dropped, shares: make(map[netip.Prefix]int64)}
}

// Spent is how many bytes are charged now.
func (b *Budget) Spent() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.held
}

// take charges n more bytes. It waits only if complete bodies, which will be answered soon,
// hold all the memory. Its error is delivery.ErrNoMemory, or that of ctx.
func (b *Budget) take(ctx context.Context, u *upload, n int64, patience time.Duration) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if u.place == nil && !u.gone {
		u.place = b.reading.PushBack(u)
	} else if u.place != nil {
		b.reading.MoveToBack(u.place)
	}
	var late <-chan time.Time
	for {
		shareSpent := u.network.IsValid() && b.shares[u.network]+n > b.share
		switch {
		case u.gone:
			return delivery.ErrNoMemory
		case !shareSpent && b.held+n <= b.limit:
			b.held, u.held = b.held+n, u.held+n
			b.shares[u.network] += n
			return nil
		case b.dropSlowest(u, shareSpent):
			continue
		}
		if b.freed == nil {
			b.freed = make(chan struct{})
		}
		if late == nil {
			timer := time.NewTimer(patience)
			defer timer.Stop()
			late = timer.C
		}
		freed := b.freed
		b.mu.Unlock()
		var err error
		select {
		case <-freed:
		case <-late:
			err = delivery.ErrNoMemory
		case <-ctx.Done():
			err = ctx.Err()
		}
		b.mu.Lock()
		if err != nil {
			return err
		}
	}
}

// dropSlowest drops the slowest body other than u. With sameNetwork, it drops one of the
// network of u.
func (b *Budget) dropSlowest(u *upload, sameNetwork bool) bool {
	for e := b.reading.Front(); e != nil; e = e.Next() {
		other := e.Value.(*upload)
		if other == u || other.held == 0 || sameNetwork && other.network != u.network {
			continue
		}
		other.gone = true
		b.leave(other)
		b.giveBack(other)
		other.abort()
		b.dropped(other.network)
		return true
	}
	return false
}

// whole marks u as complete. It returns false if u was dropped.
func (b *Budget) whole(u *upload) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leave(u)
	return !u.gone
}

// release returns the memory of u, after its request was answered.
func (b *Budget) release(u *upload) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leave(u)
	b.giveBack(u)
}

func (b *Budget) leave(u *upload) {
	if u.place != nil {
		b.reading.Remove(u.place)
		u.place = nil
	}
}

func (b *Budget) giveBack(u *upload) {
	if u.held == 0 {
		return
	}
	b.held -= u.held
	if b.shares[u.network] -= u.held; b.shares[u.network] == 0 {
		delete(b.shares, u.network)
	}
	u.held = 0
	if b.freed != nil {
		close(b.freed)
		b.freed = nil
	}
}

// Reader reads one body within a budget. Its user calls Release.
type Reader struct {
	W        http.ResponseWriter
	R        *http.Request
	Budget   *Budget
	Time     time.Duration // for the whole body
	Patience time.Duration // to wait for the budget
	Network  netip.Prefix  // whose share it uses; zero: no share

	upload upload
	buf    []byte
}

// Read reads a body of at most limit bytes. It never decodes a Content-Encoding, and
// buffers nothing above the limit (SPEC 5.3). The bytes may be used until Release. The
// error is delivery.ErrTooLarge, delivery.ErrNoMemory or a *delivery.BodyError.
func (b *Reader) Read(limit int64) ([]byte, error) {
	control := http.NewResponseController(b.W)
	// Setting the deadline fails only without a connection, and then nothing is held.
	_ = control.SetReadDeadline(time.Now().Add(b.Time))
	b.upload.network, b.upload.abort = b.Network, func() { _ = control.SetReadDeadline(time.Unix(1, 0)) }
	for {
		if len(b.buf) == cap(b.buf) {
			if err := b.grow(limit + 1); err != nil {
				return nil, b.failure(err)
			}
		}
		n, err := b.R.Body.Read(b.buf[len(b.buf):cap(b.buf)])
		b.buf = b.buf[:len(b.buf)+n]
		switch {
		case int64(len(b.buf)) > limit:
			return nil, delivery.ErrTooLarge
		case errors.Is(err, io.EOF) && b.Budget.whole(&b.upload):
			return b.buf, nil
		case errors.Is(err, io.EOF):
			return nil, delivery.ErrNoMemory
		case err != nil:
			return nil, b.failure(err)
		}
	}
}

// grow enlarges the buffer for the next step, up to most bytes in all.
func (b *Reader) grow(most int64) error {
	size := min(max(Step, 2*int64(cap(b.buf))), most)
	if err := b.Budget.take(b.R.Context(), &b.upload, size-int64(cap(b.buf)), b.Patience); err != nil {
		return err
	}
	larger := append(takeBuffer(int(size)), b.buf...)
	keepBuffer(b.buf)
	b.buf = larger
	return nil
}

// failure is the reason why a body is incomplete.
func (b *Reader) failure(err error) error {
	if errors.Is(err, delivery.ErrNoMemory) || !b.Budget.whole(&b.upload) {
		return delivery.ErrNoMemory
	}
	came := fmt.Sprintf("%d bytes came", len(b.buf))
	if b.R.ContentLength >= 0 {
		came = fmt.Sprintf("%d of %d bytes came", len(b.buf), b.R.ContentLength)
	}
	broken := &delivery.BodyError{Got: int64(len(b.buf))}
	connection := (*net.OpError)(nil)
	switch {
	case isTimeout(err):
		broken.Reason, broken.Detail = delivery.ReasonTooSlow, came+" in "+b.Time.String()
	case b.R.ContentLength >= 0, b.R.ProtoMajor > 1, errors.Is(err, io.ErrUnexpectedEOF), errors.As(err, &connection), b.R.Context().Err() != nil:
		broken.Reason, broken.Detail = delivery.ReasonIncomplete, came+", then the sender closed"
	default:
		broken.Reason, broken.Detail = delivery.ReasonMalformed, came+", then no chunk"
	}
	return broken
}

func isTimeout(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}

// Release ends the use of the bytes that Read returned. The request was answered.
func (b *Reader) Release() {
	b.Budget.release(&b.upload)
	keepBuffer(b.buf)
	b.buf = nil
}

// buffers keeps the buffers of answered bodies for reuse, one pool for each power of two
// times Step. All buffers of a pool have the same size, so that no body holds more than it
// was charged for.
var buffers [5]sync.Pool

func takeBuffer(size int) []byte {
	if i, ok := bufferKind(size); ok {
		if kept, ok := buffers[i].Get().(*[]byte); ok {
			return *kept
		}
	}
	return make([]byte, 0, size)
}

func keepBuffer(buf []byte) {
	if i, ok := bufferKind(cap(buf)); ok {
		buf = buf[:0]
		buffers[i].Put(&buf)
	}
}

func bufferKind(size int) (kind int, ok bool) {
	kind = bits.Len(uint(size/Step)) - 1
	return kind, kind >= 0 && kind < len(buffers) && size == Step<<kind
}
