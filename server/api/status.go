package api

import (
	"encoding/json"
	"net/url"
	"strconv"
	"strings"
	"time"

	"triphammer/applier"
)

// Status is GET /api/v1/status.
type Status struct {
	Version string `json:"version"`
	// BaseURL is the address at which others reach the server and its pages.
	BaseURL   string           `json:"base_url"`
	Factories []FactoryStatus  `json:"factories"`
	Runs      map[string]int64 `json:"runs"` // number of unfinished runs, by state
	Storage   Storage          `json:"storage"`
	Clock     Clock            `json:"clock"`
	// Certificate is missing if the server has no TLS, and while no server runs.
	Certificate *Certificate `json:"tls_certificate,omitempty"`
	// Isolation is missing while no server runs.
	Isolation *Isolation `json:"isolation,omitempty"`
	Machine   *Machine   `json:"machine,omitempty"` // missing while no server runs
}

// Certificate is the TLS certificate of the server that answers.
type Certificate struct {
	ExpiresAt time.Time `json:"expires_at"`
	Valid     bool      `json:"valid"`             // by the machine's clock
	Problem   string    `json:"problem,omitempty"` // a text for people, from 14 days before the end on
}

// Machine is what the server found on its machine, for the runs that it executes.
type Machine struct {
	System      string    `json:"system"`        // such as linux/amd64
	Git         string    `json:"git,omitempty"` // version of git; missing: there is no git
	Harnesses   []Harness `json:"harnesses"`
	MaxRuns     int       `json:"max_runs"`     // number of runs at once; 0: the server starts no runs
	WorkerHosts []string  `json:"worker_hosts"` // names of the server as a worker
}

// Harness is an agent that is known by name.
type Harness struct {
	Name  string `json:"name"`
	Found bool   `json:"found"` // on the PATH of the server
}

// Isolation is what is around the runs of the server (SPEC 14).
type Isolation struct {
	Name       string   `json:"name"`                 // for all runs that demand no other isolation; empty: no isolation works
	User       string   `json:"user,omitempty"`       // user of the runs; missing: the server's user
	Containers string   `json:"containers,omitempty"` // container engine for runs that demand an image or a container
	Lacking    []string `json:"lacking"`              // why no stronger isolation works
	Limits     []string `json:"limits"`               // how the limits of runs are enforced
}

// Clock tells whether the server trusts the machine's clock. While it does not, it deletes
// nothing because of its age.
type Clock struct {
	Now          time.Time  `json:"now"`
	Expected     time.Time  `json:"expected"`                // what the clock would show if it had not jumped
	DoubtedUntil *time.Time `json:"doubted_until,omitempty"` // when the clock is trusted again if it does not jump again
	Problem      string     `json:"problem,omitempty"`       // a text for people
}

// Storage tells whether the store accepts deliveries, and how much disk space is free.
type Storage struct {
	// State is ok, low (new runs wait), critical (the run that takes the most is stopped) or
	// failing (deliveries are not accepted).
	State    string   `json:"state"`
	Problems []string `json:"problems"` // texts for people
	Volumes  []Volume `json:"places"`
}

// Volume is the file system of the data directory or of the workspaces.
type Volume struct {
	Name       string `json:"name"` // data or workspaces
	FreeBytes  int64  `json:"free_bytes"`
	TotalBytes int64  `json:"total_bytes"`
	FreeFiles  *int64 `json:"free_files,omitempty"` // free inodes, if the file system counts them
}

// FactoryStatus tells what one factory serves, and why it serves nothing newer.
type FactoryStatus struct {
	Name         string       `json:"name"`
	Title        string       `json:"title,omitempty"` // the name in the definition
	Repository   string       `json:"repository"`
	Branch       string       `json:"branch"`
	Path         string       `json:"path"`
	Hosted       bool         `json:"hosted"`              // the repository is on this server
	CloneURL     string       `json:"clone_url,omitempty"` // only of a hosted factory
	Links        *Links       `json:"links,omitempty"`     // pages of the service that has the repository, if they are known
	Head         string       `json:"head"`
	Applied      *AppliedRef  `json:"applied"`
	LastApply    *LastApply   `json:"last_apply"`
	State        string       `json:"state"` // live, waiting (nothing serves yet), failing (something keeps the head from serving), pinned
	Pin          *applier.Pin `json:"pin,omitempty"`
	Paused       []Paused     `json:"paused"`
	Unanswered   []Unanswered `json:"unanswered,omitempty"`      // the newest answers of the last week that could not be told, at most 20
	Undone       []Unanswered `json:"undone,omitempty"`          // the newest outputs of agents of the last week that could not be done, at most 20
	Questions    []Question   `json:"questions,omitempty"`       // the newest questions of agents of the last week that wait for a reply, at most 20
	SameBodies   *SameBodies  `json:"same_bodies,omitempty"`     // of the last 24 hours; absent: there are none
	CheckedAt    *time.Time   `json:"checked_at,omitempty"`      // when the head was last read
	LookingSince *time.Time   `json:"looking_since,omitempty"`   // when the present look at the head began
	Received     int64        `json:"received_bytes,omitempty"`  // in the present look at a remote repository
	Said         string       `json:"repository_says,omitempty"` // the repository's last line about its work for that look
	Error        string       `json:"error,omitempty"`
	Reason       string       `json:"reason,omitempty"` // the kind of the error, an applier.Reason
	Since        *time.Time   `json:"since,omitempty"`
	NextAttempt  *time.Time   `json:"next_attempt,omitempty"`
}

// SameBodies counts deliveries whose signed body came before under another id, accepted and refused ones.
type SameBodies struct {
	Count  int64  `json:"count"`  // at most 10000
	Newest string `json:"newest"` // the id of the newest of them
}

// Unanswered is what became of a run, or of a delivery without a run, and could not be told where its
// event came from (SPEC 22.5), or what the agent of a run asked for and could not be done (SPEC 23.2).
type Unanswered struct {
	RunID      string    `json:"run_id"`                // empty: there is no run
	DeliveryID string    `json:"delivery_id,omitempty"` // if there is no run
	ID         string    `json:"id"`                    // run_id, or else delivery_id
	Automation string    `json:"automation"`            // empty: there is no run
	Provider   string    `json:"provider"`              // such as github
	Kind       string    `json:"kind"`                  // thread, check or url; without a run unmatched or idle; or the kind of the output
	Detail     string    `json:"detail"`                // why, in words
	At         time.Time `json:"at"`
}

// WaitsForCommit says why an Empty factory serves nothing.
const WaitsForCommit = "the repository waits for its first commit"

// Empty tells whether the factory's repository has no commit yet. Nothing is wrong then, though
// Error says why nothing serves.
func (f FactoryStatus) Empty() bool { return f.State == "waiting" && f.Error != "" }

// PinRequest is the body of POST /api/v1/factories/<name>/pin.
type PinRequest struct {
	Commit string     `json:"commit"` // a commit that was applied before, or the beginning of its hash
	Reason string     `json:"reason"`
	Until  *time.Time `json:"until,omitempty"`
}

// AppliedRef is the live commit.
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

// FactoryRequest is the body of POST /api/v1/factories.
type FactoryRequest struct {
	Name string `json:"name"`
	// Empty leaves the repository without a commit, for a first push.
	Empty bool `json:"empty,omitempty"`
}

// Links are templates of the addresses of pages about a repository, on the service that has
// the repository. The reader replaces {commit}, {path} (from the folder that holds
// factory.yaml) and {line}.
type Links struct {
	Repository string `json:"repository"`
	Commit     string `json:"commit"`
	File       string `json:"file"`
}

// FileAt is the address of a file at a commit. line is 1-based; 0 means the whole file.
func (l *Links) FileAt(commit, path string, line int) string {
	address := l.File
	if line == 0 {
		address, _, _ = strings.Cut(address, "#")
	}
	parts := strings.Split(path, "/")
	for i, part := range parts {
		parts[i] = url.PathEscape(part)
	}
	return strings.NewReplacer("{commit}", url.PathEscape(commit), "{path}", strings.Join(parts, "/"), "{line}", strconv.Itoa(line)).Replace(address)
}
