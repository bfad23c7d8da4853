package factory

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"triphammer/schema"
)

// Push says what a run may push to the repositories that it reaches with a secret
// (SPEC 23.3). Zero fields are defaults.
type Push struct {
	Branches []string `json:"branches,omitempty"` // patterns of names; * stands for any text, and RefEvent for the branch of the event's pull request
	Tags     []string `json:"tags,omitempty"`
	Max      int64    `json:"max,omitempty"`       // branches and tags
	MaxBytes int64    `json:"max_bytes,omitempty"` // of all pushes
}

// ownBranches are what everybody may push.
const ownBranches = "triphammer/"

// WithDefaults is p with the values of the keys that it does not have.
func (p Push) WithDefaults() Push {
	if len(p.Branches) == 0 {
		p.Branches = []string{ownBranches + "*", RefEvent}
	}
	p.Max, p.MaxBytes = cmp.Or(p.Max, 3), cmp.Or(p.MaxBytes, 64<<20)
	return p
}

func pushOf(d *document) Push {
	n := d.Root.Get("push")
	if n == nil {
		return Push{}
	}
	return Push{
		Branches: textsOf(n.Get("branches")), Tags: textsOf(n.Get("tags")),
		Max: int64(amount(d, "push.max", maxPushed)), MaxBytes: int64(amount(d, "push.maxBytes", maxPushedBytes)),
	}
}

// pushable matches what can be the name of a branch or tag, with * for any text.
var pushable = regexp.MustCompile(`^[^\s~^:?\[\\]+$`)

// speaksOfPush matches a text that has an agent push.
var speaksOfPush = regexp.MustCompile(`(?i)\bpush(es|ed|ing)?\b`)

// pushes warns of rules for pushes that mean nothing, and of an automation whose prompt speaks of a push
// and does not say where it may go.
func (l *loader) pushes(d *document, a *Automation) {
	e, writable := l.environments[a.Settings.EnvironmentID], l.writable(a)
	if n := d.Root.Get("push"); n != nil {
		if !writable {
			d.Warn(d.Root.KeyAt("push"), schema.NoEffect, "name an environment with such a repository, or take push out",
				"push has no effect: the environment of the automation has no repository with a secret and access: write")
		}
		for _, key := range []string{"branches", "tags"} {
			list := n.Get(key)
			for i, name := range textsOf(list) {
				if !pushable.MatchString(name) || strings.HasPrefix(name, "refs/") {
					d.Warn(list.Items[i].At, schema.NoEffect, "write the name alone, such as fix-*", fmt.Sprintf("push.%s: %s has no effect, because it is not the name of any", key, name))
				}
			}
		}
		return
	}
	text := a.Prompt
	if agent := l.factory.Agent(a.Agent); agent != nil {
		text += "\n" + agent.Prompt
	}
	if e != nil {
		text += "\n" + strings.Join(e.Command, "\n")
	}
	if !writable || !speaksOfPush.MatchString(text) || strings.Contains(text, ownBranches) || allPulls(a.Triggers) {
		return
	}
	d.Warn(d.Root.KeyAt("triggers"), schema.HeldPush, "name a branch such as triphammer/fix in the prompt, or say which branches with push: {branches: [fix-*]}",
		"it speaks of a push and names no branch that begins with triphammer/: without push.branches, its runs push to such branches alone, and to that of the event's pull request")
}

// writable tells whether the environment of an automation has a repository to which its runs can push.
func (l *loader) writable(a *Automation) bool {
	e := l.environments[a.Settings.EnvironmentID]
	return e != nil && slices.ContainsFunc(e.Repositories, func(r Repository) bool { return r.Secret != "" && !r.ReadOnly() })
}

// allPulls tells whether all events are about pull requests, whose branch a run may push to.
func allPulls(triggers []Trigger) bool {
	return !slices.ContainsFunc(triggers, func(t Trigger) bool {
		return t.Native == nil || !strings.Contains(t.Event, "pull_request") && !strings.Contains(t.Event, "merge_request")
	})
}
