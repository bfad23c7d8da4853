package api

import "time"

// Approval is something that waits, or waited, for the decision of a person: that a run starts, or that an
// output is done (SPEC 26.1).
type Approval struct {
	Shown     string     `json:"shown"`              // the hash of exactly what is shown: a decision carries it
	Outsider  bool       `json:"outsider,omitempty"` // startedBy does not list the person of the event
	AskedAt   time.Time  `json:"asked_at"`
	EndsAt    time.Time  `json:"ends_at"`            // it is declined then
	Decision  string     `json:"decision,omitempty"` // approved, declined, expired (nobody decided) or withdrawn (the run was cancelled); absent: it waits
	By        string     `json:"by,omitempty"`       // who decided
	Through   string     `json:"through,omitempty"`  // who, and through what, as the audit log has it
	Reason    string     `json:"reason,omitempty"`
	DecidedAt *time.Time `json:"decided_at,omitempty"`
}

// InboxItem is something that waits for a person.
type InboxItem struct {
	// Kind is start (a run waits to start), outputs (what an agent asked for waits), question (an agent waits for a reply), answer or output (it was
	// given up), pause, or commit (it does not serve).
	Kind       string     `json:"kind"`
	Factory    string     `json:"factory"`
	Automation string     `json:"automation,omitempty"`
	RunID      string     `json:"run_id,omitempty"`
	ID         string     `json:"id,omitempty"`     // equal to run_id
	Title      string     `json:"title"`            // what waits, in words
	Text       string     `json:"text,omitempty"`   // more of it, such as why
	Person     string     `json:"person,omitempty"` // who caused the event, such as github:ada
	Subject    string     `json:"subject,omitempty"`
	Since      time.Time  `json:"since"`
	EndsAt     *time.Time `json:"ends_at,omitempty"`
	Shown      string     `json:"shown,omitempty"`   // of start and outputs: the hash of all that waits, for one decision about it
	Outputs    []Output   `json:"outputs,omitempty"` // those that wait
	Command    string     `json:"command,omitempty"` // what answers it
}

// Decide is the body of POST /api/v1/agent/runs/{id}/decision.
type Decide struct {
	Decision string `json:"decision"` // approve or decline
	// Shown is the hash of what was shown: of one output, or of all that waits of the run. Approving
	// needs it.
	Shown  string `json:"shown"`
	Output int64  `json:"output"` // the number of the output; 0: everything of the run that waits
	Reason string `json:"reason"`
}

// Decided is the answer to a Decide.
type Decided struct {
	RunID    string `json:"run_id"`
	ID       string `json:"id"` // equal to run_id
	State    string `json:"state"`
	Decision string `json:"decision"` // approved or declined
}
