package filter

import "slices"

// Match validates the body and appends the numbers of the filters that accept
// it to dst, ascending. The error is a *SyntaxError, and then nothing matched.
func (s *Set) Match(body []byte, dst []int) ([]int, error) {
	m := s.scratch.Get().(*matcher)
	defer s.scratch.Put(m)
	m.data, m.pos, m.accepted, m.fired = body, 0, m.accepted[:0], m.fired[:0]
	defer func() { m.data = nil }()

	m.space()
	var err *SyntaxError
	if m.peek() == '{' && len(s.root.patterns) > 0 {
		err = m.object(s.root)
	} else {
		err = m.skip()
	}
	if err == nil {
		err = m.end()
	}
	if err != nil {
		return dst, err
	}
	from := len(dst)
	dst = append(dst, s.always...)
	for _, p := range m.accepted {
		dst = append(dst, s.filters[p]...)
	}
	slices.Sort(dst[from:])
	return dst, nil
}

// matcher is the state of one match. Instead of being cleared it is stamped:
// the clock ticks at each object and each field, and a stamp counts only if it
// is of the present tick. So a later duplicate of a key replaces what the
// earlier one said, and an element of an array starts afresh, at no cost.
type matcher struct {
	scanner
	clock     uint64
	fieldAt   []uint64        // by field: tick of its last occurrence
	hitAt     []uint64        // by condition: tick of the occurrence that hit it
	triedAt   []uint64        // by pattern: tick of the object it was tried on
	fired     []*setCondition // conditions hit in the objects being walked
	accepted  []int           // patterns accepted by the objects just walked
	unescaped []byte
	decimal   []byte
}

// object walks the object at pos and appends the patterns of o that accept it
// to m.accepted. It recurses over the filters' depth, at most MaxDepth.
func (m *matcher) object(o *objectSet) *SyntaxError {
	m.clock++
	began, fired := m.clock, len(m.fired)
	m.pos++
	if m.space(); m.peek() == '}' {
		m.pos++
	} else if err := m.members(o); err != nil {
		return err
	}
	for _, c := range m.fired[fired:] {
		for _, p := range c.waiters {
			m.try(o, p, began)
		}
	}
	for _, p := range o.waiting {
		m.try(o, p, began)
	}
	m.fired = m.fired[:fired]
	return nil
}

func (m *matcher) members(o *objectSet) *SyntaxError {
	for {
		if m.peek() != '"' {
			return m.unexpected(m.pos, "a key in double quotes")
		}
		start := m.pos + 1
		plain, err := m.text()
		if err != nil {
			return err
		}
		f := m.lookup(o, m.data[start:m.pos-1], plain)
		if err := m.colon(); err != nil {
			return err
		}
		if f == nil {
			err = m.skip()
		} else {
			err = m.field(f)
		}
		if err != nil {
			return err
		}
		m.space()
		switch m.peek() {
		case ',':
			m.pos++
			m.space()
		case '}':
			m.pos++
			return nil
		default:
			return m.unexpected(m.pos, "',' or '}'")
		}
	}
}

func (m *matcher) lookup(o *objectSet, raw []byte, plain bool) *fieldSet {
	if !plain {
		m.unescaped = unescape(m.unescaped[:0], raw)
		raw = m.unescaped
	}
	if o.lengths>>(len(raw)&63)&1 == 0 {
		return nil
	}
	return o.fields[string(raw)]
}

// field walks the value of a field that filters look at.
func (m *matcher) field(f *fieldSet) *SyntaxError {
	m.clock++
	m.fieldAt[f.id] = m.clock
	if f.present != nil {
		m.hit(f.present)
	}
	if f.absent != nil {
		m.hit(f.absent)
	}
	if m.peek() != '[' {
		return m.value(f)
	}
	m.pos++
	if m.space(); m.peek() == ']' {
		m.pos++
		return nil
	}
	for {
		if err := m.value(f); err != nil {
			return err
		}
		m.space()
		switch m.peek() {
		case ',':
			m.pos++
			m.space()
		case ']':
			m.pos++
			return nil
		default:
			return m.unexpected(m.pos, "',' or ']'")
		}
	}
}

// value walks a field's value or an element of it; a further array is skipped,
// elements are tried one level down only (SPEC 8.2).
func (m *matcher) value(f *fieldSet) *SyntaxError {
	start := m.pos
	switch c := m.peek(); c {
	case '{':
		if f.nested == nil {
			return m.skip()
		}
		accepted := len(m.accepted)
		if err := m.object(f.nested); err != nil {
			return err
		}
		for _, p := range m.accepted[accepted:] {
			m.hit(f.accepted[p])
		}
		m.accepted = m.accepted[:accepted]
		return nil
	case '[':
		return m.skip()
	case '"':
		plain, err := m.text()
		if err != nil || f.strings == nil {
			return err
		}
		raw := m.data[start+1 : m.pos-1]
		if !plain {
			m.unescaped = unescape(m.unescaped[:0], raw)
			raw = m.unescaped
		}
		m.hitAll(f.strings[string(raw)])
		return nil
	case 't', 'f', 'n':
		if err := m.scalar(c); err != nil {
			return err
		}
		if f.literals != nil {
			m.hitAll(f.literals[c])
		}
		return nil
	}
	if err := m.number(); err != nil {
		return err
	}
	if f.numbers != nil {
		decimal, ok := appendDecimal(m.decimal[:0], m.data[start:m.pos])
		if m.decimal = decimal; ok {
			m.hitAll(f.numbers[string(decimal)])
		}
	}
	return nil
}

func (m *matcher) hitAll(conditions []*setCondition) {
	for _, c := range conditions {
		m.hit(c)
	}
}

func (m *matcher) hit(c *setCondition) {
	if at := m.fieldAt[c.field.id]; m.hitAt[c.id] != at {
		m.hitAt[c.id] = at
		if len(c.waiters) > 0 {
			m.fired = append(m.fired, c)
		}
	}
}

// try accepts the pattern if all its conditions hold for the object that began
// at that tick.
func (m *matcher) try(o *objectSet, p int, began uint64) {
	sp := &o.patterns[p]
	if m.triedAt[sp.id] == began {
		return
	}
	m.triedAt[sp.id] = began
	for _, c := range sp.conditions {
		at := m.fieldAt[c.field.id]
		if hit := at > began && m.hitAt[c.id] == at; hit == c.negative {
			return
		}
	}
	m.accepted = append(m.accepted, p)
}
