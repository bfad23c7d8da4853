package server

import (
	"bytes"
	"io"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"triphammer/server/delivery"
)

// bodyDeadline is how long a sender has to send its body.
const bodyDeadline = 15 * time.Second

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
	c.Abort()
	c.Data(status, "application/json", ingressBodies[status])
}

// receive adapts one POST to the delivery service; nothing is decided here.
func (s *Server) receive(c *gin.Context) {
	// Before anything is known of the sender: a slow one holds nothing for long.
	// Where the connection has no deadline, there is no connection to hold.
	_ = http.NewResponseController(c.Writer).SetReadDeadline(s.cfg.Now().Add(bodyDeadline))
	client, err := netip.ParseAddr(c.ClientIP())
	if err != nil {
		client = netip.Addr{}
	}
	token, hasToken := c.Params.Get("token")
	body := bodyReader{server: s, c: c}
	defer body.release()
	answer := s.cfg.Delivery.Receive(c.Request.Context(), &delivery.Request{
		UID: c.Param("uid"), PathToken: token, HasPathToken: hasToken,
		URL: s.cfg.BaseURL + c.Request.URL.RequestURI(), Header: c.Request.Header, ContentLength: c.Request.ContentLength,
		Client: client, ReadBody: body.read,
	})
	if !body.whole {
		// What is left of the body is not worth reading.
		c.Header("Connection", "close")
	}
	if answer.RetryAfter > 0 {
		c.Header("Retry-After", strconv.Itoa(answer.RetryAfter))
	}
	if answer.Status == http.StatusAccepted {
		c.Data(http.StatusAccepted, "application/json", []byte(`{"delivery_id":"`+answer.DeliveryID+`"}`))
		return
	}
	answerIngress(c, answer.Status)
}

// bodyReader reads one body within the server's budget of bytes in memory.
type bodyReader struct {
	server *Server
	c      *gin.Context
	held   int64
	whole  bool
}

// read never decodes a Content-Encoding, and buffers nothing above the limit
// (SPEC 5.3).
func (b *bodyReader) read(limit int64) ([]byte, error) {
	r := b.c.Request
	size := limit
	if r.ContentLength >= 0 {
		size = min(r.ContentLength, limit)
	}
	if err := b.server.bodies.Acquire(r.Context(), size); err != nil {
		return nil, err
	}
	b.held = size
	buf := bytes.NewBuffer(make([]byte, 0, min(size, 16<<10)+bytes.MinRead))
	if r.ContentLength >= 0 {
		buf = bytes.NewBuffer(make([]byte, 0, size+bytes.MinRead))
	}
	n, err := buf.ReadFrom(io.LimitReader(r.Body, limit+1))
	switch {
	case err != nil:
		return nil, err
	case n > limit:
		return nil, delivery.ErrTooLarge
	}
	b.whole = true
	return buf.Bytes(), nil
}

func (b *bodyReader) release() { b.server.bodies.Release(b.held) }
