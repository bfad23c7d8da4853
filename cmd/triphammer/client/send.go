package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"triphammer/applier/gitrepo"
	"triphammer/cmd/triphammer/client/exit"
	"triphammer/cmd/triphammer/client/term"
	"triphammer/factory"
	"triphammer/factory/signature"
	"triphammer/server/api"
	"triphammer/server/secret"
	"triphammer/server/terms"
)

// sendOptions are the flags of send.
type sendOptions struct {
	payload     payloadOptions
	secretFile  string
	headers     []string
	tamper      string
	count       int
	rate        string
	dry         bool
	url, scheme string
	wait        bool
	timeout     time.Duration
}

func sendCommand() *cobra.Command {
	o := &sendOptions{}
	c := &cobra.Command{
		Use:   "send [WEBHOOK]",
		Short: "Send a delivery, as a sender does",
		Long: `Send a delivery to a webhook over HTTP, authenticated in whichever mode and scheme it has. The secret is read from
--secret-file or from the variable TRIPHAMMER_WEBHOOK_SECRET, because the server never gives out a stored secret. In the
folder of dev, a secret that dev made up needs neither. For a scheme with a public key, give the private key. With --url no
server needs to be known; then --scheme says how to sign.

It exits with 0 if every answer is 202; with --tamper, if every one is 401. With --wait, each delivery must have started a
run, too, and each run must have SUCCEEDED.`,
		Example: `  triphammer send ci --payload '{"status": "failed"}'
  triphammer send github-main --event push --set ref=refs/heads/wip
  triphammer send payments --provider stripe --tamper timestamp
  triphammer send ci --count 70 --rate 10/s
  triphammer send github-main --event issue_comment --wait
  triphammer send ci --dry-run
  triphammer send --url http://127.0.0.1:9000/hook --scheme slack --provider slack`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return o.send(c, args) },
	}
	f := c.Flags()
	o.payload.flags(c)
	f.StringVar(&o.secretFile, "secret-file", "", "file with the webhook's secret")
	headerFlag(c, &o.headers)
	f.StringVar(&o.tamper, "tamper", "", "spoil it: "+strings.Join(tampers, ", "))
	f.IntVar(&o.count, "count", 1, "how many to send, each with an id of its own")
	f.StringVar(&o.rate, "rate", "", "at most so many, such as 10/s or 60/m")
	f.BoolVar(&o.dry, "dry-run", false, "print an equivalent curl command, and send nothing")
	f.StringVar(&o.url, "url", "", "send to this address instead of a webhook of a server")
	f.StringVar(&o.scheme, "scheme", "", "with --url: how to sign (triphammer schemes list); without it the secret is a bearer token")
	f.BoolVar(&o.wait, "wait", false, "wait for the runs that it starts, and show what their sender is told of them, or would be")
	f.DurationVar(&o.timeout, "timeout", 30*time.Second, "how long to wait for each answer; with --wait for all the runs too, and then 2h by default")
	term.OutputFlag(c)
	ClientFlags(c)
	_ = c.RegisterFlagCompletionFunc("tamper", cobra.FixedCompletions(tampers, cobra.ShellCompDirectiveNoFileComp))
	_ = c.RegisterFlagCompletionFunc("scheme", cobra.FixedCompletions(signature.Names(), cobra.ShellCompDirectiveNoFileComp))
	return c
}

// payloadOptions are the flags that choose the body.
type payloadOptions struct {
	file, text, provider, event string
	set                         []string
}

func (p *payloadOptions) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&p.file, "payload-file", "", "file with the body; - reads standard input")
	f.StringVarP(&p.text, "payload", "d", "", "the body")
	f.StringVar(&p.provider, "provider", "", "take a sample payload of this provider (triphammer samples list)")
	f.StringVar(&p.event, "event", "", "which sample payload; default: the provider's first")
	f.StringArrayVar(&p.set, "set", nil, "change the payload: path=value, such as head_commit.id=7 or labels.0.name=bug")
	c.MarkFlagsMutuallyExclusive("payload", "payload-file", "provider")
	_ = c.RegisterFlagCompletionFunc("provider", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return sampleProviders(), cobra.ShellCompDirectiveNoFileComp
	})
	_ = c.RegisterFlagCompletionFunc("event", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return sampleEvents(p.provider), cobra.ShellCompDirectiveNoFileComp
	})
}

func headerFlag(c *cobra.Command, into *[]string) {
	c.Flags().StringArrayVarP(into, "header", "H", nil, "further header, such as 'X-Event-Id: 7'")
}

// addHeaders adds the headers of headerFlag.
func addHeaders(header http.Header, given []string) error {
	for _, h := range given {
		name, value, ok := strings.Cut(h, ":")
		if !ok {
			return exit.With(exit.Usage, "--header %q is not of the form Name: value", h)
		}
		if !signature.IsHeaderName(strings.TrimSpace(name)) {
			return exit.With(exit.Usage, "--header %q: %q is no header name", h, strings.TrimSpace(name))
		}
		header.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	return nil
}

// given tells whether the flags choose a body.
func (p *payloadOptions) given(c *cobra.Command) bool {
	return c.Flags().Changed("payload") || p.file != "" || p.provider != "" || p.event != "" || len(p.set) > 0
}

// tampers are the kinds of forgery that a receiver must notice.
var tampers = []string{"body", "signature", "timestamp", "secret"}

// Message is a delivery to send.
type Message struct {
	Webhook *api.Webhook
	Body    []byte
	Secret  string
	Header  http.Header
	Tamper  string // one of tampers, or empty
	Stands  string // what stands for the secret in a curl command; empty: "$SECRET"
}

// request makes the request of a genuine sender, or a forged one.
func (m *Message) request(ctx context.Context) (*http.Request, error) {
	r := &signature.Request{
		Method: http.MethodPost, Header: m.Header.Clone(), Body: bytes.Clone(m.Body), Now: term.Now(),
		URL: strings.ReplaceAll(m.Webhook.URL, "{token}", url.PathEscape(m.Secret)),
	}
	if r.Header == nil {
		r.Header = http.Header{}
	}
	if r.Header.Get("Content-Type") == "" {
		r.Header.Set("Content-Type", "application/json")
	}
	secret, names := m.Secret, []string{"Authorization"}
	if m.Tamper == "secret" {
		secret += "x"
		r.URL = strings.ReplaceAll(m.Webhook.URL, "{token}", url.PathEscape(secret))
	}
	def := factory.Webhook{AuthMode: factory.AuthMode(m.Webhook.AuthMode)}
	if def.AuthMode == factory.Signature {
		scheme, err := schemeOf(m.Webhook)
		if err != nil {
			return nil, err
		}
		if m.Tamper == "timestamp" {
			if scheme.Tolerance == 0 {
				return nil, exit.With(exit.Usage, "--tamper timestamp: %s signs no timestamp that is held against the clock", scheme.Name)
			}
			r.Now = r.Now.Add(-scheme.Tolerance - time.Hour)
		}
		if m.Tamper == "body" && !scheme.BindsBody() {
			return nil, exit.With(exit.Usage, "--tamper body: %s does not prove the body", scheme.Name)
		}
		def.Scheme, names = scheme, scheme.CredentialHeaders()
	}
	if err := def.Sign(secret, r); err != nil && m.Tamper != "secret" {
		return nil, exit.With(exit.Usage, "%w", err)
	} else if err != nil {
		return nil, exit.With(exit.Usage, "--tamper secret: %s takes no secret with a character more", def.Scheme.Name)
	}
	switch {
	case m.Tamper == "body" && m.Webhook.AuthMode == "signature":
		r.Body = append(r.Body, ' ')
	case m.Tamper == "signature" && m.Webhook.AuthMode != "url_token":
		if !spoil(r.Header, names) {
			return nil, exit.With(exit.Usage, "--tamper signature: the proof is in no header")
		}
	case m.Tamper != "" && m.Tamper != "secret" && m.Webhook.AuthMode != "signature":
		return nil, exit.With(exit.Usage, "--tamper %s: a webhook with authMode %s proves its sender by the secret alone", m.Tamper, m.Webhook.AuthMode)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.URL, bytes.NewReader(r.Body))
	if err != nil {
		return nil, exit.With(exit.Usage, "the webhook's address cannot be used")
	}
	req.Header = r.Header
	return req, nil
}

func schemeOf(w *api.Webhook) (*signature.Scheme, error) {
	scheme, ok := signature.Lookup(w.SignatureScheme)
	if !ok {
		return nil, exit.With(exit.Usage, "this version cannot sign as %q does", w.SignatureScheme)
	}
	if w.Signature == nil {
		return scheme, nil
	}
	return scheme.With(*w.Signature)
}

// spoil changes a letter or digit near the end of each credential.
func spoil(header http.Header, names []string) (spoiled bool) {
	for _, name := range names {
		value := []byte(header.Get(name))
		for i := len(value) - 2; i >= 0; i-- { // the last character of base64 may be insignificant
			if c := value[i]; c >= '0' && c <= '9' || c >= 'a' && c <= 'z' {
				value[i] = '0'
				if c == '0' {
					value[i] = '1'
				}
				header.Set(name, string(value))
				spoiled = true
				break
			}
		}
	}
	return spoiled
}

// senderClient makes a client that follows no redirects, like real senders. A redirect
// would send the credential to another address, or turn the POST into a GET.
func senderClient(timeout time.Duration) *http.Client {
	return &http.Client{
		Timeout:       timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Post sends the delivery.
func (m *Message) Post(ctx context.Context, client *http.Client) (status int, answer []byte, header http.Header, err error) {
	req, err := m.request(ctx)
	if err != nil {
		return 0, nil, nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		if failed := (*url.Error)(nil); errors.As(err, &failed) {
			err = failed.Err // without the address, which may hold the token
		}
		return 0, nil, nil, exit.With(exit.Unreachable, "the server cannot be reached at %s: %w", m.Webhook.URL, err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err = io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	return resp.StatusCode, answer, resp.Header, err
}

// Curl is the request as a curl command. If the request holds the secret itself, the
// command has $SECRET in its place.
func (m *Message) Curl(ctx context.Context) (string, error) {
	standIn, basic := secret.RandomText(24), false
	masked := *m
	switch m.Webhook.AuthMode {
	case "signature":
		scheme, err := schemeOf(m.Webhook)
		if err != nil {
			return "", err
		}
		basic = scheme.Algorithm == signature.Basic
		if basic {
			standIn = "user:" + standIn
		}
		if basic || scheme.Algorithm == signature.Token {
			masked.Secret = standIn
		}
	default:
		masked.Secret = standIn
	}
	req, err := masked.request(ctx)
	if err != nil {
		return "", err
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return "", err
	}
	variable := cmp.Or(m.Stands, `"$SECRET"`)
	quote := func(s string) string {
		parts := strings.Split(s, standIn)
		for i, part := range parts {
			if part != "" || len(parts) == 1 {
				parts[i] = gitrepo.ShellQuote(part)
			}
		}
		return strings.Join(parts, variable)
	}
	if bytes.IndexByte(body, 0) >= 0 {
		return "", exit.With(exit.Usage, "--dry-run: the body has a zero byte, which no command line can hold")
	}
	var b strings.Builder
	b.WriteString("curl -X POST ")
	if address := req.URL.String(); strings.ContainsAny(address, "[]{}") {
		b.WriteString("--globoff " + quote(address)) // curl would expand these characters to several addresses
	} else {
		b.WriteString(quote(address))
	}
	for _, name := range slices.Sorted(maps.Keys(req.Header)) {
		value := req.Header.Get(name)
		if basic && value == "Basic "+base64.StdEncoding.EncodeToString([]byte(standIn)) {
			b.WriteString(" \\\n  -u " + variable)
			continue
		}
		line := name + ": " + value
		if value == "" {
			line = name + ";" // curl sends an empty header only with a semicolon
		}
		fmt.Fprintf(&b, " \\\n  -H %s", quote(line))
	}
	// --data-binary would take a body that begins with @ for the name of a file.
	fmt.Fprintf(&b, " \\\n  --data-raw %s", quote(string(body)))
	return b.String(), nil
}

func (o *sendOptions) send(c *cobra.Command, args []string) error {
	if o.tamper != "" && !slices.Contains(tampers, o.tamper) {
		return exit.With(exit.Usage, "--tamper %s: it can be %s", o.tamper, strings.Join(tampers, ", "))
	}
	if o.count < 1 {
		return exit.With(exit.Usage, "--count is 1 or more")
	}
	pause, err := o.pause()
	if err != nil {
		return err
	}
	if o.wait && (o.url != "" || o.tamper != "" || o.dry) {
		return exit.With(exit.Usage, "--wait goes with a webhook of a server, and neither with --tamper nor with --dry-run: else no run is known")
	}
	w, cl, err := o.to(c, args)
	if err != nil {
		return err
	}
	if cl != nil {
		defer cl.Close()
	}
	if w.Connect != "" && w.SecretName == "" {
		return exit.With(exit.Usage, "the webhook %s takes no requests, because its deliveries come over a connection: send a test with triphammer webhooks test %[1]s", w.Name)
	}
	m := &Message{Webhook: w, Tamper: o.tamper, Header: http.Header{}}
	o.payload.ofSender(c, w)
	if m.Body, err = o.payload.body(c, m.Header); err != nil {
		return err
	}
	if !o.dry || w.AuthMode == "signature" {
		if m.Secret, err = o.secret(c, w); err != nil {
			return err
		}
	}
	if err := addHeaders(m.Header, o.headers); err != nil {
		return err
	}
	if o.dry {
		text, err := m.Curl(c.Context())
		if err == nil {
			_, err = fmt.Fprintln(c.OutOrStdout(), text)
		}
		return err
	}
	want := http.StatusAccepted
	if o.tamper != "" {
		want = http.StatusUnauthorized
	}
	all, err := m.sendAll(c, o, pause)
	if err != nil {
		return err
	}
	return o.report(c, cl, all, want)
}

// sendAll sends the deliveries, and prints the answers for people as they come.
func (m *Message) sendAll(c *cobra.Command, o *sendOptions, pause time.Duration) (all []sent, err error) {
	client := senderClient(o.timeout)
	statuses := make(map[int]int)
	ticker := time.NewTicker(max(pause, 1))
	defer ticker.Stop()
	idHeader := cmp.Or(m.Webhook.DeliveryIDHeader, factory.SenderIDHeader)
	for i := range o.count {
		if i > 0 && pause > 0 {
			select {
			case <-c.Context().Done():
				return all, c.Context().Err()
			case <-ticker.C:
			}
		}
		if o.count > 1 && m.Header.Get(idHeader) == "" || i > 0 {
			m.Header.Set(idHeader, "send-"+secret.RandomText(12))
		}
		status, answer, header, err := m.Post(c.Context(), client)
		if err != nil {
			return all, err
		}
		statuses[status]++
		if term.IsTable(c) {
			fmt.Fprintf(term.ForPeople(c, c.OutOrStdout()), "%d %s\n", status, strings.TrimSpace(string(answer)))
		}
		all = append(all, sentOf(status, answer))
		if after := header.Get("Retry-After"); after != "" {
			fmt.Fprintf(term.ForPeople(c, c.ErrOrStderr()), "Retry-After: %s\n", after)
		}
	}
	if o.count > 1 {
		parts := terms.Each(slices.Sorted(maps.Keys(statuses)), func(status int) string { return fmt.Sprintf("%d with %d", statuses[status], status) })
		fmt.Fprintf(c.ErrOrStderr(), "%d sent: %s\n", o.count, strings.Join(parts, ", "))
	}
	return all, nil
}

// to is the webhook to which deliveries go: one of a server, whose client the caller closes, or
// one made from --url.
func (o *sendOptions) to(c *cobra.Command, args []string) (w *api.Webhook, cl *Client, err error) {
	switch {
	case o.url == "" && o.scheme != "":
		return nil, nil, exit.With(exit.Usage, "--scheme goes with --url: a webhook has its own")
	case o.url == "" && len(args) == 0:
		return nil, nil, exit.With(exit.Usage, "which webhook? Name it, or give --url")
	case o.url == "":
		return findWebhook(c, args[0], true)
	case len(args) > 0:
		return nil, nil, exit.With(exit.Usage, "a webhook and --url exclude each other")
	}
	if u, err := url.Parse(o.url); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, nil, exit.With(exit.Usage, "--url %q is not an address such as https://hammer.example.com/webhooks/w/whk_…", o.url)
	}
	w = &api.Webhook{URL: o.url, AuthMode: "token"}
	if o.scheme != "" {
		w.AuthMode, w.SignatureScheme = "signature", o.scheme
	}
	return w, nil, nil
}

// pause is the time between two deliveries.
func (o *sendOptions) pause() (time.Duration, error) {
	if o.rate == "" {
		return 0, nil
	}
	number, unit, _ := strings.Cut(o.rate, "/")
	per := map[string]time.Duration{"": time.Second, "s": time.Second, "m": time.Minute, "h": time.Hour}[unit]
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || n <= 0 || per == 0 {
		return 0, exit.With(exit.Usage, "--rate %q is not such as 10/s or 60/m", o.rate)
	}
	return time.Duration(float64(per) / n), nil
}

// ofSender takes the sample that the flags name from the sender of a webhook, unless they name
// another provider or a payload.
func (p *payloadOptions) ofSender(c *cobra.Command, w *api.Webhook) {
	sample := p.event != "" || len(p.set) > 0
	if sample && !c.Flags().Changed("payload") && p.file == "" && p.provider == "" && len(signature.SamplesOf(w.SignatureScheme)) > 0 {
		p.provider = w.SignatureScheme
	}
}

func (p *payloadOptions) body(c *cobra.Command, header http.Header) ([]byte, error) {
	var body []byte
	var err error
	switch {
	case p.event != "" && p.provider == "":
		return nil, exit.With(exit.Usage, "--event goes with --provider: there is no sample of this webhook's sender")
	case p.provider != "":
		s, err := FindSample(p.provider, p.event)
		if err != nil {
			return nil, err
		}
		for name, value := range s.Headers {
			header.Set(name, value)
		}
		body = s.Body
	case p.file == "-":
		body, err = io.ReadAll(c.InOrStdin())
	case p.file != "":
		if body, err = os.ReadFile(p.file); err != nil {
			err = exit.With(exit.Usage, "--payload-file: %w", err)
		}
	case c.Flags().Changed("payload"):
		body = []byte(p.text)
	default:
		body = signature.PlainSample(term.Now()).Body
	}
	if err != nil || len(p.set) == 0 {
		return body, err
	}
	return WithValues(body, p.set)
}

// WithValues sets values in a JSON body.
func WithValues(body []byte, sets []string) ([]byte, error) {
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber() // keep numbers as they are written
	var root any
	if err := decoder.Decode(&root); err != nil {
		return nil, exit.With(exit.Usage, "--set: the payload is not JSON: %w", err)
	}
	for _, set := range sets {
		path, text, ok := strings.Cut(set, "=")
		if !ok || path == "" {
			return nil, exit.With(exit.Usage, "--set %q is not of the form path=value", set)
		}
		var value any = text // text that is not JSON is a string
		if json.Valid([]byte(text)) {
			value = json.RawMessage(text)
		}
		var err error
		if root, err = setAt(root, strings.Split(path, "."), value); err != nil {
			return nil, exit.With(exit.Usage, "--set %s: %w", path, err)
		}
	}
	return json.Marshal(root)
}

func setAt(node any, path []string, value any) (any, error) {
	if len(path) == 0 {
		return value, nil
	}
	switch node := node.(type) {
	case map[string]any:
		below, err := setAt(node[path[0]], path[1:], value)
		node[path[0]] = below
		return node, err
	case []any:
		i, err := strconv.Atoi(path[0])
		if err != nil || i < 0 || i >= len(node) {
			return nil, fmt.Errorf("%q is no place in a list of %d", path[0], len(node))
		}
		node[i], err = setAt(node[i], path[1:], value)
		return node, err
	case nil:
		return setAt(map[string]any{}, path, value)
	}
	return nil, fmt.Errorf("%q is below a value that has no keys", path[0])
}

// secret is the secret of a webhook: the one that is given, or else the one that dev made up, as
// long as nobody has set another.
func (o *sendOptions) secret(c *cobra.Command, w *api.Webhook) (string, error) {
	value, err := secretVariable("TRIPHAMMER_WEBHOOK_SECRET")
	if err == nil && value == "" && o.secretFile == "" && w.SecretGeneration == 1 {
		if t, err := TargetOf(c); err == nil && t.isDev() {
			if made, err := here.MadeSecret(t.Data, w.SecretName); made != "" || err != nil {
				return made, err
			}
		}
	}
	return sendSecret(c, o.secretFile)
}

// sendSecret reads the secret of a webhook from a file, or from its variable if no file is
// named.
func sendSecret(c *cobra.Command, file string) (string, error) {
	if file != "" {
		f, err := os.Open(file)
		if err != nil {
			return "", exit.With(exit.Usage, "--secret-file: %w", err)
		}
		defer func() { _ = f.Close() }()
		return readSecret(c.Context(), f, c.ErrOrStderr(), "the webhook")
	}
	value, err := secretVariable("TRIPHAMMER_WEBHOOK_SECRET")
	if err == nil && value == "" {
		return "", exit.With(exit.Usage,
			"the webhook's secret is needed: --secret-file FILE, or TRIPHAMMER_WEBHOOK_SECRET. Without it, the server sends: triphammer webhooks test NAME")
	}
	return value, err
}
