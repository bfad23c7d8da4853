package native

import (
	"net/http"
	"slices"
	"strings"

	"triphammer/factory/jsonscan"
)

// Delivery is what a sender sent.
type Delivery struct {
	Header   map[string]string // by canonical name
	Body     []byte            // valid JSON
	Accounts []string          // the sender's accounts that stand for the factory (SPEC 16.6)
	// Answers are what the sender's API answered. A question without an entry is open.
	Answers map[Question][]string
	// Open says why a question has no answer. The reason of the zero Question stands for all
	// questions without a reason of their own. Without any reason, the webhook names no secret
	// for the API.
	Open map[Question]string
}

// NotAsked is Delivery.Open of a delivery that no sender sent.
var NotAsked = map[Question]string{{}: "not in the payload: only the sender's API knows it"}

// Payload is a delivery as the events of its sender see it: the values at all places that an
// event names. It is read in one pass.
type Payload struct {
	Delivery
	Sender *Sender
	values map[string][]string
	// mentions are the names that texts mention (see mentionsIn): several conditions read one text.
	mentions map[string][]string
}

// Read reads a delivery. The body must be valid JSON (jsonscan.Check).
func (s *Sender) Read(d Delivery) *Payload { return s.read(d, s.reader) }

func (s *Sender) read(d Delivery, reader *node) *Payload {
	p := &Payload{Delivery: d, Sender: s, values: make(map[string][]string, 32), mentions: make(map[string][]string)}
	scan := jsonscan.Scanner{Data: d.Body}
	scan.Space()
	p.walk(&scan, reader)
	for _, name := range reader.headers {
		if value := d.Header[name]; value != "" {
			p.values[headerMark+name] = []string{value}
		}
	}
	return p
}

// headerMark begins the name of a place that is a header.
const headerMark = "@"

// node is a position in a body, and what to look for below the position.
type node struct {
	fields  map[string]*node
	items   *node  // elements of an array
	place   string // the place that ends at this position; empty: no place ends here
	whole   bool   // the value is noted as JSON, whatever its type
	many    bool   // below an array, where each value counts; elsewhere the last duplicate of a key counts
	headers []string
}

func (n *node) addSource(s Source) {
	for _, place := range s.places {
		if name, is := strings.CutPrefix(place.path, headerMark); !is {
			n.add(place)
		} else if !slices.Contains(n.headers, name) {
			n.headers = append(n.headers, name)
		}
	}
}

// add makes a place in a body known to the tree.
func (n *node) add(at place) {
	many := false
	for step := range strings.SplitSeq(at.path, ".") {
		name, list := strings.CutSuffix(step, "[]")
		if n.fields == nil {
			n.fields = make(map[string]*node)
		}
		if n.fields[name] == nil {
			n.fields[name] = &node{many: many}
		}
		if n = n.fields[name]; list {
			many = true
			if n.items == nil {
				n.items = &node{many: true}
			}
			n = n.items
		}
	}
	n.place, n.whole = at.path, at.whole
}

// walk notes what the tree looks for in the value at the scanner's position, and steps over
// it. It recurses over the tree's depth.
func (p *Payload) walk(s *jsonscan.Scanner, n *node) {
	start := s.Pos
	switch c := s.Peek(); {
	case c == '{' && n.fields != nil:
		for s.Enter(); s.More(); {
			if child := n.fields[string(s.Name())]; child != nil {
				p.walk(s, child)
			} else {
				_ = s.Skip()
			}
		}
	case c == '[' && n.items != nil:
		for s.Enter(); s.More(); {
			p.walk(s, n.items)
		}
	case c == '"' && n.place != "" && !n.whole:
		p.note(n, string(s.Unquote()))
		return
	default:
		_ = s.Skip()
		if n.place != "" && !n.whole && c != '{' && c != '[' && c != 'n' {
			p.note(n, string(s.Data[start:s.Pos]))
		}
	}
	if n.whole {
		p.note(n, string(s.Data[start:s.Pos]))
	}
}

func (p *Payload) note(n *node, value string) {
	if !n.many {
		p.values[n.place] = p.values[n.place][:0]
	}
	p.values[n.place] = append(p.values[n.place], value)
}

// Events are the events that the delivery has, in the order of the table.
func (p *Payload) Events() []*Event {
	var all []*Event
	for _, e := range p.Sender.Events {
		if e.in(p) {
			all = append(all, e)
		}
	}
	if all != nil {
		return all
	}
	for _, e := range p.Sender.unnamed() {
		if e.in(p) {
			all = append(all, e)
		}
	}
	return all
}

// Is tells whether the delivery has the event, which may be nil.
func (p *Payload) Is(e *Event) bool { return e != nil && e.in(p) }

func (e *Event) in(p *Payload) bool {
	return slices.ContainsFunc(e.In, func(kind []Condition) bool {
		return !slices.ContainsFunc(kind, func(c Condition) bool { return !c.holds(p) })
	})
}

func (c *Condition) holds(p *Payload) bool {
	values := c.Source.values(p)
	found := len(values) > 0
	if len(c.OneOf) > 0 {
		found = slices.ContainsFunc(values, func(v string) bool { return slices.Contains(c.OneOf, v) })
	}
	return found != c.Not
}

// Identity identifies the event at the sender, whichever of its webhooks reports it. It is
// empty if the sender gives no such identity, or the delivery lacks it.
func (e *Event) Identity(p *Payload) string {
	if len(e.Same) == 0 {
		return ""
	}
	parts, found := []string{e.Sender.Provider, e.Name}, false
	for _, s := range e.Same {
		values := s.values(p)
		parts, found = append(parts, strings.Join(values, ",")), found || len(values) > 0
	}
	if !found {
		return ""
	}
	return strings.Join(parts, " ")
}

// LinkOf is the web address of the page of the thing that the event happened to; it may be empty.
func (e *Event) LinkOf(p *Payload) string {
	for _, link := range e.Link.values(p) {
		if strings.HasPrefix(link, "https://") || strings.HasPrefix(link, "http://") {
			return link
		}
	}
	return ""
}

func header(name string) string { return headerMark + http.CanonicalHeaderKey(name) }
