package server

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gin-gonic/gin"
	"golang.org/x/sync/semaphore"

	"triphammer/applier"
	"triphammer/factory"
	"triphammer/schema"
	"triphammer/server/access"
	"triphammer/server/api"
)

// Limits of the validate endpoint, which anybody may call (docs/api.md).
const (
	maxValidateFiles = 256
	maxValidateBytes = 2 << 20
)

// Limits of bodies, in bytes. As JSON, text is only a little longer.
const (
	maxValidateBody = 2 * maxValidateBytes
	maxPlanBody     = 2 * factory.DefaultMaxBytes
)

// Limits of the validate endpoint at one time, so that it does not slow down the ingress:
// the memory of all trees and of the trees from one network, in bytes, and the number of
// checks that run.
const (
	maxTrees   = 8 * (maxValidateBody + 1)
	shareTrees = maxTrees / 2
	maxChecked = 2
)

// Limits of an answer to a stranger. Each finding repeats its path, so the length of a path
// is limited too.
const (
	maxStrangeFindings = 1000
	maxPath            = 1024 // bytes
	verdictTime        = 15 * time.Second
)

// How many deliveries of each webhook a back-test evaluates.
const (
	defaultBackTest = 50
	maxBackTest     = 1000
)

// listSchemas lists the versions of the format that have JSON Schemas.
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

// answerSchema answers with a schema, or with 304 if the client has it (RFC 9110 13.1.2). A
// schema is public, so pages of other sites may read it.
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

// validateFiles checks a tree for anybody (SPEC 3.6), or with ValidateKey only for callers
// with a key. It does not use the factories of this server.
func (s *Server) validateFiles(c *gin.Context) {
	var text []byte
	var err error
	if s.cfg.ValidateKey {
		_, err = s.caller(c)
	}
	if err == nil {
		text, err = s.verdict(c)
	}
	if err != nil {
		s.failWith(c, err)
		return
	}
	// The check is done, so a slow reader blocks no other check. It holds the connection for
	// verdictTime at most.
	_ = http.NewResponseController(c.Writer).SetWriteDeadline(time.Now().Add(verdictTime)) // fails without a connection
	c.Data(http.StatusOK, "application/json; charset=utf-8", text)
}

// verdict checks the tree of a request and makes the answer.
func (s *Server) verdict(c *gin.Context) ([]byte, error) {
	body := s.bodyOf(c, s.trees)
	defer body.Release()
	body.Time = requestDeadline
	data, err := readWithin(c, body, maxValidateBody)
	if err != nil {
		return nil, err
	}
	tree, err := treeOf(data, maxValidateFiles, maxValidateBytes)
	if err != nil {
		return nil, err
	}
	strict, err := strconv.ParseBool(cmp.Or(c.Query("strict"), "false"))
	if err != nil {
		return nil, refuse("strict", c.Query("strict"), "strict is true or false")
	}
	if err := s.takeTurn(c, s.checked); err != nil {
		return nil, err
	}
	defer s.checked.Release(1)
	_, report, err := factory.Load(c.Request.Context(), tree.FS(), factory.Options{Strict: strict, MaxFindings: maxStrangeFindings})
	if err != nil {
		return nil, err
	}
	return json.Marshal(schema.NewAnswer(report, false).Placed())
}

// takeTurn waits until a check may run, but at most for s.patience.
func (s *Server) takeTurn(c *gin.Context, slots *semaphore.Weighted) error {
	ctx, cancel := context.WithTimeout(c.Request.Context(), s.patience)
	defer cancel()
	if slots.Acquire(ctx, 1) == nil {
		return nil
	}
	c.Header("Retry-After", strconv.Itoa(int(s.patience/time.Second)))
	return api.Refuse(api.Unavailable, "too many definitions are being checked; try again")
}

// plan checks a tree against a factory of this server, and answers what an apply of it
// would change.
func (s *Server) plan(ctx context.Context, c *call, f access.Factory) (shown api.PlanAnswer, err error) {
	deliveries := defaultBackTest
	if text := c.Query("deliveries"); text != "" {
		if deliveries, err = strconv.Atoi(text); err != nil || deliveries < 0 || deliveries > maxBackTest {
			return shown, refuse("deliveries", text, "deliveries is a number from 0 to %d", maxBackTest)
		}
	}
	body, err := readBody(c.Context, maxPlanBody)
	if err != nil {
		return shown, err
	}
	tree, err := s.proposed(ctx, c, f, body)
	if err != nil {
		return shown, err
	}
	p, err := f.Propose(ctx, tree, deliveries)
	if err != nil {
		return shown, err
	}
	report := &schema.Report{SchemaVersion: schema.Version, Diagnostics: p.Diagnostics, Deferred: p.Deferred}
	return api.PlanAnswer{Answer: schema.NewAnswer(report, true), Against: p.Against, Plan: p.Plan, BackTests: p.BackTests}, nil
}

// proposed is the tree in the body of a request. With ?onto=newest, its files are laid over
// those of the newest commit, and one whose content is null is removed.
func (s *Server) proposed(ctx context.Context, c *call, f access.Factory, body []byte) (fs.FS, error) {
	switch onto := c.Query("onto"); onto {
	case "":
		tree, err := treeOf(body, factory.DefaultMaxFiles, factory.DefaultMaxBytes)
		return tree.FS(), err
	case "newest":
	default:
		return nil, refuse("onto", onto, "onto is newest, or missing")
	}
	var req api.DefinitionFiles
	if err := decode(body, &req); err != nil {
		return nil, err
	}
	gone := make(map[string]bool)
	kept := slices.DeleteFunc(req.Files, func(f api.DefinitionFile) bool {
		gone[f.Path] = f.Content == nil
		return f.Content == nil
	})
	text, err := json.Marshal(api.DefinitionFiles{Files: append([]api.DefinitionFile{}, kept...)})
	if err != nil {
		return nil, err
	}
	top, err := treeOf(text, factory.DefaultMaxFiles, factory.DefaultMaxBytes)
	if err != nil {
		return nil, err
	}
	_, newest, err := s.authors.Newest(ctx, f)
	return overlay{newest, top.FS(), gone}, err
}

// treeOf reads the tree in the body of a request.
func treeOf(body []byte, maxFiles, maxBytes int) (tree applier.Snapshot, err error) {
	var req api.DefinitionFiles
	if !utf8.Valid(body) {
		return tree, refuse("files", "", "the body is not UTF-8: send a file that is not with encoding base64")
	}
	if err := decode(body, &req); err != nil {
		return tree, err
	}
	wrong := func(field, format string, args ...any) (applier.Snapshot, error) {
		why := fmt.Sprintf(format, args...)
		return tree, refuse(field, why, "%s", why)
	}
	if req.Files == nil {
		return wrong("files", "files is missing: a list of {path, content}")
	}
	if len(req.Files) > maxFiles {
		return wrong("files", "%d files; at most %d can be checked at once", len(req.Files), maxFiles)
	}
	total, seen := 0, make(map[string]bool)
	for i, f := range req.Files {
		field := fmt.Sprintf("files[%d]", i)
		if f.Content == nil {
			return wrong(field+".content", "%q has no content", f.Path)
		}
		data, err := api.DecodeContent(*f.Content, f.Encoding)
		if err != nil {
			return wrong(field+".encoding", "%q: %v", f.Path, err)
		}
		switch total += len(data); {
		case len(f.Path) > maxPath:
			return wrong(field+".path", "a path of %d bytes; it has at most %d", len(f.Path), maxPath)
		case !applier.ValidFile(f.Path):
			return wrong(field+".path", "%q is not a path from the folder that holds factory.yaml, such as webhooks/ci.yaml", f.Path)
		case strings.Contains(strings.SplitN(f.Path, "/", 2)[0], `\`): // otherwise the file would be ignored
			return wrong(field+".path", "%q: write / between folders", f.Path)
		case seen[f.Path]:
			return wrong(field+".path", "%s is there twice", f.Path)
		case len(data) > schema.MaxFile:
			return wrong(field+".content", "%s has %d bytes; a file has at most %d", f.Path, len(data), schema.MaxFile)
		case total > maxBytes:
			return wrong("files", "more than %d bytes in all", maxBytes)
		}
		seen[f.Path] = true
		tree.Files = append(tree.Files, applier.File{Path: f.Path, Data: data, Executable: f.Executable})
	}
	return tree, nil
}
