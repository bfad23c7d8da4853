package server

import (
	"context"
	"errors"
	"strconv"

	"triphammer/server/api"

	"github.com/gin-gonic/gin"

	"triphammer/server/delivery"
	"triphammer/server/store"
)

// backlogRetry is when to try again while the queue of runs is full, in seconds.
const backlogRetry = "30"

// fail ends a request with a problem (RFC 9457).
func fail(c *gin.Context, code api.Code, detail string, fields ...api.FieldProblem) {
	p := api.NewProblem(code, detail, fields...)
	c.Header("Content-Type", "application/problem+json")
	// The SDK retries a 409 unless it is told otherwise.
	c.Header("X-Should-Retry", strconv.FormatBool(p.Retryable))
	c.AbortWithStatusJSON(p.Status, p)
}

// failWith ends a request with the problem that an error is.
func (s *Server) failWith(c *gin.Context, err error) {
	refused, ok := refusalOf(err)
	switch {
	case ok:
		fail(c, refused.code, refused.detail, refused.fields...)
	case errors.Is(err, store.ErrDamaged):
		fail(c, api.DataDamaged, err.Error())
	case errors.Is(err, store.ErrNotFound):
		fail(c, api.NotFound, err.Error())
	case errors.Is(err, store.ErrTerminal), errors.Is(err, delivery.ErrBadTest):
		fail(c, api.InvalidRequest, err.Error())
	case errors.Is(err, store.ErrBacklog):
		c.Header("Retry-After", backlogRetry)
		fail(c, api.TooManyRequests, "the queue of runs is full; try again when some have ended")
	case errors.Is(err, store.ErrIdempotency):
		fail(c, api.IdempotencyMismatch, err.Error())
	case errors.Is(err, store.ErrNoRoom):
		fail(c, api.Unavailable, err.Error())
	case errors.Is(err, store.ErrConflict), errors.Is(err, store.ErrBackup), errors.Is(err, delivery.ErrNotLive), errors.Is(err, delivery.ErrNoPayload):
		fail(c, api.Conflict, err.Error())
	case errors.Is(err, store.ErrUnavailable), errors.Is(err, store.ErrClosed), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		fail(c, api.Unavailable, "the store cannot commit; try again")
	default:
		s.cfg.Logger.Error("a request failed", "method", c.Request.Method, "route", c.FullPath(), "error", err)
		fail(c, api.InternalError, "the server's log has the reason")
	}
}
