package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/gin-gonic/gin"

	"triphammer/server/access"
	"triphammer/server/api"
	"triphammer/server/dashboard"
)

// inside is the API for the pages and for the tools of MCP: it calls the routes in this
// process, as the caller of a request, on behalf of that request.
type inside struct {
	server *Server
	by     *access.Caller
	from   *http.Request
}

// Call implements dashboard.API.
func (i inside) Call(ctx context.Context, method, path string, in, out any) error {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return err
		}
	}
	status, answer, err := i.ask(ctx, method, path, body)
	if err != nil {
		return err
	}
	if status >= 400 {
		refused := &dashboard.Refused{Body: answer}
		if err := json.Unmarshal(refused.Body, &refused.Problem); err != nil {
			return fmt.Errorf("%s %s: status %d", method, path, status)
		}
		return refused
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(answer, out)
}

// ask is an mcp.API. body may be nil.
func (i inside) ask(ctx context.Context, method, path string, body []byte) (status int, answer []byte, err error) {
	var from io.Reader
	if body != nil {
		from = bytes.NewReader(body)
	}
	req, err := i.request(ctx, method, path, from)
	if err != nil {
		return 0, nil, err
	}
	got := inner{header: make(http.Header), status: http.StatusOK}
	i.server.engine.ServeHTTP(&got, req)
	return got.status, got.body.Bytes(), nil
}

func (i inside) request(ctx context.Context, method, path string, body io.Reader) (*http.Request, error) {
	req, err := http.NewRequestWithContext(context.WithValue(ctx, callerKey, i.by), method, api.Base+path, body)
	if err != nil {
		return nil, err
	}
	req.RemoteAddr, req.Host = i.from.RemoteAddr, i.from.Host // for the audit log
	for _, name := range []string{"X-Forwarded-For", "X-Real-Ip"} {
		if values := i.from.Header.Values(name); len(values) > 0 {
			req.Header[name] = values
		}
	}
	return req, nil
}

// download answers a request for a page with what the API answers.
func (s *Server) download(g *gin.Context, by *access.Caller, d dashboard.Download) {
	req, err := inside{s, by, g.Request}.request(g.Request.Context(), http.MethodGet, d.Path, nil)
	if err != nil {
		s.failPage(g, err)
		return
	}
	for _, name := range []string{"Range", "If-None-Match", "If-Modified-Since"} {
		req.Header[name] = g.Request.Header[name]
	}
	s.engine.ServeHTTP(g.Writer, req)
}

// inner keeps what a route of this process answers.
type inner struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *inner) Header() http.Header { return a.header }

func (a *inner) WriteHeader(status int) { a.status = status }

func (a *inner) Write(data []byte) (int, error) { return a.body.Write(data) }
