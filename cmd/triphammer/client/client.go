package client

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/user"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"triphammer/cmd/triphammer/client/exit"
	"triphammer/cmd/triphammer/client/settings"
	"triphammer/schema"
	"triphammer/server/api"
	"triphammer/server/terms"
)

// FactoryName is the name of the factory of a server that has only one. The name is part
// of the key that binds a webhook to its UID. Therefore it is not the name in the
// definition, which can change.
const FactoryName = "default"

// Client calls the API of a server, over the network or over the socket in the data
// directory. While no server runs, it calls the same handlers in this process, on the
// store of the data directory (SPEC 13.5).
type Client struct {
	HTTP    *http.Client
	Base    string
	Key     string
	factory string // limits requests to one factory; empty: all factories
	Offline bool
	Target  Target // what named the server
	Close   func()
}

// Host is what the client needs of a machine that can have a server.
type Host struct {
	// Commands are those of a server, made anew.
	Commands func() []*cobra.Command
	// Local makes a client for a data directory: of the server that runs on it, or, if the command
	// needs none, of the same handlers in this process. It can make a missing data directory.
	Local func(c *cobra.Command, data string, needsServer, mayMake bool) (*Client, error)
	// Reseal seals every secret in a data directory with a new key.
	Reseal func(c *cobra.Command, data string) error
	// NearestDev is the data directory that dev made in this folder or in one above, and Installed
	// that of the server that a package installed, for its own user. They are empty if there is none.
	NearestDev, Installed func() string
	// MadeSecret is the value that dev made up for a secret; empty if there is none.
	MadeSecret func(data, name string) (string, error)
}

// here is the host that Execute was given.
var here Host

// ClientFlags are the flags of every command that needs a server.
func ClientFlags(c *cobra.Command) {
	c.Flags().String("server", "", "address of a server, such as https://hammer.example.com (its key in TRIPHAMMER_API_KEY)")
	c.Flags().String("data", "", "data directory of a server on this machine")
	c.Flags().String("context", "", "saved server to use instead of the current one: see triphammer context")
	if c.Flags().Lookup("factory") == nil { // keys create has its own, which limits the key
		c.Flags().String("factory", "", "which factory, if the server has several")
	}
}

// only is the factory of --factory, or else the only one of the server.
func (cl *Client) only(ctx context.Context) (string, error) {
	if cl.factory != "" {
		return cl.factory, nil
	}
	var s api.Status
	if err := cl.Get(ctx, "/status", &s); err != nil {
		return "", err
	}
	names := terms.Each(s.Factories, func(f api.FactoryStatus) string { return f.Name })
	if len(names) != 1 {
		return "", exit.With(exit.Usage, "which factory? --factory %s", strings.Join(names, " or "))
	}
	return names[0], nil
}

// WithServer makes the RunE of a command from a function that takes a client.
func WithServer(needsServer bool, run func(c *cobra.Command, args []string, cl *Client) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		cl, err := Connect(c, needsServer)
		if err != nil {
			return err
		}
		defer cl.Close()
		return inFlags(c, run(c, args, cl))
	}
}

// inFlags names the flag of the command in the refusal of a field, which the server names as the API
// does: --cron for cron_schedule, --environment for agent_config.environment_id.
func inFlags(c *cobra.Command, err error) error {
	p := (*problem)(nil)
	if !errors.As(err, &p) {
		return err
	}
	for _, f := range p.Errors {
		rest, begins := strings.CutPrefix(p.text, f.Field+" ")
		name := strings.ReplaceAll(f.Field[strings.LastIndex(f.Field, ".")+1:], "_", "-")
		for _, suffix := range []string{"", "-id", "-uid", "-schedule"} {
			if flag := c.Flags().Lookup(strings.TrimSuffix(name, suffix)); begins && flag != nil {
				p.text = "--" + flag.Name + " " + rest
				return err
			}
		}
	}
	return err
}

// Connect makes a client. If the command needs a running server, Connect does not open the
// store in this process.
func Connect(c *cobra.Command, needsServer bool) (*Client, error) {
	return connectTo(c, needsServer, false)
}

// connectOrMake is connect for a command that may be the first one on a data directory. It
// makes a missing data directory, and prints that.
func connectOrMake(c *cobra.Command) (*Client, error) { return connectTo(c, false, true) }

func connectTo(c *cobra.Command, needsServer, mayMake bool) (*Client, error) {
	t, err := TargetOf(c)
	if err != nil {
		return nil, err
	}
	cl, err := reach(c, t, needsServer, mayMake)
	if err == nil && c.CommandPath() != "triphammer keys create" {
		factory, _ := c.Flags().GetString("factory")
		cl.factory = cmp.Or(factory, t.factory)
	}
	return cl, err
}

// nextApply says how the webhooks that use a secret take its new value. Without a server, the
// next start of dev applies too.
func (cl *Client) nextApply() string {
	how := "triphammer apply"
	if cl.Offline && cl.Target.isDev() {
		how = "triphammer dev"
	}
	return "The webhooks that use it take it at the next apply: " + how
}

// reach makes a client of a server.
func reach(c *cobra.Command, t Target, needsServer, mayMake bool) (cl *Client, err error) {
	switch {
	case t.server != "" && settings.GivenStore(c):
		return nil, exit.With(exit.Usage, "--store is for a server on this machine (--data DIR), and %s names one by its address", cmp.Or(t.by, "--server"))
	case t.server != "":
		cl, err = remoteClient(t)
	case t.None():
		return nil, whichServer()
	default:
		cl, err = here.Local(c, t.Data, needsServer, mayMake)
	}
	if err == nil {
		cl.Target = t
	}
	return cl, err
}

func remoteClient(t Target) (*Client, error) {
	base, err := serverAddress(cmp.Or(t.by, "--server"), t.server)
	if err != nil {
		return nil, err
	}
	key, _, err := t.keyOf()
	if err != nil {
		return nil, err
	}
	return &Client{HTTP: &http.Client{CheckRedirect: stayThere}, Base: base, Key: key, Close: func() {}}, nil
}

// stayThere follows redirects on the same host alone: a key is for one server. The answer that
// leads elsewhere is then the answer.
func stayThere(to *http.Request, via []*http.Request) error {
	from := via[0].URL
	if to.URL.Host != from.Host || to.URL.Scheme != from.Scheme || len(via) > 5 {
		return http.ErrUseLastResponse
	}
	return nil
}

// secretVariable reads a variable that may hold a secret, or the file that its
// _FILE twin names (SPEC 12).
func secretVariable(name string) (string, error) {
	if path := os.Getenv(name + "_FILE"); path != "" {
		text, err := os.ReadFile(path)
		if err != nil {
			return "", exit.With(exit.Usage, "%s_FILE: %w", name, err)
		}
		return DropNewline(string(text)), nil
	}
	return os.Getenv(name), nil
}

// OfflineNotice says what no command can know while no server runs. Commands print it where
// they would print warnings about the server.
const OfflineNotice = "No server is running, so nothing is said of what depends on one: programs of agents, isolation, network, workers, MCP servers, images."

// Call makes a request to the API. in and out are values for JSON, or nil.
func (cl *Client) Call(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(text)
	}
	data, err := cl.do(ctx, method, path, body)
	if err != nil || out == nil {
		return err
	}
	if err := json.Unmarshal(data, out); err != nil {
		return exit.With(exit.Unreachable, "%s %s of %s: the answer is not what this version expects: %w. Is this the address of a Triphammer server?", method, path, cl.Base, err)
	}
	return nil
}

// Get reads a value from the API.
func (cl *Client) Get(ctx context.Context, path string, out any) error {
	return cl.Call(ctx, http.MethodGet, path, nil, out)
}

// do makes a request and returns the body of a successful answer.
func (cl *Client) do(ctx context.Context, method, path string, body io.Reader) ([]byte, error) {
	resp, err := cl.Answer(ctx, method, path, body)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, exit.With(exit.Unreachable, "reading the answer: %w", err)
	}
	return data, nil
}

// sends is told of each request that a command sends. The build tag "recorded" makes it write
// them down, for the test of what commands can do.
var sends = func(method, path string) {}

// ofFactories are the requests that can have the parameter factory; * stands for a name. Others
// are refused with it.
var ofFactories = []string{
	"GET /status", "GET /stats", "GET /factories", "GET /webhooks", "GET /webhooks/*", "GET /webhooks/*/setup", "GET /automations", "GET /deliveries", "GET /subjects", "GET /subjects/story", "GET /inbox",
	"GET /applies", "GET /applies/*", "GET /applies/*/files", "GET /applies/*/diff", "POST /filters/test", "POST /filters/ask",
	"GET /agent", "GET /agent/environments", "GET /agent/schedules", "GET /agent/runs", "GET /agent/runs/counts",
}

// inFactory limits a request to the factory of the client. to is its path and query.
func (cl *Client) inFactory(method, to string) string {
	route, query, hasQuery := strings.Cut(to, "?")
	if cl.factory == "" || strings.Contains(query, "factory=") || !slices.ContainsFunc(ofFactories, func(pattern string) bool {
		matches, _ := path.Match(pattern, method+" "+route)
		return matches
	}) {
		return to
	}
	separator := "?"
	if hasQuery {
		separator = "&"
	}
	return to + separator + "factory=" + url.QueryEscape(cl.factory)
}

// Answer makes a request and returns a successful answer. The caller must close its body.
func (cl *Client) Answer(ctx context.Context, method, path string, body io.Reader) (*http.Response, error) {
	path = cl.inFactory(method, path)
	sends(method, path)
	req, err := http.NewRequestWithContext(ctx, method, cl.Base+api.Base+path, body)
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if cl.Key != "" {
		req.Header.Set("Authorization", "Bearer "+cl.Key)
	}
	resp, err := cl.HTTP.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, exit.With(exit.Unreachable, "the server cannot be reached: %w", err)
	}
	if resp.StatusCode < 300 {
		return resp, nil
	}
	defer func() { _ = resp.Body.Close() }()
	if to, err := resp.Location(); err == nil && resp.StatusCode < 400 {
		return nil, exit.With(exit.Usage, "%s leads elsewhere, to %s: give the address of the server itself", cl.Base, to.Redacted())
	}
	data, _ := io.ReadAll(resp.Body) // what came of it says enough
	return nil, cl.likely(ctx, path, cl.problemError(resp.StatusCode, data))
}

// Stream reads the server-sent events after an id and calls handle for each one, until the
// server ends the stream.
func (cl *Client) Stream(ctx context.Context, path, after string, handle func(id, kind string, data []byte) error) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, cl.Base+api.Base+path, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "text/event-stream")
	if after != "" {
		req.Header.Set("Last-Event-ID", after)
	}
	if cl.Key != "" {
		req.Header.Set("Authorization", "Bearer "+cl.Key)
	}
	resp, err := cl.HTTP.Do(req)
	if err != nil {
		return exit.With(exit.Unreachable, "the server cannot be reached: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode >= 300 {
		data, _ := io.ReadAll(resp.Body) // what came of it says enough
		return cl.likely(ctx, path, cl.problemError(resp.StatusCode, data))
	}
	var id, kind string
	var data []byte
	for lines := bufio.NewReader(resp.Body); ; {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("the server closed it")
			}
			return exit.With(exit.Unreachable, "the stream ended too early: %w", err)
		}
		field, value, _ := bytes.Cut(bytes.TrimRight(line, "\r\n"), []byte(": "))
		switch string(field) {
		case "id":
			id = string(value)
		case "event":
			kind = string(value)
		case "data":
			data = value
		case "":
			if data != nil {
				if err := handle(id, kind, data); err != nil {
					return err
				}
			}
			data = nil
		}
	}
}

// problemError turns an error answer into an error with an exit status.
func (cl *Client) problemError(status int, data []byte) error {
	var p api.Problem
	text := http.StatusText(status)
	if json.Unmarshal(data, &p) == nil && p.Message != "" {
		text = p.Message
	}
	code := exit.Bad
	switch status {
	case http.StatusUnauthorized:
		return exit.With(exit.Auth, "%s", cl.Target.keyHelp())
	case http.StatusForbidden:
		code = exit.Auth
	case http.StatusNotFound:
		code = exit.NotFound
	case http.StatusConflict:
		code = exit.Conflict
	case http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusRequestEntityTooLarge:
		code = exit.Usage
	case http.StatusServiceUnavailable, http.StatusBadGateway, http.StatusGatewayTimeout:
		code = exit.Unreachable
	}
	p.Status = status // also of an answer that is no problem, such as that of a proxy
	return &exit.Error{Code: code, Err: &problem{p, text, data}}
}

// likely adds to the error of a request for a thing by its id which one was likely meant, or what
// lists them.
func (cl *Client) likely(ctx context.Context, path string, err error) error {
	p := (*problem)(nil)
	if !errors.As(err, &p) || p.Status != http.StatusNotFound {
		return err
	}
	for noun, of := range Completions {
		list, _, _ := strings.Cut(of.List, "?")
		rest, below := strings.CutPrefix(path, list+"/")
		id, _, _ := strings.Cut(rest, "/")
		if !below || of.prefix == "" || !strings.HasSuffix(of.page, "/") || !strings.Contains(p.text, id) {
			continue
		}
		all, listErr := cl.entries(ctx, noun)
		if listErr != nil {
			return err // which says enough
		}
		ids := terms.Each(all, func(one map[string]any) string { return fmt.Sprint(one[of.value]) })
		hint := "triphammer " + noun + " list names the newest"
		if near := schema.Nearest(id, ids); near != "" {
			hint = fmt.Sprintf("did you mean %q?", near)
		}
		p.text += "; " + hint
		break
	}
	return err
}

// problem is the problem with which a server answered.
type problem struct {
	api.Problem
	text string
	body []byte // the whole answer
}

func (p *problem) Error() string { return p.text }

// Collect reads all pages of a list, up to limit entries (0: all).
func Collect[T api.Listed](ctx context.Context, cl *Client, path string, query url.Values, limit int) ([]T, error) {
	all := []T{}
	for {
		size := 500
		if limit > 0 {
			size = min(size, limit-len(all))
		}
		query.Set("limit", fmt.Sprint(size))
		var page api.List[T]
		if err := cl.Get(ctx, path+"?"+query.Encode(), &page); err != nil {
			return nil, err
		}
		all = append(all, page.Entries...)
		if !page.PageInfo.HasNextPage || limit > 0 && len(all) >= limit {
			return all, nil
		}
		query.Set("cursor", page.PageInfo.NextCursor)
	}
}

// WaitFor calls done every 100 ms until it returns true or an error, or until the timeout.
func WaitFor(ctx context.Context, timeout time.Duration, what string, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		ok, err := done()
		if ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return exit.With(exit.Timeout, "after %s: %s", timeout, what)
			}
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

// UserName is the name of whoever calls this program.
func UserName() string {
	for _, name := range []string{"SUDO_USER", "USER", "LOGNAME"} {
		if value := os.Getenv(name); value != "" {
			return value
		}
	}
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return fmt.Sprintf("uid %d", os.Getuid())
}
