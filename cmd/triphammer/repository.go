package main

import (
	"context"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"triphammer/applier"
	"triphammer/applier/gitrepo"
)

// repositoryFlags say where the definitions are, and how to get at them.
func repositoryFlags(f *pflag.FlagSet) {
	f.String("repo", "", "repository of the definitions: a path, https://host/path, or user@host:path for ssh")
	f.String("branch", "main", "production branch")
	f.String("path", ".", "folder of the factory in the repository")
	f.Duration("poll", time.Minute, "how often to look at a repository on another machine")
	f.Duration("git-timeout", 2*time.Minute, "how long a look at a repository on another machine may take; a fetch that moves on may take longer")
	f.String("sync-secret", "", "managed secret with which the service signs its push notifications")
	f.String("verify-keys", "", "apply only commits that one of these keys signed: allowed_signers of ssh, armored OpenPGP public keys")
	f.String("verify-time", verifyCommitted, "the time at which an ssh key of --verify-keys has to be valid: "+verifyCommitted+" (the commit's own, which its committer sets) or "+verifyArrived+" (when the server first saw the commit)")
	f.String("git-token-file", "", "file with the token for a repository over https; read at each look")
	f.String("git-username", "", "user name that the token belongs to, where the service asks for one")
	f.String("git-ca-file", "", "certificates to trust for a repository over https, beside the system's (PEM)")
	f.String("git-ssh-key", "", "private key for a repository over ssh, without a passphrase; default: the agent of SSH_AUTH_SOCK")
	f.String("git-known-hosts", "", "known_hosts file for a repository over ssh; default: the published keys of GitHub, GitLab and Bitbucket")
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

// openSource opens the repository that the flags name. What is fetched of a
// remote one is kept in the data directory.
func openSource(flags *pflag.FlagSet, data, factory string) (repository, error) {
	text := func(name string) string { v, _ := flags.GetString(name); return v }
	repo := strings.TrimPrefix(text("repo"), "file://")
	if !gitrepo.IsRemote(repo) {
		source, err := gitrepo.Open(repo, text("branch"))
		if err != nil {
			return nil, exitWith(exitUsage, "--repo: %w", err)
		}
		return source, nil
	}
	poll, _ := flags.GetDuration("poll")
	if poll < minPoll {
		return nil, exitWith(exitUsage, "--poll %s: at least %s", poll, minPoll)
	}
	timeout, _ := flags.GetDuration("git-timeout")
	if timeout < minPoll {
		return nil, exitWith(exitUsage, "--git-timeout %s: at least %s", timeout, minPoll)
	}
	abs, err := filepath.Abs(data)
	if err != nil {
		return nil, err
	}
	source, err := gitrepo.OpenRemote(gitrepo.RemoteConfig{
		URL: repo, Branch: text("branch"), Cache: filepath.Join(abs, "repositories", factory), Poll: poll, Timeout: timeout,
		Credentials: gitrepo.Credentials{
			TokenFile: text("git-token-file"), Username: text("git-username"), CAFile: text("git-ca-file"),
			SSHKey: text("git-ssh-key"), KnownHosts: text("git-known-hosts"),
		},
	})
	if err != nil {
		return nil, exitWith(exitUsage, "--repo: %w", err)
	}
	return source, nil
}
