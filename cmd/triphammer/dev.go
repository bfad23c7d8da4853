package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"triphammer/applier"
	"triphammer/applier/gitrepo"
	"triphammer/factory"
	"triphammer/schema"
	"triphammer/server/api"
	"triphammer/server/secret"
	"triphammer/server/store"
)

func devCommand() *cobra.Command {
	o := &devOptions{}
	c := &cobra.Command{
		Use:   "dev [DIR]",
		Short: "Serve a working tree here, and send it one test delivery",
		Long: `Serve the definitions in DIR (default: this folder) from the working tree, applying each change that is saved. Secrets
that webhooks name and that do not exist are made up. One test delivery is sent, authenticated as its sender would;
its belt, its run and a link to the pages are printed. With --once it ends when that run has finished, with 0 if it
has SUCCEEDED.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return dev(c, args, o) },
	}
	f := c.Flags()
	o.sharedFlags(f, "127.0.0.1:0")
	f.StringVar(&o.data, "data", "", "data directory (default: DIR/.triphammer/data)")
	f.BoolVar(&o.once, "once", false, "end when the run of the test delivery has finished")
	f.BoolVar(&o.verbose, "verbose", false, "print the server's log")
	return c
}

type devOptions struct {
	serving
	once, verbose bool
}

const devTimeout = 10 * time.Minute

func dev(c *cobra.Command, args []string, o *devOptions) error {
	if err := fromEnvironment(c.Flags(), nil); err != nil {
		return err
	}
	dir := pathArgument(args)
	if _, err := os.Stat(filepath.Join(dir, "factory.yaml")); err != nil {
		return exitWith(exitUsage, "%s holds no factory.yaml; write a factory to begin with: triphammer init DIR", dir)
	}
	source, err := gitrepo.OpenWorkTree(dir)
	if err != nil {
		return exitWith(exitUsage, "%w", err)
	}
	defer func() { _ = source.Close() }()
	s := &o.serving
	s.factories, s.logger = []factoryOptions{{name: factoryName, source: source, path: "."}}, slog.New(slog.DiscardHandler)
	if o.verbose {
		s.logger = serverLog(c)
	}
	if s.data == "" {
		own := filepath.Join(dir, ".triphammer")
		s.data, s.walls.Around = filepath.Join(own, "data"), []string{own}
	}
	if err := s.open(c); err != nil {
		return err
	}
	if err := s.refuseServed(c.Context()); err != nil {
		return errors.Join(err, s.close())
	}
	if err := s.in.openWalls(c.ErrOrStderr()); err != nil {
		return errors.Join(err, s.close())
	}
	ctx, stop := context.WithCancel(c.Context())
	defer stop()
	served := make(chan error, 1)
	go func() { served <- s.run(ctx) }()
	demoErr := demonstrate(ctx, c, s.in, source, !o.once)
	if o.once || demoErr != nil {
		stop()
	} else {
		fmt.Fprintln(c.OutOrStdout(), "\nServing the working tree; each change that is saved is applied. Stop with Ctrl-C.")
	}
	if err := <-served; err != nil {
		return err
	}
	return demoErr
}

// refuseServed returns an error if the data directory belongs to a server, which
// TRIPHAMMER_DATA may name. There, dev would invent secrets and replace the definitions
// that serve.
func (s *serving) refuseServed(ctx context.Context) error {
	last, err := s.in.store.LastApply(ctx, factoryName, "")
	switch {
	case errors.Is(err, store.ErrNotFound) || err == nil && last.Branch == "":
		return nil
	case err != nil:
		return err
	}
	return exitWith(exitConflict, "%s is the data directory of a server on %s; give dev its own: --data DIR", s.in.dir, last.Repository)
}

// demonstrate sends one delivery, and prints its outcome and its runs.
func demonstrate(ctx context.Context, c *cobra.Command, in *instance, source *gitrepo.WorkTree, link bool) error {
	out := io.Writer(printable{c.OutOrStdout()})
	cl := &client{http: &http.Client{Transport: handlerTransport{in.server.LocalHandler(userName())}}, base: "http://local"}
	f, report, err := factory.Load(ctx, source.FS(), factory.Options{})
	if err != nil {
		return exitWith(exitUsage, "%w", err)
	}
	if report.Diagnostics.HasErrors() {
		raw, _ := json.Marshal(report.Diagnostics) // plain data always encodes
		printDiagnostics(out, raw)
		return exitWith(exitBad, "the definitions are not valid; repair them, and run dev again")
	}
	secrets, err := ensureSecrets(ctx, cl, f)
	if err != nil {
		return err
	}
	head, err := source.Head(ctx)
	if err != nil {
		return exitWith(exitUsage, "%w", err)
	}
	if err := waitApplied(ctx, in, head.Hash); err != nil {
		return err
	}
	w, body, err := testMessage(ctx, cl, f)
	if err != nil || w == nil {
		return err
	}
	value, ok := secrets[w.SecretName]
	if !ok {
		stored, err := in.store.NewestSecrets(ctx, []string{w.SecretName})
		if err != nil {
			return err
		}
		value = stored[w.SecretName].Value
	}
	m := &message{webhook: w, body: body, secret: value.Reveal(), header: http.Header{"X-Service-Delivery-Id": {"dev-" + secret.RandomText(12)}}}
	fmt.Fprintf(out, "Sending to %s (%s):\n  %s\n", w.URL, strings.TrimSpace(w.AuthMode+" "+w.SignatureScheme), body)
	status, answer, _, err := m.post(ctx, http.DefaultClient)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d %s\n\nThe belt:\n", status, strings.TrimSpace(string(answer)))
	var accepted struct {
		DeliveryID string `json:"delivery_id"`
	}
	if json.Unmarshal(answer, &accepted) != nil || status != http.StatusAccepted {
		return silently(exitBad)
	}
	if err := showOutcome(c, cl, accepted.DeliveryID, out); err != nil || !link {
		return err
	}
	var l api.LoginLink
	if err := cl.call(ctx, http.MethodPost, "/auth/links", nil, &l); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nThe pages: %s\n(a link that works once; triphammer auth login --data %s prints another)\n", l.URL, in.dir)
	return nil
}

// waitApplied waits until the present content of the folder serves. Until then, the
// definitions of an earlier dev may serve.
func waitApplied(ctx context.Context, in *instance, hash string) error {
	return waitFor(ctx, time.Minute, "the definitions are not applied", func() (bool, error) {
		state := in.appliers[0].State()
		if last := state.LastApply; last != nil && last.Commit.Hash == hash && last.Outcome != applier.Applied {
			for _, d := range last.Diagnostics {
				// An apply that lacked a secret is tried again, because the secret is set by
				// now.
				if d.Severity == schema.Error && d.Code != schema.MissingSecret {
					return false, exitWith(exitBad, "%s: %s", d.Path, d.Message)
				}
			}
		}
		return state.Applied != nil && state.Applied.Commit.Hash == hash, nil
	})
}

// showOutcome prints the belt of a delivery and follows its runs to their end.
func showOutcome(c *cobra.Command, cl *client, id string, out io.Writer) error {
	var d api.DeliveryDetail
	if err := cl.get(c.Context(), "/deliveries/"+id, &d); err != nil {
		return err
	}
	d.RunBelts = nil // their transcripts follow
	if err := printDelivery(out, d); err != nil {
		return err
	}
	if len(d.Runs) == 0 {
		return exitWith(exitBad, "the test delivery started no run")
	}
	for _, run := range d.Runs {
		fmt.Fprintf(out, "\nRun %s:\n", run)
		if err := watchRun(c, cl, run, devTimeout, newTranscriptWriter(out, transcriptView{})); err != nil {
			return err
		}
	}
	return nil
}

// ensureSecrets invents a value for each secret that a webhook names and that does not
// exist. The values are not printed.
func ensureSecrets(ctx context.Context, cl *client, f *factory.Factory) (map[string]secret.Value, error) {
	var list struct {
		Secrets []api.Secret `json:"secrets"`
	}
	if err := cl.get(ctx, "/secrets", &list); err != nil {
		return nil, err
	}
	have := make(map[string]bool)
	for _, s := range list.Secrets {
		have[s.Name] = true
	}
	made := make(map[string]secret.Value)
	for _, w := range f.Webhooks {
		if have[w.SecretName] {
			continue
		}
		have[w.SecretName] = true
		value := secret.RandomText(32)
		if w.Scheme != nil {
			value = w.Scheme.SecretFrom(value)
		}
		made[w.SecretName] = secret.New(value)
		if err := cl.call(ctx, http.MethodPut, "/secrets/"+w.SecretName, api.SetSecret{Value: value}, nil); err != nil {
			return nil, err
		}
	}
	return made, nil
}

// testMessage picks the delivery to send. It is the payload of the first filter test that
// starts something, or else a test event to the first webhook.
func testMessage(ctx context.Context, cl *client, f *factory.Factory) (*api.Webhook, []byte, error) {
	name, body := "", []byte(`{"event":"test"}`)
	for _, w := range f.Webhooks {
		if w.Enabled && name == "" {
			name = w.Name
		}
	}
	for _, t := range f.Tests {
		if w := f.Webhook(t.Webhook); w != nil && w.Enabled && t.Problem == "" && len(t.Expect) > 0 {
			name, body = t.Webhook, t.Payload
			break
		}
	}
	if name == "" {
		return nil, nil, exitWith(exitBad, "the factory has no enabled webhook to send to")
	}
	w := &api.Webhook{}
	if err := cl.get(ctx, "/webhooks/"+name, w); err != nil {
		return nil, nil, err
	}
	return w, body, nil
}
