package server

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/gin-gonic/gin"
	"golang.org/x/sync/semaphore"

	"triphammer/server/delivery"
)

// budgetRetry is the Retry-After, in seconds, of a request for whose body there
// was no memory.
const budgetRetry = 5

// ingressBodies are the fixed answers; that of 404 is the same for an unknown, a
// disabled and a deleted webhook (CONTRACT.md 7.1).
var ingressBodies = map[int][]byte{
	http.StatusBadRequest:            []byte(`{"error":"invalid_json"}`),
	http.StatusUnauthorized:          []byte(`{"error":"unauthorized"}`),
	http.StatusNotFound:              []byte(`{"error":"not_found"}`),
	http.StatusMethodNotAllowed:      []byte(`{"error":"method_not_allowed"}`),
	http.StatusRequestEntityTooLarge: []byte(`{"error":"too_large"}`),
	http.StatusTooManyRequests:       []byte(`{"error":"too_many_requests"}`),
	http.StatusServiceUnavailable:    []byte(`{"error":"unavailable"}`),
}

func answerIngress(c *gin.Context, status int) {
	body, ok := ingressBodies[status]
	if !ok {
		// The sender went away: whatever is answered, nobody reads it.
		status, body = http.StatusServiceUnavailable, ingressBodies[http.StatusServiceUnavailable]
	}
	c.Abort()
	c.Data(status, "application/json", body)
}

// receive adapts one POST to the delivery service; nothing is decided here.
func (s *Server) receive(c *gin.Context) {
	// Before anything is known of the sender: a slow one holds nothing for long.
	// Where the connection has no deadline, there is no connection to hold.
	_ = http.NewResponseController(c.Writer).SetReadDeadline(time.Now().Add(s.bodyTime))
	client, err := netip.ParseAddr(c.ClientIP())
	if err != nil {
		client = netip.Addr{} // as over a unix socket
	}
	token, hasToken := c.Params.Get("token")
	body := bodyReader{c: c, budget: s.budgetOf(c.Param("uid")), patience: s.patience}
	defer body.release()
	answer := s.cfg.Delivery.Receive(c.Request.Context(), &delivery.Request{
		UID: c.Param("uid"), PathToken: token, HasPathToken: hasToken,
		URL: s.cfg.BaseURL + c.Request.URL.RequestURI(), Header: c.Request.Header, ContentLength: c.Request.ContentLength,
		Client: client, ReadBody: body.read,
	})
	if body.busy {
		answer = delivery.Answer{Status: http.StatusServiceUnavailable, RetryAfter: budgetRetry}
	}
	if !body.whole {
		// What is left of the body is not worth reading.
		c.Header("Connection", "close")
	}
	if answer.RetryAfter > 0 {
		c.Header("Retry-After", strconv.Itoa(answer.RetryAfter))
	}
	if reply := answer.Reply; reply != nil {
		for name, values := range reply.Header {
			c.Writer.Header()[http.CanonicalHeaderKey(name)] = values
		}
		c.Header("X-Content-Type-Options", "nosniff") // what a sender wrote comes back
		if reply.ContentType == "" {
			c.Status(reply.Status)
			c.Writer.WriteHeaderNow()
			return
		}
		c.Data(reply.Status, reply.ContentType, reply.Body)
		return
	}
	if answer.Status == http.StatusAccepted {
		c.Data(http.StatusAccepted, "application/json", []byte(`{"delivery_id":"`+answer.DeliveryID+`"}`))
		return
	}
	answerIngress(c, answer.Status)
}

// budgetOf is the budget that a body spends. A webhook that verifies signatures
// reads the bodies of strangers: those must not keep out the senders that have
// shown their credential before (DESIGN 3.11).
func (s *Server) budgetOf(uid string) *semaphore.Weighted {
	if w, ok := s.cfg.Live.Webhook(uid); ok && w.Verifier != nil && w.Verifier.NeedsBody() {
		return s.strangers
	}
	return s.known
}

// bodyReader reads one body within a budget of bytes in memory.
type bodyReader struct {
	c      *gin.Context
	budget *semaphore.Weighted

	patience time.Duration
	held     int64
	buf      *bytes.Buffer // from buffers; nil before read
	whole    bool          // the body was read to its end
	busy     bool          // others hold the whole budget
}

// buffers are those of bodies that have been answered.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// read never decodes a Content-Encoding, and buffers nothing above the limit
// (SPEC 5.3).
func (b *bodyReader) read(limit int64) ([]byte, error) {
	r := b.c.Request
	size := limit // of a chunked body nothing is known
	if r.ContentLength >= 0 {
		size = min(r.ContentLength, limit)
	}
	if err := b.acquire(r.Context(), size); err != nil {
		return nil, err
	}
	// With a length the buffer never grows; of a chunked body it follows the bytes.
	room := size
	if r.ContentLength < 0 {
		room = min(limit, 16<<10)
	}
	b.buf = buffers.Get().(*bytes.Buffer)
	b.buf.Grow(int(room) + bytes.MinRead)
	n, err := b.buf.ReadFrom(io.LimitReader(r.Body, limit+1))
	switch {
	case err != nil:
		return nil, err
	case n > limit:
		return nil, delivery.ErrTooLarge
	}
	b.whole = true
	return b.buf.Bytes(), nil
}

func (b *bodyReader) acquire(ctx context.Context, size int64) error {
	if b.budget.TryAcquire(size) {
		b.held = size
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, b.patience)
	defer cancel()
	if err := b.budget.Acquire(ctx, size); err != nil {
		b.busy = errors.Is(err, context.DeadlineExceeded)
		return err
	}
	b.held = size
	return nil
}

// release ends the use of what read returned: the request is answered.
func (b *bodyReader) release() {
	b.budget.Release(b.held)
	if b.buf != nil {
		b.buf.Reset()
		buffers.Put(b.buf)
	}
}
