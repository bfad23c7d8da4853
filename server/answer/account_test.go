package answer

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"triphammer/server/lookup"
	"triphammer/server/secret"
)

// TestAsk: each sender is asked whose a credential is and what it lacks, and nothing is written there.
func TestAsk(t *testing.T) {
	told := func(names string) http.Header { return http.Header{"X-Oauth-Scopes": {names}} }
	refuses := func(status int, body string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		}
	}
	all := []string{"api", "BROWSE_PROJECTS", "ADD_COMMENTS", "EDIT_OWN_COMMENTS"}
	for provider, c := range map[string]struct {
		name    string // empty: hammer-bot
		told    http.Header
		less    http.Header // without a permission
		granted []string    // without a permission
		lacking string
		untold  string
		wrong   func(http.ResponseWriter)
		refusal string
	}{
		"github": {
			told: told("repo, read:org"), less: told("read:user"), lacking: "repo or public_repo (comments, signs and commit statuses)",
			wrong: refuses(401, `{"message":"Bad credentials"}`), refusal: "answered 401: it does not take the secret of apiSecretName; the credential needs write access",
		},
		"gitlab": {
			granted: []string{"read_api"}, lacking: "api (everything)", untold: "the role in a project",
			wrong: refuses(401, `{"message":"401 Unauthorized"}`), refusal: "answered 401: it does not take the secret of apiSecretName; the credential needs the scope api",
		},
		"slack": {
			told: told("chat:write,reactions:write,im:history"), less: told("chat:write"),
			lacking: "reactions:write (signs), channels:history or groups:history or im:history or mpim:history (to find a text again)",
			wrong:   refuses(200, `{"ok":false,"error":"invalid_auth"}`), refusal: "answered invalid_auth: it does not take the secret of apiSecretName",
		},
		"jira": {
			granted: []string{"BROWSE_PROJECTS", "ADD_COMMENTS"}, lacking: "EDIT_OWN_COMMENTS (to change a text)", untold: "all projects together",
			wrong: refuses(401, ""), refusal: "answered 401: it does not take the secret",
		},
		"linear": {
			untold: "Linear does not say", wrong: refuses(401, `{"errors":[{"message":"no","extensions":{"code":"AUTHENTICATION_ERROR"}}]}`),
			refusal: "answered 401: it does not take the secret",
		},
		"azure_devops": {
			untold: "Azure DevOps does not say", wrong: refuses(200, `{"authenticatedUser":{"id":"`+azureAnybody+`"}}`), refusal: "takes the secret of apiSecretName for nobody's",
		},
		"teams": {
			name: "bot 6ce954b1-0000-4000-8000-000000000009", untold: "whether the bot is in a team",
			wrong: refuses(401, `{"error":"invalid_client"}`), refusal: "Microsoft does not take the bot's credential",
		},
	} {
		t.Run(provider, func(t *testing.T) {
			f, server := newForge(t, provider)
			if provider == "teams" {
				login(t, server.URL)
			}
			s, api, before := ByProvider(provider), lookup.API{URL: server.URL, Secret: secret.New(f.secret)}, len(f.texts)
			ask := func() (Account, error) { return s.Ask(t.Context(), lookup.NewClient(time.Now), api) }
			f.told, f.granted = c.told, all
			name := c.name
			if name == "" {
				name = "hammer-bot"
			}
			if a, err := ask(); err != nil || a.Name != name || a.ID == "" || len(a.Lacking) > 0 || !strings.Contains(a.Untold, c.untold) || c.untold == "" && a.Untold != "" {
				t.Errorf("of a good credential: %+v, %v", a, err)
			}
			if c.lacking != "" {
				f.told, f.granted = c.less, c.granted
				if a, err := ask(); err != nil || strings.Join(a.Lacking, ", ") != c.lacking {
					t.Errorf("without a permission: %+v, %v", a, err)
				}
				f.told, f.granted = nil, nil
				if a, err := ask(); err != nil || provider != "jira" && (len(a.Lacking) > 0 || !strings.Contains(a.Untold, "does not say what")) {
					t.Errorf("where the sender does not tell: %+v, %v", a, err)
				}
			}
			f.wrong, f.header = c.wrong, "nothing"
			if a, err := ask(); err == nil || !strings.Contains(err.Error(), c.refusal) || strings.Contains(err.Error(), credential) {
				t.Errorf("of a wrong credential: %+v, %v", a, err)
			}
			server.Close()
			if a, err := ask(); err == nil || !strings.Contains(err.Error(), "connection refused") {
				t.Errorf("of a service that is down: %+v, %v", a, err)
			}
			if len(f.texts) != before || len(f.signs) > 0 {
				t.Error("something was written")
			}
		})
	}
}

// TestNeeds: a permission that is asked for is in the sender's guide.
func TestNeeds(t *testing.T) {
	for file, needed := range map[string][]permission{"github.md": githubScopes, "gitlab.md": gitlabScopes, "slack.md": slackScopes, "jira.md": jiraScopes} {
		guide, err := os.ReadFile(filepath.Join("..", "..", "docs", file))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range needed {
			for _, name := range p.names {
				if name = strings.ReplaceAll(name, "_", " "); !strings.Contains(strings.ToLower(string(guide)), strings.ToLower(name)) && name != "public repo" {
					t.Errorf("%s does not have %s", file, name)
				}
			}
		}
	}
	for _, s := range Senders() {
		if s.Needs == "" || s.Who == nil {
			t.Errorf("%s does not say what a credential needs, or whose it is", s.Provider)
		}
	}
}
