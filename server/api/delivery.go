package api

import (
	"encoding/json"
	"time"
)

// Delivery is an entry of GET /api/v1/deliveries.
type Delivery struct {
	ID          string    `json:"id"`
	Webhook     string    `json:"webhook"`
	Factory     string    `json:"factory"`
	Outcome     string    `json:"outcome"`
	Label       string    `json:"label"`
	Size        int64     `json:"size"`
	ReceivedAt  time.Time `json:"received_at"`
	Identity    *Identity `json:"identity"`
	DuplicateOf string    `json:"duplicate_of"`
	ReplayOf    string    `json:"replay_of,omitempty"`
	// SameBodyAs is the delivery that brought the same signed body before under another id, which the sender does not sign.
	SameBodyAs string `json:"same_body_as,omitempty"`
	Reason     string `json:"reason"`
	Detail     string `json:"detail,omitempty"`
	ClientAddr string `json:"client_addr,omitempty"`
	TestBy     string `json:"test_by,omitempty"` // the person for whom the server sent the delivery as a test
	// Paused are the automations that matched but were paused.
	Paused []string `json:"paused,omitempty"`
	// Limited are the automations that have started enough for the person of the event, with the reason in words.
	Limited map[string]string `json:"limited,omitempty"`
	// Repeats are the automations that matched an event which another webhook had already
	// reported.
	Repeats []Repeat `json:"repeats,omitempty"`
	// Skips are the automations that matched while a run about the same subject was queued or
	// at work.
	Skips []Skip   `json:"skips,omitempty"`
	Runs  []string `json:"runs"` // the started runs that are still stored
	// RunsStarted is the number of started runs; 0: nothing matched. It is absent if the
	// delivery was not accepted, or if an older version recorded it.
	RunsStarted *int `json:"runs_started,omitempty"`
	// Subjects are what the delivery is about. They are known some time after it was accepted.
	Subjects []string `json:"subjects,omitempty"`
	// StartedRuns are the runs, with their states.
	StartedRuns []StartedRun `json:"started_runs,omitempty"`
	// Event is what happened, Person who did it, and Title what people call the thing that it is about, as
	// the sender has them; Title is text of a stranger. Nearest is, if no
	// automation matched, the automation that came nearest, without its conditions. A list has these
	// if it is asked for them, as far as they are found quickly.
	Event   string `json:"event,omitempty"`
	Person  string `json:"person,omitempty"`
	Title   string `json:"title,omitempty"`
	Nearest *Match `json:"nearest,omitempty"`
}

// Repeat is an automation that another delivery started for the same event.
type Repeat struct {
	Automation string `json:"automation"`
	Of         string `json:"of"`
}

// Skip is an automation that started nothing, because a run about the same subject was queued
// or at work.
type Skip struct {
	Automation string `json:"automation"`
	Of         string `json:"of"`
}

// StartedRun is a run that a delivery started.
type StartedRun struct {
	RunID      string     `json:"run_id"`
	ID         string     `json:"id"` // equal to run_id
	Automation string     `json:"automation"`
	State      string     `json:"state"`
	StartedAt  *time.Time `json:"started_at,omitempty"`
	FinishedAt *time.Time `json:"finished_at,omitempty"`
}

// Identity identifies a delivery. Deliveries with the same identity are duplicates.
type Identity struct {
	Source string `json:"source"`
	Value  string `json:"value"`
}

// DeliveryDetail is GET /api/v1/deliveries/<id>.
type DeliveryDetail struct {
	Delivery
	WebhookUID       string            `json:"webhook_uid"`
	Headers          map[string]string `json:"headers"`
	ApplyID          string            `json:"apply_id,omitempty"`
	Commit           string            `json:"commit,omitempty"`
	Path             string            `json:"definition_path,omitempty"` // of the webhook's file that decided the delivery
	Blob             string            `json:"definition_blob,omitempty"` // Git object name of that file
	SecretGeneration int64             `json:"secret_generation"`
	Belt             []Stage           `json:"belt"`
	Waiting          bool              `json:"waiting,omitempty"` // the sender's API is asked for what is missing; then more may start
	Matches          []Match           `json:"matches"`
	Disabled         []Match           `json:"disabled"`  // the results that disabled automations would have had
	RunBelts         []RunBelt         `json:"run_belts"` // how the belt goes on in the runs that are still stored
}

// RunBelt is how far a run of a delivery came.
type RunBelt struct {
	RunID      string  `json:"run_id"`
	ID         string  `json:"id"` // equal to run_id
	Automation string  `json:"automation"`
	State      string  `json:"state"`
	RetryOf    string  `json:"retry_of_run_id,omitempty"` // the run that this run repeats, because somebody retried it
	Link       string  `json:"link"`                      // to the run's page
	Belt       []Stage `json:"belt"`
}

// Stage is one step of the belt of a delivery or of a run.
type Stage struct {
	Stage   string `json:"stage"`
	Outcome string `json:"outcome"` // passed, active (the present stage), stopped, not_reached
	Detail  string `json:"detail"`
}

// Match tells whether a delivery matched an automation, and if not, why.
type Match struct {
	Automation string      `json:"automation"`
	Matched    bool        `json:"matched"`
	Path       string      `json:"path"`
	Want       string      `json:"want"`
	Got        string      `json:"got"`
	Definition string      `json:"definition_path,omitempty"` // of the automation
	Blob       string      `json:"definition_blob,omitempty"`
	Conditions []Condition `json:"conditions,omitempty"`
	// Subject is what the event is about, if it matched. SubjectLacks is the path of the automation's
	// own subject that has no value in the payload.
	Subject      string `json:"subject,omitempty"`
	SubjectLacks string `json:"subject_lacks,omitempty"`
}

// Held is how many conditions hold.
func (m Match) Held() (n int) {
	for _, c := range m.Conditions {
		if c.OK {
			n++
		}
	}
	return n
}

// Why says in a few words what kept an automation back; empty: no condition did.
func (m Match) Why() string {
	switch {
	case m.Matched || m.Path == "":
		return ""
	case m.Got == "nothing": // as factory/filter says it
		return "there is no " + m.Path
	}
	return m.Path + " is " + m.Got
}

// Nearest is the automation that a delivery matched, or else the automation with the most conditions
// that hold; nil if there is none.
func Nearest(all []Match) (near *Match) {
	for i := range all {
		m := &all[i]
		if near == nil || m.Matched && !near.Matched || m.Matched == near.Matched && m.Held() > near.Held() {
			near = m
		}
	}
	return near
}

// Condition is one condition of a payload filter.
type Condition struct {
	Path string `json:"path"`
	Want string `json:"want"`
	Got  string `json:"got"`
	OK   bool   `json:"ok"`
}

// Replayed is the answer to a replay: the new delivery and the runs that it started.
type Replayed struct {
	DeliveryID string   `json:"delivery_id"`
	ID         string   `json:"id"` // equal to delivery_id
	Runs       []string `json:"runs"`
}

// SendTest asks the server to send a test to a webhook, as its sender would.
type SendTest struct {
	// Event chooses a sample of the sender. Empty: the first sample, or no sample if there is a
	// payload.
	Event   string            `json:"event"`
	Headers map[string]string `json:"headers"`
	Payload json.RawMessage   `json:"payload"` // sent byte for byte; absent or null: the payload of the sample
}

// TestSent is the webhook's answer to a test.
type TestSent struct {
	Status   int       `json:"status"`   // the HTTP status that a sender would get
	Delivery *Delivery `json:"delivery"` // the entry in the log; null if the test was a sender's question, which the log does not keep
}
