package githubapp

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode"

	"triphammer/server/secret"
)

const (
	// Early is how long before its end a token is replaced.
	Early = 5 * time.Minute
	// longest is how long a token is taken to be good, whatever GitHub says: its tokens end
	// after an hour.
	longest     = time.Hour
	failedTime  = 10 * time.Second // how long a failure is remembered, so that a run cannot use up GitHub's limit
	requestTime = 15 * time.Second
	maxAnswer   = 1 << 20 // bytes
	maxToken    = 4 << 10 // bytes
	maxKept     = 1000    // tokens
)

// Use is what a token is for.
type Use struct {
	Repository  string            // OWNER/NAME, or an organization
	Permissions map[string]string // such as {"contents": "read"}: read or write
}

// Token is an installation token.
type Token struct {
	Value secret.Value
	Renew time.Time // from then on there is another one
}

// Minter makes installation tokens, and keeps them until shortly before their end. It is safe for
// concurrent use: callers that want the same token wait for one request.
type Minter struct {
	http *http.Client
	now  func() time.Time

	mu   sync.Mutex
	kept map[[sha256.Size]byte]*entry
}

type entry struct {
	turn  chan struct{} // holds one value while nobody mints
	token Token
	err   error
	until time.Time
}

// New makes a Minter.
func New(now func() time.Time) *Minter {
	return &Minter{http: Client(), now: now, kept: make(map[[sha256.Size]byte]*entry)}
}

// Client makes a client for requests with a credential. It connects to no link-local address, and follows no
// redirect.
func Client() *http.Client {
	return &http.Client{Transport: transport(), Timeout: requestTime, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// transport makes a transport that connects to no link-local address, at which clouds give
// credentials to their machines. It follows the proxies of the environment.
func transport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DialContext = (&net.Dialer{Timeout: requestTime, Control: func(_, address string, _ syscall.RawConn) error {
		if at, err := netip.ParseAddrPort(address); err != nil || at.Addr().Unmap().IsLinkLocalUnicast() {
			return errors.New("the address is link-local")
		}
		return nil
	}}).DialContext
	return t
}

// Error says why there is no token, and what to do.
type Error struct {
	Text  string
	After time.Duration // how long GitHub wants no request
}

func (e *Error) Error() string { return e.Text }

// Token is a token for a use, from the newest value of the secret that is the App. name is the
// name of the secret, for messages. Its errors are an *Error, or the error of ctx.
func (m *Minter) Token(ctx context.Context, name string, v secret.Value, use Use) (Token, error) {
	app, err := Parse(v)
	if err != nil {
		return Token{}, &Error{Text: fmt.Sprintf("%s: %v; set it again: triphammer secrets set %s --github-app ID --key-file FILE", of(name), err, cmp.Or(name, "NAME"))}
	}
	if !validRepository(use.Repository) && !validRepository("o/"+use.Repository) {
		return Token{}, &Error{Text: of(name) + " needs a repository OWNER/NAME, or an organization"}
	}
	e := m.entry(v, use)
	select {
	case <-ctx.Done():
		return Token{}, ctx.Err()
	case <-e.turn:
	}
	defer func() { e.turn <- struct{}{} }()
	if m.now().Before(e.until) {
		return e.token, e.err
	}
	token, err := m.mint(ctx, app, name, use)
	if ctx.Err() != nil { // the next caller asks again
		return Token{}, ctx.Err()
	}
	m.mu.Lock() // others read it without a turn
	e.token, e.err, e.until = token, err, token.Renew
	if told := (*Error)(nil); errors.As(err, &told) {
		e.until = m.now().Add(max(failedTime, told.After))
	}
	m.mu.Unlock()
	return token, err
}

// entry finds the place of a token. The value of the secret is part of the key, so a new key of
// the App makes new tokens.
func (m *Minter) entry(v secret.Value, use Use) *entry {
	h := sha256.New()
	fmt.Fprintf(h, "%q %q", v.Reveal(), strings.ToLower(use.Repository))
	for _, p := range slices.Sorted(maps.Keys(use.Permissions)) {
		fmt.Fprintf(h, " %q %q", p, use.Permissions[p])
	}
	key := [sha256.Size]byte(h.Sum(nil))
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.kept[key] == nil {
		if len(m.kept) >= maxKept {
			now := m.now()
			maps.DeleteFunc(m.kept, func(_ [sha256.Size]byte, e *entry) bool { return len(e.turn) > 0 && !now.Before(e.until) })
		}
		m.kept[key] = &entry{turn: make(chan struct{}, 1)}
		m.kept[key].turn <- struct{}{}
	}
	return m.kept[key]
}

// Forget makes another token in place of one that GitHub did not take: the App may have been installed anew.
func (m *Minter) Forget(token secret.Value) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.kept, func(_ [sha256.Size]byte, e *entry) bool { return e.token.Value == token })
}

// of names the App of a secret.
func of(name string) string { return strings.TrimSpace("the GitHub App of the secret " + name) }

// installation is an App in an account, as GitHub describes it.
type installation struct {
	ID          int64
	HTMLURL     string            `json:"html_url"`
	Slug        string            `json:"app_slug"`
	Permissions map[string]string `json:"permissions"`
	Suspended   *string           `json:"suspended_at"`
}

func (m *Minter) mint(ctx context.Context, app *App, name string, use Use) (Token, error) {
	place, body := "/orgs/"+use.Repository, map[string]any{"permissions": use.Permissions}
	if _, repository, is := strings.Cut(use.Repository, "/"); is {
		place, body["repositories"] = "/repos/"+use.Repository, []string{repository}
	}
	var in installation
	status, err := m.do(ctx, app, name, http.MethodGet, place+"/installation", nil, &in)
	switch {
	case status == http.StatusNotFound:
		return Token{}, m.notInstalled(ctx, app, name, use.Repository)
	case err != nil:
		return Token{}, err
	case in.ID <= 0:
		return Token{}, &Error{Text: of(name) + ": " + app.Site() + " answered something other than an installation"}
	case in.Suspended != nil:
		return Token{}, &Error{Text: fmt.Sprintf("%s is suspended on %s: end the suspension at %s", of(name), use.Repository, app.page(in.HTMLURL, "/settings/installations"))}
	}
	if lacking := Lacking(use.Permissions, in.Permissions); len(lacking) > 0 {
		return Token{}, &Error{Text: fmt.Sprintf("%s lacks permissions on %s: %s. Add what is missing in the App's settings (%s), then accept it in the installation (%s)",
			of(name), use.Repository, strings.Join(lacking, ", "), app.Site()+"/settings/apps/"+url.PathEscape(cmp.Or(in.Slug, "APP"))+"/permissions", app.page(in.HTMLURL, "/settings/installations"))}
	}
	var made struct {
		Token   string
		Expires time.Time `json:"expires_at"`
	}
	asked, err := json.Marshal(body)
	if err != nil {
		return Token{}, err
	}
	if _, err := m.do(ctx, app, name, http.MethodPost, fmt.Sprintf("/app/installations/%d/access_tokens", in.ID), asked, &made); err != nil {
		return Token{}, err
	}
	now := m.now()
	unfit := func(r rune) bool { return r <= ' ' || r > '~' }
	if made.Token == "" || len(made.Token) > maxToken || strings.ContainsFunc(made.Token, unfit) || !made.Expires.After(now.Add(Early)) {
		return Token{}, &Error{Text: of(name) + ": " + app.Site() + " answered something other than a token that is good for some minutes (is the clock of this machine right?)"}
	}
	if latest := now.Add(longest); made.Expires.After(latest) {
		made.Expires = latest
	}
	return Token{Value: secret.New(made.Token), Renew: made.Expires.Add(-Early)}, nil
}

// Lacking are the permissions of needs that an App was not given, sorted, such as "checks: write".
func Lacking(needs, given map[string]string) (lacking []string) {
	rank := map[string]int{"read": 1, "write": 2, "admin": 3}
	for _, p := range slices.Sorted(maps.Keys(needs)) {
		if rank[given[p]] < rank[needs[p]] {
			lacking = append(lacking, p+": "+needs[p])
		}
	}
	return lacking
}

// page is an address that GitHub told, if it is at the App's site; else the path there.
func (a *App) page(told, path string) string {
	if strings.HasPrefix(told, a.Site()+"/") && !strings.ContainsFunc(told, func(r rune) bool { return r <= ' ' || r > '~' }) && len(told) < 200 {
		return told
	}
	return a.Site() + path
}

// notInstalled says where the App can be installed. GitHub answers alike for a repository that is
// not there.
func (m *Minter) notInstalled(ctx context.Context, app *App, name, repository string) error {
	about, err := m.about(ctx, app, name)
	if err != nil {
		return err
	}
	return &Error{Text: fmt.Sprintf("%s is not installed on %s: install it at %s, or correct the name", of(name), repository, about.Install)}
}

// About is what GitHub says of an App.
type About struct {
	ID          int64
	Slug        string // the App acts as SLUG[bot]
	Install     string // address at which it is installed
	Permissions map[string]string
	Events      []string
}

// About asks GitHub for the App of a secret, which proves that its key works.
func (m *Minter) About(ctx context.Context, name string, v secret.Value) (About, error) {
	app, err := Parse(v)
	if err != nil {
		return About{}, &Error{Text: of(name) + ": " + err.Error()}
	}
	return m.about(ctx, app, name)
}

func (m *Minter) about(ctx context.Context, app *App, name string) (About, error) {
	var told struct {
		ID          int64
		Slug        string
		HTMLURL     string            `json:"html_url"`
		Permissions map[string]string `json:"permissions"`
		Events      []string
	}
	if _, err := m.do(ctx, app, name, http.MethodGet, "/app", nil, &told); err != nil {
		return About{}, err
	}
	if told.ID != app.ID || !validRepository("a/"+told.Slug) {
		return About{}, &Error{Text: of(name) + ": " + app.Site() + " answered something other than the App"}
	}
	return About{ID: told.ID, Slug: told.Slug, Install: app.page(told.HTMLURL, "/apps/"+told.Slug) + "/installations/new", Permissions: told.Permissions, Events: told.Events}, nil
}

// do sends a request as the App, and reads the answer. Without an error the answer is what was
// asked for.
func (m *Minter) do(ctx context.Context, app *App, name, method, path string, body []byte, into any) (status int, err error) {
	proof, err := app.signed(m.now())
	if err != nil {
		return 0, &Error{Text: of(name) + ": its key cannot sign: set it again"}
	}
	req, err := http.NewRequestWithContext(ctx, method, app.API+path, bytes.NewReader(body))
	if err != nil {
		return 0, &Error{Text: of(name) + ": the address of its API cannot be used"}
	}
	req.Header = http.Header{"Authorization": {"Bearer " + proof}}
	status, err = ask(m.http, req, into)
	no := (*refusal)(nil)
	if err == nil || ctx.Err() != nil {
		return status, err
	}
	if !errors.As(err, &no) {
		return status, &Error{Text: fmt.Sprintf("%s: %s cannot be asked: %v", of(name), app.Site(), err)}
	}
	e := &Error{Text: fmt.Sprintf("%s: %s answered %s", of(name), app.Site(), string(secret.NewRedactor(secret.New(proof)).Redact([]byte(no.Error())))), After: no.After}
	switch {
	case status == http.StatusUnauthorized:
		e.Text += fmt.Sprintf(": it does not take the App's id and key. Make another key on the App's page at GitHub, set it with `triphammer secrets set %s --github-app ID --key-file FILE`, and make sure that the clock of this machine is right", cmp.Or(name, "NAME"))
	case status >= 300 && status < 400:
		e.Text += ": the repository has another name now, which the definition must have"
	}
	return status, e
}

// refusal is an answer of GitHub's API that is not what was asked for.
type refusal struct {
	said  string
	After time.Duration // how long GitHub wants no request; 0: it does not say
}

func (r *refusal) Error() string { return r.said }

// ask sends a request to GitHub's API. An error that is no *refusal means that there is no answer.
func ask(client *http.Client, req *http.Request, into any) (status int, err error) {
	req.Header.Set("Accept", "application/vnd.github+json")
	req.Header.Set("X-Github-Api-Version", "2022-11-28")
	req.Header.Set("User-Agent", "triphammer")
	if req.Method != http.MethodGet {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := client.Do(req)
	if err != nil {
		if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) { // its text has the whole address
			err = wrapped.Err
		}
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return resp.StatusCode, err
	}
	if resp.StatusCode/100 != 2 {
		var told struct{ Message string }
		_ = json.Unmarshal(text, &told) // the status says enough
		no := &refusal{said: fmt.Sprint(resp.StatusCode)}
		if told.Message = clip(told.Message); told.Message != "" {
			no.said += " (" + told.Message + ")"
		}
		if resp.StatusCode == http.StatusForbidden || resp.StatusCode == http.StatusTooManyRequests {
			if seconds, err := time.ParseDuration(resp.Header.Get("Retry-After") + "s"); err == nil {
				no.After = max(0, min(seconds, longest))
			} else if resp.Header.Get("X-Ratelimit-Remaining") == "0" {
				no.After = time.Minute
			}
		}
		return resp.StatusCode, no
	}
	if len(text) > maxAnswer || json.Unmarshal(text, into) != nil {
		return resp.StatusCode, &refusal{said: fmt.Sprintf("%d with something other than the JSON that was asked for", resp.StatusCode)}
	}
	return resp.StatusCode, nil
}

// clip is a stranger's text on one short line.
func clip(text string) string {
	text = strings.Join(strings.FieldsFunc(strings.ToValidUTF8(text, "?"), func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }), " ")
	if r := []rune(text); len(r) > 200 {
		text = string(r[:200]) + "…"
	}
	return text
}

// Made is an App that GitHub has made from a manifest.
type Made struct {
	ID            int64
	Install       string       // address at which it is installed
	App           secret.Value // value of a managed secret that is the App
	WebhookSecret secret.Value // signs the App's deliveries
}

// Convert exchanges the code with which GitHub sends a person back who has agreed to a manifest.
// GitHub takes a code once, within an hour. api is as in Value.
func (m *Minter) Convert(ctx context.Context, api, code string) (made Made, err error) {
	api = strings.TrimRight(cmp.Or(api, publicAPI), "/")
	if !validAPI(api) {
		return made, &Error{Text: noAPI}
	}
	if len(code) > 200 || !validRepository("code/"+code) {
		return made, &Error{Text: "that is no code of GitHub"}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, api+"/app-manifests/"+code+"/conversions", nil)
	if err != nil {
		return made, &Error{Text: noAPI}
	}
	req.Header = make(http.Header)
	var told struct {
		ID      int64
		Slug    string
		HTMLURL string `json:"html_url"`
		PEM     string
		Secret  string `json:"webhook_secret"`
	}
	site := siteOf(api)
	status, err := ask(m.http, req, &told)
	switch {
	case ctx.Err() != nil:
		return made, ctx.Err()
	case status == http.StatusNotFound:
		return made, &Error{Text: site + " does not know the code: it was used, or is older than an hour. Begin anew"}
	case err != nil:
		return made, &Error{Text: fmt.Sprintf("%s did not tell the key of the App: %v", site, err)}
	}
	own := api
	if api == publicAPI {
		own = ""
	}
	made.App, err = Value(told.ID, told.PEM, own)
	if err != nil || told.Secret == "" || len(told.Secret) > 1<<10 || strings.ContainsFunc(told.Secret, func(r rune) bool { return r <= ' ' || r > '~' }) || !validRepository("a/"+told.Slug) {
		return Made{}, &Error{Text: site + " answered something other than an App with a webhook"}
	}
	app := &App{API: api}
	made.ID, made.Install, made.WebhookSecret = told.ID, app.page(told.HTMLURL, "/apps/"+told.Slug)+"/installations/new", secret.New(told.Secret)
	return made, nil
}
