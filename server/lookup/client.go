package lookup

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"triphammer/factory/native"
	"triphammer/server/githubapp"
	"triphammer/server/secret"
)

const (
	maxAnswer    = 16 << 20 // bytes of one answer
	pageSize     = 100
	maxFiles     = 3000             // GitHub lists no more
	nameTime     = 10 * time.Minute // how long a name is remembered
	roleTime     = time.Minute      // how long a person's role is remembered (SPEC 24.1)
	maxNames     = 10_000
	maxRetryTime = time.Hour
)

// API is the API of a sender, with the credential for it.
type API struct {
	URL    string // without a final slash; empty: the sender's own service
	Secret secret.Value
}

// Client asks senders' APIs. It is safe for concurrent use. Its errors hold neither the
// credential nor the content of an answer, except an error code.
type Client struct {
	http *http.Client
	now  func() time.Time
	apps *githubapp.Minter

	mu    sync.Mutex
	names map[nameKey]remembered
}

// nameKey identifies a question about a name or a person: the API, the credential and the thing.
type nameKey struct {
	kind, url, id string
	credential    [sha256.Size]byte
}

type remembered struct {
	values []string
	until  time.Time
}

// NewClient makes a Client. The Client follows no redirects, because the credential is only for
// the configured address. It connects to no link-local address, because clouds keep the
// credentials of machines there.
func NewClient(now func() time.Time) *Client {
	return &Client{now: now, names: make(map[nameKey]remembered), http: githubapp.Client(), apps: githubapp.New(now)}
}

// asks are the functions for all questions, by provider and name of the question.
var asks = map[string]func(*Client, context.Context, API, []string) ([]string, error){
	"github pull_request_files":   (*Client).pullFiles,
	"github pull_request_labels":  (*Client).pullLabels,
	"github pull_request_authors": (*Client).pullAuthors,
	"github sender_permission":    (*Client).permission,
	"github sender_membership":    (*Client).membership,
	"gitlab sender_access":        (*Client).access,
	"slack channel_names":         (*Client).channelNames,
	"slack user_names":            (*Client).userNames,
	"slack message_text":          (*Client).messageText,
	"jira issue_labels":           (*Client).jiraLabels,
	"linear issue_labels":         linearIssue(func(i issue) []string { return i.labels() }),
	"linear issue_project":        linearIssue(func(i issue) []string { return filled(i.Project.ID) }),
	"linear issue_project_name":   linearIssue(func(i issue) []string { return filled(i.Project.Name) }),
	"linear issue_state":          linearIssue(func(i issue) []string { return filled(i.State.ID) }),
	"linear issue_state_name":     linearIssue(func(i issue) []string { return filled(i.State.Name) }),
	"linear comment_mentions":     (*Client).commentMentions,
}

// Ask asks one question, and returns the values that answer it.
func (c *Client) Ask(ctx context.Context, api API, q native.Question) ([]string, error) {
	ask := asks[q.Provider+" "+q.Name]
	if ask == nil {
		return nil, &failure{text: "this server cannot ask for it", final: true}
	}
	if s := native.ByProvider(q.Provider); api.URL == "" && s != nil {
		api.URL = s.API
	}
	args := strings.Fields(q.Args)
	if strings.HasPrefix(q.Name, "sender_") { // a busy thread must not ask for each comment
		return c.remember(q.Name, api, strings.Join(args, " "), roleTime, func(string) ([]string, error) { return ask(c, ctx, api, args) })
	}
	return ask(c, ctx, api, args)
}

// repository is the name of a repository of GitHub, which becomes part of a path.
var repository = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]*/([A-Za-z0-9_-]|\.[A-Za-z0-9_-])[A-Za-z0-9._-]*$`)

// errAnswer is about an answer that is not as documented. A missing value is not known; it is neither empty nor false.
var errAnswer = &failure{text: "answered something other than the JSON that was asked for"}

var errPayload = &failure{text: "the payload does not name what to ask for", final: true}

// pulls are the API's paths of pull requests. args are a repository, and numbers separated by
// commas.
func pulls(args []string) (paths []string, err error) {
	if len(args) != 2 || !repository.MatchString(args[0]) {
		return nil, errPayload
	}
	for number := range strings.SplitSeq(args[1], ",") {
		if _, err := strconv.ParseUint(number, 10, 63); err != nil {
			return nil, errPayload
		}
		paths = append(paths, "/repos/"+args[0]+"/pulls/"+number)
	}
	return paths, nil
}

func (c *Client) pullFiles(ctx context.Context, api API, args []string) (files []string, err error) {
	paths, err := pulls(args)
	for _, path := range paths {
		for page := 1; page <= maxFiles/pageSize; page++ {
			var answer []struct {
				Filename string
				Before   string `json:"previous_filename"`
			}
			if err := c.github(ctx, api, fmt.Sprintf("%s/files?per_page=%d&page=%d", path, pageSize, page), &answer); err != nil {
				return nil, err
			}
			if answer == nil {
				return nil, errAnswer
			}
			for _, f := range answer {
				if f.Filename == "" {
					return nil, errAnswer
				}
				if files = append(files, f.Filename); f.Before != "" {
					files = append(files, f.Before)
				}
			}
			if len(answer) < pageSize {
				break
			}
			if page == maxFiles/pageSize { // the missing files could decide
				return nil, &failure{text: fmt.Sprintf("lists at most %d files of a pull request, and this pull request may have more", maxFiles), final: true}
			}
		}
	}
	return files, err
}

type pull struct {
	User   struct{ Login string }
	Labels []struct{ Name string }
}

func (c *Client) eachPull(ctx context.Context, api API, args []string, visit func(pull) error) error {
	paths, err := pulls(args)
	for _, path := range paths {
		var answer pull
		if err := c.github(ctx, api, path, &answer); err != nil {
			return err
		}
		if err := visit(answer); err != nil {
			return err
		}
	}
	return err
}

func (c *Client) pullLabels(ctx context.Context, api API, args []string) (labels []string, err error) {
	err = c.eachPull(ctx, api, args, func(p pull) error {
		for _, l := range p.Labels {
			labels = append(labels, l.Name)
		}
		if p.Labels == nil || slices.Contains(labels, "") {
			return errAnswer
		}
		return nil
	})
	return labels, err
}

func (c *Client) pullAuthors(ctx context.Context, api API, args []string) (authors []string, err error) {
	err = c.eachPull(ctx, api, args, func(p pull) error {
		if authors = append(authors, p.User.Login); p.User.Login == "" {
			return errAnswer
		}
		return nil
	})
	return authors, err
}

func (c *Client) github(ctx context.Context, api API, path string, into any) error {
	header := http.Header{"Accept": {"application/vnd.github+json"}, "X-Github-Api-Version": {"2022-11-28"}}
	return c.get(ctx, api, path, header, into)
}

// slackAnswer is the part of Slack's answers that tells of an error.
type slackAnswer struct {
	OK    bool
	Error string
}

func (a slackAnswer) failure() error {
	if a.OK {
		return nil
	}
	code := a.Error
	if len(code) > 50 || strings.Trim(code, "abcdefghijklmnopqrstuvwxyz_") != "" {
		code = "an error"
	}
	return &failure{text: "answered " + code, final: strings.HasSuffix(code, "_not_found")}
}

func (c *Client) slack(ctx context.Context, api API, method string, values url.Values, into any) error {
	return c.get(ctx, api, "/"+method+"?"+values.Encode(), http.Header{}, into)
}

func (c *Client) channelNames(ctx context.Context, api API, args []string) ([]string, error) {
	if len(args) != 1 {
		return nil, errPayload
	}
	return c.remember("channel", api, args[0], nameTime, func(id string) ([]string, error) {
		var answer struct {
			slackAnswer
			Channel struct{ ID, Name string }
		}
		err := c.slack(ctx, api, "conversations.info", url.Values{"channel": {id}}, &answer)
		if err == nil {
			err = answer.failure()
		}
		if err == nil && answer.Channel.ID == "" {
			err = errAnswer
		}
		return filled(answer.Channel.Name), err
	})
}

func (c *Client) userNames(ctx context.Context, api API, args []string) ([]string, error) {
	if len(args) != 1 {
		return nil, errPayload
	}
	return c.remember("user", api, args[0], nameTime, func(id string) ([]string, error) {
		var answer struct {
			slackAnswer
			User struct {
				Name    string
				Profile struct {
					Display string `json:"display_name"`
					Real    string `json:"real_name"`
				}
			}
		}
		err := c.slack(ctx, api, "users.info", url.Values{"user": {id}}, &answer)
		if err == nil {
			err = answer.failure()
		}
		if err == nil && answer.User.Name == "" {
			err = errAnswer
		}
		return filled(answer.User.Name, answer.User.Profile.Display, answer.User.Profile.Real), err
	})
}

func filled(values ...string) (all []string) {
	for _, v := range values {
		if v != "" {
			all = append(all, v)
		}
	}
	return all
}

// messageText asks for a message of a channel or of a thread.
func (c *Client) messageText(ctx context.Context, api API, args []string) ([]string, error) {
	if len(args) != 2 {
		return nil, errPayload
	}
	channel, ts := args[0], args[1]
	for _, q := range []struct {
		method string
		values url.Values
	}{
		{"conversations.history", url.Values{"channel": {channel}, "latest": {ts}, "oldest": {ts}, "inclusive": {"true"}, "limit": {"1"}}},
		{"conversations.replies", url.Values{"channel": {channel}, "ts": {ts}, "latest": {ts}, "oldest": {ts}, "inclusive": {"true"}, "limit": {"10"}}},
	} {
		var answer struct {
			slackAnswer
			Messages []struct{ Ts, Text string }
		}
		err := c.slack(ctx, api, q.method, q.values, &answer)
		if err == nil {
			err = answer.failure()
		}
		if err != nil {
			return nil, err
		}
		for _, m := range answer.Messages {
			if m.Ts == ts {
				return []string{m.Text}, nil
			}
		}
	}
	return nil, &failure{text: "has no such message", final: true}
}

// remember asks about a thing, unless an answer is known that is not older than a time.
func (c *Client) remember(kind string, api API, id string, lasts time.Duration, ask func(id string) ([]string, error)) ([]string, error) {
	key := nameKey{kind, api.URL, id, sha256.Sum256([]byte(api.Secret.Reveal()))}
	c.mu.Lock()
	known, ok := c.names[key]
	c.mu.Unlock()
	if ok && c.now().Before(known.until) {
		return known.values, nil
	}
	values, err := ask(id)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.names) >= maxNames {
		clear(c.names)
	}
	c.names[key] = remembered{values, c.now().Add(lasts)}
	return values, nil
}

// get makes a request with the credential as a bearer token.
func (c *Client) get(ctx context.Context, api API, path string, header http.Header, into any) error {
	header.Set("Authorization", "Bearer "+strings.TrimSpace(api.Secret.Reveal()))
	return c.request(ctx, http.MethodGet, api, path, header, nil, into)
}

// request makes a request for an answer in JSON.
func (c *Client) request(ctx context.Context, method string, api API, path string, header http.Header, body []byte, into any) error {
	return c.Do(ctx, api, Request{Method: method, Path: path, Header: header, Body: body, Into: into})
}

func (c *Client) refusal(resp *http.Response) *failure {
	f := &failure{text: fmt.Sprintf("answered %d", resp.StatusCode), status: resp.StatusCode}
	limited := resp.StatusCode == http.StatusTooManyRequests
	if seconds, err := strconv.ParseUint(resp.Header.Get("Retry-After"), 10, 31); err == nil {
		f.after = time.Duration(seconds) * time.Second
		limited = limited || resp.StatusCode == http.StatusForbidden
	} else if resp.Header.Get("X-Ratelimit-Remaining") == "0" {
		limited = limited || resp.StatusCode == http.StatusForbidden
		if at, err := strconv.ParseInt(resp.Header.Get("X-Ratelimit-Reset"), 10, 64); err == nil {
			f.after = time.Unix(at, 0).Sub(c.now())
		}
	}
	f.after = max(0, min(f.after, maxRetryTime))
	switch code := resp.StatusCode; {
	case limited:
		f.text += ": too many requests"
	case code == http.StatusUnauthorized, code == http.StatusNonAuthoritativeInfo: // the latter from Azure DevOps, with a page to sign in
		f.text += ": it does not take the secret of apiSecretName"
	case code == http.StatusForbidden:
		f.text += ": the secret of apiSecretName may not read it"
	case code == http.StatusNotFound:
		f.text += ": it is not there, or the secret of apiSecretName may not read it"
		f.final = true
	case code >= 300 && code < 400:
		f.text += ", a redirect, which is not followed"
		f.final = true
	case code >= 400 && code < 500 && code != http.StatusRequestTimeout:
		f.final = true
	}
	return f
}
