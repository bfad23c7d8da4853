// Package terms has the words that the store, the API and its clients share: outcomes, stages,
// states, scopes and prefixes of ids.
package terms

import (
	"fmt"
	"strings"
)

// Outcome of a delivery (SPEC C2.3).
type Outcome string

// The outcomes.
const (
	Accepted            Outcome = "accepted"
	Duplicate           Outcome = "duplicate"
	RejectedAuth        Outcome = "rejected_auth"
	RejectedInvalidJSON Outcome = "rejected_invalid_json"
	RejectedTooLarge    Outcome = "rejected_too_large"
)

// Outcomes are all outcomes.
var Outcomes = []Outcome{Accepted, Duplicate, RejectedAuth, RejectedInvalidJSON, RejectedTooLarge}

// Label is the wording of SPEC C2.3.
func (o Outcome) Label() string {
	switch o {
	case Accepted:
		return "Accepted"
	case Duplicate:
		return "Duplicate"
	case RejectedAuth:
		return "Rejected (auth)"
	case RejectedInvalidJSON:
		return "Rejected (invalid JSON)"
	case RejectedTooLarge:
		return "Rejected (too large)"
	}
	return string(o)
}

// Came describes the result of an accepted delivery that started the given number of runs.
// It is empty if the delivery was not accepted, or if the number is negative, which means
// unknown.
func (o Outcome) Came(started int) string {
	switch {
	case o != Accepted || started < 0:
		return ""
	case started == 0:
		return "nothing matched"
	}
	return Counted(started, "run")
}

// Stages are the stages at which a delivery can leave the belt.
var Stages = []string{"received", "authenticated", "parsed", "new", "matched", "run"}

// Went is the stage of deliveries that did not leave the belt, because they started a run.
const Went = "none"

// The outcomes of a stage.
const (
	Passed     = "passed"
	Active     = "active" // the present stage
	Stopped    = "stopped"
	NotReached = "not_reached"
)

// Mark is the outcome of a stage as one character.
func Mark(outcome string) string {
	switch outcome {
	case Passed:
		return "✓"
	case Active:
		return "…"
	case Stopped:
		return "✗"
	}
	return "·"
}

// RunState is the state of a run (SPEC C3.1, 9.1; package run draws the changes).
type RunState string

// The states. The last three are terminal and never change.
const (
	Blocked    RunState = "BLOCKED" // it waits for a person before its first attempt (SPEC 26.1)
	Queued     RunState = "QUEUED"
	InProgress RunState = "INPROGRESS"
	Succeeded  RunState = "SUCCEEDED"
	FailedRun  RunState = "FAILED"
	Cancelled  RunState = "CANCELLED"
)

// RunStates are all states.
var RunStates = []RunState{Blocked, Queued, InProgress, Succeeded, FailedRun, Cancelled}

// Terminal tells whether a run in this state has finished.
func (r RunState) Terminal() bool { return r == Succeeded || r == FailedRun || r == Cancelled }

// Scopes of an API key (SPEC 10.2).
const (
	ScopeRuns    = "runs"    // create, read and cancel runs
	ScopeRead    = "read"    // read everything
	ScopeOperate = "operate" // runs, read, and replay, pause, apply and pin
	ScopeManage  = "manage"  // everything
)

// Scopes are all scopes, the least first.
var Scopes = []string{ScopeRuns, ScopeRead, ScopeOperate, ScopeManage}

// Counted is a number of things: "1 run", "2 runs".
func Counted[N int | int64](n N, thing string) string {
	if n != 1 {
		thing = Many(thing)
	}
	return fmt.Sprintf("%d %s", n, thing)
}

// Many is the word for several things.
func Many(thing string) string {
	if strings.HasSuffix(thing, "y") && !strings.HasSuffix(thing, "ey") {
		return strings.TrimSuffix(thing, "y") + "ies"
	}
	return thing + "s"
}

// Words names all values of a kind, for an error or a description.
func Words[T ~string](all []T) string {
	return strings.Join(Each(all, func(one T) string { return string(one) }), ", ")
}

// Each has what a function makes of each entry of a list, in their order. It is never nil.
func Each[T, R any](all []T, made func(T) R) []R {
	list := make([]R, len(all))
	for i, one := range all {
		list[i] = made(one)
	}
	return list
}
