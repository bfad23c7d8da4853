package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"triphammer/server/api"

	"github.com/gin-gonic/gin"
	"golang.org/x/sync/semaphore"

	"triphammer/applier"
	"triphammer/factory"
	"triphammer/schema"
)

// Limits of the validate endpoint, which anybody may call: the format's own
// (docs/api.md).
const (
	maxValidateFiles = 256
	maxValidateBytes = 2 << 20
)

// The bytes of a body: as JSON, text takes hardly more than its size.
const (
	maxValidateBody = 2 * maxValidateBytes
	maxPlanBody     = 2 * factory.DefaultMaxBytes
)

// Of the trees of strangers, so many bytes are in memory at once (eight of the
// largest, half of them from one address), and so many are checked: an open
// endpoint must not slow the ingress down.
const (
	maxTrees   = 8 * (maxValidateBody + 1)
	shareTrees = maxTrees / 2
	maxChecked = 2
)

// What a stranger is told at most, and how long the telling may take. A path is
// told with each finding.
const (
	maxStrangeFindings = 1000
	maxPath            = 1024 // bytes
	verdictTime        = 15 * time.Second
)

// The most deliveries of each webhook that a back-test evaluates.
const (
	defaultBackTest = 50
	maxBackTest     = 1000
)

// listSchemas names the versions of the format that have JSON Schemas.
func (s *Server) listSchemas(c *gin.Context) {
	answerSchema(c, schema.JSONSchemaIndex(api.Base+"/factory-files/schemas"), "application/json")
}

// bundleSchemas answers with all JSON Schemas, by their file names.
func (s *Server) bundleSchemas(c *gin.Context) {
	if c.Param("version") != schema.Version {
		fail(c, api.NotFound, "there is no version "+c.Param("version")+"; there is "+schema.Version)
		return
	}
	answerSchema(c, schema.JSONSchemaBundle(), "application/json")
}

// getSchema answers with one JSON Schema.
func (s *Server) getSchema(c *gin.Context) {
	one, found := schema.LookupJSONSchema(c.Param("document"))
	if !found || c.Param("version") != schema.Version {
		fail(c, api.NotFound, "there is no such document; there are "+strings.Join(schema.JSONSchemaNames(), ", "))
		return
	}
	answerSchema(c, one, "application/schema+json")
}

// answerSchema lets editors and proxies keep what they have (RFC 9110 13.1.2).
// A schema is public: pages of other sites may read it, too.
func answerSchema(c *gin.Context, one schema.JSONSchema, kind string) {
	c.Header("ETag", one.ETag)
	c.Header("Cache-Control", "public, max-age=300")
	c.Header("Access-Control-Allow-Origin", "*")
	for tag := range strings.SplitSeq(strings.Join(c.Request.Header.Values("If-None-Match"), ","), ",") {
		if tag = strings.TrimPrefix(strings.TrimSpace(tag), "W/"); tag == one.ETag || tag == "*" {
			c.Status(http.StatusNotModified)
			return
		}
	}
	c.Data(http.StatusOK, kind, one.Text)
}

// validateFiles checks a tree for whoever asks (SPEC 3.6), or for who has a key if
// the operator wants that. It knows nothing of this server's factories.
func (s *Server) validateFiles(c *gin.Context) {
	if s.cfg.ValidateKey {
		if _, ok := s.principal(c); !ok {
			return
		}
	}
	text, ok := s.verdict(c)
	if !ok {
		return
	}
	// Whoever reads slowly holds no place, and this connection not for long.
	_ = http.NewResponseController(c.Writer).SetWriteDeadline(time.Now().Add(verdictTime)) // in memory there is none
	c.Data(http.StatusOK, "application/json; charset=utf-8", text)
}

// verdict is the answer about a request's tree, or false if the request was
// answered.
func (s *Server) verdict(c *gin.Context) ([]byte, bool) {
	body := s.bodyOf(c, s.trees)
	defer body.release()
	body.time = requestDeadline
	data, ok := readWithin(c, body, maxValidateBody)
	if !ok {
		return nil, false
	}
	tree, ok := treeOf(c, data, maxValidateFiles, maxValidateBytes)
	if !ok {
		return nil, false
	}
	strict, ok := flagOf(c, "strict")
	if !ok {
		return nil, false
	}
	if !s.takesTurn(c, s.checked) {
		return nil, false
	}
	defer s.checked.Release(1)
	_, report, err := factory.Load(c.Request.Context(), tree.FS(), factory.Options{Strict: strict, MaxFindings: maxStrangeFindings})
	if err != nil {
		s.failWith(c, err)
		return nil, false
	}
	text, err := json.Marshal(schema.NewAnswer(report, false).Placed())
	if err != nil {
		s.failWith(c, err)
		return nil, false
	}
	return text, true
}

// takesTurn waits for a place, or answers that there is none.
func (s *Server) takesTurn(c *gin.Context, places *semaphore.Weighted) bool {
	ctx, cancel := context.WithTimeout(c.Request.Context(), s.patience)
	defer cancel()
	if places.Acquire(ctx, 1) == nil {
		return true
	}
	c.Header("Retry-After", strconv.Itoa(int(s.patience/time.Second)))
	fail(c, api.Unavailable, "too many definitions are being checked; try again")
	return false
}

// plan checks a tree against a factory of this server, and says what applying it
// would change.
func (s *Server) plan(c *gin.Context) {
	a := s.applierOf(c)
	if a == nil {
		return
	}
	deliveries := defaultBackTest
	if text := c.Query("deliveries"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 || n > maxBackTest {
			fail(c, api.InvalidRequest, fmt.Sprintf("deliveries is a number from 0 to %d", maxBackTest), api.FieldProblem{Field: "deliveries", Message: text})
			return
		}
		deliveries = n
	}
	body, ok := readBody(c, maxPlanBody)
	if !ok {
		return
	}
	tree, ok := treeOf(c, body, factory.DefaultMaxFiles, factory.DefaultMaxBytes)
	if !ok {
		return
	}
	p, err := a.Propose(c.Request.Context(), tree.FS(), deliveries)
	if err != nil {
		s.failWith(c, err)
		return
	}
	c.JSON(http.StatusOK, api.PlanAnswer{
		Answer: schema.NewAnswer(&schema.Report{SchemaVersion: schema.Version, Diagnostics: p.Diagnostics, Deferred: p.Deferred}, true), Against: p.Against, Plan: p.Plan, BackTests: p.BackTests,
	})
}

// applierOf finds the factory of the path, or answers that there is none.
func (s *Server) applierOf(c *gin.Context) *applier.Applier {
	name := c.Param("name")
	for _, a := range s.cfg.Appliers {
		if a.State().Factory == name && who(c).mayTouch(name) {
			return a
		}
	}
	fail(c, api.NotFound, "no factory is named "+name)
	return nil
}

// treeOf is the tree in the body of a request; it answers what is wrong with one.
func treeOf(c *gin.Context, body []byte, maxFiles, maxBytes int) (applier.Snapshot, bool) {
	var tree applier.Snapshot
	var req api.DefinitionFiles
	if err := decode(body, &req); err != nil {
		fail(c, api.InvalidRequest, err.Error())
		return tree, false
	}
	refuse := func(field, format string, args ...any) (applier.Snapshot, bool) {
		why := fmt.Sprintf(format, args...)
		fail(c, api.InvalidRequest, why, api.FieldProblem{Field: field, Message: why})
		return tree, false
	}
	if req.Files == nil {
		return refuse("files", "files is missing: a list of {path, content}")
	}
	if len(req.Files) > maxFiles {
		return refuse("files", "%d files; at most %d can be checked at once", len(req.Files), maxFiles)
	}
	total, seen := 0, make(map[string]bool)
	for i, f := range req.Files {
		field := fmt.Sprintf("files[%d]", i)
		if f.Content == nil {
			return refuse(field+".content", "%q has no content", f.Path)
		}
		switch total += len(*f.Content); {
		case len(f.Path) > maxPath:
			return refuse(field+".path", "a path of %d bytes; it has at most %d", len(f.Path), maxPath)
		case !applier.ValidFile(f.Path):
			return refuse(field+".path", "%q is not a path from the folder that holds factory.yaml, such as webhooks/ci.yaml", f.Path)
		case strings.Contains(strings.SplitN(f.Path, "/", 2)[0], `\`): // it would be ignored as no definition
			return refuse(field+".path", "%q: write / between folders", f.Path)
		case seen[f.Path]:
			return refuse(field+".path", "%s is there twice", f.Path)
		case len(*f.Content) > schema.MaxFile:
			return refuse(field+".content", "%s has %d bytes; a file has at most %d", f.Path, len(*f.Content), schema.MaxFile)
		case total > maxBytes:
			return refuse("files", "more than %d bytes in all", maxBytes)
		}
		seen[f.Path] = true
		tree.Files = append(tree.Files, applier.File{Path: f.Path, Data: []byte(*f.Content)})
	}
	return tree, true
}

// flagOf reads a true or false of the query, or answers why not.
func flagOf(c *gin.Context, name string) (value, ok bool) {
	text := c.Query(name)
	if text == "" {
		return false, true
	}
	value, err := strconv.ParseBool(text)
	if err != nil {
		fail(c, api.InvalidRequest, name+" is true or false", api.FieldProblem{Field: name, Message: text})
		return false, false
	}
	return value, true
}
