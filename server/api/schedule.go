package api

import (
	"encoding/json"
	"time"
)

// Schedule is an entry of GET /api/v1/agent/schedules.
type Schedule struct {
	ID             string            `json:"id"`
	Name           string            `json:"name"`
	Cron           string            `json:"cron_schedule"`
	Enabled        bool              `json:"enabled"`
	PausedReason   string            `json:"paused_reason,omitempty"` // set if the server paused the schedule, because its key has ended
	Prompt         string            `json:"prompt"`
	Factory        string            `json:"factory"`
	Automation     string            `json:"automation,omitempty"` // the automation whose file defines it
	AgentConfig    json.RawMessage   `json:"agent_config,omitempty"`
	AgentUID       string            `json:"agent_uid,omitempty"`
	Metadata       map[string]string `json:"metadata,omitempty"`
	History        ScheduleHistory   `json:"history"`
	LastSpawnError string            `json:"last_spawn_error,omitempty"`
	Scope          Scope             `json:"scope"`
	CreatedBy      Profile           `json:"created_by"`
	UpdatedBy      Profile           `json:"updated_by"`
	CreatedAt      time.Time         `json:"created_at"`
	UpdatedAt      time.Time         `json:"updated_at"`
}

// ScheduleHistory tells when a schedule last fired, and when it will fire next.
type ScheduleHistory struct {
	LastRan *time.Time `json:"last_ran"`
	NextRun *time.Time `json:"next_run"`
	// NextRuns are the next times at which the schedule will fire, the earliest first.
	NextRuns []time.Time `json:"next_runs"`
}

// WriteSchedule is the body that creates or updates a schedule.
type WriteSchedule struct {
	Name    string `json:"name"`
	Cron    string `json:"cron_schedule"`
	Enabled *bool  `json:"enabled"`
	Team    *bool  `json:"team"` // without effect, because there is only one team
	ScheduledRun
}

// ScheduledRun is the request that creates the runs of a schedule. The store keeps this JSON,
// so fields may only be added.
type ScheduledRun struct {
	Prompt   string            `json:"prompt,omitempty"`
	Config   json.RawMessage   `json:"agent_config,omitempty"` // a RunConfig
	Agent    string            `json:"agent_uid,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`
	Mode     string            `json:"mode,omitempty"`
}
