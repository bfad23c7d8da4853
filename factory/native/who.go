package native

import (
	"fmt"
	"slices"
	"strings"

	"triphammer/factory/filter"
)

// Who says whose act an event is (SPEC 24.1).
type Who struct {
	Login  Source    // the person as definitions name people: a login, or where people have none an identifier
	ID     Source    // what the sender never gives to another person
	Author Source    // the ID of who opened what the event is about
	Bot    Condition // without a Source: the sender does not say who is a bot
	// Roles are the roles that the payload itself gives the person.
	Roles Source
	// Asks are the questions that tell whether the person has a role; nil: the sender has no such roles.
	Asks map[string]*Ask
}

// The roles that a person can have at a sender.
const (
	RoleWrite  = "write"  // may push
	RoleMember = "member" // of the organization, or of the project
	RoleOwner  = "owner"  // may administer
	RoleAuthor = "author" // opened what the event is about
)

// NoRole is the answer of a sender's API about somebody who has no role.
const NoRole = "none"

// Roles are all roles.
var Roles = []string{RoleWrite, RoleMember, RoleOwner, RoleAuthor}

// Starters are those who may start the runs of an automation, as its key startedBy says (SPEC 24.1).
type Starters struct {
	Roles []string
	Names []string // logins, in lower case
	// Outsiders makes all other people start it too; what they start waits to be approved (SPEC 26.1).
	Outsiders bool
}

// Outsider tells whether a person whom the trigger does not list has caused the event that fires it.
func (t *Trigger) Outsider(p *Payload) bool {
	if t.StartedBy == nil || !t.StartedBy.Outsiders {
		return false
	}
	ok, _, _, _ := t.Event.admits(t.StartedBy, p)
	return !ok
}

// lets tells whether the event of a person who is not listed fires the trigger all the same. A bot is no
// person.
func (s *Starters) lets(who Person) bool { return s.Outsiders && who.Login != "" && !who.Bot }

// ParseStarters reads a list of roles and of logins. A login that is spelled as a role has an @ before it.
func ParseStarters(list []string) *Starters {
	s := &Starters{}
	for _, text := range list {
		name := strings.TrimPrefix(text, "@")
		switch {
		case slices.Contains(Roles, text):
			s.Roles = append(s.Roles, text)
		case name != "":
			s.Names = append(s.Names, strings.ToLower(name))
		}
	}
	return s
}

// identified is a person whom definitions name by the sender's identifier.
func identified(id, author Source) *Who { return &Who{Login: id, ID: id, Author: author} }

// Suits tells whether a person of the event can be what an entry of the list says.
func (w *Who) Suits(entry string) bool {
	switch {
	case w == nil, strings.Trim(entry, "@") == "":
		return false
	case entry == RoleAuthor:
		return w.Author.read != nil
	case slices.Contains(Roles, entry):
		return w.Asks[entry] != nil
	}
	return true
}

// Person is who did what an event tells. Its zero value is nobody.
type Person struct {
	Provider, Login, ID string
	Bot                 bool
}

// String is the person as a run keeps it, such as "github:ada 1001": the name, and what stays if the
// name changes. It is empty for nobody.
func (p Person) String() string {
	if p.Login == "" {
		return ""
	}
	text := SubjectText(p.Provider, p.Login)
	if p.ID != "" && p.ID != p.Login {
		text += " " + SubjectText("", p.ID)[1:]
	}
	return text
}

// PersonOf is whose act the event of a delivery is; nobody if the delivery does not say so.
func (e *Event) PersonOf(p *Payload) Person {
	w := e.By
	if w == nil {
		return Person{}
	}
	login, ids := w.Login.values(p), w.ID.values(p)
	if len(login) != 1 || login[0] == "" {
		return Person{}
	}
	who := Person{Provider: e.Sender.Provider, Login: login[0], Bot: w.Bot.Source.read != nil && w.Bot.holds(p)}
	if len(ids) == 1 {
		who.ID = ids[0]
	}
	return who
}

// admits tells whether the person of an event is one of those who may start. If only the sender's API
// knows it, and has not answered, open are the questions. has are the roles that are known.
func (e *Event) admits(s *Starters, p *Payload) (ok bool, open []Question, who Person, has []string) {
	who = e.PersonOf(p)
	switch {
	case who.Login == "":
		return false, nil, who, nil
	case slices.Contains(s.Names, strings.ToLower(who.Login)):
		return true, nil, who, nil
	case who.Bot || who.ID == "": // a bot is named singly; an event without the identifier proves no role
		return false, nil, who, nil
	}
	if author := e.By.Author.values(p); len(author) == 1 && author[0] == who.ID {
		has = append(has, RoleAuthor)
	}
	has = append(has, e.By.Roles.values(p)...)
	holds := func() bool {
		return slices.ContainsFunc(has, func(role string) bool { return slices.Contains(s.Roles, role) })
	}
	if holds() {
		return true, nil, who, has
	}
	for _, role := range s.Roles {
		ask := e.By.Asks[role]
		if ask == nil {
			continue
		}
		q := ask.question(p)
		answer, answered := p.Answers[q]
		switch {
		case q.Args == "" || slices.Contains(open, q):
		case answered:
			has = append(has, answer...)
		default:
			open = append(open, q)
		}
	}
	if holds() {
		return true, nil, who, has
	}
	return false, open, who, has
}

// StartedBy is the path of the condition that says who may start.
const StartedBy = "startedBy"

// explain evaluates who may start a trigger that holds otherwise.
func (s *Starters) explain(e *Event, p *Payload) (c filter.Condition, open []Question) {
	ok, open, who, has := e.admits(s, p)
	slices.Sort(has)
	has = slices.Compact(has)
	outsider := !ok && len(open) == 0 && s.lets(who)
	c = filter.Condition{Path: StartedBy, Want: "one of " + show(slices.Concat(s.Roles, s.Names)), OK: ok || outsider}
	switch {
	case who.Login == "":
		c.Got = "an event that names nobody"
	case len(open) > 0:
		c.Got = fmt.Sprintf("%s: %s", show([]string{who.Login}), p.why(open[0]))
	case who.Bot:
		c.Got = show([]string{who.Login}) + ", a bot"
	case slices.Equal(has, []string{NoRole}):
		c.Got = show([]string{who.Login}) + ", who has no role there that the API shows"
	case len(has) > 0:
		c.Got = fmt.Sprintf("%s, who is %s", show([]string{who.Login}), show(has))
	default:
		c.Got = show([]string{who.Login})
	}
	if outsider {
		c.Got += "; the run waits for approval (approval: outsiders)"
	}
	return c, open
}
