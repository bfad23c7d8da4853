package host

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"triphammer/applier"
	"triphammer/applier/gitrepo"
	"triphammer/cmd/triphammer/client"
	"triphammer/cmd/triphammer/client/exit"
	"triphammer/cmd/triphammer/client/settings"
	"triphammer/cmd/triphammer/client/term"
	"triphammer/factory"
	"triphammer/schema"
	"triphammer/server/api"
	"triphammer/server/secret"
	"triphammer/server/terms"
)

func devCommand() *cobra.Command {
	o := &devOptions{}
	c := &cobra.Command{
		Use:   "dev [DIR]",
		Short: "Serve a working tree here, and show what happens",
		Long: `Serve the definitions in DIR (default: this folder) from the working tree, applying each change that is saved. Secrets
with which senders prove themselves are made up if they do not exist. Without the other secrets of webhooks it goes, too:
then nobody is asked or told, and dev shows what would be told. One test delivery is sent, authenticated as its sender
would, unless its run would be answered at the sender.

Then there is a line for each delivery, with its belt and why it ran or not, for each run that has ended, with what is
told of it, and for each save, with its findings. Ctrl-C ends it. Other commands find this server by themselves in DIR and below: send, open,
deliveries replay.

With --once it prints the belt and the run of the test delivery, and ends with 0 if that has SUCCEEDED.`,
		Example: `  triphammer dev
  triphammer dev --webhook github --port 9000
  triphammer dev --no-delivery --base-url https://laptop.example.com`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return dev(c, args, o) },
	}
	f := c.Flags()
	o.sharedFlags(f, devListen)
	settings.Help(c)
	f.IntVar(&o.port, "port", 0, "port to listen on at 127.0.0.1; 0: any free one (default: that of --listen, or any if it is taken)")
	f.StringVar(&o.data, "data", "", "data directory (default: DIR/.triphammer/data)")
	f.StringVar(&o.webhook, "webhook", "", "webhook to send the test delivery to (default: that of the first filter test)")
	f.BoolVar(&o.silent, "no-delivery", false, "send no test delivery")
	f.BoolVar(&o.show, "show-secrets", false, "print the secrets that dev has made up itself")
	f.BoolVar(&o.once, "once", false, "end when the run of the test delivery has finished")
	f.BoolVar(&o.verbose, "verbose", false, "print the server's log")
	return c
}

// devListen is the address of dev, as that of serve: a tunnel can rely on it.
const devListen = "127.0.0.1:8787"

type devOptions struct {
	serving
	once, verbose, silent, show bool
	port                        int
	webhook                     string
	saves                       saves
}

// settleListen chooses the address. A port that nobody asked for, and that is taken, is
// replaced by any free one.
func (o *devOptions) settleListen(c *cobra.Command, listenFlag, portFlag bool) error {
	f := c.Flags()
	switch {
	case listenFlag && portFlag:
		return exit.With(exit.Usage, "--listen and --port exclude each other")
	case portFlag || f.Changed("port") && !listenFlag:
		o.listen = fmt.Sprintf("127.0.0.1:%d", o.port)
	case f.Changed("listen"):
	case o.once:
		o.listen = "127.0.0.1:0"
	default:
		l, err := net.Listen("tcp", o.listen)
		if err != nil {
			fmt.Fprintf(c.ErrOrStderr(), "%s is taken, so this listens on another port; --port N chooses one.\n", o.listen)
			o.listen = "127.0.0.1:0"
			return nil
		}
		return l.Close()
	}
	return nil
}

const devTimeout = 10 * time.Minute

func dev(c *cobra.Command, args []string, o *devOptions) error {
	// TRIPHAMMER_WEBHOOK is a variable of runs, and not meant here.
	listenFlag, portFlag, webhook := c.Flags().Changed("listen"), c.Flags().Changed("port"), o.webhook
	if err := settings.FromEnvironment(c.Flags(), nil); err != nil {
		return err
	}
	o.webhook = webhook
	if o.once && o.silent {
		return exit.With(exit.Usage, "--once and --no-delivery exclude each other")
	}
	if err := o.settleListen(c, listenFlag, portFlag); err != nil {
		return err
	}
	dir := client.PathArgument(args)
	if _, err := os.Stat(filepath.Join(dir, "factory.yaml")); err != nil {
		return exit.With(exit.Usage, "%s holds no factory.yaml; write a factory to begin with: triphammer init DIR", dir)
	}
	source, err := gitrepo.OpenWorkTree(dir)
	if err != nil {
		return exit.With(exit.Usage, "%w", err)
	}
	defer func() { _ = source.Close() }()
	s := &o.serving
	s.factories, s.logger = []factoryOptions{{name: client.FactoryName, source: source, path: ".", watch: o.saves.add, trial: true}}, slog.New(slog.DiscardHandler)
	if o.verbose {
		s.logger = serverLog(c)
	}
	if s.data == "" {
		own := filepath.Join(dir, DevFolder)
		s.data, s.walls.Around = filepath.Join(own, "data"), []string{own}
	}
	if err := s.open(c); err != nil {
		return err
	}
	if err := s.refuseServed(c.Context()); err != nil {
		return errors.Join(err, s.close())
	}
	s.in.openWalls(c.ErrOrStderr())
	ctx, stop := context.WithCancel(c.Context())
	defer stop()
	// The server outlives ctx until the feed has shown what came last.
	serverContext, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	served := make(chan error, 1)
	go func() {
		err := s.run(serverContext)
		stop()
		served <- err
	}()
	d := &devServing{devOptions: o, c: c, source: source, in: s.in}
	var demoErr error
	if o.once {
		demoErr = d.demonstrate(ctx)
	} else if err := d.live(ctx); ctx.Err() == nil { // else somebody has ended it
		demoErr = err
	}
	end()
	if err := <-served; err != nil {
		return err
	}
	return demoErr
}

// refuseServed returns an error if the data directory belongs to a server, which
// TRIPHAMMER_DATA may name. There, dev would invent secrets and replace the definitions
// that serve.
func (s *serving) refuseServed(ctx context.Context) error {
	names, err := s.in.store.Applies.Factories(ctx)
	if err != nil {
		return err
	}
	for _, name := range names {
		last, err := s.in.store.Applies.Last(ctx, name, "")
		if err != nil {
			return err
		}
		if last.Branch != "" {
			return exit.With(exit.Conflict, "%s is the data directory of a server on %s; give dev its own: --data DIR", s.in.dir, last.Repository)
		}
	}
	return nil
}

// devServing is dev while it serves.
type devServing struct {
	*devOptions
	c      *cobra.Command
	source *gitrepo.WorkTree
	in     *instance
	cl     *client.Client
}

// load reads the definitions. If they are not valid, it prints the findings, and waits for a
// save that repairs them, unless dev ends after one delivery. It returns nil once ctx is done.
func (d *devServing) load(ctx context.Context, out io.Writer) (*factory.Factory, error) {
	for shown := ""; ; {
		f, report, err := factory.Load(ctx, d.source.FS(), factory.Options{})
		switch {
		case ctx.Err() != nil:
			return nil, nil
		case err != nil:
			return nil, exit.With(exit.Usage, "%w", err)
		case !report.Diagnostics.HasErrors():
			return f, nil
		}
		raw, _ := json.Marshal(report.Diagnostics) // plain data always encodes
		if string(raw) != shown {
			client.PrintDiagnostics(out, raw)
			if d.once {
				return nil, exit.With(exit.Bad, "the definitions are not valid; repair them, and run dev again")
			}
			fmt.Fprintln(out, "The definitions are not valid. Save them repaired: this goes on then. Ctrl-C ends it.")
			shown = string(raw)
		}
		select {
		case <-ctx.Done():
			return nil, nil
		case <-time.After(feedTime):
		}
	}
}

// maxRefused bounds how often prepare begins again with the same files because they were refused,
// and are valid when it looks at them. Somebody was saving then, unless that is so each time.
const maxRefused = 25

// errRefused is the error of waitApplied if the definitions are not valid.
var errRefused = errors.New("the definitions are not valid")

// prepare waits until the working tree serves, and makes the delivery to send. Without a
// factory, ctx is done.
func (d *devServing) prepare(ctx context.Context, out io.Writer) (*client.Message, *factory.Factory, error) {
	d.cl = &client.Client{HTTP: &http.Client{Transport: handlerTransport{d.in.server.LocalHandler(client.UserName())}}, Base: "http://local"}
	for try, last := 1, ""; ; try++ {
		m, f, err := d.prepareOnce(ctx, out)
		if d.once || !errors.Is(err, errRefused) {
			return m, f, err
		}
		head, unread := d.source.Head(ctx)
		if unread != nil || try >= maxRefused && head.Hash == last {
			return nil, nil, err
		}
		if head.Hash != last {
			try, last = 1, head.Hash
		}
		select {
		case <-ctx.Done():
			return nil, nil, nil
		case <-time.After(feedTime):
		}
	}
}

func (d *devServing) prepareOnce(ctx context.Context, out io.Writer) (*client.Message, *factory.Factory, error) {
	f, err := d.load(ctx, out)
	if err != nil || f == nil {
		return nil, nil, err
	}
	if _, err := ensureSecrets(ctx, d.cl, f, d.in.dir); err != nil {
		return nil, nil, err
	}
	if err := waitApplied(ctx, d.in, d.source); err != nil {
		return nil, nil, err
	}
	// What serves may be of an earlier dev, and have a secret that was replaced since.
	if _, err := d.in.appliers[0].Apply(ctx, "dev"); err != nil {
		return nil, nil, exit.With(exit.Usage, "%w", err)
	}
	if !d.once && d.devOptions.webhook == "" && !slices.ContainsFunc(f.Webhooks, takesRequests) {
		return nil, f, nil
	}
	w, body, header, err := testMessage(ctx, d.cl, f, d.devOptions.webhook)
	if err != nil {
		return nil, nil, err
	}
	stored, err := d.in.store.Secrets.Newest(ctx, []string{w.SecretName})
	if err != nil {
		return nil, nil, err
	}
	header.Set("X-Service-Delivery-Id", "dev-"+secret.RandomText(12))
	return &client.Message{Webhook: w, Body: body, Secret: stored[w.SecretName].Value.Reveal(), Header: header}, f, nil
}

// demonstrate sends one delivery, and prints its outcome and its runs.
func (d *devServing) demonstrate(ctx context.Context) error {
	out := io.Writer(term.ForPeople(d.c, d.c.OutOrStdout()))
	m, f, err := d.prepare(ctx, out)
	if err != nil || f == nil {
		return err
	}
	if err := d.showMade(ctx, f, out); err != nil {
		return err
	}
	d.showUnset(out)
	fmt.Fprintf(out, "Sending to %s (%s):\n  %s\n", m.Webhook.URL, strings.TrimSpace(m.Webhook.AuthMode+" "+m.Webhook.SignatureScheme), m.Body)
	status, answer, _, err := m.Post(ctx, http.DefaultClient)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d %s\n\nThe belt:\n", status, strings.TrimSpace(string(answer)))
	var accepted struct {
		DeliveryID string `json:"delivery_id"`
	}
	if json.Unmarshal(answer, &accepted) != nil || status != http.StatusAccepted {
		return exit.Silently(exit.Bad)
	}
	return showOutcome(d.c, d.cl, accepted.DeliveryID, out)
}

// live sends one delivery unless nobody wants it, and shows what happens until ctx is done.
func (d *devServing) live(ctx context.Context) error {
	out := io.Writer(term.ForPeople(d.c, d.c.OutOrStdout()))
	m, f, err := d.prepare(ctx, out)
	if err != nil || f == nil {
		return err
	}
	show := newFeed(out, d.in, d.cl, d.source, &d.saves)
	for _, w := range f.Webhooks {
		show.column = max(show.column, min(len(w.Name), 24))
	}
	if err := show.begin(ctx); err != nil {
		return err
	}
	link, err := d.link(ctx)
	if err != nil {
		return err
	}
	repository, _ := d.source.Describe()
	fmt.Fprintf(out, "Serving %s: %s, %s. Each change that is saved is applied.\n\nPages   %s  (works once)\n", repository,
		terms.Counted(len(f.Webhooks), "webhook"), terms.Counted(len(f.Automations), "automation"), link)
	if err := d.showMade(ctx, f, out); err != nil {
		return err
	}
	d.showUnset(out)
	if m != nil {
		if err := d.showCommand(ctx, f, m, out); err != nil {
			return err
		}
	}
	sends := m != nil && !d.silent
	if told := d.told(m); sends && told != "" {
		fmt.Fprintf(out, "\nThe test delivery is not sent by itself: %s would be told of its run.\n", told)
		sends = false
	}
	fmt.Fprint(out, "\nCtrl-C ends it.\n\n")
	if sends {
		status, answer, _, err := m.Post(ctx, http.DefaultClient)
		if err != nil {
			return err
		}
		if status != http.StatusAccepted {
			show.say(fmt.Sprintf("the test delivery to %s was answered %d %s", m.Webhook.Name, status, strings.TrimSpace(string(answer))))
		}
	}
	return show.follow(ctx)
}

// showUnset says which secrets are not set, what goes without them, and how to set them.
func (d *devServing) showUnset(out io.Writer) {
	last := d.in.appliers[0].State().LastApply
	if last == nil {
		return
	}
	for _, found := range last.Diagnostics {
		if found.Code == schema.MissingSecret {
			fmt.Fprintf(out, "Lacks   %s (%s)\n        %s\n", found.Message, found.Path, found.Hint)
		}
	}
}

// told is the sender that is told of runs which a delivery could start, or that does what their agents
// ask for. It is empty if nothing leaves.
func (d *devServing) told(m *client.Message) string {
	if m == nil {
		return ""
	}
	hook, ok := d.in.live.Webhook(m.Webhook.UID)
	if ok && hook.NoCredential() == "" && slices.ContainsFunc(hook.Automations, func(a *applier.Automation) bool {
		kinds, _ := a.Def.Reports(hook.Def)
		return len(kinds) > 0 || len(a.Def.Outputs) > 0
	}) {
		return hook.Def.Sender().Title
	}
	return ""
}

func (d *devServing) link(ctx context.Context) (string, error) {
	var l api.LoginLink
	err := d.cl.Call(ctx, http.MethodPost, "/auth/links", nil, &l)
	return l.URL, err
}

// madeFile is the file with a secret that dev made up; empty if it is no longer the value that
// serves.
func (d *devServing) madeFile(ctx context.Context, name string) (file, value string, err error) {
	file = filepath.Join(d.in.dir, MadeFolder, name)
	if value, err = madeSecret(d.in.dir, name); value == "" || err != nil {
		return "", "", err
	}
	stored, err := d.in.store.Secrets.Newest(ctx, []string{name})
	if err != nil || stored[name].Value.Reveal() != value {
		return "", "", err
	}
	return file, value, nil
}

// showMade prints the secrets that dev made up, if somebody asks. Those that people have set
// are not its own to show.
func (d *devServing) showMade(ctx context.Context, f *factory.Factory, out io.Writer) error {
	if !d.show {
		return nil
	}
	seen := make(map[string]bool)
	for _, w := range f.Webhooks {
		if w.SecretName == "" || seen[w.SecretName] {
			continue
		}
		seen[w.SecretName] = true
		file, value, err := d.madeFile(ctx, w.SecretName)
		if err != nil {
			return err
		}
		if file == "" {
			value = "(set by somebody, so not shown)"
		}
		fmt.Fprintf(out, "Secret  %s  %s\n", w.SecretName, value)
	}
	return nil
}

// longBody is the longest body that is shown in a command.
const longBody = 300

// showCommand prints a command that sends a delivery, and how senders elsewhere get here.
func (d *devServing) showCommand(ctx context.Context, f *factory.Factory, m *client.Message, out io.Writer) error {
	file, _, err := d.madeFile(ctx, m.Webhook.SecretName)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "\nSend a delivery to %s:\n\n", m.Webhook.Name)
	if m.Webhook.AuthMode == "signature" {
		file = cmp.Or(file, "FILE")
		fmt.Fprintf(out, "  triphammer send %s --data %s --secret-file %s", gitrepo.ShellQuote(m.Webhook.Name), gitrepo.ShellQuote(d.in.dir), gitrepo.ShellQuote(file))
		for _, name := range slices.Sorted(maps.Keys(m.Header)) {
			if name != "X-Service-Delivery-Id" {
				fmt.Fprintf(out, " -H %s", gitrepo.ShellQuote(name+": "+m.Header.Get(name)))
			}
		}
		i := slices.IndexFunc(f.Tests, func(t *factory.Test) bool { return t.File != "" && bytes.Equal(t.Payload, m.Body) })
		switch folder, _ := d.source.Describe(); {
		case i >= 0:
			fmt.Fprintf(out, " --payload-file %s", gitrepo.ShellQuote(filepath.Join(folder, f.Tests[i].File)))
		case len(m.Body) <= longBody:
			fmt.Fprintf(out, " --payload %s", gitrepo.ShellQuote(string(m.Body)))
		}
		fmt.Fprintln(out)
	} else {
		shown := *m
		shown.Header = m.Header.Clone()
		shown.Header.Del("X-Service-Delivery-Id")
		if len(shown.Body) > longBody {
			shown.Body = []byte(`{"event":"test"}`)
		}
		if file != "" {
			shown.Stands = `"$(cat ` + gitrepo.ShellQuote(file) + `)"`
		}
		text, err := shown.Curl(ctx)
		if err != nil {
			return err
		}
		fmt.Fprintln(out, "  "+strings.ReplaceAll(text, "\n", "\n  "))
	}
	fmt.Fprintf(out, "\nSenders on the internet reach it by a tunnel to http://%s, for the path /webhooks/w/ alone\n(--base-url takes its address; docs/first-webhook.md has the tunnels).\n", d.listeners.TCP.Addr())
	return nil
}

// secretTime is long enough for an apply that follows the secrets that dev makes up.
const secretTime = 5 * time.Second

// waitApplied waits until the content of the folder serves, which somebody may save again
// meanwhile. Until then, the definitions of an earlier dev may serve. It is called when the secrets
// exist that dev makes up.
func waitApplied(ctx context.Context, in *instance, source *gitrepo.WorkTree) error {
	since := Now()
	return client.WaitFor(ctx, time.Minute, "the definitions are not applied", func() (bool, error) {
		head, err := source.Head(ctx)
		if err != nil {
			return false, exit.With(exit.Usage, "%w", err)
		}
		state := in.appliers[0].State()
		if last := state.LastApply; last != nil && last.Commit.Hash == head.Hash && last.Outcome != applier.Applied {
			for _, d := range last.Diagnostics {
				// An apply that lacked a secret is tried again at once when the secret is set.
				if d.Severity == schema.Error && (d.Code != schema.MissingSecret || Now().Sub(since) > secretTime) {
					return false, exit.With(exit.Bad, "%w: %s: %s", errRefused, d.Path, d.Message)
				}
			}
		}
		return state.Applied != nil && state.Applied.Commit.Hash == head.Hash, nil
	})
}

// showOutcome prints the belt of a delivery and follows its runs to their end.
func showOutcome(c *cobra.Command, cl *client.Client, id string, out io.Writer) error {
	var d api.DeliveryDetail
	if err := cl.Get(c.Context(), "/deliveries/"+id, &d); err != nil {
		return err
	}
	d.RunBelts = nil // their transcripts follow
	if err := client.PrintDelivery(out, d); err != nil {
		return err
	}
	if len(d.Runs) == 0 {
		return exit.With(exit.Bad, "the test delivery started no run")
	}
	for _, run := range d.Runs {
		fmt.Fprintf(out, "\nRun %s:\n", run)
		if err := client.WatchRun(c, cl, run, devTimeout, term.NewTranscriptWriter(out, term.TranscriptView{})); err != nil {
			return err
		}
		r, err := client.AwaitTold(c.Context(), cl, run, devTimeout)
		if err != nil {
			return err
		}
		client.ShowTold(out, r)
	}
	return nil
}

// ensureSecrets invents a value for each secret that a webhook names and that does not
// exist. The values are not printed, but kept in the data directory for commands that send.
func ensureSecrets(ctx context.Context, cl *client.Client, f *factory.Factory, data string) (map[string]secret.Value, error) {
	var list struct {
		Secrets []api.Secret `json:"secrets"`
	}
	if err := cl.Get(ctx, "/secrets", &list); err != nil {
		return nil, err
	}
	have := make(map[string]bool)
	for _, s := range list.Secrets {
		have[s.Name] = true
	}
	made := make(map[string]secret.Value)
	for _, w := range f.Webhooks {
		if w.SecretName == "" || have[w.SecretName] {
			continue
		}
		have[w.SecretName] = true
		value := secret.RandomText(32)
		if w.Scheme != nil {
			value = w.Scheme.SecretFrom(value)
		}
		made[w.SecretName] = secret.New(value)
		if err := cl.Call(ctx, http.MethodPut, "/secrets/"+w.SecretName, api.SetSecret{Value: value}, nil); err != nil {
			return nil, err
		}
		folder := filepath.Join(data, MadeFolder)
		if err := errors.Join(os.MkdirAll(folder, 0o700), os.WriteFile(filepath.Join(folder, w.SecretName), []byte(value+"\n"), 0o600)); err != nil {
			return nil, exit.With(exit.Usage, "%w", err)
		}
	}
	return made, nil
}

// takesRequests tells whether a delivery can be sent to a webhook.
func takesRequests(w *factory.Webhook) bool { return w.Enabled && w.SecretName != "" }

// testMessage picks the delivery to send, to the named webhook if one is named. It is the
// payload of the first filter test that starts something, with its headers, or else a test
// event to the first webhook.
func testMessage(ctx context.Context, cl *client.Client, f *factory.Factory, wanted string) (*api.Webhook, []byte, http.Header, error) {
	name, body, header := wanted, []byte(`{"event":"test"}`), http.Header{}
	if w := f.Webhook(wanted); wanted != "" && (w == nil || !takesRequests(w)) {
		var names []string
		for _, w := range f.Webhooks {
			if takesRequests(w) {
				names = append(names, w.Name)
			}
		}
		return nil, nil, nil, exit.With(exit.NotFound, "--webhook %s: there is no such webhook that is enabled and takes requests; there are: %s", wanted, strings.Join(names, ", "))
	}
	for _, w := range f.Webhooks {
		if takesRequests(w) && name == "" {
			name = w.Name
		}
	}
	for _, t := range f.Tests {
		if w := f.Webhook(t.Webhook); w != nil && takesRequests(w) && t.Problem == "" && len(t.Expect) > 0 && (wanted == "" || wanted == t.Webhook) {
			name, body = t.Webhook, t.Payload
			for key, value := range t.Headers {
				header.Set(key, value)
			}
			break
		}
	}
	if name == "" {
		return nil, nil, nil, exit.With(exit.Bad, "the factory has no enabled webhook to send to")
	}
	w := &api.Webhook{}
	if err := cl.Get(ctx, "/webhooks/"+name, w); err != nil {
		return nil, nil, nil, err
	}
	return w, body, header, nil
}
