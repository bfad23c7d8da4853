package applier

import (
	"errors"
	"io/fs"
	"time"

	"triphammer/applier/gitrepo"
	"triphammer/schema"
)

// Outcome of an Apply.
type Outcome string

// The outcomes.
const (
	Applied Outcome = "applied"
	Refused Outcome = "refused" // the definitions are not valid
	Failed  Outcome = "failed"  // something could not be read or written
)

// Apply is one attempt to make a commit live.
type Apply struct {
	ID          string
	Factory     string
	Repository  string
	Branch      string
	Commit      gitrepo.Commit
	Trigger     string // start, watch, push, command, secret, dashboard, change, retry, pin, unpin
	Outcome     Outcome
	Error       string // if Outcome is Failed
	Diagnostics schema.Diagnostics
	Plan        Plan
	StartedAt   time.Time
	FinishedAt  time.Time
	Revision    *Revision // if Outcome is Applied
	Snapshot    Snapshot  // if Outcome is Applied, and only for Record
	Base        string    // the id of the apply that was live when this apply began

	past fs.FS // the files of a pinned commit
}

// Valid tells whether the definitions are valid, whatever secrets this server lacks. known
// is false if the definitions were not checked to the end.
func (a *Apply) Valid() (valid, known bool) {
	valid, known = true, a.Outcome == Applied || a.Outcome == Refused
	for _, d := range a.Diagnostics {
		switch {
		case d.Code == schema.UnverifiedCommit:
			known = false
		case d.Severity == schema.Error && d.Code != schema.MissingSecret && d.Code != schema.BadSecret:
			valid = false
		}
	}
	return valid, known
}

// State is what a factory serves, and why it serves nothing newer.
type State struct {
	Factory, Repository, Branch, Path string
	Head                              string           // hash of the head; empty if it could never be read
	Checked                           time.Time        // when the head was last read
	Looking                           time.Time        // when the present look at the head began; zero: there is none
	Progress                          gitrepo.Progress // of the present look; zero if the source tells no progress
	Applied                           *Revision
	LastApply                         *Apply
	Pin                               *Pin
	Error                             string    // why the newest commit is not live; empty if it is live
	Reason                            Reason    // the kind of Error
	Since                             time.Time // when Error began
	NextAttempt                       time.Time // zero: the worker waits for a change
}

// Reason is the kind of problem that keeps the newest commit from serving.
type Reason string

// The reasons. Invalid and Unverified are refusals, which wait for another commit or
// secret. The others are tried again automatically.
const (
	Invalid       Reason = "invalid"    // its definitions have errors
	Unverified    Reason = "unverified" // no allowed key signed it
	NoBranch      Reason = "no_branch"  // the repository has no such branch
	NoRepository  Reason = "no_repository"
	Denied        Reason = "denied"        // the repository refuses the credential
	Unreachable   Reason = "unreachable"   // the repository does not answer as it should
	Misconfigured Reason = "misconfigured" // a file or setting of this server for access to the repository is missing or wrong
	Damaged       Reason = "damaged"       // an object of the repository cannot be read
	Other         Reason = "other"         // see Error
)

func reasonOf(err error) Reason {
	for _, r := range []struct {
		err    error
		reason Reason
	}{
		{gitrepo.ErrNoBranch, NoBranch},
		{gitrepo.ErrNoRepository, NoRepository},
		{gitrepo.ErrUnsupported, NoRepository},
		{gitrepo.ErrDenied, Denied},
		{gitrepo.ErrUnreachable, Unreachable},
		{gitrepo.ErrMisconfigured, Misconfigured},
		{gitrepo.ErrCorrupt, Damaged},
	} {
		if errors.Is(err, r.err) {
			return r.reason
		}
	}
	return Other
}

// State returns the present state.
func (a *Applier) State() State {
	a.mu.Lock()
	defer a.mu.Unlock()
	state := a.state
	if source, tells := a.cfg.Source.(interface{ Progress() gitrepo.Progress }); tells && !state.Looking.IsZero() {
		state.Progress = source.Progress()
	}
	return state
}
