package applier

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
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
	Trigger     string // start, watch, push, command, secret, dashboard, retry, pin, unpin
	Outcome     Outcome
	Error       string // of a failed one
	Diagnostics schema.Diagnostics
	Plan        Plan
	StartedAt   time.Time
	FinishedAt  time.Time
	Revision    *Revision // of an applied one
	Snapshot    Snapshot  // of an applied one, for Record alone

	past fs.FS // the files of a pinned commit
}

// Valid tells whether the definitions themselves are valid, whatever secrets this
// server lacks for them; known is false if they were not read to the end.
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

// State is what a factory serves and why not something newer.
type State struct {
	Factory, Repository, Branch, Path string
	Head                              string    // hash, empty if it never could be read
	Checked                           time.Time // when the head was last read
	Looking                           time.Time // since when the present look at the head lasts, zero: there is none
	Applied                           *Revision
	LastApply                         *Apply
	Pin                               *Pin
	Error                             string    // why the newest commit is not live, or empty
	Reason                            Reason    // the same as one word
	Since                             time.Time // of Error
	NextAttempt                       time.Time // zero: waits for a change
}

// Reason is what kind of thing keeps the newest commit from serving.
type Reason string

// The reasons. A refusal waits for another commit or secret; the others heal by
// themselves.
const (
	Invalid       Reason = "invalid"    // its definitions have errors
	Unverified    Reason = "unverified" // no allowed key signed it
	NoBranch      Reason = "no_branch"  // the repository has no such branch
	NoRepository  Reason = "no_repository"
	Denied        Reason = "denied"        // the repository refuses the credential
	Unreachable   Reason = "unreachable"   // the repository does not answer as it should
	Misconfigured Reason = "misconfigured" // a file or setting of the server that says how to read it is missing or wrong
	Damaged       Reason = "damaged"       // an object of the repository cannot be read
	Other         Reason = "other"         // what Error says
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

// State is the present state.
func (a *Applier) State() State {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.state
}

// explain derives what the state says about the newest commit: a failure hides
// the refusal before it. a.mu is held.
func (a *Applier) explain() State {
	a.state.Error, a.state.Reason, a.state.Since, a.state.NextAttempt = a.refusal.why, a.refusal.reason, a.refusal.since, time.Time{}
	if f := a.failure; f != nil {
		a.state.Error, a.state.Reason, a.state.Since, a.state.NextAttempt = f.why, f.reason, f.since, f.next
	}
	return a.state
}

// summary is the first error, and how many more there are.
func summary(all schema.Diagnostics) string {
	i := slices.IndexFunc(all, func(d schema.Diagnostic) bool { return d.Severity == schema.Error })
	if i < 0 {
		return "its definitions have errors"
	}
	text := all[i].Message
	if where := all[i].Path; where != "" {
		if all[i].Line > 0 {
			where += fmt.Sprintf(":%d", all[i].Line)
		}
		text = where + ": " + text
	}
	if n, _ := all.Counts(); n > 1 {
		text += fmt.Sprintf(" (and %d more)", n-1)
	}
	return text
}
