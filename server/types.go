package server

import (
	"encoding/json"
	"time"

	"triphammer/applier"
	"triphammer/factory"
)

// The JSON of the management API (SPEC 13). Times are RFC 3339 in UTC.

// PageInfo tells whether a list goes on.
type PageInfo struct {
	HasNextPage bool   `json:"has_next_page"`
	NextCursor  string `json:"next_cursor,omitempty"`
}

// Status is GET /api/v1/status.
type Status struct {
	Version   string           `json:"version"`
	Factories []FactoryStatus  `json:"factories"`
	Runs      map[string]int64 `json:"runs"` // by state, those that have not finished
	Storage   Storage          `json:"storage"`
	Clock     Clock            `json:"clock"`
}

// Clock is whether the server believes the machine's clock. While it does not,
// nothing is deleted by its age.
type Clock struct {
	Now          time.Time  `json:"now"`
	Expected     time.Time  `json:"expected"`                // what it would show if it had not jumped
	DoubtedUntil *time.Time `json:"doubted_until,omitempty"` // when it is believed if it goes on as it is
	Problem      string     `json:"problem,omitempty"`       // in words
}

// Storage is whether the store takes deliveries, and how much room there is.
type Storage struct {
	State    string   `json:"state"`    // ok, low (new runs wait), critical (the run that takes the most is stopped), failing (no delivery is taken)
	Problems []string `json:"problems"` // in words
	Places   []Place  `json:"places"`
}

// Place is the file system that the data directory or the workspaces are on.
type Place struct {
	Name       string `json:"name"` // data or workspaces
	FreeBytes  int64  `json:"free_bytes"`
	TotalBytes int64  `json:"total_bytes"`
	FreeFiles  *int64 `json:"free_files,omitempty"` // inodes, where they are counted
}

// FactoryStatus is what one factory serves, and why not something newer.
type FactoryStatus struct {
	Name         string      `json:"name"`
	Title        string      `json:"title,omitempty"` // the definition's own name
	Repository   string      `json:"repository"`
	Branch       string      `json:"branch"`
	Path         string      `json:"path"`
	Head         string      `json:"head"`
	Applied      *AppliedRef `json:"applied"`
	LastApply    *LastApply  `json:"last_apply"`
	State        string      `json:"state"` // live, waiting (nothing serves yet), failing (something keeps the head from serving), pinned
	Pin          *Pin        `json:"pin,omitempty"`
	CheckedAt    *time.Time  `json:"checked_at,omitempty"`    // when the head was last read
	LookingSince *time.Time  `json:"looking_since,omitempty"` // of the look at the head that is under way
	Error        string      `json:"error,omitempty"`
	Reason       string      `json:"reason,omitempty"` // the error's kind: a word of applier.Reason
	Since        *time.Time  `json:"since,omitempty"`
	NextAttempt  *time.Time  `json:"next_attempt,omitempty"`
}

// Pin is a commit that serves whatever the branch says.
type Pin struct {
	Commit string     `json:"commit"`
	Reason string     `json:"reason"`
	By     string     `json:"by"`
	At     time.Time  `json:"at"`
	Until  *time.Time `json:"until,omitempty"`
}

// PinRequest is what POST /api/v1/factories/<name>/pin takes.
type PinRequest struct {
	Commit string     `json:"commit"` // applied before; a prefix will do
	Reason string     `json:"reason"`
	Until  *time.Time `json:"until,omitempty"`
}

// ApplyFiles is GET /api/v1/applies/<id>/files.
type ApplyFiles struct {
	ID     string        `json:"id"`
	Commit string        `json:"commit"`
	Files  []AppliedFile `json:"files"`
}

// AppliedFile is a definition file of an apply.
type AppliedFile struct {
	Path    string `json:"path"`
	Blob    string `json:"blob"` // Git object name
	Size    int    `json:"size"`
	Content string `json:"content,omitempty"` // of the one that was asked for
}

// ApplyDiff is GET /api/v1/applies/<id>/diff.
type ApplyDiff struct {
	From       string       `json:"from"`
	FromCommit string       `json:"from_commit"`
	To         string       `json:"to"`
	ToCommit   string       `json:"to_commit"`
	Plan       applier.Plan `json:"plan"`
}

// AppliedRef is the commit that serves.
type AppliedRef struct {
	Commit  string    `json:"commit"`
	At      time.Time `json:"at"`
	ApplyID string    `json:"apply_id"`
}

// LastApply is the newest apply of any outcome.
type LastApply struct {
	ID          string          `json:"id"`
	Commit      string          `json:"commit"`
	At          time.Time       `json:"at"`
	Outcome     string          `json:"outcome"` // applied, refused, failed
	Error       string          `json:"error,omitempty"`
	Trigger     string          `json:"trigger"`
	Diagnostics json.RawMessage `json:"diagnostics"`
}

// Webhook is an entry of GET /api/v1/webhooks.
type Webhook struct {
	Name             string `json:"name"`
	UID              string `json:"uid"`
	Factory          string `json:"factory"`
	URL              string `json:"url"` // with {token} in that of a url_token one
	AuthMode         string `json:"auth_mode"`
	SignatureScheme  string `json:"signature_scheme"`
	Enabled          bool   `json:"enabled"`
	SecretName       string `json:"secret_name"`
	SecretGeneration int64  `json:"secret_generation"`
	DeliveryIDHeader string `json:"delivery_id_header"`
	// Signature is what the file states of its sender beside the scheme.
	Signature *factory.SignatureOptions `json:"signature,omitempty"`
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
	Dormant       string    `json:"dormant,omitempty"` // why nothing starts it although it is enabled
}

// Trigger is one trigger of an Automation.
type Trigger struct {
	Provider   string   `json:"provider"`
	Event      string   `json:"event"`
	WebhookIDs []string `json:"webhook_ids,omitempty"`
	Webhooks   []string `json:"webhooks,omitempty"`
	Gone       []string `json:"gone,omitempty"`    // those of the two that do not serve
	Filtered   bool     `json:"filtered"`          // it has a payload filter
	Fires      bool     `json:"fires"`             // this server acts on triggers of its kind
	Dormant    string   `json:"dormant,omitempty"` // why this one starts nothing
}

// Delivery is an entry of GET /api/v1/deliveries.
type Delivery struct {
	ID          string    `json:"id"`
	Webhook     string    `json:"webhook"`
	Factory     string    `json:"factory"`
	Outcome     string    `json:"outcome"`
	Label       string    `json:"label"`
	Size        int64     `json:"size"`
	ReceivedAt  time.Time `json:"received_at"`
	Identity    *Identity `json:"identity"`
	DuplicateOf string    `json:"duplicate_of"`
	ReplayOf    string    `json:"replay_of,omitempty"`
	Reason      string    `json:"reason"`
	Runs        []string  `json:"runs"` // those that are kept
	// RunsStarted is absent of what is not accepted, and of what an older version
	// recorded. 0: nothing matched.
	RunsStarted *int `json:"runs_started,omitempty"`
}

// Identity is what makes two deliveries the same one.
type Identity struct {
	Source string `json:"source"`
	Value  string `json:"value"`
}

// DeliveryDetail is GET /api/v1/deliveries/<id>.
type DeliveryDetail struct {
	Delivery
	WebhookUID       string            `json:"webhook_uid"`
	Detail           string            `json:"detail,omitempty"`
	ClientAddr       string            `json:"client_addr,omitempty"`
	Headers          map[string]string `json:"headers"`
	ApplyID          string            `json:"apply_id,omitempty"`
	Commit           string            `json:"commit,omitempty"`
	Path             string            `json:"definition_path,omitempty"` // of the webhook that decided it
	Blob             string            `json:"definition_blob,omitempty"` // its Git object name
	SecretGeneration int64             `json:"secret_generation"`
	Belt             []Stage           `json:"belt"`
	Matches          []Match           `json:"matches"`
	Disabled         []Match           `json:"disabled"` // what disabled automations would have said
}

// Stage is one step of the belt.
type Stage struct {
	Stage   string `json:"stage"`
	Outcome string `json:"outcome"` // passed, stopped, not_reached
	Detail  string `json:"detail"`
}

// Match is whether an automation wanted the delivery, and why not.
type Match struct {
	Automation string      `json:"automation"`
	Matched    bool        `json:"matched"`
	Path       string      `json:"path"`
	Want       string      `json:"want"`
	Got        string      `json:"got"`
	Definition string      `json:"definition_path,omitempty"` // of the automation
	Blob       string      `json:"definition_blob,omitempty"`
	Conditions []Condition `json:"conditions,omitempty"`
}

// Condition is one condition of a payload filter.
type Condition struct {
	Path string `json:"path"`
	Want string `json:"want"`
	Got  string `json:"got"`
	OK   bool   `json:"ok"`
}

// Replayed is what a replay started.
type Replayed struct {
	DeliveryID string   `json:"delivery_id"`
	Runs       []string `json:"runs"`
}

// Apply is an entry of GET /api/v1/applies.
type Apply struct {
	ID          string          `json:"id"`
	Factory     string          `json:"factory"`
	Repository  string          `json:"repository"`
	Branch      string          `json:"branch"`
	Commit      string          `json:"commit"`
	Author      string          `json:"author"`
	Subject     string          `json:"subject"`
	Trigger     string          `json:"trigger"`
	Outcome     string          `json:"outcome"`
	Error       string          `json:"error,omitempty"`
	Plan        json.RawMessage `json:"plan"`
	Diagnostics json.RawMessage `json:"diagnostics"`
	StartedAt   time.Time       `json:"started_at"`
	FinishedAt  time.Time       `json:"finished_at"`
	Webhooks    []BoundWebhook  `json:"webhooks,omitempty"`
}

// BoundWebhook is which generation of its secret a webhook took at an apply.
type BoundWebhook struct {
	Name       string `json:"name"`
	UID        string `json:"uid"`
	SecretName string `json:"secret_name"`
	Generation int64  `json:"generation"`
}

// Secret is an entry of GET /api/v1/secrets, and the answer to a PUT.
type Secret struct {
	Name       string      `json:"name"`
	Generation int64       `json:"generation"`
	SetAt      time.Time   `json:"set_at"`
	Source     string      `json:"source,omitempty"` // where it comes from, if it was not set here
	UsedBy     []SecretUse `json:"used_by"`
	Pending    bool        `json:"pending"` // a newer value waits for the next apply
	Warning    string      `json:"warning,omitempty"`
}

// SecretUse is who uses a secret, and which generation of it.
type SecretUse struct {
	Factory    string `json:"factory"`
	Kind       string `json:"kind"` // webhook, automation, environment
	Name       string `json:"name"`
	Generation int64  `json:"generation,omitempty"` // of a webhook: the one it took
}

// PendingSecret is an entry of GET /api/v1/pending-secrets: what a sender gave
// as a webhook's secret, without the value.
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
	Value string `json:"value"`
}

// Key is an entry of GET /api/v1/keys.
type Key struct {
	ID         string     `json:"id"`
	Name       string     `json:"name"`
	Kind       string     `json:"kind"` // personal, agent
	Owner      string     `json:"owner"`
	Scopes     []string   `json:"scopes"`
	Factory    string     `json:"factory,omitempty"`
	CreatedAt  time.Time  `json:"created_at"`
	ExpiresAt  *time.Time `json:"expires_at,omitempty"`
	RevokedAt  *time.Time `json:"revoked_at,omitempty"`
	LastUsedAt *time.Time `json:"last_used_at,omitempty"`
	Key        string     `json:"key,omitempty"`   // once, in the answer that makes it
	Ended      *Ended     `json:"ended,omitempty"` // in the answer that revokes it
}

// Ended is what ended with a key, and the answer to DELETE /api/v1/auth/sessions.
type Ended struct {
	Sessions   int64 `json:"sessions"`
	LoginLinks int64 `json:"login_links"`
	Schedules  int64 `json:"schedules"` // that are paused
}

// CreateKey is the body of POST /api/v1/keys.
type CreateKey struct {
	Name           string   `json:"name"`
	Agent          string   `json:"agent,omitempty"`
	Owner          string   `json:"owner,omitempty"`
	Scopes         []string `json:"scopes,omitempty"`
	Factory        string   `json:"factory,omitempty"`
	ExpiresSeconds int64    `json:"expires_seconds,omitempty"`
}

// TestFilter is the body of POST /api/v1/filters/test.
type TestFilter struct {
	Factory    string          `json:"factory,omitempty"`
	Automation string          `json:"automation,omitempty"`
	Filter     json.RawMessage `json:"filter,omitempty"`
	DeliveryID string          `json:"delivery_id,omitempty"`
	Payload    json.RawMessage `json:"payload,omitempty"`
	Webhook    string          `json:"webhook,omitempty"`
}

// FilterVerdict is its answer.
type FilterVerdict struct {
	WouldTrigger bool        `json:"would_trigger"`
	Verdict      string      `json:"verdict"` // Would trigger, Would not trigger
	WebhookCheck FilterCheck `json:"webhook_check"`
	PayloadCheck FilterCheck `json:"payload_check"`
	Conditions   []Condition `json:"conditions"`
	// Webhooks are those that the automation selects, if the request named none.
	Webhooks []WebhookVerdict `json:"webhooks,omitempty"`
}

// WebhookVerdict is what a FilterVerdict says of a delivery from one webhook.
type WebhookVerdict struct {
	Webhook      string `json:"webhook"`
	WouldTrigger bool   `json:"would_trigger"`
	Detail       string `json:"detail"`
}

// FilterCheck is one part of a FilterVerdict.
type FilterCheck struct {
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
	Path   string `json:"path,omitempty"`
	Want   string `json:"want,omitempty"`
	Got    string `json:"got,omitempty"`
}

// AuditEntry is an entry of GET /api/v1/audit.
type AuditEntry struct {
	ID      string    `json:"id"`
	At      time.Time `json:"at"`
	Actor   string    `json:"actor"`
	Action  string    `json:"action"`
	Object  string    `json:"object"`
	Factory string    `json:"factory,omitempty"`
	Details string    `json:"details,omitempty"`
	From    string    `json:"from"`
}

// LoginLink is the answer to POST /api/v1/auth/links.
type LoginLink struct {
	URL       string    `json:"url"`
	ExpiresAt time.Time `json:"expires_at"`
}

// Run is a run of the run API (SPEC C2.1, 9.7).
type Run struct {
	RunID             string            `json:"run_id"`
	TaskID            string            `json:"task_id"` // the same; older clients read it
	Title             string            `json:"title"`
	State             string            `json:"state"`
	StatusMessage     string            `json:"status_message,omitempty"`
	Prompt            string            `json:"prompt"`
	Config            json.RawMessage   `json:"config,omitempty"` // as posted
	AgentConfig       AgentConfig       `json:"agent_config"`     // as it came out
	Source            string            `json:"source"`
	Creator           Profile           `json:"creator"`
	Executor          Profile           `json:"executor"`
	ExecutionLocation string            `json:"execution_location"`
	Scope             Scope             `json:"scope"`
	SessionLink       string            `json:"session_link,omitempty"` // once it has finished
	ConversationID    string            `json:"conversation_id"`
	EnvironmentID     string            `json:"environment_id,omitempty"`
	Factory           string            `json:"factory"`
	FactoryUID        string            `json:"factory_uid"`
	Automation        string            `json:"automation,omitempty"`
	Agent             string            `json:"agent,omitempty"`
	Webhook           string            `json:"webhook,omitempty"`
	DeliveryID        string            `json:"delivery_id,omitempty"`
	Schedule          *RunSchedule      `json:"schedule,omitempty"`
	ParentRunID       string            `json:"parent_run_id,omitempty"`
	Metadata          map[string]string `json:"metadata,omitempty"`
	Commit            string            `json:"commit,omitempty"`
	Path              string            `json:"definition_path,omitempty"`
	Blob              string            `json:"definition_blob,omitempty"`
	Attempt           int64             `json:"attempt"`
	ExitCode          *int64            `json:"exit_code,omitempty"`
	Artifacts         []json.RawMessage `json:"artifacts"` // none yet
	Usage             *Usage            `json:"request_usage,omitempty"`
	SandboxRunning    bool              `json:"is_sandbox_running"`
	Cancellable       bool              `json:"is_run_type_cancellable"`
	RunTime           string            `json:"run_time,omitempty"` // ISO 8601 duration
	CreatedAt         time.Time         `json:"created_at"`
	UpdatedAt         time.Time         `json:"updated_at"`
	StartedAt         *time.Time        `json:"started_at,omitempty"`
	FinishedAt        *time.Time        `json:"finished_at,omitempty"`
}

// Profile is who a run belongs to, or acts as.
type Profile struct {
	Type        string `json:"type"` // user, service_account
	UID         string `json:"uid"`
	DisplayName string `json:"display_name"`
}

// Scope is who owns something: the team, of which the factory is a part.
type Scope struct {
	Type string `json:"type"`
	UID  string `json:"uid"`
}

// AgentConfig is the configuration of a run.
type AgentConfig struct {
	Name          string         `json:"name,omitempty"`
	ModelID       string         `json:"model_id,omitempty"`
	BasePrompt    string         `json:"base_prompt,omitempty"`
	EnvironmentID string         `json:"environment_id,omitempty"`
	Harness       *HarnessConfig `json:"harness,omitempty"`
}

// HarnessConfig is the agent program of an AgentConfig.
type HarnessConfig struct {
	Type           string `json:"type,omitempty"`
	ModelID        string `json:"model_id,omitempty"`
	ReasoningLevel string `json:"reasoning_level,omitempty"`
}

// RunSchedule is the schedule that started a run, as it was then.
type RunSchedule struct {
	ID   string `json:"schedule_id"`
	Name string `json:"schedule_name"`
	Cron string `json:"cron_schedule"`
}

// Usage is what the run's harness said it used.
type Usage struct {
	InferenceCostUSD float64 `json:"inference_cost_usd"`
	TotalTokens      int64   `json:"total_tokens"`
}

// CreatedRun is the answer to a create.
type CreatedRun struct {
	RunID      string `json:"run_id"`
	TaskID     string `json:"task_id"`
	State      string `json:"state"`
	AtCapacity bool   `json:"at_capacity"` // others run; it waits for one of them to end
}

// Timeline is GET /api/v1/agent/runs/<id>/timeline.
type Timeline struct {
	Events []TimelineEvent `json:"events"`
}

// TimelineEvent is a milestone of a run.
type TimelineEvent struct {
	UUID        string    `json:"event_uuid"`
	RunID       string    `json:"run_id"`
	ExecutionID string    `json:"execution_id"`
	Type        string    `json:"event_type"` // run_created, run_claimed, agent_started, run_done, run_failed, run_cancelled
	OccurredAt  time.Time `json:"occurred_at"`
	Payload     any       `json:"payload,omitempty"`
}

// Conversation is GET /api/v1/agent/runs/<id>/conversation.
type Conversation struct {
	ConversationID string `json:"conversation_id"`
	Steps          []Step `json:"steps"`
}

// Step is a part of a Conversation; a run has one.
type Step struct {
	ID          string                `json:"id"`
	Description string                `json:"description,omitempty"`
	StartedAt   *time.Time            `json:"started_at,omitempty"`
	CompletedAt *time.Time            `json:"completed_at,omitempty"`
	Messages    []ConversationMessage `json:"messages"`
	Steps       []Step                `json:"steps"`
}

// ConversationMessage is what one side of a Conversation said or did.
type ConversationMessage struct {
	Role      string     `json:"role"` // user, assistant, tool, system
	Content   []content  `json:"content"`
	Timestamp *time.Time `json:"timestamp,omitempty"`
}

// content is a part of a ConversationMessage; its type tells its other fields.
type content map[string]any

// AgentEnvironment is an entry of GET /api/v1/agent/environments.
type AgentEnvironment struct {
	UID           string              `json:"uid"` // FACTORY/NAME
	Name          string              `json:"name"`
	Factory       string              `json:"factory"`
	Description   string              `json:"description,omitempty"`
	DockerImage   string              `json:"docker_image,omitempty"`
	Repositories  []AgentRepository   `json:"repositories"`
	GitHubRepos   []map[string]string `json:"github_repos"` // those of them that are {owner, repo}
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

// AgentVariant is what an AgentEntry is made of; one per factory that has it.
type AgentVariant struct {
	ID           string              `json:"id"` // FACTORY/NAME
	Description  string              `json:"description"`
	BasePrompt   string              `json:"base_prompt"`
	Environments []map[string]string `json:"environments"`
	Source       map[string]string   `json:"source"`
}

// Event is an entry of a transcript.
type Event struct {
	Seq  int64           `json:"seq"`
	At   time.Time       `json:"at"`
	Kind string          `json:"kind"`
	Data json.RawMessage `json:"data"`
}

// Transcript is GET /api/v1/agent/runs/<id>/transcript. If there are more events
// than one answer holds, they begin at ?after=<next_cursor>.
type Transcript struct {
	RunID    string   `json:"run_id"`
	State    string   `json:"state"`
	Events   []Event  `json:"events"`
	PageInfo PageInfo `json:"page_info"`
}

// Problem is an error answer (RFC 9457, SPEC 9.8).
type Problem struct {
	Type      string         `json:"type"`
	Title     string         `json:"title"`
	Status    int            `json:"status"`
	Detail    string         `json:"detail,omitempty"`
	Error     string         `json:"error"`
	Message   string         `json:"message"`
	Retryable bool           `json:"retryable"`
	Errors    []FieldProblem `json:"errors,omitempty"`
}

// FieldProblem is one thing that is wrong with a request.
type FieldProblem struct {
	Field   string `json:"field"`
	Message string `json:"message"`
}

func optional(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
