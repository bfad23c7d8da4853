package main

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/pflag"

	"triphammer/server/notify"
	"triphammer/server/run"
	"triphammer/server/store"
)

// notificationFlags say who hears what became of a commit.
func notificationFlags(f *pflag.FlagSet) {
	f.String("commit-status", "", "service that gets the statuses "+notify.Apply+" and "+notify.Validate+" of each commit: "+strings.Join(notify.Forges(), ", "))
	f.String("commit-status-token-file", "", "file with a token that may write statuses; read for each")
	f.String("commit-status-api", "", "address of the service's API, if --repo does not tell")
	f.String("commit-status-project", "", "repository on the service, such as team/factory, if --repo does not tell")
	f.String("notify-url", "", "address that is told when the newest commit does not serve, and when it does again; give one that is a credential as a variable or in the file")
	f.StringSlice("notify-runs", nil, "ends of runs that --notify-url is told too: SUCCEEDED, FAILED, CANCELLED")
	f.StringSlice("notify-automations", nil, "of these, those of runs of these automations alone")
	f.String("notify-secret", "", "managed secret that signs these messages, as Standard Webhooks want it (base64)")
}

// notifications reads the flags; nil if nobody is to be told.
func notifications(flags *pflag.FlagSet, source repository) (*notify.Config, error) {
	text := func(name string) string { v, _ := flags.GetString(name); return v }
	cfg := notify.Config{Service: text("commit-status"), TokenFile: text("commit-status-token-file"), URL: text("notify-url")}
	if cfg.Service == "" && cfg.URL == "" {
		return nil, nil
	}
	if (cfg.URL == "") != (text("notify-secret") == "") {
		return nil, exitWith(exitUsage, "--notify-url and --notify-secret go together")
	}
	if u, err := url.Parse(cfg.URL); cfg.URL != "" && (err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "") {
		return nil, exitWith(exitUsage, "--notify-url is not an address such as https://hooks.example.com/…") // it is not repeated: it may be a credential
	}
	if (cfg.Service == "") != (cfg.TokenFile == "") {
		return nil, exitWith(exitUsage, "--commit-status and --commit-status-token-file go together")
	}
	if cfg.Service != "" {
		cfg.Project = notify.Project{API: strings.TrimSuffix(text("commit-status-api"), "/"), Path: strings.Trim(text("commit-status-project"), "/")}
		if cfg.Project.API == "" || cfg.Project.Path == "" {
			repo, _ := source.Describe()
			derived, err := notify.ProjectOf(cfg.Service, repo)
			if err != nil {
				return nil, exitWith(exitUsage, "--commit-status: %w", err)
			}
			if cfg.Project.API == "" {
				cfg.Project.API = derived.API
			}
			if cfg.Project.Path == "" {
				cfg.Project.Path = derived.Path
			}
		}
	}
	client, err := notify.NewClient(text("git-ca-file"))
	if err != nil {
		return nil, exitWith(exitUsage, "--git-ca-file: %w", err)
	}
	cfg.Client = client
	if _, err := notify.New(cfg); err != nil {
		return nil, exitWith(exitUsage, "--commit-status: %w", err)
	}
	return &cfg, nil
}

// runNotices reads which ends of runs are told.
func runNotices(flags *pflag.FlagSet) (filter run.NoticeFilter, err error) {
	filter.States, _ = flags.GetStringSlice("notify-runs")
	filter.Automations, _ = flags.GetStringSlice("notify-automations")
	for _, state := range filter.States {
		if !store.RunState(state).Terminal() {
			return filter, exitWith(exitUsage, "--notify-runs: %s is not how a run ends: SUCCEEDED, FAILED, CANCELLED", state)
		}
	}
	address, _ := flags.GetString("notify-url")
	switch {
	case len(filter.States) > 0 && address == "":
		return filter, exitWith(exitUsage, "--notify-runs needs --notify-url, the address that is told")
	case len(filter.Automations) > 0 && len(filter.States) == 0:
		return filter, exitWith(exitUsage, "--notify-automations needs --notify-runs, the ends that are told")
	}
	return filter, nil
}

// notifySecret opens the secret that signs messages.
func (in *instance) notifySecret(name string) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		values, err := in.store.NewestSecrets(ctx, []string{name})
		if err != nil {
			return "", err
		}
		value, ok := values[name]
		if !ok {
			return "", fmt.Errorf("there is no managed secret %s (--notify-secret): triphammer secrets set %s", name, name)
		}
		return value.Value.Reveal(), nil
	}
}
