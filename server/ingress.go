package server

import (
	"net/http"
	"net/netip"
	"strconv"

	"github.com/gin-gonic/gin"

	"triphammer/server/bodies"
	"triphammer/server/delivery"
)

// ingressBodies are the fixed answers. The answer 404 is the same for an unknown, a
// disabled and a deleted webhook (SPEC C7.1).
var ingressBodies = map[int][]byte{
	http.StatusBadRequest:            []byte(`{"error":"invalid_json"}`),
	http.StatusUnauthorized:          []byte(`{"error":"unauthorized"}`),
	http.StatusNotFound:              []byte(`{"error":"not_found"}`),
	http.StatusMethodNotAllowed:      []byte(`{"error":"method_not_allowed"}`),
	http.StatusRequestTimeout:        []byte(`{"error":"request_timeout"}`),
	http.StatusRequestEntityTooLarge: []byte(`{"error":"too_large"}`),
	http.StatusTooManyRequests:       []byte(`{"error":"too_many_requests"}`),
	http.StatusServiceUnavailable:    []byte(`{"error":"unavailable"}`),
}

func answerIngress(c *gin.Context, status int) {
	body, ok := ingressBodies[status]
	if !ok {
		// The sender went away, so nobody reads the answer.
		status, body = http.StatusServiceUnavailable, ingressBodies[http.StatusServiceUnavailable]
	}
	c.Abort()
	c.Data(status, "application/json", body)
}

// receive passes one POST to the delivery service, which decides everything.
func (s *Server) receive(c *gin.Context) {
	token, hasToken := c.Params.Get("token")
	body := s.bodyOf(c, s.budgetOf(c.Param("uid")))
	defer body.Release()
	answer := s.cfg.Data.Receive(c.Request.Context(), &delivery.Request{
		UID: c.Param("uid"), PathToken: token, HasPathToken: hasToken,
		URL: s.cfg.BaseURL + c.Request.URL.RequestURI(), Header: c.Request.Header, ContentLength: c.Request.ContentLength,
		Client: clientOf(c), ReadBody: body.Read,
	})
	if answer.RetryAfter > 0 {
		c.Header("Retry-After", strconv.Itoa(answer.RetryAfter))
	}
	if reply := answer.Reply; reply != nil {
		for name, values := range reply.Header {
			c.Writer.Header()[http.CanonicalHeaderKey(name)] = values
		}
		c.Header("X-Content-Type-Options", "nosniff") // the answer repeats text of the sender
		if reply.ContentType == "" {
			c.Status(reply.Status)
			c.Writer.WriteHeaderNow()
			return
		}
		c.Data(reply.Status, reply.ContentType, reply.Body)
		return
	}
	if answer.Status == http.StatusAccepted {
		c.Data(http.StatusAccepted, "application/json", []byte(`{"delivery_id":"`+answer.DeliveryID.String()+`"}`))
		return
	}
	answerIngress(c, answer.Status)
}

// budgetOf is the budget for the body of a request. A webhook that verifies signatures
// reads the bodies of strangers. These have their own budget, so that they cannot keep out
// senders that authenticate before the body.
func (s *Server) budgetOf(uid string) *bodies.Budget {
	if s.cfg.Data.ReadsStrangers(uid) {
		return s.strangers
	}
	return s.known
}

// clientOf is the address of the client; zero for requests over the unix socket.
func clientOf(c *gin.Context) netip.Addr {
	addr, _ := netip.ParseAddr(c.ClientIP())
	return addr
}

// bodyOf makes a reader of the body of a request, within a budget. The caller must release
// it.
func (s *Server) bodyOf(c *gin.Context, budget *bodies.Budget) *bodies.Reader {
	return &bodies.Reader{W: c.Writer, R: c.Request, Budget: budget, Time: s.bodyTime, Patience: s.patience, Network: s.networkOf(clientOf(c))}
}
