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
	// Newest is its newest delivery, with what it is about; only in lists that are asked for it.
	Newest *Delivery `json:"newest,omitempty"`
}

// SubjectStory is GET /api/v1/subjects/story: everything about one subject.
type SubjectStory struct {
	Subject   string    `json:"subject"`
	Factories []Subject `json:"factories"` // what came of it in each factory
	Story     []Chapter `json:"story"`     // oldest first
	// Truncated tells that only the newest entries of a kind are here. The lists of deliveries and
	// runs have all of them, with the parameter subject.
	Truncated bool `json:"truncated,omitempty"`
}

// Chapter is an entry of a SubjectStory; one field besides At is set.
type Chapter struct {
	At          time.Time    `json:"at"`
	Delivery    *Delivery    `json:"delivery,omitempty"`
	Run         *Run         `json:"run,omitempty"` // with its belt if it has not ended
	PullRequest *PullRequest `json:"pull_request,omitempty"`
	Answer      *Answer      `json:"answer,omitempty"`
	Output      *Output      `json:"output,omitempty"`
}

// Answer is what is told of a run where its event came from (SPEC 22).
type Answer struct {
	RunID      string    `json:"run_id"`
	ID         string    `json:"id"` // equal to run_id
	Automation string    `json:"automation"`
	Provider   string    `json:"provider"`        // such as github
	Kind       string    `json:"kind"`            // thread, check or question
	Status     string    `json:"status"`          // pending, delivered, failed (it needs a person), none (nothing is told)
	Place      string    `json:"place,omitempty"` // where it goes: a page, or else a name
	Link       string    `json:"link,omitempty"`  // of what was told
	Detail     string    `json:"detail"`          // in words: what was told, what it waits for, or why nothing is told
	UpdatedAt  time.Time `json:"updated_at"`
	// RetryAt is the time of the next attempt, after one that failed.
	RetryAt *time.Time `json:"retry_at,omitempty"`
	// Text is what is told of the run now, or would be told, as people read it. Stories leave it out.
	Text string `json:"text,omitempty"`
}

// PullRequest is a pull request that a run left.
type PullRequest struct {
	Outcome   string    `json:"outcome,omitempty"` // as in ArtifactData
	ID        string    `json:"id"`                // of the artifact
	URL       string    `json:"url"`
	Name      string    `json:"name"`
	RunID     string    `json:"run_id"`
	CreatedAt time.Time `json:"created_at"`
}
