package server

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/gin-gonic/gin"

	"triphammer/server/delivery"
	"triphammer/server/run"
	"triphammer/server/store"
)

// The problem types of this API, by their code. The URI is the code's anchor in
// the documentation that /openapi.yaml is.
var problemTitles = map[string]struct {
	status    int
	title     string
	retryable bool
}{
	"invalid-request":          {http.StatusBadRequest, "Invalid request", false},
	"authentication-required":  {http.StatusUnauthorized, "Authentication required", false},
	"not-authorized":           {http.StatusForbidden, "Not authorized", false},
	"resource-not-found":       {http.StatusNotFound, "Not found", false},
	"method-not-allowed":       {http.StatusMethodNotAllowed, "Method not allowed", false},
	"request-timeout":          {http.StatusRequestTimeout, "Request timeout", true},
	"conflict":                 {http.StatusConflict, "Conflict", false},
	"request-too-large":        {http.StatusRequestEntityTooLarge, "Request too large", false},
	"operation-not-supported":  {http.StatusUnprocessableEntity, "Not supported", false},
	"too-many-requests":        {http.StatusTooManyRequests, "Too many requests", true},
	"internal-error":           {http.StatusInternalServerError, "Internal error", true},
	"stored-data-damaged":      {http.StatusInternalServerError, "Stored data is damaged", false},
	"resource-unavailable":     {http.StatusServiceUnavailable, "Unavailable", true},
	"idempotency-key-mismatch": {http.StatusUnprocessableEntity, "Idempotency-Key used with another request", false},
}

// backlogRetry is when to try again while the queue of runs is full, in seconds.
const backlogRetry = "30"

// fail ends a request with a problem (RFC 9457).
func fail(c *gin.Context, code, detail string, fields ...FieldProblem) {
	kind := problemTitles[code]
	p := Problem{
		Type: "/openapi.yaml#" + code, Title: kind.title, Status: kind.status, Detail: detail,
		Error: kind.title, Message: kind.title, Retryable: kind.retryable, Errors: fields,
	}
	if detail != "" {
		p.Error, p.Message = kind.title+" ("+detail+")", detail
	}
	c.Header("Content-Type", "application/problem+json")
	// The SDK retries a 409 unless it is told otherwise.
	c.Header("X-Should-Retry", strconv.FormatBool(kind.retryable))
	c.AbortWithStatusJSON(kind.status, p)
}

// failWith ends a request with the problem that an error is.
func (s *Server) failWith(c *gin.Context, err error) {
	unknown, refused := (*run.UnknownEnvironmentError)(nil), (*refusal)(nil)
	switch {
	case errors.As(err, &refused):
		fail(c, refused.code, refused.detail, refused.fields...)
	case errors.Is(err, store.ErrDamaged):
		fail(c, "stored-data-damaged", err.Error())
	case errors.Is(err, store.ErrNotFound):
		fail(c, "resource-not-found", err.Error())
	case errors.Is(err, store.ErrTerminal), errors.Is(err, delivery.ErrBadTest), errors.As(err, &unknown):
		fail(c, "invalid-request", err.Error())
	case errors.Is(err, store.ErrBacklog):
		c.Header("Retry-After", backlogRetry)
		fail(c, "too-many-requests", "the queue of runs is full; try again when some have ended")
	case errors.Is(err, store.ErrIdempotency):
		fail(c, "idempotency-key-mismatch", err.Error())
	case errors.Is(err, store.ErrNoRoom):
		fail(c, "resource-unavailable", err.Error())
	case errors.Is(err, store.ErrConflict), errors.Is(err, store.ErrBackup), errors.Is(err, delivery.ErrNotLive), errors.Is(err, delivery.ErrNoPayload):
		fail(c, "conflict", err.Error())
	case errors.Is(err, store.ErrUnavailable), errors.Is(err, store.ErrClosed), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		fail(c, "resource-unavailable", "the store cannot commit; try again")
	default:
		s.cfg.Logger.Error("a request failed", "method", c.Request.Method, "route", c.FullPath(), "error", err)
		fail(c, "internal-error", "the server's log has the reason")
	}
}
