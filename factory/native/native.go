// Package native has the events of senders, which triggers name directly: `provider:
// github, event: issue_labeled` (SPEC 16).
//
// The package is one table. A [Sender] is a service. An [Event] is a row that says which
// deliveries have the event ([Event.In]) and where in a delivery each filter key finds its
// values ([Key]). The validator's catalogue of triggers, the matcher, the reference and
// the samples are made from the table, so a new event is a row.
//
// There are two ways to evaluate triggers, as in package filter. [Trigger.Explain]
// evaluates one trigger and says what failed. An [Index] evaluates any number of triggers
// in one pass over the delivery; deliveries use it. Tests hold both ways to the same
// verdicts, and to a third implementation, written from the published rules.
//
// The package sends no requests. If only the sender's API knows something that a delivery
// lacks, the package returns a [Question].
package native

import (
	"maps"
	"slices"
	"strings"
	"sync"
)

// Sender is a service whose deliveries carry events.
type Sender struct {
	Provider string   // as triggers name it, such as github
	Title    string   // as it names itself
	Schemes  []string // the signature schemes of its webhooks
	Source   string   // the source of runs that its events start (SPEC 16.4)
	Docs     string   // where its payloads are described
	API      string   // address of its API; empty: each customer has an address, or nothing is asked
	// Accounts tells what the webhook's accounts are, such as login names; empty if no event needs
	// accounts.
	Accounts string
	Events   []*Event
	// Answers are what the sender takes of what became of a run (SPEC 22): thread, check.
	Answers []string
	// Guess tells that the format does not publish how triggers spell the sender, its events and their
	// keys. The spelling is then ours, and --strict refuses it.
	Guess bool
	// Reply is that a person goes on in a thread, and Stop that a person stops what is done there (SPEC
	// 21.6). Comment is that a person writes where a question of an agent may stand, if that is no Reply
	// (SPEC 26.3). No trigger names them: they act in threads that the factory has answered. Nil: the
	// sender has no such event.
	Reply, Stop, Comment *Event
	// Click is that a person presses a button below an answer, over a connection that the webhook opens; its
	// Text is the reply that the button stands for (SPEC 26.2). Nil: the sender has no buttons.
	Click *Event
	// HTML tells that what people write may come as HTML.
	HTML bool

	// heads are where a delivery has the code that its events are about (SPEC 21.7). Only runs ask for
	// it: a delivery that arrives is not read for it.
	heads []head

	pull *pull // where the state of a pull request is; nil: nowhere. It is read for the index of subjects.

	title Source // what its service calls the subject of an event; like heads, only lists and pages ask for it

	reader     *node // of all places that the events look at
	headReader *node // of all places that heads, pull and title look at
}

// Event is something that happens at a sender.
type Event struct {
	Sender *Sender // set by the table
	Name   string  // as triggers name it, such as issue_labeled
	Doc    string  // one sentence
	// In are the kinds of delivery that have the event. A delivery is of a kind if all
	// conditions of the kind hold. If In is empty, no delivery has the event, and Doc says why.
	In   [][]Condition
	Keys []Key
	// Same are values that identify the event at the sender, whichever of its webhooks reports
	// the event. Without these values, two webhooks of the sender start a run each.
	Same []Source
	Link Source // the page of the thing that the event happened to
	// Subject is what the event is about, without the provider (SPEC 21.1): events with one subject
	// belong together. It has at most one value.
	Subject Source
	By      *Who // whose act it is; nil: the event is nobody's
	// Text is what the person says, of a reply (IsReply).
	Text Source
	// Public tells that on a public repository anybody can cause the event (SPEC 24.1).
	Public bool
	// Awaited tells that the sender waits for an answer, also if the event starts nothing (SPEC 22.2).
	Awaited bool
}

// IsReply tells whether the event is its sender's Reply or Comment.
func (e *Event) IsReply() bool { return e != nil && (e == e.Sender.Reply || e == e.Sender.Comment) }

// Said is what a person says with a delivery that is a reply, and who it is; empty: it is none.
func (s *Sender) Said(d Delivery) (text string, who Person) {
	p := s.Read(d)
	if e := s.Spoken(p); e != nil {
		return strings.Join(e.Text.values(p), "\n"), e.PersonOf(p)
	}
	return "", Person{}
}

// Spoken is the Comment, Reply or Click that a delivery is; nil: it is none.
func (s *Sender) Spoken(p *Payload) *Event {
	for _, e := range []*Event{s.Reply, s.Comment, s.Click} {
		if p.Is(e) {
			return e
		}
	}
	return nil
}

// Key is a filter key of an event.
type Key struct {
	Name string
	From Source
	Fold func(string) string // the form in which values are compared; nil: as they are
	// Ask, if set, is the question to the sender's API about values that deliveries lack.
	Ask  *Ask
	Kind Kind
	Enum []string // the only values that the key takes; empty: any
	Own  bool     // the format does not have the key: --strict refuses it
	// Both says that in and not_in need a value: an event without a value fails both.
	Both bool
	// Alias is another spelling of Name. If Names is set, Name takes identifiers, and Alias
	// takes a plain list of names (factory/testdata/rules 4.2).
	Alias string
	Names *Names
}

// Names tells where a delivery has the names that an alias takes. The names are compared
// without regard to case.
type Names struct {
	From Source
	Ask  *Ask
}

// Kind is how a filter's value is compared with an event's.
type Kind uint8

// The kinds of a Key.
const (
	Exact  Kind = iota // the values are equal
	Number             // the values are equal, and the definition writes a number
	Word               // the event's text contains the filter's value
	Glob               // the event's path matches the filter's pattern: * within a folder, ** across folders
)

// Condition is a condition of an event on a delivery.
type Condition struct {
	Source Source
	OneOf  []string // the source has one of these values; empty: any value
	Not    bool     // the condition must not hold
}

// Ask is a question to a sender's API.
type Ask struct {
	Name string   // such as pull_request_files
	Of   []Source // its arguments
	// Unless is a source that, if it has a value, makes the question needless: the delivery
	// then has the answer, and the key's From reads it.
	Unless Source
}

// Question is an Ask about one delivery. Two equal questions have one answer.
type Question struct {
	Provider, Name string
	Args           string // separated by blanks
}

// Senders are all senders, sorted by provider. Callers must not change them.
func Senders() []*Sender { return senders() }

// The tables are made when somebody asks, because this program is also the supervisor of each run, which never does.
var (
	senders = sync.OnceValue(func() []*Sender { return table(azureDevOps, github, gitlab, jira, linear, slack, teams) })
	events  = sync.OnceValue(byName)
)

func table(rows ...*Sender) []*Sender {
	for _, s := range rows {
		s.reader, s.headReader = &node{}, &node{}
		for _, e := range append(s.unnamed(), s.Events...) {
			e.Sender = s
			e.eachSource(s.reader.addSource)
		}
		for i := range s.heads {
			s.heads[i].eachSource(s.headReader.addSource)
		}
		if s.pull != nil {
			s.pull.eachSource(s.headReader.addSource)
		}
		s.headReader.addSource(s.title)
	}
	slices.SortFunc(rows, func(a, b *Sender) int { return strings.Compare(a.Provider, b.Provider) })
	return rows
}

// unnamed are the events that no trigger names.
func (s *Sender) unnamed() (all []*Event) {
	for _, e := range []*Event{s.Reply, s.Stop, s.Comment, s.Click} {
		if e != nil {
			all = append(all, e)
		}
	}
	return all
}

func byName() map[string]*Event {
	all := make(map[string]*Event)
	for _, s := range senders() {
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
	visit(e.Subject)
	visit(e.Text)
	if w := e.By; w != nil {
		for _, s := range []Source{w.Login, w.ID, w.Author, w.Bot.Source, w.Roles} {
			visit(s)
		}
		for _, a := range w.Asks {
			a.eachSource(visit)
		}
	}
}

func (a *Ask) eachSource(visit func(Source)) {
	if a != nil {
		for _, s := range a.Of {
			visit(s)
		}
		visit(a.Unless)
	}
}

// Find finds an event; nil: the table has no such row.
func Find(provider, event string) *Event { return events()[provider+" "+event] }

// ByScheme finds the sender whose webhooks have a signature scheme; nil: there is none.
func ByScheme(scheme string) *Sender {
	for _, s := range senders() {
		if slices.Contains(s.Schemes, scheme) {
			return s
		}
	}
	return nil
}

// ByProvider finds a sender; nil: there is none.
func ByProvider(provider string) *Sender {
	for _, s := range senders() {
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
		if e.By != nil {
			for _, a := range e.By.Asks {
				note(a)
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
// because name is an alias with Names.
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

// Headers are the headers that any event looks at, in canonical form, sorted. No header of
// them is a credential.
func Headers() []string {
	all := make(map[string]bool)
	for _, s := range senders() {
		for _, name := range s.reader.headers {
			all[name] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// Canonical is the form in which two values of the key are compared; named tells that the
// values are names.
func (k *Key) Canonical(value string, named bool) string {
	switch {
	case named:
		return foldName(value)
	case k.Fold != nil:
		return k.Fold(value)
	}
	return value
}

// Places tells people where the values of the key are; named tells that the values are names.
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
