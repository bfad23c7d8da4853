package server

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"triphammer/server/api"

	"github.com/gin-gonic/gin"

	"triphammer/server/store"
)

// Limits of the run API.
const (
	maxRequest   = 1 << 20 // bytes of a request's body
	defaultLimit = 20
	maxLimit     = 500

	maxIdempotencyKey = 255              // bytes
	requestDeadline   = 30 * time.Second // to send a request's body
)

// readRequest reads a request's body, or answers why not.
func readRequest(c *gin.Context) ([]byte, bool) { return readBody(c, maxRequest) }

// readBody is readRequest for a body of up to most bytes.
func readBody(c *gin.Context, most int) ([]byte, bool) {
	_ = http.NewResponseController(c.Writer).SetReadDeadline(time.Now().Add(requestDeadline)) // in memory there is none
	body, err := io.ReadAll(http.MaxBytesReader(c.Writer, c.Request.Body, int64(most)))
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		fail(c, api.RequestTooLarge, fmt.Sprintf("at most %d bytes", most))
		return nil, false
	}
	if err != nil {
		fail(c, api.InvalidRequest, "the body could not be read")
		return nil, false
	}
	return body, true
}

// decode reads the JSON of a request's body. Its error is a *refusal that says in
// words what is wrong.
func decode(body []byte, into any) error { return decodeField("", body, into) }

// decodeField is decode for a field of the body.
func decodeField(field string, value []byte, into any) error {
	err := json.Unmarshal(value, into)
	syntax, kind, corrupt := (*json.SyntaxError)(nil), (*json.UnmarshalTypeError)(nil), base64.CorruptInputError(0)
	switch {
	case err == nil:
		return nil
	case errors.As(err, &syntax):
		err = fmt.Errorf("the body is not JSON: %w at byte %d", err, syntax.Offset)
	case errors.As(err, &kind):
		if path := strings.Trim(field+"."+kind.Field, "."); path != "" {
			return invalid(path, "is a JSON %s, not what is expected", kind.Value)
		}
		err = fmt.Errorf("the body is a JSON %s, not what is expected", kind.Value)
	case errors.As(err, &corrupt):
		err = fmt.Errorf("a value that is to be base64 is not: %w", err)
	}
	return &refusal{code: api.InvalidRequest, detail: err.Error()}
}

// limitOf reads the limit of a list, or answers why not.
func limitOf(c *gin.Context) (int, bool) {
	text := c.Query("limit")
	if text == "" {
		return defaultLimit, true
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxLimit {
		fail(c, api.InvalidRequest, fmt.Sprintf("limit is a number from 1 to %d", maxLimit), api.FieldProblem{Field: "limit", Message: text})
		return 0, false
	}
	return n, true
}

// page cuts the row that was read beyond the limit, which tells that there are
// more, and names the last one as the cursor.
func page[T any](all []T, limit int, id func(T) string) ([]T, api.PageInfo) {
	if len(all) <= limit {
		return all, api.PageInfo{}
	}
	return all[:limit], api.PageInfo{HasNextPage: true, NextCursor: id(all[limit-1])}
}

// cursorOf reads the cursor of a list, or answers that it is from no such list.
func cursorOf[Row any](c *gin.Context) (store.ID[Row], bool) {
	id, err := store.ParseID[Row](c.Query("cursor"))
	if err != nil {
		fail(c, api.InvalidRequest, "cursor is not an id such as "+id.Prefix()+"…", api.FieldProblem{Field: "cursor", Message: "is not such an id"})
	}
	return id, err == nil
}

// byID reads what the text is the id of.
func byID[Row, Found any](c *gin.Context, text string, read func(context.Context, store.ID[Row]) (Found, error)) (found Found, err error) {
	id, err := store.ParseID[Row](text)
	if err == nil {
		found, err = read(c.Request.Context(), id)
	}
	return found, err
}

// run finds the run of a request, or answers why not. A key that is limited to
// another factory is told that there is none.
func (s *Server) run(c *gin.Context) (*store.Run, bool) {
	r, err := byID(c, c.Param("id"), s.cfg.Store.Run)
	if err == nil && !who(c).mayTouch(r.Factory) {
		err = fmt.Errorf("run %s: %w", c.Param("id"), store.ErrNotFound)
	}
	if err != nil {
		s.failWith(c, err)
		return nil, false
	}
	return r, true
}

func (s *Server) cancelRun(c *gin.Context) {
	r, ok := s.run(c)
	if !ok {
		return
	}
	if err := s.cfg.Runs.Cancel(c.Request.Context(), r.ID); err != nil {
		s.failWith(c, err)
		return
	}
	s.audit(c, "run.cancel", r.ID.String(), r.Factory, "")
	c.JSON(http.StatusOK, r.ID)
}
