package host

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"triphammer/applier"
	"triphammer/applier/gitrepo"
	"triphammer/cmd/triphammer/client/exit"
	"triphammer/cmd/triphammer/client/settings"
	"triphammer/server"
	"triphammer/server/api"
	"triphammer/server/hosted"
	"triphammer/server/notify"
)

// factoryOptions are the settings of one factory.
type factoryOptions struct {
	name       string
	repository gitrepo.RemoteConfig // for a local repository, only URL (a path) and Branch count
	hosted     bool                 // it lives in the data directory
	path       string               // folder of the factory in the repository
	forge      string               // service that has the repository
	syncSecret string               // name of the secret that signs push notifications
	verifyKeys string               // file with the keys that may sign; empty: all commits may apply
	verifyTime string

	notify       notify.Commits // where applies are reported
	notifySecret string         // name of the secret that signs messages about applies

	logger *slog.Logger        // of a hosted factory; nil: it tells nothing
	home   *hosted.Repository  // of a hosted factory
	watch  func(applier.State) // is told of each change; nil: nobody is
	trial  bool                // secrets may be missing that prove no delivery
	source applier.Source
	verify func(ctx context.Context, hash string, arrived arrival) (warning string, err error) // nil: all commits may apply
}

// arrival returns when a commit arrived.
type arrival func(ctx context.Context, hash string) (time.Time, error)

// flags are the settings for which each factory can have its own value.
func (f *factoryOptions) flags(set *pflag.FlagSet) {
	settings.In(set, settings.Served, f.repositoryFlags)
	settings.In(set, settings.Messages, f.notificationFlags)
}

// flagSet are the keys of a factory in a configuration file.
func (f *factoryOptions) flagSet() *pflag.FlagSet {
	set := pflag.NewFlagSet("factory", pflag.ContinueOnError)
	f.flags(set)
	settings.In(set, settings.Served, func(set *pflag.FlagSet) {
		set.BoolVar(&f.hosted, "hosted", false, "the repository lives on this server, which serves it for clone and push")
	})
	return set
}

// withoutRepository has the settings that also suit a repository in the data directory.
func (f *factoryOptions) withoutRepository() *factoryOptions {
	c := *f
	c.repository, c.path, c.syncSecret = gitrepo.RemoteConfig{Branch: "main"}, ".", ""
	c.notify.Service, c.notify.TokenFile, c.notify.Project = "", "", notify.Project{}
	return &c
}

// links are the pages about the repository on its service; nil: they are not known.
func (f *factoryOptions) links() *api.Links {
	if f.hosted {
		return nil
	}
	repository, _ := f.source.Describe()
	return notify.LinksOf(cmp.Or(f.forge, f.notify.Service), repository, f.path)
}

// repositoryFlags are the settings for the repository and the access to it.
func (f *factoryOptions) repositoryFlags(set *pflag.FlagSet) {
	set.StringVar(&f.repository.URL, "repo", "", "repository of the definitions: a path, https://host/path, or user@host:path for ssh")
	set.StringVar(&f.repository.Branch, "branch", "main", "production branch")
	set.StringVar(&f.forge, "forge", "", "service that has the repository, for links to its pages: "+strings.Join(notify.Sites(), ", ")+" (default: by the address)")
	set.StringVar(&f.path, "path", ".", "folder of the factory in the repository")
	set.DurationVar(&f.repository.Poll, "poll", time.Minute, "how often to look at a repository on another machine")
	set.DurationVar(&f.repository.Timeout, "git-timeout", 2*time.Minute,
		"how long a look at a repository on another machine may take; a fetch that moves on may take longer")
	set.StringVar(&f.syncSecret, "sync-secret", "", "managed secret with which the service signs its push notifications")
	set.StringVar(&f.verifyKeys, "verify-keys", "", "apply only commits that one of these keys signed: allowed_signers of ssh, armored OpenPGP public keys")
	set.StringVar(&f.verifyTime, "verify-time", verifyCommitted, "the time at which an ssh key of --verify-keys has to be valid: "+
		verifyCommitted+" (the commit's own, which its committer sets) or "+verifyArrived+" (when the server first saw the commit)")
	set.StringVar(&f.repository.TokenFile, "git-token-file", "", "file with the token for a repository over https; read at each look")
	set.StringVar(&f.repository.Username, "git-username", "", "user name that the token belongs to, where the service asks for one")
	set.StringVar(&f.repository.CAFile, "git-ca-file", "", "certificates to trust beside the system's, for this repository and for private repositories of runs over https (PEM)")
	set.StringVar(&f.repository.SSHKey, "git-ssh-key", "", "private key for a repository over ssh, without a passphrase; default: the agent of SSH_AUTH_SOCK")
	set.StringVar(&f.repository.KnownHosts, "git-known-hosts", "",
		"known_hosts file for a repository over ssh; default: the published keys of GitHub, GitLab and Bitbucket")
}

// roots are the certificates with which services on other machines prove themselves to this
// server: those of the system, and of --git-ca-file of all of the factories.
func roots(factories ...factoryOptions) (*x509.CertPool, error) {
	var files []string
	for _, f := range factories {
		if f.repository.CAFile != "" {
			files = append(files, f.repository.CAFile)
		}
	}
	pool, err := gitrepo.Roots(files...)
	if err != nil {
		return nil, fmt.Errorf("--git-ca-file: %w", err)
	}
	return pool, nil
}

// The values of --verify-time.
const (
	verifyCommitted = "committed"
	verifyArrived   = "arrived"
)

// minPoll keeps a mistyped unit from flooding a service.
const minPoll = time.Second

// repository is a source in Git.
type repository interface {
	applier.Source
	Verify(ctx context.Context, hash string, signers gitrepo.Signers) (warning string, err error)
}

// open opens the repository, and completes the settings for reports.
// baseURL is that of the server, at which a hosted repository is cloned.
func (f *factoryOptions) open(ctx context.Context, data, baseURL string) error {
	source, err := f.openSource(ctx, data, baseURL)
	if err != nil {
		return err
	}
	f.source = source
	if f.verifyKeys != "" {
		if _, err := os.Stat(f.verifyKeys); err != nil {
			return exit.With(exit.Usage, "--verify-keys: %w", err)
		}
		signers, byArrival := gitrepo.Signers{File: f.verifyKeys}, f.verifyTime == verifyArrived
		f.verify = func(ctx context.Context, hash string, arrived arrival) (string, error) {
			signers := signers
			if byArrival {
				signers.Arrived = arrived
			}
			return source.Verify(ctx, hash, signers)
		}
	}
	switch {
	case f.forge != "" && !slices.Contains(notify.Sites(), f.forge):
		return exit.With(exit.Usage, "--forge %q is none of %s", f.forge, strings.Join(notify.Sites(), ", "))
	case f.verifyTime != verifyCommitted && f.verifyTime != verifyArrived:
		return exit.With(exit.Usage, "--verify-time %q is neither %s nor %s", f.verifyTime, verifyCommitted, verifyArrived)
	case f.verifyTime != verifyCommitted && f.verify == nil:
		return exit.With(exit.Usage, "--verify-time needs --verify-keys, the keys that may sign")
	}
	return f.openNotifications()
}

// openSource opens the repository that the flags name. The cache of a remote repository is
// in the data directory.
func (f *factoryOptions) openSource(ctx context.Context, data, baseURL string) (repository, error) {
	if f.hosted {
		source, err := f.openHome(ctx, data, baseURL)
		if err != nil {
			return nil, exit.With(exit.Usage, "the hosted factory %s: %w", f.name, err)
		}
		return source, nil
	}
	r := f.repository
	r.URL = strings.TrimPrefix(r.URL, "file://")
	if !gitrepo.IsRemote(r.URL) {
		source, err := gitrepo.Open(r.URL, r.Branch)
		if err != nil {
			return nil, exit.With(exit.Usage, "--repo: %w", err)
		}
		return source, nil
	}
	if r.Poll < minPoll {
		return nil, exit.With(exit.Usage, "--poll %s: at least %s", r.Poll, minPoll)
	}
	if r.Timeout < minPoll {
		return nil, exit.With(exit.Usage, "--git-timeout %s: at least %s", r.Timeout, minPoll)
	}
	abs, err := filepath.Abs(data)
	if err != nil {
		return nil, err
	}
	r.Cache = filepath.Join(abs, "repositories", f.name)
	source, err := gitrepo.OpenRemote(r)
	if err != nil {
		return nil, exit.With(exit.Usage, "--repo: %w", err)
	}
	return source, nil
}

// HostedFolder is where the repositories of hosted factories are, in the data directory.
const HostedFolder = api.HostedFolder

// hostedSource is the repository of a hosted factory.
type hostedSource struct {
	*gitrepo.Repo
	address string // at which people clone it
}

// Describe implements applier.Source.
func (s hostedSource) Describe() (repository, branch string) {
	_, branch = s.Repo.Describe()
	return s.address, branch
}

// openHome opens or makes the repository of a hosted factory.
func (f *factoryOptions) openHome(ctx context.Context, data, baseURL string) (source hostedSource, err error) {
	if f.notify.Service != "" {
		return source, errors.New("--commit-status tells a code forge about commits, and this repository lives on this server: leave it out")
	}
	program, err := os.Executable()
	if err != nil {
		return source, err
	}
	f.home, err = hosted.Open(ctx, hosted.Config{
		Dir: filepath.Join(data, HostedFolder, f.name+".git"), Branch: f.repository.Branch,
		Check: []string{program, "validate", "--rev"}, Folder: f.path, Logger: f.logger,
	})
	if err != nil {
		return source, err
	}
	repo, err := gitrepo.Open(f.home.Dir(), f.repository.Branch)
	return hostedSource{repo, server.HostedURL(baseURL, f.name)}, err
}
