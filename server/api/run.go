package api

import (
	"encoding/json"
	"time"
)

// Run is a run of the run API (SPEC C2.1, 9.7).
type Run struct {
	RunID             string            `json:"run_id"`
	ID                string            `json:"id"`      // equal to run_id
	TaskID            string            `json:"task_id"` // equal to run_id, for older clients
	Title             string            `json:"title"`
	State             string            `json:"state"`
	StatusMessage     string            `json:"status_message,omitempty"`
	Prompt            string            `json:"prompt"`
	Config            json.RawMessage   `json:"config,omitempty"` // as posted
	AgentConfig       AgentConfig       `json:"agent_config"`     // as resolved
	AgentSkill        *RunSkill         `json:"agent_skill,omitempty"`
	Mode              string            `json:"mode,omitempty"` // plan; absent: normal
	Source            string            `json:"source"`
	Creator           Profile           `json:"creator"`
	Executor          Profile           `json:"executor"`
	ExecutionLocation string            `json:"execution_location"`
	Scope             Scope             `json:"scope"`
	SessionLink       string            `json:"session_link,omitempty"` // after the run has finished
	ConversationID    string            `json:"conversation_id"`
	EnvironmentID     string            `json:"environment_id,omitempty"`
	Factory           string            `json:"factory"`
	FactoryUID        string            `json:"factory_uid"`
	Automation        string            `json:"automation,omitempty"`
	Agent             string            `json:"agent,omitempty"`
	Webhook           string            `json:"webhook,omitempty"`
	DeliveryID        string            `json:"delivery_id,omitempty"`
	Subject           string            `json:"subject,omitempty"`            // what the event is about that started it, such as github:acme/app#12
	Person            string            `json:"person,omitempty"`             // who caused the event, such as github:ada
	ReplacedBy        string            `json:"replaced_by_run_id,omitempty"` // the run of a newer event of the subject, in favour of which this run was cancelled
	Schedule          *RunSchedule      `json:"schedule,omitempty"`
	ParentRunID       string            `json:"parent_run_id,omitempty"`
	RootRunID         string            `json:"root_run_id"` // the topmost parent; the run itself if it has no parent
	Metadata          map[string]string `json:"metadata,omitempty"`
	Commit            string            `json:"commit,omitempty"`
	Path              string            `json:"definition_path,omitempty"`
	Blob              string            `json:"definition_blob,omitempty"`
	Attempt           int64             `json:"attempt"`
	Attempts          int64             `json:"attempts,omitempty"`        // the most that the definition allows
	NextAttempt       *time.Time        `json:"next_attempt,omitempty"`    // earliest time of the next attempt
	RetryOf           string            `json:"retry_of_run_id,omitempty"` // the run that this run repeats, because somebody retried it
	Priority          int64             `json:"priority"`
	ExitCode          *int64            `json:"exit_code,omitempty"`
	Artifacts         []Artifact        `json:"artifacts"`
	Usage             *Usage            `json:"request_usage,omitempty"`
	SandboxRunning    bool              `json:"is_sandbox_running"`
	Cancellable       bool              `json:"is_run_type_cancellable"`
	RunTime           string            `json:"run_time,omitempty"` // ISO 8601 duration
	CreatedAt         time.Time         `json:"created_at"`
	UpdatedAt         time.Time         `json:"updated_at"`
	StartedAt         *time.Time        `json:"started_at,omitempty"`
	FinishedAt        *time.Time        `json:"finished_at"`
	Belt              []Stage           `json:"belt,omitempty"`      // of the last attempt; not in lists and notices
	Worker            string            `json:"worker"`              // name of the worker that has or had the run
	Workspace         *Workspace        `json:"workspace,omitempty"` // not in lists and notices, and not before the run has started
	Detail            *RunDetail        `json:"detail,omitempty"`    // not in lists and notices
}

// RunDetail has the fields of a run that lists leave out.
type RunDetail struct {
	Sent         string           `json:"sent_prompt"`  // the complete prompt, with the agent's prompt and the envelope
	Takes        []string         `json:"takes"`        // possible requests now: cancel, interrupt, retry, resume, followup
	Events       map[string]int64 `json:"events"`       // the number of events of the transcript, by kind
	Conversation []RunRef         `json:"conversation"` // all stored runs of the conversation, the oldest first
	RetriedBy    []RunRef         `json:"retried_by"`   // the runs that repeat this run
	Attachments  []AttachmentRef  `json:"attachments"`  // posted files
	Repositories []string         `json:"repositories"` // the repositories that the run clones
	Network      string           `json:"network"`      // the hosts that the run may reach: all, none or listed
	Hosts        []string         `json:"hosts,omitempty"`
	Isolation    string           `json:"isolation,omitempty"` // the weakest isolation that the environment accepts
	Budget       Budget           `json:"budget"`
	TimeoutSec   int64            `json:"timeout_seconds,omitempty"`
	IdleSec      int64            `json:"idle_seconds,omitempty"` // silence after which the agent is stopped
}

// RunRef names a run.
type RunRef struct {
	RunID     string    `json:"run_id"`
	ID        string    `json:"id"` // equal to run_id
	Title     string    `json:"title"`
	State     string    `json:"state"`
	CreatedAt time.Time `json:"created_at"`
}

// AttachmentRef names a file that the agent finds beside its workspace.
type AttachmentRef struct {
	Name string `json:"name"`
	Size int64  `json:"size_bytes"`
}

// Budget limits what a run may use; a missing field means no limit.
type Budget struct {
	USD    float64 `json:"usd,omitempty"`
	Tokens int64   `json:"tokens,omitempty"`
	Turns  int64   `json:"turns,omitempty"`
}

// RunCounts is GET /api/v1/agent/runs/counts.
type RunCounts struct {
	// States is the number of runs in each state; at most Most. It is absent if runs are not
	// counted by these filters.
	States map[string]int64 `json:"states,omitempty"`
	Most   int64            `json:"most"`
}

// Workspace is the folder with the files of a run. Runs of one conversation share a Workspace.
type Workspace struct {
	Path      string     `json:"path,omitempty"` // on the machine of the server
	Removed   bool       `json:"removed"`
	KeptUntil *time.Time `json:"kept_until,omitempty"` // unless the disk fills; absent while a run of the conversation has not ended
}

// Artifact is something that a run left for people.
type Artifact struct {
	Type      string       `json:"artifact_type"` // FILE, SCREENSHOT, PULL_REQUEST, EXTERNAL_REFERENCE
	UID       string       `json:"artifact_uid"`
	ID        string       `json:"id"` // equal to artifact_uid
	CreatedAt time.Time    `json:"created_at"`
	Data      ArtifactData `json:"data"`
}

// ArtifactData is the content of an Artifact, without the bytes of a file.
type ArtifactData struct {
	UID         string `json:"artifact_uid,omitempty"` // only of a file
	ID          string `json:"id,omitempty"`           // equal to artifact_uid
	FileName    string `json:"filename,omitempty"`
	FilePath    string `json:"filepath,omitempty"`
	MIMEType    string `json:"mime_type,omitempty"`
	ContentType string `json:"content_type,omitempty"` // equal to mime_type
	Size        *int64 `json:"size_bytes,omitempty"`
	DownloadURL string `json:"download_url,omitempty"` // needs a key like any other route

	URL           string `json:"url,omitempty"` // only of a link
	ReferenceType string `json:"reference_type,omitempty"`
	Status        string `json:"status,omitempty"` // only of a pull request, and always unknown, because the server does not ask
	Title         string `json:"title,omitempty"`
}

// Profile is a person or an agent that owns a run, or that a run acts as.
type Profile struct {
	Type        string `json:"type"` // user, service_account
	UID         string `json:"uid"`
	ID          string `json:"id"` // equal to uid
	DisplayName string `json:"display_name"`
}

// Scope is the owner of something: the team that the factory belongs to.
type Scope struct {
	Type string `json:"type"`
	UID  string `json:"uid"`
	ID   string `json:"id"` // equal to uid
}

// AgentConfig is the configuration of a run.
type AgentConfig struct {
	Name          string         `json:"name,omitempty"` // the posted name, or else the name of the skill
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

// RunSkill is the first skill that a run must work by.
type RunSkill struct {
	Name     string `json:"name"`
	FullPath string `json:"full_path"` // OWNER/REPOSITORY:PATH, or only PATH if the definitions have the skill
}

// RunSchedule is the schedule that started a run, as it was at that time.
type RunSchedule struct {
	ScheduleID string `json:"schedule_id"`
	ID         string `json:"id"` // equal to schedule_id
	Name       string `json:"schedule_name"`
	Cron       string `json:"cron_schedule"`
}

// Usage is what the harness of a run reported as used.
type Usage struct {
	InferenceCostUSD float64 `json:"inference_cost_usd"`
	TotalTokens      int64   `json:"total_tokens"`
}

// CreateRun is the body of POST /api/v1/agent/runs. It has all fields of the published API.
// The server refuses fields that it cannot do, with the reason; docs/api.md lists them.
type CreateRun struct {
	Prompt      string            `json:"prompt"`
	Title       string            `json:"title"`
	Agent       string            `json:"agent_identity_uid"`
	ParentRunID string            `json:"parent_run_id"`
	Metadata    map[string]string `json:"metadata"`
	Attachments []Attachment      `json:"attachments"`
	Images      []Image           `json:"images"`
	Config      json.RawMessage   `json:"config"` // a RunConfig
	Priority    *int64            `json:"priority"`
	// ConversationID is the conversation that the run goes on with.
	ConversationID string `json:"conversation_id"`

	Mode        string `json:"mode"`
	Skill       string `json:"skill"`
	Interactive bool   `json:"interactive"`
	OnBehalfOf  string `json:"on_behalf_of"`
	Team        *bool  `json:"team"`
}

// Image is a picture in a CreateRun of an older client.
type Image struct {
	MIMEType string `json:"mime_type"`
	Data     []byte `json:"data"` // base64 in JSON
}

// RunAutomation asks for a run of an automation. All fields may be missing.
type RunAutomation struct {
	Title   string          `json:"title"`   // empty: the automation's name
	Prompt  string          `json:"prompt"`  // comes after the automation's prompt
	Payload json.RawMessage `json:"payload"` // JSON, like the body of a delivery; absent or null: none
}

// FollowUp is the body of POST /api/v1/agent/runs/{id}/followups.
type FollowUp struct {
	Message     string       `json:"message"`
	Mode        string       `json:"mode"`
	Attachments []Attachment `json:"attachments"`
}

// FollowedUp is the answer to a FollowUp: the run that goes on with the conversation.
type FollowedUp struct {
	CreatedRun
	FollowUpID string `json:"followup_id"` // equal to run_id
	Outcome    string `json:"outcome"`     // handoff_execution; queue_pending: the run waits for an earlier run of the conversation
}

// RetryRun is the body of POST /api/v1/agent/runs/{id}/retry. It may be missing.
type RetryRun struct {
	Resume bool `json:"resume"` // go on in the workspace and the session of the run
}

// Attachment is a file in a CreateRun.
type Attachment struct {
	FileName string `json:"file_name"`
	MIMEType string `json:"mime_type"`
	Data     []byte `json:"data"` // base64 in JSON
}

// RunConfig is the configuration in a CreateRun.
type RunConfig struct {
	Name          string        `json:"name"`
	EnvironmentID string        `json:"environment_id"`
	RunnerID      string        `json:"runner_id"`
	BasePrompt    string        `json:"base_prompt"`
	ModelID       string        `json:"model_id"`
	Harness       HarnessConfig `json:"harness"`

	WorkerHost         string               `json:"worker_host"`
	SkillSpec          string               `json:"skill_spec"`
	Skills             []string             `json:"skills"`
	MCPServers         map[string]MCPServer `json:"mcp_servers"`
	IdleTimeoutMinutes *int64               `json:"idle_timeout_minutes"`
	CredentialStrategy string               `json:"credential_strategy"`
	ComputerUse        bool                 `json:"computer_use_enabled"`
	ComputerUseModel   string               `json:"computer_use_model_id"`
	MemoryStores       []json.RawMessage    `json:"memory_stores"`
	HarnessAuthSecrets map[string]string    `json:"harness_auth_secrets"`
	InferenceProviders InferenceProviders   `json:"inference_providers"`
	SessionSharing     struct {
		PublicAccess string `json:"public_access"`
	} `json:"session_sharing"`
}

// InferenceProviders says where the model calls of a run go.
type InferenceProviders struct {
	AWS *struct {
		Disabled bool   `json:"disabled"`
		Region   string `json:"region"`
		RoleARN  string `json:"role_arn"`
	} `json:"aws"`
}

// MCPServer is an MCP server of a RunConfig: an identifier that the server maps, a program, or a
// URL.
type MCPServer struct {
	WarpID  string            `json:"warp_id"`
	Command string            `json:"command"`
	Args    []string          `json:"args"`
	Env     map[string]string `json:"env"`
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers"`
}

// CreatedRun is the answer to a CreateRun.
type CreatedRun struct {
	RunID          string `json:"run_id"`
	ID             string `json:"id"` // equal to run_id
	TaskID         string `json:"task_id"`
	ConversationID string `json:"conversation_id"`
	State          string `json:"state"`
	AtCapacity     bool   `json:"at_capacity"` // the run waits until another run ends
}

// RunNotice is the body of the message that a run has ended.
type RunNotice struct {
	Type      string    `json:"type"` // run.succeeded, run.failed, run.cancelled
	Timestamp time.Time `json:"timestamp"`
	Data      Run       `json:"data"`
}

// Notice is an entry of GET /api/v1/notices.
type Notice struct {
	RunID       string     `json:"run_id"`
	ID          string     `json:"id"`     // equal to run_id
	Status      string     `json:"status"` // pending, delivered, failed
	Attempts    int64      `json:"attempts"`
	Detail      string     `json:"detail,omitempty"` // the result of the last attempt
	NextAttempt *time.Time `json:"next_attempt,omitempty"`
	UpdatedAt   time.Time  `json:"updated_at"`
}
