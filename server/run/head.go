package run

import (
	"fmt"
	"slices"

	"triphammer/factory"
	"triphammer/factory/native"
	"triphammer/server/run/task"
	"triphammer/server/worker/harness"
)

// Checkouts tells whether a repository of the run may be checked out at what its event is about.
func (s *Spec) Checkouts() bool {
	return slices.ContainsFunc(s.repositories(), func(r factory.Repository) bool { return r.Ref == "" || r.Ref == factory.RefEvent })
}

// About makes the task check out what the event is about (SPEC 21.7). t has the repositories and secrets
// of the spec. head is nil if the run has no event that is about code. unknown tells that the run goes on
// in a workspace of which nobody knows any more whose code it has.
//
// A repository whose ref is factory.RefEvent is checked out at the head if the event happened in it. So is
// a repository without a ref, if the event says whose the head is. If the head is not known to be the
// repository's own, nothing is granted but what the agent needs to reach its model.
func (s *Spec) About(t *task.Task, head *native.Head, unknown bool) (warnings []string) {
	foreign := unknown
	for i, r := range s.repositories() {
		asked := r.Ref == factory.RefEvent
		switch {
		case !asked && (r.Ref != "" || head == nil || head.Whose == native.Unknown || !head.In(r.URL)):
			continue
		case head == nil:
			continue
		case !head.In(r.URL):
			warnings = append(warnings, fmt.Sprintf("the event is about code of another repository than %s, whose default branch is checked out", task.ShownURL(r.URL)))
			continue
		}
		h := &task.Head{What: head.What, Fetch: head.Fetch, Branch: head.Branch, Base: head.Base, Foreign: head.Whose != native.Own}
		t.Repositories[i].Head, foreign = h, foreign || h.Foreign
	}
	if foreign {
		s.withhold(t)
	}
	return warnings
}

// withhold takes from a task what a run on a stranger's code does not get: secrets other than the
// credentials of the agent's model, and pushing.
func (s *Spec) withhold(t *task.Task) {
	t.Foreign, t.Instructions = true, harness.Instructions()
	for i := range t.Repositories {
		t.Repositories[i].ReadOnly = true
	}
	kept := []string{s.Harness.AuthSecret}
	if h := s.harness(); h != nil {
		kept = append(kept, h.Variables...)
	}
	for name := range t.Secrets {
		if !slices.Contains(kept, name) && slices.Contains(s.Secrets, name) {
			delete(t.Secrets, name)
		}
	}
}

// harness is the harness that starts the agent; nil: it is not known.
func (s *Spec) harness() *harness.Harness {
	if s.Commanded() {
		return harness.OfCommand(s.Environment.Command)
	}
	return harness.Named(s.Harness.Type)
}

// HeadOf says for people that a run works on another repository's code, and what it is not given. It is
// empty for other runs.
func HeadOf(t *task.Task) string {
	if t == nil || !t.Foreign {
		return ""
	}
	return "head of another repository: no secrets, no push"
}
