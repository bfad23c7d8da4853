package answer

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"triphammer/server/githubapp"
	"triphammer/server/lookup"
)

// Account is whose a credential is at its sender.
type Account struct {
	ID      string   // as texts name their author
	Name    string   // for people
	Lacking []string // permissions that answers need and the credential does not have, each with what needs it
	Untold  string   // what the sender does not say of the credential; empty: nothing
}

// Ask asks a sender whose a credential is, and which permissions it lacks. It changes nothing there. The
// error has what the credential needs.
func (s *Sender) Ask(ctx context.Context, c *lookup.Client, api lookup.API) (Account, error) {
	a, err := s.Who(ctx, c, api)
	if err != nil {
		return a, errors.New(explain(s, err))
	}
	return a, nil
}

// permission is a permission that answers need: a credential that has one of the names has it.
type permission struct {
	names []string // as the sender spells them
	use   string
}

// lacking are the permissions that are not granted.
func lacking(needed []permission, granted []string) (all []string) {
	for _, p := range needed {
		if !slices.ContainsFunc(p.names, func(name string) bool { return slices.Contains(granted, name) }) {
			all = append(all, strings.Join(p.names, " or ")+" ("+p.use+")")
		}
	}
	return all
}

// scopes are the names in a header, separated by commas.
func scopes(header string) []string {
	return strings.FieldsFunc(header, func(r rune) bool { return r == ',' || r == ' ' })
}

var errNobody = lookup.Fail("does not say whose the credential is", false)

// known is an account with an identifier, or an error.
func known(a Account, err error) (Account, error) {
	if err == nil && a.ID == "" {
		err = errNobody
	}
	return a, err
}

// self is the identifier of the credential's own account, which may be remembered.
func self(c *lookup.Client, api lookup.API, provider string, ask func() (Account, error)) (string, error) {
	return c.Remember(provider+" account", api, "self", func() (string, error) {
		a, err := ask()
		return a.ID, err
	})
}

var githubScopes = []permission{{[]string{"repo", "public_repo"}, "comments, signs and commit statuses"}}

func githubWho(ctx context.Context, c *lookup.Client, api lookup.API) (Account, error) {
	return githubSelf(github(ctx, c, api))
}

// githubAuthor is who wrote something.
type githubAuthor struct {
	ID    json.RawMessage
	Login string
}

// is tells whether an identifier is the account's: its number, or else @ and its login, which GitHub gives
// one account at a time.
func (a githubAuthor) is(id string) bool {
	return id != "" && (id == numeral(a.ID) || id == "@"+strings.ToLower(a.Login))
}

// githubSelf is the credential's own account. REST does not tell an App its own.
func githubSelf(g *call) (a Account, err error) {
	var me githubAuthor
	switch {
	case githubapp.Is(g.api.Secret): // the client answers for an App
		err = g.do(http.MethodGet, "/user", nil, &me)
	case githubApp(g.api):
		var answer struct {
			Data struct {
				Viewer struct {
					ID    json.RawMessage `json:"databaseId"`
					Login string
				}
			}
		}
		graph := *g
		graph.api.URL = strings.TrimSuffix(strings.TrimSuffix(g.api.URL, "/"), "/v3") // an Enterprise Server has /api/v3 and /api/graphql
		err = g.client.Do(g.ctx, graph.api, lookup.Request{
			Method: http.MethodPost, Path: "/graphql", Header: g.header, Reads: true, Explain: g.explain,
			Body: map[string]string{"query": "{ viewer { login databaseId } }"}, Into: &answer,
		})
		me = githubAuthor(answer.Data.Viewer)
		a.Untold = "GitHub does not say what an App's token may do"
	default:
		var told http.Header
		err = g.client.Do(g.ctx, g.api, lookup.Request{Method: http.MethodGet, Path: "/user", Header: g.header, Explain: g.explain, Into: &me, Told: &told})
		if granted, classic := told["X-Oauth-Scopes"]; classic {
			a.Lacking = lacking(githubScopes, scopes(strings.Join(granted, ",")))
		} else {
			a.Untold = "GitHub does not say what a fine-grained token may do"
		}
	}
	if a.ID, a.Name = numeral(me.ID), me.Login; a.ID == "" && me.Login != "" {
		a.ID = "@" + strings.ToLower(me.Login)
	}
	return known(a, err)
}

var gitlabScopes = []permission{{[]string{"api"}, "everything"}}

func gitlabSelf(g *call) (a Account, err error) {
	var answer struct {
		ID       json.RawMessage
		Username string
	}
	err = g.do(http.MethodGet, "/user", nil, &answer)
	return known(Account{ID: numeral(answer.ID), Name: answer.Username}, err)
}

func gitlabWho(ctx context.Context, c *lookup.Client, api lookup.API) (Account, error) {
	g := gitlab(ctx, c, api)
	a, err := gitlabSelf(g)
	if err != nil {
		return a, err
	}
	var token struct{ Scopes []string }
	if err := g.do(http.MethodGet, "/personal_access_tokens/self", nil, &token); err != nil || token.Scopes == nil {
		a.Untold = "GitLab does not say what the token may do"
		return a, nil
	}
	a.Lacking, a.Untold = lacking(gitlabScopes, token.Scopes), "the role in a project is known when something is told there"
	return a, nil
}

var slackScopes = []permission{
	{[]string{"chat:write"}, "texts"},
	{[]string{"reactions:write"}, "signs"},
	{[]string{"channels:history", "groups:history", "im:history", "mpim:history"}, "to find a text again"},
}

func slackWho(ctx context.Context, c *lookup.Client, api lookup.API) (Account, error) {
	var answer slackAnswer
	err := slack(ctx, c, api, "auth.test", url.Values{}, &answer)
	a := Account{ID: answer.User, Name: answer.Name}
	if granted, told := answer.told["X-Oauth-Scopes"]; told {
		a.Lacking = lacking(slackScopes, scopes(strings.Join(granted, ",")))
	} else {
		a.Untold = "Slack does not say what the token may do"
	}
	return known(a, err)
}

var jiraScopes = []permission{
	{[]string{"BROWSE_PROJECTS"}, "everything"}, {[]string{"ADD_COMMENTS"}, "texts"}, {[]string{"EDIT_OWN_COMMENTS"}, "to change a text"},
}

func jiraSelf(j *call) (Account, error) {
	var answer struct{ AccountID, DisplayName string }
	err := j.do(http.MethodGet, "/rest/api/3/myself", nil, &answer)
	return known(Account{ID: answer.AccountID, Name: answer.DisplayName}, err)
}

func jiraWho(ctx context.Context, c *lookup.Client, api lookup.API) (Account, error) {
	j := jira(ctx, c, api)
	a, err := jiraSelf(j)
	if err != nil {
		return a, err
	}
	var names, granted []string
	for _, p := range jiraScopes {
		names = append(names, p.names...)
	}
	var answer struct {
		Permissions map[string]struct {
			Have bool `json:"havePermission"`
		}
	}
	if err := j.do(http.MethodGet, "/rest/api/3/mypermissions?permissions="+strings.Join(names, ","), nil, &answer); err != nil || len(answer.Permissions) == 0 {
		a.Untold = "Jira does not say what the account may do"
		return a, nil
	}
	for name, p := range answer.Permissions {
		if p.Have {
			granted = append(granted, name)
		}
	}
	a.Lacking, a.Untold = lacking(jiraScopes, granted), "Jira was asked about all projects together"
	return a, nil
}

func linearWho(ctx context.Context, c *lookup.Client, api lookup.API) (Account, error) {
	var data struct{ Viewer struct{ ID, Name string } }
	err := linear(ctx, c, api, "query { viewer { id name } }", nil, &data)
	return known(Account{ID: data.Viewer.ID, Name: data.Viewer.Name, Untold: "Linear does not say what the credential may do"}, err)
}

// azureAnybody is whom Azure DevOps takes for the owner of a credential that it does not know.
const azureAnybody = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa"

func azureSelf(a *call) (Account, error) {
	var answer struct {
		User struct {
			ID   string
			Name string `json:"providerDisplayName"`
		} `json:"authenticatedUser"`
	}
	err := a.do(http.MethodGet, "/_apis/connectionData", nil, &answer)
	if err == nil && answer.User.ID == azureAnybody {
		err = lookup.Fail("takes the secret of apiSecretName for nobody's", true)
	}
	return known(Account{ID: answer.User.ID, Name: answer.User.Name, Untold: "Azure DevOps does not say what the token may do"}, err)
}

func azureWho(ctx context.Context, c *lookup.Client, api lookup.API) (Account, error) {
	return azureSelf(azure(ctx, c, api))
}

// teamsWho gets a token for the bot. Teams has no question that needs no conversation.
func teamsWho(ctx context.Context, c *lookup.Client, api lookup.API) (Account, error) {
	if _, err := teams(ctx, c, api); err != nil {
		return Account{}, err
	}
	bot := teamsBot().FindStringSubmatch(strings.TrimSpace(api.Secret.Reveal()))[2]
	return Account{ID: bot, Name: "bot " + bot, Untold: "whether the bot is in a team is known when something is told there"}, nil
}
