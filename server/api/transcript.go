package api

import (
	"encoding/json"
	"time"
)

// Event is an entry of a transcript.
type Event struct {
	Seq  int64           `json:"seq"`
	At   time.Time       `json:"at"`
	Kind string          `json:"kind"`
	Data json.RawMessage `json:"data"`
}

// Transcript is GET /api/v1/agent/runs/<id>/transcript. If one answer cannot hold all
// events, the next ones are at ?after=<next_cursor>.
type Transcript struct {
	RunID    string   `json:"run_id"`
	ID       string   `json:"id"` // equal to run_id
	State    string   `json:"state"`
	Events   []Event  `json:"events"`
	PageInfo PageInfo `json:"page_info"`
}

// StateEvent is the data of a state event of a stream.
type StateEvent struct {
	RunID         string     `json:"run_id"`
	ID            string     `json:"id"` // equal to run_id
	State         string     `json:"state"`
	StatusMessage string     `json:"status_message,omitempty"`
	ExitCode      *int64     `json:"exit_code,omitempty"`
	At            *time.Time `json:"at,omitempty"`
}

// Timeline is GET /api/v1/agent/runs/<id>/timeline.
type Timeline struct {
	Events []TimelineEvent `json:"events"`
}

// TimelineEvent is a milestone of a run.
type TimelineEvent struct {
	UUID        string    `json:"event_uuid"`
	ID          string    `json:"id"` // equal to event_uuid
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

// Step is a part of a Conversation. A run has one step.
type Step struct {
	ID          string                `json:"id"`
	Description string                `json:"description,omitempty"`
	StartedAt   *time.Time            `json:"started_at,omitempty"`
	CompletedAt *time.Time            `json:"completed_at,omitempty"`
	Messages    []ConversationMessage `json:"messages"`
	Steps       []Step                `json:"steps"`
}

// ConversationMessage is a message or an action of one side of a Conversation.
type ConversationMessage struct {
	Role      string     `json:"role"` // user, assistant, tool, system
	Content   []Content  `json:"content"`
	Timestamp *time.Time `json:"timestamp,omitempty"`
}

// Content is a part of a ConversationMessage. Its field type determines the other fields.
type Content map[string]any
