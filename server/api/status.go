package api

import (
	"encoding/json"
	"time"

	"triphammer/applier"
)

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
	Name         string       `json:"name"`
	Title        string       `json:"title,omitempty"` // the definition's own name
	Repository   string       `json:"repository"`
	Branch       string       `json:"branch"`
	Path         string       `json:"path"`
	Head         string       `json:"head"`
	Applied      *AppliedRef  `json:"applied"`
	LastApply    *LastApply   `json:"last_apply"`
	State        string       `json:"state"` // live, waiting (nothing serves yet), failing (something keeps the head from serving), pinned
	Pin          *applier.Pin `json:"pin,omitempty"`
	CheckedAt    *time.Time   `json:"checked_at,omitempty"`    // when the head was last read
	LookingSince *time.Time   `json:"looking_since,omitempty"` // of the look at the head that is under way
	Error        string       `json:"error,omitempty"`
	Reason       string       `json:"reason,omitempty"` // the error's kind: a word of applier.Reason
	Since        *time.Time   `json:"since,omitempty"`
	NextAttempt  *time.Time   `json:"next_attempt,omitempty"`
}

// PinRequest is what POST /api/v1/factories/<name>/pin takes.
type PinRequest struct {
	Commit string     `json:"commit"` // applied before; a prefix will do
	Reason string     `json:"reason"`
	Until  *time.Time `json:"until,omitempty"`
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
