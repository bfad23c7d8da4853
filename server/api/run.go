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
	Subject           string            `json:"subject,omitempty"`            // what the event is about that started it, or its delivery, such as github:acme/app#12
	Person            string            `json:"person,omitempty"`             // who caused the event, such as github:ada
	ReplacedBy        string            `json:"replaced_by_run_id,omitempty"` // the run of a newer event of the subject, for which this run was cancelled
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
	About             *RunAbout         `json:"about,omitempty"`     // not in notices, and in lists only if they are asked for it
	Outputs           []Output          `json:"outputs,omitempty"`   // what the agent asked the server to do; not in notices, and in lists only with About
	Approval          *Approval         `json:"approval,omitempty"`  // of its start: what a person decides, or decided; not in lists and notices
	Undecided         string            `json:"undecided,omitempty"` // the hash of all of it that waits for a person: a decision carries it; not in lists and notices
	Question          *Question         `json:"question,omitempty"`  // what the run asked a person when it ended; not in lists and notices
	Worker            string            `json:"worker"`              // name of the worker that has or had the run
	Workspace         *Workspace        `json:"workspace,omitempty"` // not in lists and notices, and not before the run has started
	Detail            *RunDetail        `json:"detail,omitempty"`    // not in lists and notices
}

// RunAbout is what a run is about and what came of it. A list has it with the parameter about=true.
type RunAbout struct {
	Title  string `json:"title,omitempty"`  // what people call the thing that the run is about, such as the title of an issue: text of a stranger
	Event  string `json:"event,omitempty"`  // what happened that started it, as the sender names it
	Files  int64  `json:"files,omitempty"`  // how many files of its transcript it changed, in all attempts
	Answer string `json:"answer,omitempty"` // the status of its answer, as in Answer.Status
	// Outcome is what came of a run that has ended: merged, merged_with_changes, open or closed (its pull
	// request), failed, answered or nothing.
	Outcome string `json:"outcome,omitempty"`
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
	Answers      []Answer         `json:"answers,omitempty"`      // what is told of the run where its event came from
	Models       []ModelUsage     `json:"models,omitempty"`       // what its requests to models used, as its gateway counted it
}

// Output is something that the agent of a run asked the server to do (SPEC 23).
type Output struct {
	RunID   string          `json:"run_id"`
	ID      string          `json:"id"`     // equal to run_id
	Number  int64           `json:"number"` // from 1, in the order in which the agent asked
	Kind    string          `json:"kind"`
	Request json.RawMessage `json:"request"`          // as the agent asked
	Bounds  json.RawMessage `json:"bounds,omitempty"` // what the automation adds: a prefix of titles, labels, a draft
	Where   string          `json:"where,omitempty"`  // the page of what it is done to, or its name
	Text    string          `json:"text,omitempty"`   // what is asked for, as people read it
	Status  string          `json:"status"`           // waiting (for a person), pending, done, failed, discarded (nobody approved it) or none; of a question asked, replied or passed
	Detail  string          `json:"detail,omitempty"` // why it is not done
	URL     string          `json:"url,omitempty"`    // of what was made or changed
	At      time.Time       `json:"at"`               // when the status changed
	// Approval is what a person decides, or decided; nil: it waits for nobody.
	Approval *Approval `json:"approval,omitempty"`
}

// Question is what a run asked a person when it ended (SPEC 26.3).
type Question struct {
	RunID      string    `json:"run_id"`
	ID         string    `json:"id"` // equal to run_id
	Automation string    `json:"automation"`
	Provider   string    `json:"provider"` // such as github
	Text       string    `json:"text"`
	Status     string    `json:"status"`                // asked (it waits for a reply), replied, or passed (another run came)
	From       []string  `json:"from"`                  // whose replies count, as startedBy names them; empty: of whoever can write there
	Place      string    `json:"place"`                 // where it was asked: a page, or else a name
	NextRunID  string    `json:"next_run_id,omitempty"` // the run that ended it
	At         time.Time `json:"at"`                    // when the status changed
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
	Status        string `json:"status,omitempty"`  // only of a pull request: open, merged or closed, as its sender's deliveries say; unknown: they say nothing
	Outcome       string `json:"outcome,omitempty"` // only of a pull request: as Status, but merged_with_changes if a person put commits into it before the merge
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

// ModelUsage is what requests to a model used, as the gateways of runs counted it.
type ModelUsage struct {
	Model        string  `json:"model"`
	Input        int64   `json:"input_tokens"` // neither read from the provider's cache nor written to it
	CacheRead    int64   `json:"cache_read_tokens"`
	CacheWrite   int64   `json:"cache_write_tokens"`
	Output       int64   `json:"output_tokens"`
	CostUSD      float64 `json:"cost_usd"` // 0 if the model has no price
	Requests     int64   `json:"requests"`
	Retries      int64   `json:"retries"`
	Errors       int64   `json:"errors"`                   // requests that the provider did not answer
	FirstTokenMS int64   `json:"first_token_ms,omitempty"` // mean of the time to it
}

// Tokens is the number of all tokens.
func (u ModelUsage) Tokens() int64 { return u.Input + u.CacheRead + u.CacheWrite + u.Output }

// DayUsage is what the runs of an automation used of a model on a day.
type DayUsage struct {
	Day        string `json:"day"` // of UTC, such as 2026-11-26
	Factory    string `json:"factory,omitempty"`
	Automation string `json:"automation,omitempty"` // empty: runs that no automation started
	ModelUsage
}

// Usage is what a run used: as its gateway counted it, or else as its harness reported it.
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

// RunNotice is the body of the message that a run has started or ended.
type RunNotice struct {
	Type      string    `json:"type"` // run.inprogress, run.succeeded, run.failed, run.cancelled
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
