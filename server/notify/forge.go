package notify

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// The names under which the statuses of a commit are shown.
const (
	Apply    = "triphammer/apply"    // whether the commit serves on this server
	Validate = "triphammer/validate" // whether the definitions are valid, even if the server lacks their secrets
)

// State is the state of a commit, with the names that GitHub uses.
type State string

// The states.
const (
	Pending State = "pending" // the commit waits, because another commit is pinned
	Success State = "success" // the commit serves or served
	Failure State = "failure" // the commit is refused
	Error   State = "error"   // the commit could not be applied yet
)

// Status is a commit status.
type Status struct {
	Context     string // Apply or Validate
	State       State
	Description string // for people, one line
	URL         string // a link to details
}

// Project is a repository on a service.
type Project struct {
	API  string // address of the service's API
	Path string // such as team/factory
}

// Forge makes the request with which a service that hosts repositories sets a commit
// status.
type Forge func(p Project, token, commit string, s Status) (method, address string, header http.Header, body any)

// forges are the services, by name.
var forges = map[string]Forge{"github": github, "gitlab": gitlab, "gitea": gitea, "forgejo": gitea}

// Forges are the names of the services.
func Forges() []string { return slices.Sorted(maps.Keys(forges)) }

// github: https://docs.github.com/rest/commits/statuses
func github(p Project, token, commit string, s Status) (string, string, http.Header, any) {
	return http.MethodPost, p.API + "/repos/" + p.Path + "/statuses/" + commit,
		http.Header{"Authorization": {"Bearer " + token}, "Accept": {"application/vnd.github+json"}, "X-Github-Api-Version": {"2022-11-28"}},
		map[string]string{"state": string(s.State), "description": cut(s.Description, 140), "context": s.Context, "target_url": s.URL}
}

// gitlab: https://docs.gitlab.com/api/commits/#set-commit-pipeline-status
func gitlab(p Project, token, commit string, s Status) (string, string, http.Header, any) {
	state := string(s.State)
	if s.State == Failure || s.State == Error {
		state = "failed"
	}
	return http.MethodPost, p.API + "/projects/" + url.PathEscape(p.Path) + "/statuses/" + commit, http.Header{"Private-Token": {token}},
		map[string]string{"state": state, "description": cut(s.Description, 255), "name": s.Context, "target_url": s.URL}
}

// gitea: https://docs.gitea.com/api (repoCreateStatus); Forgejo has the same.
func gitea(p Project, token, commit string, s Status) (string, string, http.Header, any) {
	return http.MethodPost, p.API + "/repos/" + p.Path + "/statuses/" + commit, http.Header{"Authorization": {"token " + token}},
		map[string]string{"state": string(s.State), "description": cut(s.Description, 255), "context": s.Context, "target_url": s.URL}
}

// protected asks the service whether the branch is protected, that is, whether only some of the
// people who can write to the project can push to it. All services answer in the same way.
func protected(ctx context.Context, client *http.Client, service string, p Project, token, branch string) (safe bool, status int, err error) {
	address := p.API + "/repos/" + p.Path + "/branches/" + url.PathEscape(branch)
	if service == "gitlab" {
		address = p.API + "/projects/" + url.PathEscape(p.Path) + "/repository/branches/" + url.PathEscape(branch)
	}
	_, _, header, _ := forges[service](p, token, "", Status{}) // the credential is sent in the same header
	answer, status, err := request(ctx, client, http.MethodGet, address, header, nil)
	if err != nil {
		return false, status, err
	}
	var shown struct {
		Protected *bool `json:"protected"`
	}
	if err := json.Unmarshal(answer, &shown); err != nil || shown.Protected == nil {
		return false, status, permanent{errors.New("its answer does not say whether the branch is protected")}
	}
	return *shown.Protected, status, nil
}

// ProjectOf derives the project of a repository from its address. It returns an error if
// the repository is not on a service.
func ProjectOf(service, repository string) (Project, error) {
	u, err := url.Parse(repository)
	if err != nil || u.Hostname() == "" {
		return Project{}, errors.New("the repository is not one of a service; say where its statuses go with --commit-status-api and --commit-status-project")
	}
	p := Project{Path: strings.TrimSuffix(strings.Trim(u.Path, "/"), ".git")}
	base := "https://" + u.Hostname()
	if u.Scheme == "https" || u.Scheme == "http" {
		base = u.Scheme + "://" + u.Host // with the port
	}
	switch service {
	case "github":
		p.API = base + "/api/v3" // GitHub Enterprise Server
		if u.Hostname() == "github.com" {
			p.API = "https://api.github.com"
		}
	case "gitlab":
		p.API = base + "/api/v4"
	default:
		p.API = base + "/api/v1"
	}
	return p, nil
}

// cut shortens a text to one line of n characters.
func cut(s string, n int) string {
	runes := []rune(strings.Join(strings.Fields(s), " "))
	if len(runes) <= n {
		return string(runes)
	}
	return string(runes[:n-1]) + "…"
}
