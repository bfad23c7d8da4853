package api

import (
	"time"

	"triphammer/factory"
	"triphammer/schema/output"
)

// Webhook is an entry of GET /api/v1/webhooks.
type Webhook struct {
	Name             string `json:"name"`
	UID              string `json:"uid"`
	ID               string `json:"id"` // equal to uid
	Factory          string `json:"factory"`
	URL              string `json:"url"` // with authMode url_token, it has {token} in place of the token
	AuthMode         string `json:"auth_mode"`
	SignatureScheme  string `json:"signature_scheme"`
	Enabled          bool   `json:"enabled"`
	SecretName       string `json:"secret_name"`
	SecretGeneration int64  `json:"secret_generation"`
	DeliveryIDHeader string `json:"delivery_id_header"`
	Path             string `json:"path"` // of its file
	Paused           *Pause `json:"paused,omitempty"`
	// Signature has the options of the scheme that the file sets.
	Signature *factory.SignatureOptions `json:"signature,omitempty"`
	// Connect is socket if the deliveries come over a connection that the server opens, with the
	// secret AppTokenName.
	Connect      string      `json:"connect,omitempty"`
	AppTokenName string      `json:"app_token_name,omitempty"`
	Connection   *Connection `json:"connection,omitempty"` // missing: no server has it, or a server has begun a moment ago
	// APISecretName is the secret with which the sender's API is asked, and told of runs.
	APISecretName string `json:"api_secret_name,omitempty"`
	ReplayWindow  string `json:"replay_window,omitempty"` // for how long a signed body is refused under another id, such as 10m
}

// CheckedCredential is the answer to POST /api/v1/factories/{name}/webhooks/{webhook}/check: what a sender
// says of the credential in APISecretName.
type CheckedCredential struct {
	Provider string   `json:"provider"`
	Account  string   `json:"account"`          // whose it is
	Lacking  []string `json:"lacking"`          // permissions that the webhook's answers need and it does not have, each with what needs it
	Untold   string   `json:"untold,omitempty"` // what the sender does not say of it
	Needs    string   `json:"needs"`            // what answers need, in words
}

// Connection is how the connection of a webhook is (SPEC 29.1). Error is the last error, also while
// the connection is open.
type Connection struct {
	Since        *time.Time `json:"since,omitempty"` // missing: it is not open
	LastEnvelope *time.Time `json:"last_envelope,omitempty"`
	Error        string     `json:"error,omitempty"`
	ErrorAt      *time.Time `json:"error_at,omitempty"`
}

// Automation is an entry of GET /api/v1/automations.
type Automation struct {
	Name          string    `json:"name"`
	Factory       string    `json:"factory"`
	Path          string    `json:"path"`
	Enabled       bool      `json:"enabled"`
	Agent         string    `json:"agent,omitempty"`
	EnvironmentID string    `json:"environment_id,omitempty"`
	Triggers      []Trigger `json:"triggers"`
	Paused        *Pause    `json:"paused,omitempty"`
	Dormant       string    `json:"dormant,omitempty"` // why nothing starts the automation, although it is enabled
	Warnings      []string  `json:"warnings"`          // which parts of the automation cannot act on this server
	AutomationRules
}

// AutomationRules are what the file of an Automation says of its runs; what it does not say is missing, or the default.
type AutomationRules struct {
	StartedBy               []string       `json:"started_by,omitempty"`
	MaxRunsPerHour          int64          `json:"max_runs_per_hour,omitempty"`
	MaxRunsPerPersonPerHour int64          `json:"max_runs_per_person_per_hour,omitempty"`
	Overflow                string         `json:"overflow,omitempty"`
	PerSubject              string         `json:"per_subject,omitempty"`
	SettleSeconds           float64        `json:"settle_seconds,omitempty"`
	Outputs                 output.Allowed `json:"outputs,omitempty"` // what the agent may ask the server to do
	Push                    factory.Push   `json:"push"`              // what runs may push, with the defaults
	Report                  *Report        `json:"report,omitempty"`
	Budget                  factory.Budget `json:"budget,omitzero"`
	Retry                   factory.Retry  `json:"retry,omitzero"`
}

// Report is where what becomes of runs is told, in place of what the webhook's file says.
type Report struct {
	Kinds      []string `json:"kinds"`         // thread, check; empty: nowhere, but for the URL
	URL        string   `json:"url,omitempty"` // without the path, which can hold a secret
	SecretName string   `json:"secret_name,omitempty"`
	Text       string   `json:"text,omitempty"`
}

// Pause tells that somebody paused a webhook, which then takes no deliveries, or an automation,
// which then starts no runs.
type Pause struct {
	Since  time.Time  `json:"since"`
	By     string     `json:"by"` // a caller, or "loop guard"
	Reason string     `json:"reason"`
	Until  *time.Time `json:"until,omitempty"` // missing: until somebody resumes it
}

// PauseRequest is the body of a request to pause a webhook or an automation. It may be
// missing.
type PauseRequest struct {
	Reason string `json:"reason,omitempty"`
	// Until is when the pause ends by itself; instead, it can end after a number of seconds.
	Until   *time.Time `json:"until,omitempty"`
	Seconds int64      `json:"seconds,omitempty"`
}

// Paused is an entry of a FactoryStatus.
type Paused struct {
	Kind string `json:"kind"` // webhook or automation
	Name string `json:"name"`
	Pause
}

// Trigger is one trigger of an Automation.
type Trigger struct {
	Provider   string   `json:"provider"`
	Event      string   `json:"event"`
	WebhookIDs []string `json:"webhook_ids,omitempty"`
	Webhooks   []string `json:"webhooks,omitempty"`
	Gone       []string `json:"gone,omitempty"`    // the selected webhooks that are not live
	Filtered   bool     `json:"filtered"`          // the trigger has a payload filter
	Fires      bool     `json:"fires"`             // this server supports triggers of this kind
	Dormant    string   `json:"dormant,omitempty"` // why the trigger starts nothing
}

// AgentEnvironment is an entry of GET /api/v1/agent/environments.
type AgentEnvironment struct {
	UID           string              `json:"uid"` // FACTORY/NAME
	ID            string              `json:"id"`  // equal to uid
	Name          string              `json:"name"`
	Factory       string              `json:"factory"`
	Description   string              `json:"description,omitempty"`
	DockerImage   string              `json:"docker_image,omitempty"`
	Repositories  []AgentRepository   `json:"repositories"`
	GitHubRepos   []map[string]string `json:"github_repos"` // the repositories on GitHub, as {owner, repo}
	SetupCommands []string            `json:"setup_commands"`
	// Config repeats the configuration, because the published API has it in a separate field.
	Config      EnvironmentConfig `json:"config"`
	LastUpdated time.Time         `json:"last_updated"` // when the live commit was applied
	Scope       Scope             `json:"scope"`
}

// EnvironmentConfig is the configuration of an AgentEnvironment.
type EnvironmentConfig struct {
	Name          string              `json:"name"`
	Description   *string             `json:"description"`
	DockerImage   string              `json:"docker_image,omitempty"`
	GitHubRepos   []map[string]string `json:"github_repos"`
	SetupCommands []string            `json:"setup_commands"`
}

// AgentRepository is a repository of an AgentEnvironment.
type AgentRepository struct {
	URL  string `json:"url"`
	Ref  string `json:"ref,omitempty"`
	Path string `json:"path,omitempty"`
}

// AgentEntry is an entry of GET /api/v1/agent: an agent of the definitions.
type AgentEntry struct {
	Name     string         `json:"name"`
	Variants []AgentVariant `json:"variants"`
}

// AgentVariant is the definition of an AgentEntry in one factory.
type AgentVariant struct {
	ID           string              `json:"id"` // FACTORY/NAME
	AgentType    string              `json:"agent_type"`
	Description  string              `json:"description"`
	BasePrompt   string              `json:"base_prompt"`
	Environments []map[string]string `json:"environments"`
	Source       map[string]string   `json:"source"`
}
