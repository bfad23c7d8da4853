package api

import "time"

// Secret is an entry of GET /api/v1/secrets, and the answer to a PUT.
type Secret struct {
	Name       string      `json:"name"`
	Generation int64       `json:"generation"`
	SetAt      time.Time   `json:"set_at"`
	Source     string      `json:"source,omitempty"` // the place outside the store that has the secret; missing: the store has it
	UsedBy     []SecretUse `json:"used_by"`
	Pending    bool        `json:"pending"` // a newer value waits for the next apply
	Warning    string      `json:"warning,omitempty"`
	GitHubApp  *GitHubApp  `json:"github_app,omitempty"` // the secret is a GitHub App (SPEC 24.2); missing: it is a value
}

// GitHubApp is what may be shown of a secret that is a GitHub App.
type GitHubApp struct {
	ID      int64  `json:"id"`
	Problem string `json:"problem,omitempty"` // why it cannot be used
}

// ConnectApp is the body of POST /api/v1/github-apps: a code with which GitHub sends a person back
// who has agreed to make an App.
type ConnectApp struct {
	Code              string `json:"code"`
	APIURL            string `json:"api_url,omitempty"` // of a GitHub Enterprise Server; empty: github.com
	SecretName        string `json:"secret_name"`       // managed secret that becomes the App
	WebhookSecretName string `json:"webhook_secret_name"`
}

// ConnectedApp is the answer to POST /api/v1/github-apps.
type ConnectedApp struct {
	ID      int64  `json:"id"`
	Install string `json:"install_url"` // where it is installed in repositories
}

// CheckedApp is the answer to POST /api/v1/secrets/{name}/check: what GitHub says of an App.
type CheckedApp struct {
	Slug    string   `json:"slug"`
	Install string   `json:"install_url"` // where it is installed in repositories
	Lacking []string `json:"lacking"`     // permissions that the App does not have, each with what needs it
}

// SecretUse is a definition that uses a secret.
type SecretUse struct {
	Factory    string `json:"factory"`
	Kind       string `json:"kind"` // webhook, automation, environment
	Name       string `json:"name"`
	Generation int64  `json:"generation,omitempty"` // only of a webhook: the generation that it uses
}

// PendingSecret is an entry of GET /api/v1/pending-secrets: a secret that a sender gave for
// a webhook, without its value.
type PendingSecret struct {
	ID         string    `json:"id"`
	Factory    string    `json:"factory"`
	Webhook    string    `json:"webhook"`
	SecretName string    `json:"secret_name"`
	ReceivedAt time.Time `json:"received_at"`
	From       string    `json:"from"`
}

// SetSecret is the body of PUT /api/v1/secrets/<name>.
type SetSecret struct {
	Value     string        `json:"value,omitempty"`
	GitHubApp *NewGitHubApp `json:"github_app,omitempty"` // in place of Value
}

// NewGitHubApp makes a secret a GitHub App.
type NewGitHubApp struct {
	ID     int64  `json:"id"`
	Key    string `json:"key"`               // private key, PEM
	APIURL string `json:"api_url,omitempty"` // of a GitHub Enterprise Server; empty: github.com
}
