// Package factory reads a whole factory: every definition, and the rules between them.
//
// [Load] reads a tree (SPEC 2) and returns its definitions together with everything
// that is wrong with them. A [Factory] is plain data with compiled filters and resolved
// signature schemes. It never changes after Load, so any number of goroutines may read it.
//
// The package does not know servers, the values of secrets, or Git. Names that only a
// server can resolve are listed as deferred.
package factory

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"

	"triphammer/factory/match"
	"triphammer/factory/native"
	"triphammer/schema"
	"triphammer/schema/output"
)

// Limits of a tree (SPEC 2.5).
const (
	MaxWebhooks     = 20
	DefaultMaxFiles = 10_000
	DefaultMaxBytes = 16 << 20
	// DefaultMaxFindings is how many findings Load reports if Options set no number.
	DefaultMaxFindings = 10_000
)

// Factory is one definition tree. It is immutable once loaded.
type Factory struct {
	Name, Description, Alias string
	Defaults                 Settings // agentDefaults
	Secrets                  []string // granted to every run, besides the run's own secrets
	Webhooks                 []*Webhook
	Automations              []*Automation
	Agents                   []*Agent
	Environments             []*Environment
	Repositories             []Repository // a workspace holds a clone of each, unless its environment names repositories
	MCPServers               []MCPServer  // for every agent, besides the agent's own servers
	Skills                   []*Skill     // sorted by agent, those of all agents first, then by name
	Runners                  []*Runner
	Tests                    []*Test
	Files                    []string // paths of all definition files, sorted
	Definitions              []Definition

	blobs      map[string]string
	unresolved []unresolved
}

// unresolved is a name that no definition in the tree has.
type unresolved struct {
	path string
	schema.At
	kind, name string
}

// Foreman is the agent that runs automations which name no agent; nil in a tree without
// agents.
func (f *Factory) Foreman() *Agent {
	return find(f.Agents, func(a *Agent) bool { return a.Type == foreman })
}

// Agent finds an agent by name; nil: there is none.
func (f *Factory) Agent(name string) *Agent {
	return find(f.Agents, func(a *Agent) bool { return a.Name == name })
}

// Webhook finds a webhook by its file name; nil: there is none.
func (f *Factory) Webhook(name string) *Webhook {
	return find(f.Webhooks, func(w *Webhook) bool { return w.Name == name })
}

// Automation finds an automation by name; nil: there is none.
func (f *Factory) Automation(name string) *Automation {
	return find(f.Automations, func(a *Automation) bool { return a.Name == name })
}

// Environment finds an environment by name; nil: there is none.
func (f *Factory) Environment(name string) *Environment {
	return find(f.Environments, func(e *Environment) bool { return e.Name == name })
}

// Runner finds a runner by name; nil: there is none.
func (f *Factory) Runner(name string) *Runner {
	return find(f.Runners, func(r *Runner) bool { return r.Name == name })
}

func find[T any](all []*T, is func(*T) bool) *T {
	if i := slices.IndexFunc(all, is); i >= 0 {
		return all[i]
	}
	return nil
}

// Blob is the Git object name of a definition file. A run records it, because the same
// text can be in many commits.
func (f *Factory) Blob(path string) string { return f.blobs[path] }

func blobName(data []byte) string {
	h := sha1.New()
	h.Write([]byte("blob " + strconv.Itoa(len(data)) + "\x00"))
	h.Write(data)
	return hex.EncodeToString(h.Sum(nil))
}

// Selecting are the enabled automations with a trigger that selects the webhook
// (SPEC C6.3), sorted by name.
func (f *Factory) Selecting(w *Webhook, uid string) []*Automation {
	var all []*Automation
	for _, a := range f.Automations {
		if a.Enabled && a.Selects(w, uid) {
			all = append(all, a)
		}
	}
	return all
}

// Candidates are the automations of Selecting, in the form that the matcher takes.
func (f *Factory) Candidates(w *Webhook, uid string) []match.Candidate {
	selecting := f.Selecting(w, uid)
	all := make([]match.Candidate, len(selecting))
	for i, a := range selecting {
		all[i] = a.Candidate(w, uid)
	}
	return all
}

// Disabled are the automations that would select the webhook if they were enabled,
// in the form that the matcher takes.
func (f *Factory) Disabled(w *Webhook, uid string) []match.Candidate {
	var all []match.Candidate
	for _, a := range f.Automations {
		if !a.Enabled && a.Selects(w, uid) {
			all = append(all, a.Candidate(w, uid))
		}
	}
	return all
}

// Selects tells whether deliveries of the webhook can fire a trigger.
func (a *Automation) Selects(w *Webhook, uid string) bool {
	return slices.ContainsFunc(a.Triggers, func(t Trigger) bool { return t.Selects(w, uid) })
}

// Candidate is the automation in the form that the matcher takes, with the triggers
// that select the webhook.
func (a *Automation) Candidate(w *Webhook, uid string) match.Candidate {
	c := a.candidate(func(t *Trigger) bool { return t.Selects(w, uid) })
	c.Accounts, c.Webhook = w.Accounts, w.Name
	s := w.Sender()
	_, asks := a.Outputs[output.Ask]
	if s == nil || !w.Replies && !asks {
		return c
	}
	c.Threads = w.Replies
	if t := a.triggerOf(s); t != nil {
		for _, e := range []*native.Event{s.Reply, s.Comment} {
			if e != nil && (asks || e == s.Reply) {
				who := t.StartedBy
				if who != nil && who.Outsiders && c.ToQuestion(e) { // nobody waits for a reply whom nobody asked
					who = &native.Starters{Roles: who.Roles, Names: who.Names}
				}
				c.Replies = append(c.Replies, &native.Trigger{Event: e, StartedBy: who})
			}
		}
	}
	return c
}

// AnyWebhook is the automation in the form that the matcher takes, with all triggers that
// deliveries can fire, whatever their webhook.
func (a *Automation) AnyWebhook() match.Candidate {
	return a.candidate(func(t *Trigger) bool { return t.webhook() || t.Native != nil })
}

func (a *Automation) candidate(counts func(*Trigger) bool) match.Candidate {
	c := match.Candidate{Automation: a.Name, Subject: a.Subject}
	for i := range a.Triggers {
		if t := &a.Triggers[i]; counts(t) {
			c.Triggers = append(c.Triggers, match.Trigger{Headers: t.Headers, Payload: t.Payload, Native: t.Native})
		}
	}
	return c
}

// Unresolved warns of names without a file: environments, runners, and UIDs of webhooks
// that are not in uids (SPEC 2.2a, 4.7). Only a server knows the UIDs. A name without a
// file is no error: a trigger that selects an unknown UID fires nothing, and a run that
// needs an unknown environment or runner fails and says so.
func (f *Factory) Unresolved(uids map[string]bool) schema.Diagnostics {
	var found schema.Diagnostics
	budget := schema.NewBudget(DefaultMaxFindings)
	for _, u := range f.unresolved {
		c := schema.Collector{Path: u.path, Budget: budget}
		switch u.kind {
		case kindUID:
			if !uids[u.name] {
				c.Warn(u.At, schema.UnknownTarget, "name the file in filter.webhooks instead", fmt.Sprintf("no webhook has the UID %s: this selection fires nothing", u.name))
			}
		case kindEnvironment:
			if ElsewhereEnvironment(u.name) {
				c.Warn(u.At, schema.UnknownTarget, fmt.Sprintf("say in environments/%s.yaml what runs need of it", u.name),
					fmt.Sprintf("there is no environments/%s.yaml, and this is an identifier of an environment elsewhere: runs go without an environment", u.name))
				break
			}
			known := names(f.Environments, func(e *Environment) string { return e.Name })
			c.Warn(u.At, schema.UnknownTarget, c.OneOf(u.name, known), fmt.Sprintf("there is no environments/%s.yaml: a run that needs it fails", u.name))
		case kindRunner:
			c.Warn(u.At, schema.UnknownTarget, c.OneOf(u.name, names(f.Runners, func(r *Runner) string { return r.Name })), fmt.Sprintf("there is no runners/%s.yaml: a run that needs it fails", u.name))
		}
		found = append(found, c.Found...)
	}
	if rest, more := budget.Rest("factory.yaml"); more {
		found = append(found, rest)
	}
	return found
}
