package lookup

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"triphammer/server/githubapp"
	"triphammer/server/secret"
)

// Apps makes the installation tokens of secrets that are GitHub Apps.
func (c *Client) Apps() *githubapp.Minter { return c.apps }

// permissions are what requests for a part of a repository need, by the word after
// /repos/OWNER/NAME; empty: for the repository itself. A number of /issues can be a pull request's.
var permissions = map[string][]string{
	"": {"metadata"}, "pulls": {"pull_requests"}, "issues": {"issues", "pull_requests"}, "labels": {"issues"}, "assignees": {"issues"}, "check-runs": {"checks"},
	"statuses": {"statuses"}, "commits": {"contents"}, "compare": {"contents"}, "contents": {"contents"}, "git": {"contents"}, "collaborators": {"metadata"},
}

// installed makes a request that has an App for its credential, with the token of an installation:
// of the request's repository, with the permissions that the request needs (SPEC 24.2). The App's
// key stays here.
func (c *Client) installed(ctx context.Context, api API, req *http.Request, r Request) error {
	app, err := githubapp.Parse(api.Secret)
	if err != nil {
		return &failure{text: "the secret of apiSecretName: " + err.Error(), final: true}
	}
	if strings.TrimSuffix(api.URL, "/") != app.API {
		return &failure{text: "the secret of apiSecretName is a GitHub App of " + app.Site() + ", and its token is not sent elsewhere (apiURL)", final: true}
	}
	path, _, _ := strings.Cut(r.Path, "?")
	part := strings.Split(path, "/")
	if len(part) == 5 && part[1] == "orgs" && part[3] == "memberships" && req.Method == http.MethodGet {
		return c.withToken(ctx, api, req, githubapp.Use{Repository: part[2], Permissions: map[string]string{"members": "read"}})
	}
	of := ""
	if len(part) > 4 {
		of = part[4]
	}
	if len(part) < 4 || part[1] != "repos" || permissions[of] == nil || of == "" && req.Method != http.MethodGet {
		return &failure{text: "the secret of apiSecretName is a GitHub App, which cannot ask for " + path, final: true}
	}
	level := "write"
	if req.Method == http.MethodGet || r.Reads || of == "collaborators" {
		level = "read"
	}
	use := githubapp.Use{Repository: part[2] + "/" + part[3], Permissions: make(map[string]string)}
	needs := permissions[of]
	if of == "commits" && part[len(part)-1] == "check-runs" {
		needs = permissions["check-runs"]
	}
	for _, p := range needs {
		use.Permissions[p] = level
	}
	return c.withToken(ctx, api, req, use)
}

func (c *Client) withToken(ctx context.Context, api API, req *http.Request, use githubapp.Use) error {
	token, err := c.apps.Token(ctx, "", api.Secret, use)
	if told := (*githubapp.Error)(nil); errors.As(err, &told) {
		return &failure{text: told.Text, after: told.After}
	}
	if err != nil {
		return &failure{text: "it was not waited for", cause: err}
	}
	req.Header.Set("Authorization", "Bearer "+token.Value.Reveal())
	return nil
}

// forget sees to another token of an App if GitHub did not take the one of a request.
func (c *Client) forget(api API, req *http.Request, status int) {
	if status == http.StatusUnauthorized && githubapp.Is(api.Secret) {
		c.apps.Forget(secret.New(strings.TrimPrefix(req.Header.Get("Authorization"), "Bearer ")))
	}
}

// account answers GET /user for an App, which has no user: it acts as SLUG[bot].
func (c *Client) account(ctx context.Context, v secret.Value, into any) error {
	about, err := c.apps.About(ctx, "", v)
	if told := (*githubapp.Error)(nil); errors.As(err, &told) {
		return &failure{text: told.Text, after: told.After}
	}
	if err != nil {
		return &failure{text: "it was not waited for", cause: err}
	}
	text, err := json.Marshal(map[string]string{"login": about.Slug + "[bot]", "type": "Bot"})
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		return errAnswer
	}
	return nil
}
