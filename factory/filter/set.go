package filter

import (
	"slices"
	"sync"
)

// Pair is the condition of one trigger on a delivery: both filters must accept it. A nil
// filter accepts everything.
type Pair struct {
	Headers *Headers
	Payload *Filter
}

// Set is many filters, compiled into one index. Match first notes the headers that any
// filter names. One pass over the body then validates it and notes the values of all fields
// that any filter names. A value is looked up in a map, not compared with each filter, so
// the pass costs the same for one filter and for 10,000 (SPEC 8.4).
//
// NewSet chooses one condition of each filter that few bodies meet (see arrange). After
// the pass, Match evaluates only the filters whose chosen condition was met, on the notes.
//
// A Set is immutable and safe for concurrent use.
type Set struct {
	root    *place
	headers *place
	sent    []namedField // the headers, by id
	fields  int          // over all places
	facts   []*fact      // by id
	unique  []setFilter
	waiting []int // unique filters with only not_in and exists: false, which wait for no fact
	always  []int // pairs of nil filters
	scratch sync.Pool
}

// setFilter is a pair of filters. Equal pairs share a setFilter.
type setFilter struct {
	headers setPattern
	payload setPattern
	object  bool  // there is a payload filter, so that the body must be an object
	numbers []int // in NewSet's slice
}

// namedField is a header.
type namedField struct {
	name string // canonical
	*field
}

// setPattern is a pattern in terms of fields and facts.
type setPattern []setCondition

// setCondition is one operator on one field.
type setCondition struct {
	field  int32
	op     operator
	facts  []int32    // in, not_in: the values; present, nested: the field's presence
	nested setPattern // nested
}

type operator uint8

const (
	opIn operator = iota
	opNotIn
	opPresent
	opAbsent
	opNested
)

// place is a position in the body at which filters expect an object: the root, or a
// field of another place.
type place struct {
	fields  map[string]*field
	lengths uint64 // bit n: there is a key of length n modulo 64
}

// field is a key that filters look at, at one place.
type field struct {
	id       int32
	strings  map[string]*fact
	numbers  map[string]*fact // by exact decimal
	literals [3]*fact         // null, false, true
	present  fact             // the field is there, with any value
	nested   *place
}

// fact is one statement about a body: a field has a certain value, or is present.
type fact struct {
	id     int32
	uses   int   // how many filters want the fact
	wakers []int // unique filters to evaluate if a body shows this fact
}

// NewSet compiles the filters of triggers. A pair of nil filters matches every valid body.
func NewSet(pairs []Pair) *Set {
	s := &Set{root: newPlace(), headers: newPlace()}
	known := make(map[string]int)
	for i, p := range pairs {
		if p == (Pair{}) {
			s.always = append(s.always, i)
			continue
		}
		text := p.Headers.String() + p.Payload.String()
		n, ok := known[text]
		if !ok {
			n = len(s.unique)
			known[text] = n
			var f setFilter
			if p.Headers != nil {
				f.headers = s.pattern(s.headers, p.Headers.root)
			}
			if f.object = p.Payload != nil; f.object {
				f.payload = s.pattern(s.root, p.Payload.root)
			}
			s.unique = append(s.unique, f)
		}
		s.unique[n].numbers = append(s.unique[n].numbers, i)
	}
	for name, f := range s.headers.fields {
		s.sent = append(s.sent, namedField{name, f})
	}
	slices.SortFunc(s.sent, func(a, b namedField) int { return int(a.id - b.id) })
	for n := range s.unique {
		s.arrange(n)
	}
	s.scratch.New = func() any {
		return &matcher{
			fieldAt: make([]uint64, s.fields),
			entryOf: make([]int32, s.fields),
			factAt:  make([]uint64, len(s.facts)),
			wokenAt: make([]uint64, len(s.unique)),
		}
	}
	return s
}

func newPlace() *place { return &place{fields: make(map[string]*field)} }

func (s *Set) pattern(at *place, p *pattern) setPattern {
	var all setPattern
	for i := range p.fields {
		r := &p.fields[i]
		f := s.field(at, r.key)
		switch {
		case r.nested != nil:
			if f.nested == nil {
				f.nested = newPlace()
			}
			nested := s.pattern(f.nested, r.nested)
			all = append(all, setCondition{field: f.id, op: opNested, facts: s.want(f.present.id), nested: nested})
		case r.exists == mustExist:
			all = append(all, setCondition{field: f.id, op: opPresent, facts: s.want(f.present.id)})
		case r.exists == mustNotExist:
			all = append(all, setCondition{field: f.id, op: opAbsent})
		}
		if len(r.in) > 0 {
			all = append(all, setCondition{field: f.id, op: opIn, facts: s.want(s.values(f, r.in)...)})
		}
		if len(r.notIn) > 0 {
			all = append(all, setCondition{field: f.id, op: opNotIn, facts: s.values(f, r.notIn)})
		}
	}
	return all
}

func (s *Set) field(at *place, key string) *field {
	f := at.fields[key]
	if f == nil {
		f = &field{id: int32(s.fields)}
		s.fields++
		s.identify(&f.present)
		at.fields[key] = f
		at.lengths |= 1 << (len(key) & 63)
	}
	return f
}

func (s *Set) identify(v *fact) {
	v.id = int32(len(s.facts))
	s.facts = append(s.facts, v)
}

// want counts one more filter that is satisfied by any of the facts.
func (s *Set) want(facts ...int32) []int32 {
	for _, id := range facts {
		s.facts[id].uses++
	}
	return facts
}

// values finds or makes the facts "f has this value", one per value.
func (s *Set) values(f *field, values []scalar) []int32 {
	keys := scalarKeys(values)
	facts := make([]int32, len(keys))
	for i, key := range keys {
		var v *fact
		switch key[0] {
		case tagString:
			v = valueIn(&f.strings, key[1:])
		case tagNumber:
			v = valueIn(&f.numbers, key[1:])
		default:
			n := literalIndex(key[0])
			if f.literals[n] == nil {
				f.literals[n] = &fact{id: unknown}
			}
			v = f.literals[n]
		}
		if v.id == unknown {
			s.identify(v)
		}
		facts[i] = v.id
	}
	return facts
}

// unknown is the id of a fact without an id.
const unknown = -1

func valueIn(m *map[string]*fact, key string) *fact {
	if *m == nil {
		*m = make(map[string]*fact)
	}
	v := (*m)[key]
	if v == nil {
		v = &fact{id: unknown}
		(*m)[key] = v
	}
	return v
}

// literalIndex takes the first byte of a scalar's key or of a JSON literal.
func literalIndex(c byte) int {
	switch c {
	case 't':
		return 2
	case 'f':
		return 1
	}
	return 0
}

// arrange makes the unique filter n wait for one of its conditions: n is evaluated only
// if a body shows one of the facts of the condition. All conditions of a filter must hold,
// even nested conditions, so any of them would be correct. A condition that few other
// filters share is best, because a body then wakes few filters. So arrange finds, for
// each condition, the fact that most filters want, and picks the condition for which
// that number of filters is smallest.
func (s *Set) arrange(n int) {
	var best []int32
	fewest := 0
	var visit func(p setPattern)
	visit = func(p setPattern) {
		for i := range p {
			c := &p[i]
			if c.op == opNotIn || c.op == opAbsent {
				continue
			}
			uses := 0
			for _, id := range c.facts {
				uses = max(uses, s.facts[id].uses)
			}
			if best == nil || uses < fewest {
				best, fewest = c.facts, uses
			}
			visit(c.nested)
		}
	}
	visit(s.unique[n].headers)
	visit(s.unique[n].payload)
	if best == nil {
		s.waiting = append(s.waiting, n)
	}
	for _, id := range best {
		s.facts[id].wakers = append(s.facts[id].wakers, n)
	}
}

func scalarKeys(values []scalar) []string {
	keys := make([]string, len(values))
	for i, v := range values {
		keys[i] = v.key
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}
