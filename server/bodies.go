package server

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
)

// bodies is a budget of bytes of bodies in memory. A body is charged for the
// memory that it takes as it comes, whatever length it declares. When the budget
// is spent, or the share of one network, the body that has waited the longest for
// its next step is dropped in favour of the one that asks: whoever sends at once
// gets in beside those that do not.
type bodies struct {
	limit, share int64 // bytes of all, and of one network
	dropped      func(network netip.Prefix)

	mu      sync.Mutex
	held    int64
	shares  map[netip.Prefix]int64
	reading list.List     // of *upload, the slowest first
	freed   chan struct{} // closed when bytes were given back; nil: nobody waits
}

// step is how much of a body is read before it counts as progress, and the least
// that is charged. Most bodies are smaller.
const step = 16 << 10

// upload is one body on its way.
type upload struct {
	network netip.Prefix // whose share it spends; the zero one: only that of all
	abort   func()       // makes its read return
	held    int64
	place   *list.Element // nil: it is whole, or was dropped
	gone    bool          // it was dropped
}

func newBodies(limit, share int64, dropped func(netip.Prefix)) *bodies {
	return &bodies{limit: limit, share: share, dropped: dropped, shares: make(map[netip.Prefix]int64)}
}

// take charges n more bytes. It waits only where everything is held by bodies
// that are whole and about to be answered; its error is delivery.ErrNoMemory, or
// that of ctx.
func (b *bodies) take(ctx context.Context, u *upload, n int64, patience time.Duration) error {
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

// dropSlowest drops another than u: of its network if it is that one's share that
// is spent.
func (b *bodies) dropSlowest(u *upload, sameNetwork bool) bool {
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

// whole tells that nothing more is read of u, and whether it was not dropped.
func (b *bodies) whole(u *upload) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leave(u)
	return !u.gone
}

// release ends u: its request is answered.
func (b *bodies) release(u *upload) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leave(u)
	b.giveBack(u)
}

func (b *bodies) leave(u *upload) {
	if u.place != nil {
		b.reading.Remove(u.place)
		u.place = nil
	}
}

func (b *bodies) giveBack(u *upload) {
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

// bodyReader reads one body within a budget.
type bodyReader struct {
	w        http.ResponseWriter
	r        *http.Request
	budget   *bodies
	time     time.Duration // for the whole body
	patience time.Duration // to wait for the budget
	upload   upload
	buf      []byte
}

// read reads a body of at most limit bytes. It never decodes a Content-Encoding,
// and buffers nothing above the limit (SPEC 5.3). What it returns is good until
// release. Its error is delivery.ErrTooLarge, delivery.ErrNoMemory or a
// *delivery.BodyError.
func (b *bodyReader) read(limit int64) ([]byte, error) {
	control := http.NewResponseController(b.w)
	// Where the connection has no deadline, there is no connection to hold.
	_ = control.SetReadDeadline(time.Now().Add(b.time))
	b.upload.abort = func() { _ = control.SetReadDeadline(time.Unix(1, 0)) }
	for {
		if len(b.buf) == cap(b.buf) {
			if err := b.grow(limit + 1); err != nil {
				return nil, b.failure(err)
			}
		}
		n, err := b.r.Body.Read(b.buf[len(b.buf):cap(b.buf)])
		b.buf = b.buf[:len(b.buf)+n]
		switch {
		case int64(len(b.buf)) > limit:
			return nil, delivery.ErrTooLarge
		case errors.Is(err, io.EOF) && b.budget.whole(&b.upload):
			return b.buf, nil
		case errors.Is(err, io.EOF):
			return nil, delivery.ErrNoMemory
		case err != nil:
			return nil, b.failure(err)
		}
	}
}

// grow makes room for the next step, up to most bytes in all.
func (b *bodyReader) grow(most int64) error {
	size := min(max(step, 2*int64(cap(b.buf))), most)
	if err := b.budget.take(b.r.Context(), &b.upload, size-int64(cap(b.buf)), b.patience); err != nil {
		return err
	}
	larger := append(takeBuffer(int(size)), b.buf...)
	keepBuffer(b.buf)
	b.buf = larger
	return nil
}

// failure is why a body did not come whole.
func (b *bodyReader) failure(err error) error {
	if errors.Is(err, delivery.ErrNoMemory) || !b.budget.whole(&b.upload) {
		return delivery.ErrNoMemory
	}
	came := fmt.Sprintf("%d bytes came", len(b.buf))
	if b.r.ContentLength >= 0 {
		came = fmt.Sprintf("%d of %d bytes came", len(b.buf), b.r.ContentLength)
	}
	broken := &delivery.BodyError{Got: int64(len(b.buf))}
	connection := (*net.OpError)(nil)
	switch {
	case isTimeout(err):
		broken.Reason, broken.Detail = delivery.ReasonTooSlow, came+" in "+b.time.String()
	case b.r.ContentLength >= 0, b.r.ProtoMajor > 1, errors.Is(err, io.ErrUnexpectedEOF), errors.As(err, &connection), b.r.Context().Err() != nil:
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

// release ends the use of what read returned: the request is answered.
func (b *bodyReader) release() {
	b.budget.release(&b.upload)
	keepBuffer(b.buf)
	b.buf = nil
}

// buffers are those of bodies that were answered, by the doublings of step. Each
// kind has one size, so that nobody holds more than was charged.
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
	kind = bits.Len(uint(size/step)) - 1
	return kind, kind >= 0 && kind < len(buffers) && size == step<<kind
}
