package api

import "time"

// Subject is an entry of GET /api/v1/subjects: a thing that events are about, in one factory, and what
// came of them, as far as it is kept.
type Subject struct {
	Subject    string    `json:"subject"` // such as github:acme/app#12
	Factory    string    `json:"factory"`
	NewestAt   time.Time `json:"newest_at"` // of its newest delivery or run
	Deliveries int64     `json:"deliveries"`
	Runs       int64     `json:"runs"`
	Active     int64     `json:"active_runs"` // runs that wait or are at work
	Tokens     int64     `json:"tokens"`
	CostUSD    float64   `json:"cost_usd"`
}

// SubjectStory is GET /api/v1/subjects/story: everything about one subject.
type SubjectStory struct {
	Subject      string        `json:"subject"`
	Factories    []Subject     `json:"factories"`     // what came of it in each factory
	Deliveries   []Delivery    `json:"deliveries"`    // newest first
	Runs         []Run         `json:"runs"`          // newest first
	PullRequests []PullRequest `json:"pull_requests"` // newest first
	// Truncated tells that only the newest entries of a list are here. The lists of deliveries and
	// runs have all of them, with the parameter subject.
	Truncated bool `json:"truncated,omitempty"`
}

// PullRequest is a pull request that a run left.
type PullRequest struct {
	ID        string    `json:"id"` // of the artifact
	URL       string    `json:"url"`
	Name      string    `json:"name"`
	RunID     string    `json:"run_id"`
	CreatedAt time.Time `json:"created_at"`
}
