package api

import "time"

// Factory is an entry of GET /api/v1/factory: a factory in the form of the published API.
// FactoryStatus has what else this server knows of it.
type Factory struct {
	UID         string  `json:"uid"`
	ID          string  `json:"id"` // equal to uid
	TeamUID     string  `json:"team_uid"`
	Name        string  `json:"name"` // in the definition
	Alias       *string `json:"alias"`
	Description *string `json:"description"`
	AvatarURL   *string `json:"avatar_url"` // always null

	CodeForge          string              `json:"code_forge"`
	CodeForges         []string            `json:"code_forges"`
	Repositories       []FactoryRepository `json:"repositories"`
	Integrations       []Integration       `json:"integrations"` // null: none are declared
	CredentialStrategy string              `json:"credential_strategy"`
	DefaultEnvironment *string             `json:"default_environment"`
	DefaultModel       *string             `json:"default_model"`
	AgentDefaults      AgentDefaults       `json:"agent_defaults"`
	ScorerDefaults     struct{}            `json:"scorer_defaults"`
	Scoring            Scoring             `json:"scoring"`

	CreatedAt *time.Time `json:"created_at,omitempty"` // time of the first apply in the store; missing: there is none
	UpdatedAt *time.Time `json:"updated_at,omitempty"` // when the live commit was applied
	State     string     `json:"state"`                // as in FactoryStatus
	Commit    string     `json:"commit,omitempty"`     // the live commit
}

// FactoryRepository is a repository of a Factory.
type FactoryRepository struct {
	Owner     string `json:"owner"`
	Repo      string `json:"repo"`
	CodeForge string `json:"code_forge,omitempty"`
	URL       string `json:"url"`
}

// Integration is an integration with a service, from the definition of a factory.
type Integration struct {
	Type string `json:"type"`
}

// Scoring is always empty: this server scores no runs.
type Scoring struct {
	DefaultModel *string `json:"default_model"`
}

// AgentDefaults are the settings of a Factory that its agents inherit.
type AgentDefaults struct {
	RunnerUID          string               `json:"default_runner_uid"`
	WorkerHost         string               `json:"worker_host"`
	Secrets            []SecretName         `json:"secrets"`
	MCPServers         map[string]MCPServer `json:"mcp_servers"` // without the values of env and headers
	Harness            *HarnessConfig       `json:"harness,omitempty"`
	HarnessAuthSecrets map[string]string    `json:"harness_auth_secrets,omitempty"`
}

// SecretName names a managed secret.
type SecretName struct {
	Name string `json:"name"`
}

// FactoryRun is the body of POST /api/v1/factory/<uid>/runs.
type FactoryRun struct {
	Prompt    string `json:"prompt"`
	Title     string `json:"title"`
	TicketRef string `json:"ticket_ref"` // <source>:<id>; empty: the server makes one
	TicketURL string `json:"ticket_url"`
}

// CreatedFactoryRun is the answer to a FactoryRun.
type CreatedFactoryRun struct {
	FactoryUID   string `json:"factory_uid"`
	ForemanAgent string `json:"foreman_agent"`
	RunID        string `json:"run_id"`
	ID           string `json:"id"` // equal to run_id
	RunURL       string `json:"run_url"`
	State        string `json:"state"`
	TicketRef    string `json:"ticket_ref"`
}

// ResourceError is an error in a definition file.
type ResourceError struct {
	Path    string `json:"resource_path"`
	Line    int    `json:"line,omitempty"`
	Message string `json:"message"`
}

// SyncRequest is the body of POST /api/v1/factory/<uid>/sync. It may be missing.
type SyncRequest struct {
	SHA    string `json:"sha"` // must be the newest commit of the branch; empty: any commit is right
	DryRun bool   `json:"dry_run"`
}

// SyncAnswer is the answer to a SyncRequest. A dry run has a plan.
type SyncAnswer struct {
	CommitSHA      string          `json:"commit_sha"`
	Plan           *SyncPlan       `json:"plan,omitempty"`
	ResourceErrors []ResourceError `json:"resource_errors,omitempty"`
}

// SyncPlan is what a sync would change.
type SyncPlan struct {
	Creates []SyncChange `json:"creates"`
	Updates []SyncChange `json:"updates"`
	Deletes []SyncChange `json:"deletes"`
	NoOps   int          `json:"no_ops"`
}

// SyncChange is a definition that a sync changes.
type SyncChange struct {
	Path   string `json:"path"`
	Kind   string `json:"kind"`
	Reason string `json:"reason,omitempty"`
}

// AgentIdentity is an entry of GET /api/v1/agent/identities: an agent of the definitions.
type AgentIdentity struct {
	UID         string  `json:"uid"` // FACTORY/NAME
	ID          string  `json:"id"`  // equal to uid
	Name        string  `json:"name"`
	Available   bool    `json:"available"`
	AgentType   string  `json:"agent_type"`
	FactoryUID  string  `json:"factory_uid"`
	Description *string `json:"description"`
	Prompt      *string `json:"prompt"`
	AgentDefaults
	BaseModel          string         `json:"base_model,omitempty"`
	EnvironmentID      string         `json:"environment_id,omitempty"`
	Skills             []string       `json:"skills"`
	CredentialStrategy string         `json:"credential_strategy,omitempty"`
	OnBehalfOf         bool           `json:"on_behalf_of_enabled"`
	Memory             IdentityMemory `json:"memory"`
	Path               string         `json:"path"` // of its file
	CreatedAt          time.Time      `json:"created_at"`
	UpdatedAt          time.Time      `json:"updated_at"`
}

// IdentityMemory is always empty: this server keeps no memory for agents.
type IdentityMemory struct {
	AttachedStores []struct{} `json:"attached_stores"`
	AutoMemory     AutoMemory `json:"auto_memory"`
}

// AutoMemory is a part of an IdentityMemory.
type AutoMemory struct {
	Enabled bool `json:"enabled"`
}

// Models is GET /api/v1/agent/models: the models that live definitions name.
type Models struct {
	Default string  `json:"default_model_id"` // empty: the factories do not agree on a model
	Models  []Model `json:"models"`
}

// Model is a model that definitions name. This server asks no provider about it.
type Model struct {
	ID             string `json:"id"`
	DisplayName    string `json:"display_name"`
	Provider       string `json:"provider"` // derived from the harness: OPENAI, ANTHROPIC, GOOGLE or UNKNOWN
	Vision         bool   `json:"vision_supported"`
	ReasoningLevel string `json:"reasoning_level,omitempty"`
	Harness        string `json:"harness,omitempty"`
}

// FoundRun names a run that was found, for example by the address of a pull request.
type FoundRun struct {
	RunID string `json:"run_id"`
	ID    string `json:"id"` // equal to run_id
}

// HarnessUsage is GET /api/v1/agent/runs/<id>/harness-usage: the usage that the harness reported.
type HarnessUsage struct {
	Available      bool           `json:"available"`
	RunID          string         `json:"run_id"`
	ID             string         `json:"id"` // equal to run_id
	ConversationID string         `json:"conversation_id"`
	AgeSeconds     *int64         `json:"age_seconds"`
	Usage          *UsageEnvelope `json:"usage,omitempty"`
	CostUSD        float64        `json:"cost_usd,omitempty"`
	Turns          int64          `json:"turns,omitempty"`
}

// UsageEnvelope is a UsageSnapshot with its origin.
type UsageEnvelope struct {
	CapturedAt      time.Time     `json:"capturedAt"`
	CaptureSequence int64         `json:"captureSequence"` // the number of the last counted event
	ExecutionID     int64         `json:"executionId"`     // the number of the attempt
	Harness         string        `json:"harness"`         // such as CLAUDE_CODE or CODEX
	MetricsVersion  int           `json:"metricsVersion"`
	Snapshot        UsageSnapshot `json:"snapshot"`
}

// UsageSnapshot is the usage of a harness so far.
type UsageSnapshot struct {
	Coverage UsageCoverage `json:"coverage"`
	Payload  UsagePayload  `json:"payload"`
}

// UsageCoverage tells how much of the usage is known: known, partial or unavailable.
type UsageCoverage struct {
	TokenStatus string `json:"tokenStatus"`
	ToolStatus  string `json:"toolStatus"`
}

// UsagePayload is a part of a UsageSnapshot.
type UsagePayload struct {
	Usage       TokenUsage    `json:"usage"`
	Attribution []ModelTokens `json:"attribution,omitempty"`
}

// ModelTokens is the TokenUsage of one model.
type ModelTokens struct {
	Model string     `json:"model,omitempty"`
	Usage TokenUsage `json:"usage"`
}

// TokenUsage counts tokens, with the names of the harness. An absent number was not measured.
type TokenUsage struct {
	Input        *int64 `json:"input_tokens,omitempty"`            // for claude, without tokens from the cache
	CacheRead    *int64 `json:"cache_read_input_tokens,omitempty"` // only for claude
	CachedInput  *int64 `json:"cached_input_tokens,omitempty"`     // only for other harnesses: a part of input_tokens
	Output       *int64 `json:"output_tokens,omitempty"`
	ReasoningOut *int64 `json:"reasoning_output_tokens,omitempty"`
	Total        *int64 `json:"total_tokens,omitempty"`
}
