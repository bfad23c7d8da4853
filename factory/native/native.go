// Package native has the events of senders, which triggers name directly: `provider:
// github, event: issue_labeled` (SPEC 16).
//
// It is one table. A [Sender] is a service, an [Event] of it is a row that says in which
// deliveries the event is ([Event.In]) and where in a delivery each filter key has its
// values ([Key]). The validator's catalogue of triggers, the matcher, the reference and
// the samples are made from the table, so a new event is a row.
//
// There are two ways to evaluate, as in package filter. [Trigger.Explain] evaluates one
// trigger and says what failed. An [Index] evaluates any number of triggers in one pass
// over the delivery; deliveries use it. Tests hold both ways to the same verdicts, and to
// a third that was written from the published rules.
//
// It asks nobody: what a delivery lacks, and only the sender's API can tell, is returned
// as a [Question].
package native

import (
	"maps"
	"slices"
	"strings"
)

// Sender is a service whose deliveries carry events.
type Sender struct {
	Provider string   // as triggers name it, such as github
	Title    string   // as it names itself
	Schemes  []string // the signature schemes of its webhooks
	Source   string   // of runs that its events start (SPEC 16.4)
	Docs     string   // where its payloads are described
	API      string   // address of its API; empty: each customer has one, or nothing is asked
	// Accounts tells what the webhook's accounts are, such as login names; empty if no event needs
	// them.
	Accounts string
	Events   []*Event
	// Guess tells that the format does not publish how triggers write the sender, its events and their
	// keys: the spelling is ours, and --strict refuses it.
	Guess bool

	reader *node // of all places that the events look at
}

// Event is something that happens at a sender.
type Event struct {
	Sender *Sender // set by the table
	Name   string  // as triggers name it, such as issue_labeled
	Doc    string  // one sentence
	// In are the kinds of delivery that have the event: in each, all conditions hold. Without
	// one, no delivery has it, and Doc says why.
	In   [][]Condition
	Keys []Key
	// Same are values that identify the event at the sender, whichever of its webhooks reports
	// it. Without them, two webhooks of the sender start a run each.
	Same []Source
	Link Source // the page of what it happened to
}

// Key is a filter key of an event.
type Key struct {
	Name string
	From Source
	Fold func(string) string // the form in which values are compared; nil: as they are
	// Ask, if set, is what the sender's API must be asked for, because deliveries lack it.
	Ask  *Ask
	Kind Kind
	Enum []string // the only values that the key takes, if there are such
	Own  bool     // the format does not have the key: --strict refuses it
	// Both says that a constraint of either kind needs a value: an event without one fails
	// not_in as well.
	Both bool
	// Alias is another spelling of the name. If Names is set, it takes names where Name takes
	// identifiers, as a plain list (factory/testdata/rules 4.2).
	Alias string
	Names *Names
}

// Names is where the names are that an alias takes. They are compared without regard to case.
type Names struct {
	From Source
	Ask  *Ask
}

// Kind is how a filter's value is compared with an event's.
type Kind uint8

// The kinds of a Key.
const (
	Exact  Kind = iota // they are equal
	Number             // they are equal, and the definition writes a number
	Word               // the text contains it
	Glob               // the path matches it: * within a folder, ** across folders
)

// Condition is one thing that holds for a delivery with an event.
type Condition struct {
	Source Source
	OneOf  []string // it has one of these values; empty: it has any
	Not    bool     // the condition must not hold
}

// Ask is a question to a sender's API.
type Ask struct {
	Name string   // such as pull_request_files
	Of   []Source // its arguments
	// Unless it has a value: then the delivery has what the question is about, and the key's
	// From reads it.
	Unless Source
}

// Question is an Ask about one delivery. Two equal questions have one answer.
type Question struct {
	Provider, Name string
	Args           string // separated by blanks
}

// Senders are all senders, sorted by provider. They must not be changed.
func Senders() []*Sender { return senders }

var senders = table(azureDevOps, github, gitlab, jira, linear, slack, teams)

var events = byName()

func table(rows ...*Sender) []*Sender {
	for _, s := range rows {
		s.reader = &node{}
		for _, e := range s.Events {
			e.Sender = s
			e.eachSource(func(src Source) {
				for _, place := range src.places {
					s.reader.add(place)
				}
			})
		}
	}
	slices.SortFunc(rows, func(a, b *Sender) int { return strings.Compare(a.Provider, b.Provider) })
	return rows
}

func byName() map[string]*Event {
	all := make(map[string]*Event)
	for _, s := range senders {
		for _, e := range s.Events {
			all[s.Provider+" "+e.Name] = e
		}
	}
	return all
}

// eachSource visits every source that the row names.
func (e *Event) eachSource(visit func(Source)) {
	for _, kind := range e.In {
		for _, c := range kind {
			visit(c.Source)
		}
	}
	for _, k := range e.Keys {
		visit(k.From)
		k.Ask.eachSource(visit)
		if k.Names != nil {
			visit(k.Names.From)
			k.Names.Ask.eachSource(visit)
		}
	}
	for _, s := range e.Same {
		visit(s)
	}
	visit(e.Link)
}

func (a *Ask) eachSource(visit func(Source)) {
	if a != nil {
		for _, s := range a.Of {
			visit(s)
		}
		visit(a.Unless)
	}
}

// Find finds an event, nil if the table has no such row.
func Find(provider, event string) *Event { return events[provider+" "+event] }

// ByScheme finds the sender whose webhooks have a signature scheme, nil if there is none.
func ByScheme(scheme string) *Sender {
	for _, s := range senders {
		if slices.Contains(s.Schemes, scheme) {
			return s
		}
	}
	return nil
}

// ByProvider finds a sender, nil if there is none.
func ByProvider(provider string) *Sender {
	for _, s := range senders {
		if s.Provider == provider {
			return s
		}
	}
	return nil
}

// Asks tells whether the sender's API is asked about any of its events.
func (s *Sender) Asks() bool { return len(s.Questions()) > 0 }

// Questions are the names of what the sender's API is asked for, sorted.
func (s *Sender) Questions() []string {
	var names []string
	note := func(a *Ask) {
		if a != nil {
			names = append(names, a.Name)
		}
	}
	for _, e := range s.Events {
		for _, k := range e.Keys {
			note(k.Ask)
			if k.Names != nil {
				note(k.Names.Ask)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Asks are the filter keys of the trigger for which the sender's API must be asked.
func (t *Trigger) Asks() (keys []string) {
	for i := range t.Filters {
		if t.Filters[i].asks() {
			keys = append(keys, t.Filters[i].Key.Name)
		}
	}
	return keys
}

// Key finds a filter key by its name or its alias. named tells that the values are names,
// because the alias of such a key was used.
func (e *Event) Key(name string) (k *Key, named bool) {
	for i := range e.Keys {
		k := &e.Keys[i]
		if k.Name == name {
			return k, false
		}
		if k.Alias == name && name != "" {
			return k, k.Names != nil
		}
	}
	return nil, false
}

// KeyNames are the names of the event's filter keys, without aliases.
func (e *Event) KeyNames() []string {
	names := make([]string, len(e.Keys))
	for i, k := range e.Keys {
		names[i] = k.Name
	}
	return names
}

// Headers are the headers that any event looks at, in canonical form, sorted. None is a
// credential.
func Headers() []string {
	all := make(map[string]bool)
	for _, s := range senders {
		for _, name := range s.reader.headers {
			all[name] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// Canonical is the form in which two values of the key are compared; named tells that they
// are names.
func (k *Key) Canonical(value string, named bool) string {
	switch {
	case named:
		return foldName(value)
	case k.Fold != nil:
		return k.Fold(value)
	}
	return value
}

// Places tells people where the values of the key are; named tells that they are names.
func (k *Key) Places(named bool) string {
	from, ask := k.From, k.Ask
	if named {
		from, ask = k.Names.From, k.Names.Ask
	}
	switch {
	case ask == nil:
		return from.Doc
	case from.Doc == "":
		return "asks the API: " + ask.Name
	}
	return from.Doc + "; if the delivery lacks it, asks the API: " + ask.Name
}

// foldName is a name of a channel, a team or a person without the mark before it.
func foldName(name string) string {
	return strings.ToLower(strings.TrimLeft(strings.TrimSpace(name), "#@"))
}
