package filter

import (
	"slices"

	"triphammer/factory/jsonscan"
)

// Match validates the body and appends the numbers of the pairs that accept the headers and
// the body to dst, ascending. Headers have canonical names. If the body is not JSON, nothing
// matches, and the error is a *jsonscan.SyntaxError.
func (s *Set) Match(headers map[string]string, body []byte, dst []int) ([]int, error) {
	m := s.scratch.Get().(*matcher)
	defer s.scratch.Put(m)
	m.Data, m.Pos = body, 0
	defer m.forget()

	m.Space()
	var sent, root object
	var err *jsonscan.SyntaxError
	isObject := m.Peek() == '{' && len(s.unique) > 0
	m.clock++
	m.began = m.clock
	if len(s.sent) > 0 {
		sent = m.sent(s.sent, headers)
	}
	if isObject {
		root, err = m.object(s.root)
	} else {
		err = m.Skip()
	}
	if err == nil {
		err = m.End()
	}
	if err != nil {
		return dst, err
	}
	from := len(dst)
	dst = append(dst, s.always...)
	for _, n := range s.waiting {
		m.wake(n)
	}
	for _, n := range m.woken {
		f := &s.unique[n]
		if m.accepts(f.headers, sent) && (!f.object || isObject && m.accepts(f.payload, root)) {
			dst = append(dst, f.numbers...)
		}
	}
	slices.Sort(dst[from:])
	return dst, nil
}

// matcher is the state of one match: the notes of the pass. Notes by field, fact and
// filter are not cleared between bodies. Instead each has a stamp: a counter goes up
// at each object and each field, and a note counts only if its stamp has the right
// number.
//
// Notes go to the open lists while a value is walked, and move to the closed lists at
// its end. So the notes of one value are contiguous, although values nest.
type matcher struct {
	jsonscan.Scanner
	clock, began uint64
	fieldAt      []uint64 // by field: tick of the object it was last seen in
	entryOf      []int32  // by field: its entry in openEntries, if seen in this object
	factAt       []uint64 // by fact: tick of the field occurrence that showed it
	wokenAt      []uint64 // by unique filter: tick of the match that woke it
	woken        []int    // unique filters to evaluate

	openEntries, entries []entry
	openFacts, facts     []int32
	openObjects, objects []object

	unescaped, decimal []byte
}

// entry is a field of an object: its known values and its objects. For an array, it has the
// values and objects of the elements.
type entry struct {
	field                  int32
	firstFact, endFact     int32
	firstObject, endObject int32
}

// object is the entries of an object, by field.
type object struct{ first, end int32 }

// forget drops the body and the notes on it.
func (m *matcher) forget() {
	m.Data, m.woken = nil, m.woken[:0]
	m.openEntries, m.entries = m.openEntries[:0], m.entries[:0]
	m.openFacts, m.facts = m.openFacts[:0], m.facts[:0]
	m.openObjects, m.objects = m.openObjects[:0], m.objects[:0]
}

// sent notes the headers that filters look at, as the fields of an object.
func (m *matcher) sent(fields []namedField, headers map[string]string) (o object) {
	o.first = int32(len(m.entries))
	for _, f := range fields {
		value, ok := headers[f.name]
		if !ok {
			continue
		}
		m.rouse(&f.present)
		e := entry{field: f.id, firstFact: int32(len(m.facts))}
		if v := f.strings[value]; v != nil {
			m.rouse(v)
			m.facts = append(m.facts, v.id)
		}
		e.endFact = int32(len(m.facts))
		m.entries = append(m.entries, e)
	}
	o.end = int32(len(m.entries))
	return o
}

// object walks and notes the object at pos. It recurses over the filters'
// depth, at most MaxDepth.
func (m *matcher) object(at *place) (o object, err *jsonscan.SyntaxError) {
	m.clock++
	began, open := m.clock, len(m.openEntries)
	m.Pos++
	if m.Space(); m.Peek() == '}' {
		m.Pos++
	} else if err := m.members(at, began); err != nil {
		return o, err
	}
	seen := m.openEntries[open:]
	if len(seen) > fewEntries {
		slices.SortFunc(seen, func(a, b entry) int { return int(a.field - b.field) })
	}
	o.first = int32(len(m.entries))
	m.entries = append(m.entries, seen...)
	o.end = int32(len(m.entries))
	m.openEntries = m.openEntries[:open]
	return o, nil
}

func (m *matcher) members(at *place, began uint64) *jsonscan.SyntaxError {
	for {
		if m.Peek() != '"' {
			return m.Unexpected(m.Pos, "a key in double quotes")
		}
		start := m.Pos + 1
		plain, err := m.Text()
		if err != nil {
			return err
		}
		f := m.lookup(at, m.Data[start:m.Pos-1], plain)
		if err := m.Colon(); err != nil {
			return err
		}
		if f == nil {
			err = m.Skip()
		} else {
			err = m.field(f, began)
		}
		if err != nil {
			return err
		}
		m.Space()
		switch m.Peek() {
		case ',':
			m.Pos++
			m.Space()
		case '}':
			m.Pos++
			return nil
		default:
			return m.Unexpected(m.Pos, "',' or '}'")
		}
	}
}

func (m *matcher) lookup(at *place, raw []byte, plain bool) *field {
	if !plain {
		m.unescaped = jsonscan.Unescape(m.unescaped[:0], raw)
		raw = m.unescaped
	}
	if at.lengths>>(len(raw)&63)&1 == 0 {
		return nil
	}
	return at.fields[string(raw)]
}

// field walks and notes the value of a field. A later duplicate of the key replaces the
// object's entry of the earlier key (SPEC 8.2).
func (m *matcher) field(f *field, began uint64) *jsonscan.SyntaxError {
	m.clock++
	now, openFacts, openObjects := m.clock, len(m.openFacts), len(m.openObjects)
	m.rouse(&f.present)
	if err := m.values(f, now); err != nil {
		return err
	}
	e := entry{field: f.id, firstFact: int32(len(m.facts)), firstObject: int32(len(m.objects))}
	seen := m.openFacts[openFacts:]
	if len(seen) > fewEntries {
		slices.Sort(seen)
	}
	m.facts = append(m.facts, seen...)
	m.objects = append(m.objects, m.openObjects[openObjects:]...)
	e.endFact, e.endObject = int32(len(m.facts)), int32(len(m.objects))
	m.openFacts, m.openObjects = m.openFacts[:openFacts], m.openObjects[:openObjects]
	if m.fieldAt[f.id] == began {
		m.openEntries[m.entryOf[f.id]] = e
		return nil
	}
	m.fieldAt[f.id], m.entryOf[f.id] = began, int32(len(m.openEntries))
	m.openEntries = append(m.openEntries, e)
	return nil
}

func (m *matcher) values(f *field, now uint64) *jsonscan.SyntaxError {
	if m.Peek() != '[' {
		return m.value(f, now)
	}
	m.Pos++
	if m.Space(); m.Peek() == ']' {
		m.Pos++
		return nil
	}
	for {
		if err := m.value(f, now); err != nil {
			return err
		}
		m.Space()
		switch m.Peek() {
		case ',':
			m.Pos++
			m.Space()
		case ']':
			m.Pos++
			return nil
		default:
			return m.Unexpected(m.Pos, "',' or ']'")
		}
	}
}

// value walks a field's value or an element of it. It skips an array within an array,
// because elements are tried only one level down (SPEC 8.2).
func (m *matcher) value(f *field, now uint64) *jsonscan.SyntaxError {
	start := m.Pos
	switch c := m.Peek(); c {
	case '{':
		if f.nested == nil {
			return m.Skip()
		}
		o, err := m.object(f.nested)
		m.openObjects = append(m.openObjects, o)
		return err
	case '[':
		return m.Skip()
	case '"':
		plain, err := m.Text()
		if err != nil || f.strings == nil {
			return err
		}
		raw := m.Data[start+1 : m.Pos-1]
		if !plain {
			m.unescaped = jsonscan.Unescape(m.unescaped[:0], raw)
			raw = m.unescaped
		}
		m.note(f.strings[string(raw)], now)
		return nil
	case 't', 'f', 'n':
		m.note(f.literals[literalIndex(c)], now)
		return m.Scalar(c)
	}
	if err := m.Number(); err != nil {
		return err
	}
	if f.numbers != nil {
		decimal, ok := appendDecimal(m.decimal[:0], m.Data[start:m.Pos])
		if m.decimal = decimal; ok {
			m.note(f.numbers[string(decimal)], now)
		}
	}
	return nil
}

// note notes a value that some filter names, once per occurrence of the field.
func (m *matcher) note(v *fact, now uint64) {
	if v == nil || m.factAt[v.id] == now {
		return
	}
	m.rouse(v)
	m.factAt[v.id] = now
	m.openFacts = append(m.openFacts, v.id)
}

// rouse marks the filters that wait for v for evaluation, the first time that the body
// shows v.
func (m *matcher) rouse(v *fact) {
	if m.factAt[v.id] >= m.began {
		return
	}
	m.factAt[v.id] = m.began
	for _, n := range v.wakers {
		m.wake(n)
	}
}

func (m *matcher) wake(n int) {
	if m.wokenAt[n] != m.began {
		m.wokenAt[n] = m.began
		m.woken = append(m.woken, n)
	}
}

// accepts evaluates a pattern on the notes of an object. It recurses over the
// filters' depth.
func (m *matcher) accepts(p setPattern, o object) bool {
	for i := range p {
		c := &p[i]
		e := m.find(o, c.field)
		ok := false
		switch c.op {
		case opIn:
			ok = e != nil && m.holds(e, c.facts)
		case opNotIn:
			ok = e == nil || !m.holds(e, c.facts)
		case opPresent:
			ok = e != nil
		case opAbsent:
			ok = e == nil
		case opNested:
			ok = e != nil && m.any(c.nested, m.objects[e.firstObject:e.endObject])
		}
		if !ok {
			return false
		}
	}
	return true
}

func (m *matcher) any(p setPattern, objects []object) bool {
	for _, o := range objects {
		if m.accepts(p, o) {
			return true
		}
	}
	return false
}

// fewEntries is the length up to which a list is searched linearly. Longer lists are
// sorted and searched by bisection.
const fewEntries = 12

func (m *matcher) find(o object, id int32) *entry {
	all := m.entries[o.first:o.end]
	if len(all) > fewEntries {
		i, ok := slices.BinarySearchFunc(all, id, func(e entry, id int32) int { return int(e.field - id) })
		if !ok {
			return nil
		}
		return &all[i]
	}
	for i := range all {
		if all[i].field == id {
			return &all[i]
		}
	}
	return nil
}

// holds tells whether the entry's values include one of the facts.
func (m *matcher) holds(e *entry, facts []int32) bool {
	all := m.facts[e.firstFact:e.endFact]
	for _, id := range facts {
		if len(all) > fewEntries {
			if _, ok := slices.BinarySearch(all, id); ok {
				return true
			}
		} else if slices.Contains(all, id) {
			return true
		}
	}
	return false
}
