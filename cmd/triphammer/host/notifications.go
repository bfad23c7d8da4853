package host

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/pflag"

	"triphammer/cmd/triphammer/client/exit"
	"triphammer/server/notify"
	"triphammer/server/store"
	"triphammer/server/tracing"
)

// notificationFlags are the settings for reports about commits.
func (f *factoryOptions) notificationFlags(set *pflag.FlagSet) {
	set.StringVar(&f.notify.Service, "commit-status", "",
		"service that gets the statuses "+notify.Apply+" and "+notify.Validate+" of each commit: "+strings.Join(notify.Forges(), ", "))
	set.StringVar(&f.notify.TokenFile, "commit-status-token-file", "", "file with a token that may write statuses; read for each")
	set.StringVar(&f.notify.Project.API, "commit-status-api", "", "address of the service's API, if --repo does not tell")
	set.StringVar(&f.notify.Project.Path, "commit-status-project", "", "repository on the service, such as team/factory, if --repo does not tell")
	set.StringVar(&f.notify.URL, "notify-url", "",
		"address that is told when the newest commit does not serve, and when it does again; if the address is a credential, use the variable or the file")
	set.StringVar(&f.notifySecret, "notify-secret", "", "managed secret that signs these messages as Standard Webhooks describes (base64)")
}

// endFlags are the settings for reports about ended runs, for all factories together.
func (s *serving) endFlags(set *pflag.FlagSet) {
	set.StringSliceVar(&s.ends.States, "notify-runs", nil, "states of ended runs that --notify-url is told about too: SUCCEEDED, FAILED, CANCELLED")
	set.StringSliceVar(&s.ends.Automations, "notify-automations", nil, "limit --notify-runs to the runs of these automations")
}

// tells tells whether applies are reported to anybody.
func (f *factoryOptions) tells() bool { return f.notify.Service != "" || f.notify.URL != "" }

// openNotifications checks and completes the settings for reports about commits.
func (f *factoryOptions) openNotifications() error {
	if !f.tells() {
		return nil
	}
	if err := f.checkHook(); err != nil {
		return err
	}
	cfg := &f.notify
	if (cfg.Service == "") != (cfg.TokenFile == "") {
		return exit.With(exit.Usage, "--commit-status and --commit-status-token-file go together")
	}
	if p := &cfg.Project; cfg.Service != "" {
		p.API, p.Path = strings.TrimSuffix(p.API, "/"), strings.Trim(p.Path, "/")
		if p.API == "" || p.Path == "" {
			repo, _ := f.source.Describe()
			derived, err := notify.ProjectOf(cfg.Service, repo)
			if err != nil {
				return exit.With(exit.Usage, "--commit-status: %w", err)
			}
			p.API, p.Path = cmp.Or(p.API, derived.API), cmp.Or(p.Path, derived.Path)
		}
	}
	trusted, err := roots(*f)
	if err != nil {
		return exit.With(exit.Usage, "%w", err)
	}
	cfg.Client = notify.NewClient(trusted)
	if _, err := (&notify.Teller{}).Commits(*cfg); err != nil {
		return exit.With(exit.Usage, "--commit-status: %w", err)
	}
	return nil
}

// checkHook checks the address for messages, if there is one.
func (f *factoryOptions) checkHook() error {
	if (f.notify.URL == "") != (f.notifySecret == "") {
		return exit.With(exit.Usage, "--notify-url and --notify-secret go together")
	}
	if u, err := url.Parse(f.notify.URL); f.notify.URL != "" && (err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "") {
		// The value is not repeated, because it may be a credential.
		return exit.With(exit.Usage, "--notify-url is not an address such as https://hooks.example.com/…")
	}
	return nil
}

// tellRuns checks and completes the settings for reports about ended runs. These go to the
// server's own --notify-url, even if a factory has another one.
func (s *serving) tellRuns() (err error) {
	wanted := &s.ends
	for _, state := range wanted.States {
		if !store.RunState(state).Terminal() {
			return exit.With(exit.Usage, "--notify-runs: %s is not how a run ends: SUCCEEDED, FAILED, CANCELLED", state)
		}
	}
	switch {
	case len(wanted.States) > 0 && s.factory.notify.URL == "":
		return exit.With(exit.Usage, "--notify-runs needs --notify-url, the address that is told")
	case len(wanted.Automations) > 0 && len(wanted.States) == 0:
		return exit.With(exit.Usage, "--notify-automations needs --notify-runs, the ends that are told")
	case len(wanted.States) == 0:
		return nil
	}
	wanted.URL, s.endsSecret = s.factory.notify.URL, s.factory.notifySecret
	trusted, err := roots(s.factory)
	if err != nil {
		return exit.With(exit.Usage, "%w", err)
	}
	wanted.Client = notify.NewClient(trusted)
	return s.factory.checkHook()
}

// signer returns a function that reads the secret which signs messages. setting is what names it.
func (in *instance) signer(name, setting string) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		values, err := in.store.Secrets.Newest(ctx, []string{name})
		if err != nil {
			return "", err
		}
		value, ok := values[name]
		if !ok {
			return "", fmt.Errorf("there is no managed secret %s (%s): triphammer secrets set %[1]s", name, setting)
		}
		return value.Value.Reveal(), nil
	}
}

// tell posts how a run stands to an address that a definition names (SPEC 22.1), as --notify-runs
// does. It connects to no link-local address.
func (in *instance) tell(ctx context.Context, address, secretName, id string, r *store.Run) (status int, err error) {
	body, err := in.server.RunNotice(ctx, r)
	if err != nil {
		return 0, err
	}
	hook := notify.Hook{URL: address, Secret: in.signer(secretName, "report.secretName"), Client: in.tells}
	return hook.Post(ctx, id, in.trace(ctx, r), Now(), body)
}

// trace is the value of traceparent for messages about a run: its span, with a collector of traces, or nothing.
func (in *instance) trace(ctx context.Context, r *store.Run) string {
	if !tracing.Wanted() {
		return ""
	}
	var sent map[string]string
	if r.DeliveryID != 0 {
		d, err := in.store.Deliveries.Get(ctx, r.DeliveryID)
		if err != nil {
			return "" // deleted or damaged: the message matters more
		}
		sent = d.Headers
	}
	return tracing.Parent(r, sent)
}
