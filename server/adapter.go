package server

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"triphammer/server/access"
	"triphammer/server/api"
	"triphammer/server/store"
	"triphammer/server/terms"
)

// call is a request with its caller, and with the View of that caller.
type call struct {
	*gin.Context
	*access.View
	server *Server
}

// callKey is the key of the call in a gin.Context.
const callKey = "call"

func callOf(c *gin.Context) *call { return c.MustGet(callKey).(*call) }

// admit sets the caller of a request.
func (s *Server) admit(c *gin.Context, by *access.Caller) *call {
	admitted := &call{c, s.cfg.Data.View(by), s}
	c.Set(callKey, admitted)
	return admitted
}

// serve makes the handler of a route from a function. The handler answers with the result
// of the function as JSON, or with the problem that failWith makes of its error.
func serve[T any](handle func(context.Context, *call) (T, error)) gin.HandlerFunc {
	return serveWith(http.StatusOK, handle)
}

// created is serve for routes that create something. They answer 201.
func created[T any](handle func(context.Context, *call) (T, error)) gin.HandlerFunc {
	return serveWith(http.StatusCreated, handle)
}

// written is the result of a function that has written its answer itself.
type written struct{}

func serveWith[T any](status int, handle func(context.Context, *call) (T, error)) gin.HandlerFunc {
	return func(g *gin.Context) {
		c := callOf(g)
		if err := checkQuery(g); err != nil {
			c.server.failWith(g, err)
			return
		}
		shown, err := handle(g.Request.Context(), c)
		if err != nil {
			c.server.failWith(g, err)
		} else if _, done := any(shown).(written); !done {
			g.JSON(status, shown)
		}
	}
}

// on makes the function of a route that is about one thing. find returns the thing, or an
// error if it does not exist or the caller may not use it.
func on[X, T any](
	find func(context.Context, *call) (X, error), handle func(context.Context, *call, X) (T, error),
) func(context.Context, *call) (T, error) {
	return func(ctx context.Context, c *call) (none T, err error) {
		thing, err := find(ctx, c)
		if err != nil {
			return none, err
		}
		return handle(ctx, c, thing)
	}
}

// The functions below find the things that the paths of routes name.
func aRun(ctx context.Context, c *call) (access.Run, error) { return c.Run(ctx, c.Param("id")) }

func aDelivery(ctx context.Context, c *call) (access.Delivery, error) {
	return c.Delivery(ctx, c.Param("id"))
}

func anApply(ctx context.Context, c *call) (access.Apply, error) {
	return c.Apply(ctx, c.Param("id"), c.Query("factory"))
}

func aFactory(_ context.Context, c *call) (access.Factory, error) {
	return c.FactoryNamed(c.Param("name"))
}

// everything has the operations that are only for callers of all factories.
func everything(_ context.Context, c *call) (*store.Store, error) { return c.Whole() }

// Limits of a request.
const (
	maxRequest      = 1 << 20 // bytes of a body
	defaultLimit    = 20
	maxLimit        = 500
	requestDeadline = 30 * time.Second // to send a body
)

// body reads the JSON of a request.
func body[T any](c *call) (in T, err error) {
	in, _, err = bodyAndText[T](c)
	return in, err
}

// bodyAndText is body, with the bytes as they were sent.
func bodyAndText[T any](c *call) (in T, text []byte, err error) {
	if text, err = readBody(c.Context, maxRequest); err == nil {
		err = decode(text, &in)
	}
	return in, text, err
}

// optionalBody is body for a request that may have none.
func optionalBody[T any](c *call) (in T, err error) {
	in, _, err = optionalBodyAndText[T](c)
	return in, err
}

// optionalBodyAndText is optionalBody, with the bytes as they were sent.
func optionalBodyAndText[T any](c *call) (in T, text []byte, err error) {
	if text, err = readBody(c.Context, maxRequest); err == nil && len(text) > 0 {
		err = decode(text, &in)
	}
	return in, text, err
}

// readBody reads a body of up to most bytes.
func readBody(c *gin.Context, most int) ([]byte, error) {
	_ = http.NewResponseController(c.Writer).SetReadDeadline(time.Now().Add(requestDeadline)) // fails without a connection
	data, err := io.ReadAll(http.MaxBytesReader(c.Writer, c.Request.Body, int64(most)))
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		return nil, api.Refuse(api.RequestTooLarge, fmt.Sprintf("at most %d bytes", most))
	}
	if err != nil {
		return nil, api.Refuse(api.InvalidRequest, "the body could not be read")
	}
	return data, nil
}

// decode reads JSON from a request. Its error says what is wrong, for people.
func decode(body []byte, into any) error { return decodeField("", body, into) }

// decodeField is decode for a field of a body.
func decodeField(field string, value []byte, into any) error {
	err := json.Unmarshal(value, into)
	syntax, kind, corrupt := (*json.SyntaxError)(nil), (*json.UnmarshalTypeError)(nil), base64.CorruptInputError(0)
	badTime := (*time.ParseError)(nil)
	switch {
	case err == nil:
		return nil
	case errors.As(err, &syntax):
		err = fmt.Errorf("the body is not JSON: %w at byte %d", err, syntax.Offset)
	case errors.As(err, &kind):
		is := fmt.Sprintf("takes %s, not a JSON %s", kindOf(kind.Type), kind.Value)
		if path := strings.Trim(field+"."+kind.Field, "."); path != "" {
			return invalid(path, "%s", is)
		}
		err = errors.New("the body " + is)
	case errors.As(err, &corrupt):
		err = fmt.Errorf("a value that is to be base64 is not, from byte %d on", int64(corrupt))
	case errors.As(err, &badTime):
		err = fmt.Errorf("%q is no time in RFC 3339, such as 2026-01-31T09:30:00Z", badTime.Value)
	}
	return api.Refuse(api.InvalidRequest, err.Error())
}

// kindOf is the JSON that becomes a type of Go, in words.
func kindOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a text"
	case reflect.Bool:
		return "true or false"
	case reflect.Float64:
		return "a number"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Pointer:
		return kindOf(t.Elem())
	}
	return "a whole number"
}

// known refuses a JSON object, of a body or the field of one, that has fields which a type of
// Go lacks. into is a pointer to one; it is decoded again.
func known(field string, object []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(object))
	d.DisallowUnknownFields()
	name, unknown := "", false
	if err := d.Decode(into); err != nil {
		name, unknown = strings.CutPrefix(err.Error(), "json: unknown field ")
	}
	if !unknown {
		return nil // or decode says what is wrong
	}
	var fields map[string]json.RawMessage
	_ = json.Unmarshal(object, &fields) // it was decoded before
	path := []string{strings.Trim(name, `"`)}
	if _, outer := fields[path[0]]; !outer {
		for _, within := range slices.Sorted(maps.Keys(fields)) {
			if bytes.Contains(fields[within], []byte(name)) {
				path = []string{within, path[0]}
				break
			}
		}
	}
	if field != "" {
		path = append([]string{field}, path...)
	}
	return invalid(strings.Join(path, "."), "is no field that this server knows: take it out (/openapi.yaml has all)")
}

// limit is the requested number of entries of a list.
func (c *call) limit() (int, error) {
	text := c.Query("limit")
	if text == "" {
		return defaultLimit, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxLimit {
		return 0, refuse("limit", text, "limit is a number from 1 to %d", maxLimit)
	}
	return n, nil
}

// timespan are the times between which the entries of a list lie.
func (c *call) timespan() (since, until time.Time, err error) {
	for name, into := range map[string]*time.Time{"since": &since, "until": &until} {
		if text := c.Query(name); text != "" {
			if *into, err = time.Parse(time.RFC3339, text); err != nil {
				return since, until, refuse(name, text, "%s is a time in RFC 3339", name)
			}
		}
	}
	return since, until, nil
}

// from returns the requested number of entries of a list, and the id after which it starts.
func from[Row any](c *call) (cursor store.ID[Row], limit int, err error) {
	if limit, err = c.limit(); err != nil {
		return 0, 0, err
	}
	if cursor, err = store.ParseID[Row](c.Query("cursor")); err != nil {
		return 0, 0, refuse("cursor", "is not such an id", "cursor is not an id such as %s…", cursor.Prefix())
	}
	return cursor, limit, nil
}

// page makes a page from rows that were read with limit+1. If there are more rows than
// limit, it drops the last one and sets the cursor.
func page[T any](all []T, limit int, id func(T) string) ([]T, api.PageInfo) {
	if len(all) <= limit {
		return all, api.PageInfo{}
	}
	return all[:limit], api.PageInfo{HasNextPage: true, NextCursor: id(all[limit-1])}
}

// listOf makes a list of all entries.
func listOf[T any, R api.Listed](all []T, show func(T) R) api.List[R] {
	return api.List[R]{Entries: terms.Each(all, show)}
}

// listPage makes a page of a list. all was read with limit+1.
func listPage[T any, R api.Listed](all []T, limit int, id func(T) string, show func(T) R) api.List[R] {
	all, info := page(all, limit, id)
	return api.List[R]{Entries: terms.Each(all, show), PageInfo: info}
}

// origin is where the request came from, as the audit log has it.
func (c *call) origin() string {
	if c.Kind == "local" {
		return "local"
	}
	return c.ClientIP()
}

// audit records a change of state (SPEC 10.4). A failure is only logged, because the
// change has already happened.
func (c *call) audit(action, object, factory, details string) {
	entry := store.AuditEntry{Action: action, Object: object, Factory: factory, Details: details, Origin: c.origin()}
	err := c.Audit(context.WithoutCancel(c.Request.Context()), entry)
	if err != nil {
		c.server.cfg.Logger.Error("the audit log could not be written", "action", action, "object", object, "error", err)
	}
}
