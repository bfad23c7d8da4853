package server

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/gin-gonic/gin"

	"triphammer/factory/edit"
	"triphammer/server/api"
	"triphammer/server/authoring"
	"triphammer/server/delivery"
	"triphammer/server/run"
	"triphammer/server/store"
)

// backlogRetry is the Retry-After while the queue of runs is full, in seconds.
const backlogRetry = "30"

// fail ends a request with a problem (RFC 9457).
func fail(c *gin.Context, code api.Code, detail string) {
	failAs(c, api.NewProblem(code, detail))
}

func failAs(c *gin.Context, p api.Problem) {
	c.Header("Content-Type", "application/problem+json")
	// Without this header, the SDK retries a 409.
	c.Header("X-Should-Retry", strconv.FormatBool(p.Retryable))
	c.AbortWithStatusJSON(p.Status, p)
}

// failWith ends a request with the problem that fits an error.
func (s *Server) failWith(c *gin.Context, err error) {
	refused, ok := refusalOf(err)
	often := (*delivery.AskRateError)(nil)
	switch {
	case ok:
		failAs(c, refused.Problem())
	case errors.Is(err, store.ErrDamaged):
		fail(c, api.DataDamaged, err.Error())
	case errors.Is(err, store.ErrNotFound):
		fail(c, api.NotFound, err.Error())
	case errors.Is(err, store.ErrTerminal), errors.Is(err, delivery.ErrBadTest):
		fail(c, api.InvalidRequest, err.Error())
	case errors.As(err, &often):
		c.Header("Retry-After", strconv.Itoa(often.RetryAfter))
		fail(c, api.TooManyRequests, err.Error())
	case errors.Is(err, store.ErrBacklog):
		c.Header("Retry-After", backlogRetry)
		fail(c, api.TooManyRequests, "the queue of runs is full; try again when some have ended")
	case errors.Is(err, store.ErrIdempotency):
		fail(c, api.IdempotencyMismatch, err.Error())
	case errors.Is(err, store.ErrNoRoom):
		fail(c, api.Unavailable, err.Error())
	case errors.Is(err, store.ErrExpired), errors.Is(err, store.ErrNoSession):
		fail(c, api.Conflict, err.Error()+": start a new run")
	case errors.Is(err, store.ErrConflict), errors.Is(err, store.ErrBackup), errors.Is(err, delivery.ErrNotLive), errors.Is(err, delivery.ErrNotAccepted),
		errors.Is(err, delivery.ErrCannotSend):
		fail(c, api.Conflict, err.Error())
	case errors.Is(err, store.ErrWentBack):
		fail(c, api.Unavailable, err.Error())
	case errors.Is(err, store.ErrUnavailable), errors.Is(err, store.ErrClosed), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		fail(c, api.Unavailable, "the store cannot commit; try again")
	case errors.Is(err, store.ErrStale):
		fail(c, api.Unavailable, "the definitions changed meanwhile; try again")
	case store.Away(err):
		fail(c, api.Unavailable, "the database cannot be reached; try again")
	default:
		s.cfg.Logger.Error("a request failed", "method", c.Request.Method, "route", c.FullPath(), "error", err)
		fail(c, api.InternalError, "the server's log has the reason")
	}
}

// refusalOf is the Refusal for an error; ok is false if there is none.
func refusalOf(err error) (*api.Refusal, bool) {
	if refused, ok := errors.AsType[*api.Refusal](err); ok {
		return refused, true
	}
	if bad, ok := errors.AsType[*authoring.Error](err); ok {
		return refusalOfAuthor(bad), true
	}
	if bad, ok := errors.AsType[*edit.Error](err); ok {
		return refusalOfEdit(bad), true
	}
	unmet, ok := errors.AsType[*run.RefusedError](err)
	if !ok {
		return nil, false
	}
	refused := &api.Refusal{Code: api.InvalidRequest, Detail: unmet.Error()}
	switch {
	case unmet.Unsupported:
		refused.Code = api.NotSupported
	case unmet.Conflict:
		refused.Code = api.Conflict
	}
	if unmet.Field != "" {
		refused.Fields = []api.FieldProblem{{Field: unmet.Field, Message: unmet.Message}}
	}
	return refused, true
}

// refuse makes a Refusal about one field of a request.
func refuse(field, value, format string, args ...any) error {
	return api.Refuse(api.InvalidRequest, fmt.Sprintf(format, args...), api.FieldProblem{Field: field, Message: value})
}

// invalid is refuse for a text that continues a sentence after the name of the field.
func invalid(field, format string, args ...any) error {
	message := fmt.Sprintf(format, args...)
	return refuse(field, message, "%s %s", field, message)
}
