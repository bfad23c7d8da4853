package filter

import (
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Set is many filters, compiled into one index. One pass over a body validates
// it and finds every filter that accepts it: what a field holds is looked up,
// not compared, so the cost does not grow with the number of filters (SPEC 8.4).
// It is immutable and safe for concurrent use.
//
// The index is a tree of objectSets, one for each place where filters want an
// object. Equal conditions and equal patterns are one. Each pattern waits for
// its rarest positive condition, and is looked at only if that one holds.
type Set struct {
	root    *objectSet
	filters [][]int // by pattern of root: the filters that are this pattern
	always  []int   // nil filters
	count   counts
	scratch sync.Pool
}

// counts number the parts of an index, so that a match keeps its state in flat
// slices.
type counts struct{ fields, conditions, patterns int }

// objectSet is the patterns wanted of an object at one place.
type objectSet struct {
	fields   map[string]*fieldSet
	lengths  uint64 // bit n: there is a key of length n modulo 64
	patterns []setPattern
	waiting  []int // patterns without a positive condition
	byText   map[string]int
}

type setPattern struct {
	id         int // among all patterns of the set
	conditions []*setCondition
}

// setCondition is one operator on one field.
type setCondition struct {
	id       int
	field    *fieldSet
	negative bool  // holds unless it is hit
	waiters  []int // patterns of the objectSet that wait for it
	uses     int
}

// fieldSet is what is wanted of one field of an objectSet.
type fieldSet struct {
	id       int
	strings  map[string][]*setCondition
	numbers  map[string][]*setCondition // by exact decimal
	literals map[byte][]*setCondition   // by first byte: t, f, n
	present  *setCondition              // exists: true
	absent   *setCondition              // exists: false; negative, hit by presence
	nested   *objectSet
	accepted []*setCondition // by pattern of nested
	byText   map[string]*setCondition
}

// NewSet compiles the filters; a nil one matches every valid body.
func NewSet(filters []*Filter) *Set {
	s := &Set{root: newObjectSet()}
	for i, f := range filters {
		if f == nil {
			s.always = append(s.always, i)
			continue
		}
		p := s.add(s.root, f.root)
		if p == len(s.filters) {
			s.filters = append(s.filters, nil)
		}
		s.filters[p] = append(s.filters[p], i)
	}
	s.root.arrange()
	s.scratch.New = func() any {
		return &matcher{
			fieldAt:   make([]uint64, s.count.fields),
			hitAt:     make([]uint64, s.count.conditions),
			triedAt:   make([]uint64, s.count.patterns),
			unescaped: make([]byte, 0, 64),
		}
	}
	return s
}

func newObjectSet() *objectSet {
	return &objectSet{fields: make(map[string]*fieldSet), byText: make(map[string]int)}
}

// add finds or makes the pattern in o, and returns its number there.
func (s *Set) add(o *objectSet, p *pattern) int {
	text := p.text()
	if n, ok := o.byText[text]; ok {
		return n
	}
	sp := setPattern{id: s.count.patterns}
	s.count.patterns++
	for i := range p.fields {
		sp.conditions = append(sp.conditions, s.addRule(o, &p.fields[i])...)
	}
	for _, c := range sp.conditions {
		c.uses++
	}
	n := len(o.patterns)
	o.patterns = append(o.patterns, sp)
	o.byText[text] = n
	return n
}

func (s *Set) addRule(o *objectSet, r *rule) []*setCondition {
	f := o.fields[r.key]
	if f == nil {
		f = &fieldSet{id: s.count.fields, byText: make(map[string]*setCondition)}
		s.count.fields++
		o.fields[r.key] = f
		o.lengths |= 1 << (len(r.key) & 63)
	}
	var all []*setCondition
	if r.nested != nil {
		if f.nested == nil {
			f.nested = newObjectSet()
		}
		n := s.add(f.nested, r.nested)
		if n == len(f.accepted) {
			f.accepted = append(f.accepted, s.condition(f, "nested "+strconv.Itoa(n), false))
		}
		all = append(all, f.accepted[n])
	}
	switch r.exists {
	case mustExist:
		f.present = s.condition(f, "present", false)
		all = append(all, f.present)
	case mustNotExist:
		f.absent = s.condition(f, "absent", true)
		all = append(all, f.absent)
	}
	if len(r.in) > 0 {
		all = append(all, s.addValues(f, "in", r.in, false))
	}
	if len(r.notIn) > 0 {
		all = append(all, s.addValues(f, "not_in", r.notIn, true))
	}
	return all
}

// condition finds or makes the condition that is written as text.
func (s *Set) condition(f *fieldSet, text string, negative bool) *setCondition {
	c := f.byText[text]
	if c == nil {
		c = &setCondition{id: s.count.conditions, field: f, negative: negative}
		s.count.conditions++
		f.byText[text] = c
	}
	return c
}

func (s *Set) addValues(f *fieldSet, operator string, values []scalar, negative bool) *setCondition {
	keys := scalarKeys(values)
	made := s.count.conditions
	c := s.condition(f, operator+" "+strings.Join(quoteAll(keys), " "), negative)
	if c.id < made {
		return c
	}
	for _, key := range keys {
		switch key[0] {
		case tagString:
			addTo(&f.strings, key[1:], c)
		case tagNumber:
			addTo(&f.numbers, key[1:], c)
		case keyNull[0]:
			addTo(&f.literals, 'n', c)
		default:
			addTo(&f.literals, key[0], c)
		}
	}
	return c
}

func addTo[K comparable](m *map[K][]*setCondition, key K, c *setCondition) {
	if *m == nil {
		*m = make(map[K][]*setCondition)
	}
	(*m)[key] = append((*m)[key], c)
}

// arrange makes each pattern wait for the positive condition that the fewest
// patterns have.
func (o *objectSet) arrange() {
	for n, p := range o.patterns {
		var rarest *setCondition
		for _, c := range p.conditions {
			if !c.negative && (rarest == nil || c.uses < rarest.uses) {
				rarest = c
			}
		}
		if rarest == nil {
			o.waiting = append(o.waiting, n)
		} else {
			rarest.waiters = append(rarest.waiters, n)
		}
	}
	for _, f := range o.fields {
		if f.nested != nil {
			f.nested.arrange()
		}
	}
	o.byText = nil
}

// text spells a pattern so that equal patterns are spelled alike.
func (p *pattern) text() string {
	fields := make([]string, len(p.fields))
	for i := range p.fields {
		r := &p.fields[i]
		var b strings.Builder
		b.WriteString(strconv.Quote(r.key))
		if r.nested != nil {
			b.WriteString(r.nested.text())
		}
		b.WriteString(strconv.Itoa(int(r.exists)))
		b.WriteString(" in " + strings.Join(quoteAll(scalarKeys(r.in)), " "))
		b.WriteString(" not_in " + strings.Join(quoteAll(scalarKeys(r.notIn)), " "))
		fields[i] = b.String()
	}
	slices.Sort(fields)
	return "{" + strings.Join(fields, ",") + "}"
}

func scalarKeys(values []scalar) []string {
	keys := make([]string, len(values))
	for i, v := range values {
		keys[i] = v.key
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

func quoteAll(keys []string) []string {
	quoted := make([]string, len(keys))
	for i, key := range keys {
		quoted[i] = strconv.Quote(key)
	}
	return quoted
}
