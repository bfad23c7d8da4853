package api

import "time"

// Worker is a process that executes runs.
type Worker struct {
	ID        string            `json:"id"`
	Name      string            `json:"name"` // the first of Names, or else Host
	Names     []string          `json:"names"`
	Labels    map[string]string `json:"labels"`
	Kind      string            `json:"kind"` // serve or worker
	Host      string            `json:"host"`
	Version   string            `json:"version"`
	Isolation string            `json:"isolation"` // empty: no isolation works there
	// State is ready, full, blocked (Blocked says why), draining (it only finishes its runs), drained,
	// stopped or lost (without a sign of life for too long).
	State         string     `json:"state"`
	Blocked       string     `json:"blocked,omitempty"`
	MaxRuns       int64      `json:"max_runs"`
	InProgress    int64      `json:"in_progress"`
	StartedAt     time.Time  `json:"started_at"`
	LastHeartbeat time.Time  `json:"last_heartbeat"`
	StoppedAt     *time.Time `json:"stopped_at,omitempty"`
}

// WorkerList is an answer with workers.
type WorkerList struct {
	Workers []Worker `json:"workers"`
}
