package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"triphammer/cmd/triphammer/client/exit"
	"triphammer/factory/native"
	"triphammer/server/api"
	"triphammer/server/inert"
	"triphammer/server/terms"
)

func connectCommand() *cobra.Command {
	var g gitHubFlow
	c := &cobra.Command{
		Use: "github", Short: "Make a GitHub App with its webhook, and connect it", Args: cobra.NoArgs,
		Long: `Make a GitHub App with its webhook, and connect it (docs/github.md). A page of this command sends your browser to GitHub,
which shows what the App may do and asks you. Then the server takes the App's key and the secret of its webhook from
GitHub as managed secrets: neither comes through this command.

The browser must reach this command: on another machine, give --listen 127.0.0.1:PORT and forward that port, as with
ssh -L. To stop, press Ctrl-C: until you agree at GitHub, nothing is made there.`,
		Example: `  triphammer connect github
  triphammer connect github --organization acme --name "acme triphammer"
  triphammer connect github --github-url https://github.example.com`,
		RunE: WithServer(true, func(c *cobra.Command, _ []string, cl *Client) error { return g.run(c, cl) }),
	}
	f := c.Flags()
	f.StringVar(&g.name, "name", "", "name of the App, which no other App at GitHub has (default: triphammer and a random word)")
	f.StringVar(&g.organization, "organization", "", "organization that owns the App; without it, you do")
	f.StringVar(&g.site, "github-url", "https://github.com", "address of the GitHub")
	f.StringVar(&g.webhook, "webhook", "github", "name of the webhook that gets the App's deliveries")
	f.StringVar(&g.secret, "secret", "GITHUB_APP", "name of the managed secret that becomes the App")
	f.StringVar(&g.listen, "listen", "127.0.0.1:0", "address of this machine at which the browser reaches this command")
	ClientFlags(c)
	return Noun("connect", "Connect a sender", c)
}

// gitHubFlow is the flow in which GitHub makes an App from a manifest.
type gitHubFlow struct {
	name, organization, site, webhook, secret, listen string

	apiURL string // empty for github.com
}

// flowTime is how long a person has to agree at GitHub.
const flowTime = 30 * time.Minute

func (g *gitHubFlow) run(c *cobra.Command, cl *Client) error {
	if err := g.check(); err != nil {
		return err
	}
	hook, hosted, err := g.place(c, cl)
	if err == nil {
		err = g.free(c.Context(), cl, hook)
	}
	if err != nil {
		return err
	}
	code, err := g.agree(c, hook)
	if err != nil {
		return err
	}
	made, err := g.take(c.Context(), cl, hook, code)
	if err != nil {
		return err
	}
	out := c.OutOrStdout()
	fmt.Fprintf(out, "The managed secret %s is the GitHub App %d, and %s signs its deliveries.\n", g.secret, made.ID, hook.SecretName)
	if err := g.define(c, cl, hook, hosted); err != nil {
		return err
	}
	fmt.Fprintf(out, "Now install the App in the repositories that it is for:\n%s\n", inert.Text(made.Install))
	return nil
}

// check reads the addresses of the flags.
func (g *gitHubFlow) check() error {
	u, err := url.Parse(strings.TrimRight(g.site, "/"))
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Hostname() != "127.0.0.1" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
		return exit.With(exit.Usage, "--github-url %q: it is an address such as https://github.example.com", g.site)
	}
	if g.organization != "" && url.PathEscape(g.organization) != g.organization {
		return exit.With(exit.Usage, "--organization %q: it is the name in the organization's address", g.organization)
	}
	host, _, err := net.SplitHostPort(g.listen)
	if addr := net.ParseIP(host); err != nil || addr == nil || !addr.IsLoopback() {
		return exit.With(exit.Usage, "--listen %q: it is an address of this machine alone, such as 127.0.0.1:8799", g.listen)
	}
	g.name = cmp.Or(g.name, "triphammer-"+strings.ToLower(rand.Text()[:6]))
	switch g.site = u.Scheme + "://" + u.Host; {
	case u.Host == "github.com":
	case strings.HasSuffix(u.Host, ".ghe.com"):
		g.apiURL = "https://api." + u.Host
	default:
		g.apiURL = g.site + "/api/v3"
	}
	return nil
}

// place is the webhook that gets the App's deliveries. In a hosted factory it is made, disabled.
func (g *gitHubFlow) place(c *cobra.Command, cl *Client) (hook api.Webhook, hosted bool, err error) {
	name, err := cl.only(c.Context())
	if err != nil {
		return hook, false, err
	}
	var s api.Status
	if err := cl.Get(c.Context(), "/status", &s); err != nil {
		return hook, false, err
	}
	for _, f := range s.Factories {
		hosted = hosted || f.Name == name && f.Hosted
	}
	query := url.Values{"factory": {name}}
	err = cl.Get(c.Context(), "/webhooks/"+url.PathEscape(g.webhook)+"?"+query.Encode(), &hook)
	p := (*problem)(nil)
	switch {
	case err == nil && (hook.Enabled || hook.SignatureScheme != "github" || hook.SecretGeneration > 0):
		return hook, false, exit.With(exit.Bad, "the webhook %s is in use, or is of another sender: give --webhook another name", g.webhook)
	case err == nil:
		return hook, hosted, nil
	case !errors.As(err, &p) || p.Status != http.StatusNotFound:
		return hook, false, err
	case !hosted:
		return hook, false, exit.With(exit.Bad, "the webhook must have its address first. The definitions of the factory %s are elsewhere: commit this file there, then run this command again:\n\n%s", name, g.file(hook, false))
	}
	scheme, off := "github", false
	mode := "signature"
	var made api.WebhookChange
	req := api.NewWebhook{Name: g.webhook, Secret: api.WebhookSecret{Later: true}}
	req.AuthMode, req.SignatureScheme, req.Enabled = &mode, &scheme, &off
	if err := cl.Call(c.Context(), http.MethodPost, definitionPath(name, "webhook", ""), req, &made); err != nil {
		return hook, false, explained(c, err)
	}
	if !made.Live {
		return hook, false, exit.With(exit.Bad, "the webhook %s does not serve: %s", g.webhook, made.Waits)
	}
	return made.Webhook, true, nil
}

// free makes sure that there is room for both secrets before an App is made at GitHub.
func (g *gitHubFlow) free(ctx context.Context, cl *Client, hook api.Webhook) error {
	all, err := Collect[api.Secret](ctx, cl, "/secrets", url.Values{}, 0)
	if err != nil {
		return err
	}
	for _, s := range all {
		switch s.Name {
		case g.secret:
			return exit.With(exit.Bad, "there is a secret %s: give --secret another name, or delete it (triphammer secrets delete %[1]s)", s.Name)
		case hook.SecretName:
			return exit.With(exit.Bad, "there is a secret %s, the name that the webhook %s has for its own: give --webhook another name, or delete it (triphammer secrets delete %[1]s)", s.Name, hook.Name)
		}
	}
	return nil
}

// file is the definition of the webhook, as text for people.
func (g *gitHubFlow) file(hook api.Webhook, whole bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\nauthMode: signature\nsignatureScheme: github\nsecretName: %s\n", cmp.Or(hook.Path, "webhooks/"+g.webhook+".yaml"), cmp.Or(hook.SecretName, "GITHUB_WEBHOOK_SECRET"))
	if !whole {
		b.WriteString("enabled: false\n")
		return b.String()
	}
	fmt.Fprintf(&b, "apiSecretName: %s\n", g.secret)
	if g.apiURL != "" {
		fmt.Fprintf(&b, "apiURL: %s\n", g.apiURL)
	}
	return b.String()
}

// manifest describes the App to GitHub.
func (g *gitHubFlow) manifest(hook api.Webhook, back string) ([]byte, error) {
	permissions := make(map[string]string)
	for _, p := range terms.AppPermissions {
		permissions[p.Name] = p.Level
	}
	home, _, _ := strings.Cut(hook.URL, "/webhooks/w/")
	return json.Marshal(map[string]any{
		"name": g.name, "url": home, "hook_attributes": map[string]any{"url": hook.URL, "active": true}, "redirect_url": back, "public": false,
		"default_permissions": permissions, "default_events": native.GitHubEvents(),
	})
}

// agree sends the browser to GitHub, and returns the code with which it comes back.
func (g *gitHubFlow) agree(c *cobra.Command, hook api.Webhook) (code string, err error) {
	l, err := net.Listen("tcp", g.listen)
	if err != nil {
		return "", exit.With(exit.Usage, "--listen: %w", err)
	}
	here := "http://" + l.Addr().String()
	first := here + "/" + rand.Text()
	manifest, err := g.manifest(hook, here+"/made")
	if err != nil {
		return "", errors.Join(err, l.Close())
	}
	codes := make(chan string, 1)
	server := &http.Server{Handler: g.pages(first, manifest, codes), ReadHeaderTimeout: 10 * time.Second}
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	defer func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(c.Context()), time.Second)
		defer cancel()
		_ = server.Shutdown(ending) // the last page may be on its way
		<-done
	}()
	fmt.Fprintf(c.ErrOrStderr(), "Open %s in your browser, and make the App at %s. Waiting for you…\n", first, g.site)
	if show, err := findBrowser(); err == nil {
		cmd := show(first)
		if cmd.Start() == nil {
			go func() { _ = cmd.Wait() }() // a browser may stay open for as long as it likes
		}
	}
	late := time.NewTimer(flowTime)
	defer late.Stop()
	select {
	case code = <-codes:
		return code, nil
	case <-late.C:
		return "", exit.With(exit.Unreachable, "nobody has agreed at GitHub for %v: nothing was made there", flowTime)
	case err := <-done:
		done <- nil
		return "", err
	case <-c.Context().Done():
		return "", exit.With(exit.Bad, "stopped: without your agreement at GitHub, nothing was made there")
	}
}

// pages are the two pages that the browser sees here: the first one, at an address that cannot be
// guessed, sends the manifest to GitHub, and GitHub sends the browser back to the other. codes gets
// the first code. Only the browser that opened the first page sees both: another user of this machine,
// who may see the address in the list of processes, could answer with an App of their own.
func (g *gitHubFlow) pages(first string, manifest []byte, codes chan<- string) http.Handler {
	const cookie = "triphammer_connect"
	state, browser := rand.Text(), rand.Text()
	var opened atomic.Bool
	known := func(r *http.Request) bool {
		c, err := r.Cookie(cookie)
		return err == nil && subtle.ConstantTimeCompare([]byte(c.Value), []byte(browser)) == 1
	}
	begin, _ := url.Parse(first) // agree made it
	form := g.site + "/settings/apps/new"
	if g.organization != "" {
		form = g.site + "/organizations/" + g.organization + "/settings/apps/new"
	}
	say := func(w http.ResponseWriter, status int, text string) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.WriteHeader(status)
		fmt.Fprintf(w, "<!DOCTYPE html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"color-scheme\" content=\"light dark\"><title>Triphammer</title><body>%s</body></html>", text)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+begin.Path, func(w http.ResponseWriter, r *http.Request) {
		if !known(r) && opened.Swap(true) {
			say(w, http.StatusGone, "<p>Another browser has opened this page. If it was not yours, stop the command, and begin again.</p>")
			return
		}
		http.SetCookie(w, &http.Cookie{Name: cookie, Value: browser, Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode})
		say(w, http.StatusOK, fmt.Sprintf(`<h1>Make a GitHub App</h1><p>GitHub shows what the App may do, and asks you.</p>
<form method="post" action="%s"><input type="hidden" name="manifest" value="%s"><button autofocus>Go on to GitHub</button></form>`,
			html.EscapeString(form+"?state="+state), html.EscapeString(string(manifest))))
	})
	mux.HandleFunc("GET /made", func(w http.ResponseWriter, r *http.Request) {
		shown, code := r.URL.Query().Get("state"), r.URL.Query().Get("code")
		if code == "" || !known(r) || subtle.ConstantTimeCompare([]byte(shown), []byte(state)) != 1 {
			say(w, http.StatusBadRequest, "<p>This is not the answer that the command waits for. Begin at its first page.</p>")
			return
		}
		select {
		case codes <- code:
			say(w, http.StatusOK, "<p>GitHub has made the App. The rest is in your terminal: this page can be closed.</p>")
		default:
			say(w, http.StatusGone, "<p>The command has its answer already.</p>")
		}
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action "+g.site)
		w.Header().Set("Referrer-Policy", "no-referrer")
		w.Header().Set("Cache-Control", "no-store")
		if r.Host != begin.Host { // a page of another site, whose name leads here
			say(w, http.StatusForbidden, "<p>Open the address that the command prints.</p>")
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// take makes the server take the key of the App. A code is good for an hour, so a server that is
// being restarted is asked again.
func (g *gitHubFlow) take(ctx context.Context, cl *Client, hook api.Webhook, code string) (made api.ConnectedApp, err error) {
	req := api.ConnectApp{Code: code, APIURL: g.apiURL, SecretName: g.secret, WebhookSecretName: hook.SecretName}
	for try := 1; ; try++ {
		err = cl.Call(ctx, http.MethodPost, "/github-apps", req, &made)
		p := (*problem)(nil)
		if err == nil || errors.As(err, &p) && p.Status < 500 || try == takeTries || ctx.Err() != nil {
			break
		}
		select {
		case <-ctx.Done():
		case <-time.After(takePause):
		}
	}
	if err != nil {
		return made, fmt.Errorf("%w. GitHub has made the App %s: delete it at %s/settings/apps, or give its key by hand (triphammer secrets set %s --github-app ID --key-file FILE)", err, g.name, g.site, g.secret)
	}
	return made, nil
}

const (
	takeTries = 30
	takePause = 2 * time.Second
)

// define enables the webhook, with the App for questions to GitHub; of a factory elsewhere, it says
// what to commit.
func (g *gitHubFlow) define(c *cobra.Command, cl *Client, hook api.Webhook, hosted bool) error {
	if !hosted {
		fmt.Fprintf(c.OutOrStdout(), "Commit this file of the factory %s:\n\n%s\n", hook.Factory, g.file(hook, true))
		return nil
	}
	on := true
	var req api.WebhookPatch
	req.Enabled, req.APISecretName = &on, &g.secret
	if g.apiURL != "" {
		req.APIURL = &g.apiURL
	}
	var made api.WebhookChange
	if err := cl.Call(c.Context(), http.MethodPatch, definitionPath(hook.Factory, "webhook", hook.Name), req, &made); err != nil {
		fmt.Fprintf(c.ErrOrStderr(), "The webhook is not enabled. Its file must become:\n\n%s\n", g.file(hook, true))
		return explained(c, err)
	}
	state := "takes its deliveries"
	if !made.Live {
		state = "does not serve yet: " + inert.Text(made.Waits)
	}
	fmt.Fprintf(c.OutOrStdout(), "The webhook %s %s.\n", hook.Name, state)
	return nil
}
