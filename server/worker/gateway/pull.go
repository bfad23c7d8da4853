package gateway

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"triphammer/schema/output"
	"triphammer/server/run/event"
)

// pulls ends the gateway's address for opening a pull request of a repository.
const pulls = "/pulls"

const (
	pullTime    = time.Minute // for the forge to open a pull request
	maxPull     = 256 << 10   // bytes of the request; GitHub takes less
	maxPullBack = 1 << 20     // bytes of the answer
)

// pull is a pull request as GitHub's API takes it
// (https://docs.github.com/rest/pulls/pulls#create-a-pull-request).
type pull struct {
	Title string `json:"title"`
	Head  string `json:"head"`
	Base  string `json:"base"`
	Body  string `json:"body,omitempty"`
	Draft bool   `json:"draft,omitempty"`
}

// output is the pull request as the kind of output that it is.
func (p pull) output() output.Request {
	return output.Request{Kind: output.Pull, Title: p.Title, Body: p.Body, Head: p.Head, Base: p.Base}
}

// requested is what the transcript has of a pull request.
func requested(r output.Request, refused, done string) event.Request {
	return event.Request{Name: r.Kind, Request: r.JSON(), Refused: refused, Done: done}
}

// pullAPI is how a kind of forge opens pull requests.
type pullAPI struct {
	name   string
	hosts  []string // on which it is known to be
	api    string   // where its API is on a host of one's own
	probe  string   // a path of the API that no other kind of forge has
	pulls  func(repository string) string
	header http.Header
	// body translates what the run has sent; nil: the forge takes it as it is.
	body func(pull) any
	// label is the request that gives labels to a pull request; path is that of pulls.
	label func(path, number string, labels []string) (method, to string, body any)
}

// pullAPIs are the forges that open pull requests, in the order in which a host is asked what it is.
// https://docs.github.com/enterprise-server/rest/meta/meta, https://docs.gitlab.com/api/version/ and
// https://codeberg.org/api/swagger describe what is asked for.
var pullAPIs = []*pullAPI{
	{
		name: "GitHub", hosts: []string{"github.com"}, api: "/api/v3", probe: "/meta",
		pulls:  func(repository string) string { return "/repos" + repository + pulls },
		header: http.Header{"Accept": {"application/vnd.github+json"}, "X-Github-Api-Version": {"2022-11-28"}},
		label:  labelIssue,
	},
	{
		name: "GitLab", hosts: []string{"gitlab.com"}, api: "/api/v4", probe: "/version",
		pulls: func(repository string) string {
			return "/projects/" + url.PathEscape(strings.TrimPrefix(repository, "/")) + "/merge_requests"
		},
		body: func(p pull) any {
			if p.Draft {
				p.Title = "Draft: " + p.Title
			}
			return map[string]string{"title": p.Title, "source_branch": p.Head, "target_branch": p.Base, "description": p.Body}
		},
		label: func(path, number string, labels []string) (method, to string, body any) {
			return http.MethodPut, path + "/" + number, map[string]string{"add_labels": strings.Join(labels, ",")}
		},
	},
	{
		name: "Forgejo", hosts: []string{"codeberg.org"}, api: "/api/v1", probe: "/version",
		pulls: func(repository string) string { return "/repos" + repository + pulls },
		body: func(p pull) any {
			if p.Draft {
				p.Title = "WIP: " + p.Title
			}
			p.Draft = false
			return p
		},
		label: labelIssue,
	},
}

// labelIssue is the request of GitHub, which Forgejo takes, too.
func labelIssue(path, number string, labels []string) (method, to string, body any) {
	return http.MethodPost, strings.TrimSuffix(path, pulls) + "/issues/" + number + "/labels", map[string][]string{"labels": labels}
}

// address is where a forge takes requests for a path of its API. root is where the forge is on its host.
func (a *pullAPI) address(repository *url.URL, root, path string) (*url.URL, error) {
	if repository.Host == "github.com" {
		return url.Parse("https://" + githubAPI + path)
	}
	return url.Parse(repository.Scheme + "://" + repository.Host + (&url.URL{Path: root}).EscapedPath() + a.api + path)
}

// maxRoot is below how many folders of a host a forge is looked for.
const maxRoot = 3

// roots are the paths below which the forge of a repository can be: its own path has at least two more parts.
func (s *served) roots() (all []string) {
	parts := strings.Split(strings.Trim(s.url.Path, "/"), "/")
	for n := range min(max(1, len(parts)-1), maxRoot) {
		all = append(all, strings.TrimSuffix("/"+strings.Join(parts[:n], "/"), "/"))
	}
	return all
}

const githubAPI = "api.github.com"

// pullAPI finds out what kind of forge a repository is on.
func (g *Gateway) pullAPI(ctx context.Context, s *served, c *credential) (*pullAPI, error) {
	for _, a := range pullAPIs {
		if slices.Contains(a.hosts, s.url.Host) {
			return a, nil
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kind != nil {
		return s.kind, nil
	}
	for _, root := range s.roots() {
		for _, a := range pullAPIs {
			resp, err := g.askPulls(ctx, s, c, a, root, http.MethodGet, a.probe, nil)
			if err != nil {
				return nil, err
			}
			_ = resp.Body.Close()
			kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
			// A token may lack the right to ask for it; another forge says that there is nothing there.
			if known := resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden; known && kind == "application/json" {
				s.kind, s.root = a, root
				return a, nil
			}
		}
	}
	return nil, fmt.Errorf("%s answers neither as GitHub Enterprise Server nor as GitLab or Forgejo, so nothing here can open a pull request there", s.url.Host)
}

func (g *Gateway) askPulls(ctx context.Context, s *served, c *credential, a *pullAPI, root, method, path string, body []byte) (*http.Response, error) {
	to, err := a.address(s.url, root, path)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, method, to.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header = http.Header{"Authorization": {"Bearer " + c.token}, "Accept": {"application/json"}, "Content-Type": {"application/json"}, "User-Agent": {"triphammer"}}
	maps.Copy(req.Header, a.header)
	resp, err := g.transport.RoundTrip(req) // it follows no redirect
	if err != nil {
		return nil, s.unreached(err)
	}
	c.took(resp)
	return resp, nil
}

// openPull opens a pull request. The run posts a body for GitHub's API, whatever the forge. The
// answer is the address of the pull request, in a line of text.
func (g *Gateway) openPull(w http.ResponseWriter, r *http.Request, s *served) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxPull))
	if err != nil {
		answer(w, http.StatusBadRequest, fmt.Errorf("reading the pull request: %w", err))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), pullTime)
	defer cancel()
	c, err := s.current(ctx)
	if err != nil {
		answer(w, http.StatusBadGateway, fmt.Errorf("no pull request was opened: there is no credential for %s: %w", s.url, err))
		return
	}
	open := g.postPull
	if g.pushes.rules.Outputs != nil {
		open = g.boundedPull
	}
	address, err := open(ctx, s, c, body, nil)
	if asked, _ := readPull(body); g.pushes.rules.Outputs == nil && address != "" {
		g.pushes.asked(requested(asked.output(), "", address))
	}
	if address == "" {
		answer(w, http.StatusBadGateway, fmt.Errorf("no pull request was opened: %w", err))
		return
	}
	if err != nil {
		answer(w, http.StatusBadGateway, fmt.Errorf("%s was opened, but %w", address, err))
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = fmt.Fprintln(w, address)
}

// boundedPull opens a pull request within the bounds of outputs.createPullRequest. It counts unless the forge refuses it.
func (g *Gateway) boundedPull(ctx context.Context, s *served, c *credential, body []byte, _ []string) (address string, err error) {
	p := g.pushes
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return "", ctx.Err()
	}
	asked, err := readPull(body)
	if err != nil {
		return "", err
	}
	r := asked.output()
	tell := func(refused, done string) { p.asked(requested(r, refused, done)) }
	if err := p.rules.Outputs.Check(r, p.opened); err != nil {
		tell(err.Error(), "")
		return "", err
	}
	if !p.pushed(s, r.Head) {
		err := output.NotPushed(r.Head)
		tell(err.Error(), "")
		return "", err
	}
	b := p.rules.Outputs[r.Kind]
	if asked.Base = cmp.Or(b.Base, asked.Base); asked.Base == "" {
		if asked.Base, err = g.defaultBranch(ctx, s, c); err != nil {
			return "", err
		}
	}
	asked.Title, asked.Body, asked.Draft = b.TitlePrefix+output.Unpointed(clip(asked.Title)), quoteText(asked.Body), asked.Draft || b.Draft
	bounded, _ := json.Marshal(asked) // texts always encode
	if _, err := g.pullAPI(ctx, s, c); err != nil {
		return "", err
	}
	address, err = g.postPull(ctx, s, c, bounded, b.Labels)
	if no := (*forgeRefusal)(nil); address == "" && errors.As(err, &no) {
		tell(no.text, "")
		return "", err
	}
	p.opened = append(p.opened, r)
	tell("", cmp.Or(address, "its outcome is not known, so it counts"))
	return address, err
}

// quoteText is a text as it was written, in Markdown: nobody is mentioned by it, it closes no issue, commands no bot
// and loads no image.
func quoteText(text string) string {
	text = output.Unpointed(strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, text))
	fence := "```"
	for strings.Contains(text, fence) {
		fence += "`"
	}
	return "> " + fence + "text\n> " + strings.ReplaceAll(text, "\n", "\n> ") + "\n> " + fence
}

// readPull reads a pull request that has the fields that every forge has.
func readPull(body []byte) (p pull, err error) {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		return p, fmt.Errorf("it is a JSON object with title, head, base, body and draft: %w", err)
	}
	return p, nil
}

// translated is the body for a forge.
func (a *pullAPI) translated(body []byte) ([]byte, error) {
	if a.body == nil {
		return body, nil
	}
	p, err := readPull(body)
	if err != nil || p.Title == "" || p.Head == "" || p.Base == "" {
		return nil, errors.Join(fmt.Errorf("for %s it is a JSON object with title, head and base, and if you like body and draft", a.name), err)
	}
	return json.Marshal(a.body(p))
}

// postPull opens a pull request, and gives it labels. An error with an address is about the labels.
func (g *Gateway) postPull(ctx context.Context, s *served, c *credential, body []byte, labels []string) (address string, err error) {
	a, err := g.pullAPI(ctx, s, c)
	if err != nil {
		return "", err
	}
	if body, err = a.translated(body); err != nil {
		return "", err
	}
	path := a.pulls(strings.TrimSuffix(strings.TrimPrefix(s.url.Path, s.root), ".git"))
	address, number, err := g.tellPull(ctx, s, c, a, http.MethodPost, path, body)
	if err != nil || len(labels) == 0 {
		return address, err
	}
	method, to, label := a.label(path, number, labels)
	if body, err = json.Marshal(label); err == nil {
		_, _, err = g.tellPull(ctx, s, c, a, method, to, body)
	}
	if err != nil {
		err = fmt.Errorf("its labels were not set: %w", err)
	}
	return address, err
}

// tellPull makes a request about a pull request. If it is to open the pull request, the address must come back.
func (g *Gateway) tellPull(ctx context.Context, s *served, c *credential, a *pullAPI, method, path string, body []byte) (address, number string, err error) {
	resp, err := g.askPulls(ctx, s, c, a, s.root, method, path, body)
	if err != nil {
		return "", "", err
	}
	defer func() { _ = resp.Body.Close() }()
	var told struct {
		URL     string `json:"html_url"`
		WebURL  string `json:"web_url"`
		Number  int64
		IID     int64
		Message any
		Error   any
		Errors  any
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxPullBack))
	labels := !strings.HasSuffix(path, pulls) && !strings.HasSuffix(path, "/merge_requests")
	if labels && resp.StatusCode < 300 {
		return "", "", nil
	}
	if err == nil {
		err = json.Unmarshal(text, &told)
	}
	if link := cmp.Or(told.URL, told.WebURL); resp.StatusCode == http.StatusCreated && err == nil && link != "" {
		return string(c.hide.Redact([]byte(clip(link)))), strconv.FormatInt(cmp.Or(told.Number, told.IID), 10), nil
	}
	said := resp.Status
	for _, one := range []any{told.Message, told.Error, told.Errors} {
		if text := saidOf(one); text != "" {
			said += ": " + text
		}
	}
	hint := ""
	switch resp.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound:
		hint = fmt.Sprintf(" (the secret %s takes a token that may write pull requests of %s)", s.Secret, s.url)
	}
	err = errors.New(string(c.hide.Redact([]byte(clip(said)))) + hint)
	if resp.StatusCode >= 300 && resp.StatusCode < 500 {
		err = &forgeRefusal{err.Error()}
	}
	return "", "", err
}

// saidOf is what a forge says of an error: a text, texts, or texts by field.
func saidOf(said any) string {
	var parts []string
	switch said := said.(type) {
	case string:
		return said
	case []any:
		for _, one := range said {
			parts = append(parts, saidOf(one))
		}
	case map[string]any:
		if text := saidOf(said["message"]); text != "" {
			return text
		}
		if field, code := saidOf(said["field"]), saidOf(said["code"]); field != "" && code != "" { // GitHub
			return field + " is " + code
		}
		for _, field := range slices.Sorted(maps.Keys(said)) {
			parts = append(parts, field+" "+saidOf(said[field]))
		}
	}
	return strings.Join(parts, ": ")
}
