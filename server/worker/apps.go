package worker

import (
	"context"
	"fmt"

	"triphammer/server/githubapp"
	"triphammer/server/run/task"
	"triphammer/server/secret"
)

// credentials gives a task the credentials of its repositories. It takes out of all the secrets
// that are GitHub Apps, and makes the task mint their tokens. all are the newest values.
func (a *attempt) credentials(t *task.Task, names []string, all map[string]secret.Value) error {
	t.Credentials = make(map[string]secret.Value)
	apps := make(map[string]secret.Value)
	for _, name := range names {
		if v := all[name]; githubapp.Is(v) {
			apps[name] = v
		} else {
			t.Credentials[name] = v
		}
	}
	if len(apps) == 0 {
		return nil
	}
	for _, r := range t.Repositories {
		if v, is := apps[r.Secret]; is {
			if _, err := use(r, v); err != nil {
				return err
			}
		}
	}
	t.Mint = func(ctx context.Context, r task.Repository) (task.Minted, error) {
		v, is := apps[r.Secret]
		if !is {
			return task.Minted{}, fmt.Errorf("the secret %s is no GitHub App", r.Secret)
		}
		// The App may have a new key. Without the store, the run goes on with the old key.
		if found, err := a.manager.cfg.Store.Secrets.Newest(ctx, []string{r.Secret}); err == nil && githubapp.Is(found[r.Secret].Value) {
			v = found[r.Secret].Value
		}
		use, err := use(r, v)
		if err != nil {
			return task.Minted{}, err
		}
		token, err := a.manager.cfg.Apps.Token(ctx, r.Secret, v, use)
		return task.Minted{Token: token.Value, Renew: token.Renew, Forget: func() { a.manager.cfg.Apps.Forget(token.Value) }}, err
	}
	return nil
}

// use is what a run does with a repository of an App: it fetches, and unless the repository is
// read-only, it pushes and opens pull requests.
func use(r task.Repository, v secret.Value) (githubapp.Use, error) {
	app, err := githubapp.Parse(v)
	if err != nil {
		return githubapp.Use{}, fmt.Errorf("the secret %s: %w; set it again with `triphammer secrets set %s --github-app ID --key-file FILE`", r.Secret, err, r.Secret)
	}
	u := githubapp.Use{Permissions: map[string]string{"contents": "read"}}
	if u.Repository, err = app.Serves(r.URL); err != nil {
		return u, fmt.Errorf("the secret %s cannot be the credential of the repository %s: %w", r.Secret, secret.Origin(r.URL), err)
	}
	if !r.ReadOnly {
		u.Permissions = map[string]string{"contents": "write", "pull_requests": "write"}
	}
	return u, nil
}
