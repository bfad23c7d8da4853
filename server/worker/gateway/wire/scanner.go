package wire

// scanner reads JSON as it comes, and tells the values and where they stand. It keeps only the
// path and the begin of the value at hand, and does not check: what is no JSON gives values that
// mean nothing.
type scanner struct {
	// emit is given the path and the text of a value that is no object and no array: the bytes
	// between the quotes, as they are escaped, at most maxText of them. size is how many there
	// were. The slices are valid during the call alone.
	emit   func(path, text []byte, size int, quoted bool)
	closed bool // the outermost value was an object or an array, and has ended

	path   []byte
	levels [maxLevels]level
	depth  int // it may be greater than maxLevels: the values in there are not told

	state state
	name  bool // the text at hand is the name of a member
	await bool // the next text is a name
	text  []byte
	size  int
}

// level is an object or an array that is open.
type level struct {
	path  int // length of its path
	array bool
}

const (
	maxLevels = 12  // the values that are looked for stand less deep
	maxText   = 256 // bytes of a value, and of a name
	maxPath   = 512
)

type state int

const (
	between state = iota // values
	inText
	escaped // behind a backslash in a text
	inWord  // a number or a literal
)

// reset begins another JSON text.
func (s *scanner) reset() {
	s.path, s.text, s.size = s.path[:0], s.text[:0], 0
	s.depth, s.state, s.name, s.await, s.closed = 0, between, false, false, false
}

func (s *scanner) write(p []byte) {
	for i := 0; i < len(p); i++ {
		b := p[i]
		switch s.state {
		case inText:
			switch b {
			case '"':
				s.textEnds()
			case '\\':
				s.state = escaped
				s.keep(b)
			default:
				s.keep(b)
			}
		case escaped:
			s.state = inText
			s.keep(b)
		case inWord:
			if b > ' ' && b != ',' && b != '}' && b != ']' && b != '"' && b != ':' && b != '{' && b != '[' {
				s.keep(b)
				continue
			}
			s.state = between
			s.value(false)
			s.mark(b)
		case between:
			s.mark(b)
		}
	}
}

// mark takes a byte between values.
func (s *scanner) mark(b byte) {
	switch b {
	case ' ', '\t', '\r', '\n', ':':
	case '{', '[':
		if s.depth < maxLevels {
			s.levels[s.depth] = level{path: len(s.path), array: b == '['}
			if b == '[' && len(s.path) < maxPath {
				s.path = append(s.path, '[', ']')
			}
		}
		s.depth++
		s.await = b == '{'
	case '}', ']':
		if s.depth > 0 {
			s.depth--
			if s.depth < maxLevels {
				s.path = s.path[:s.levels[s.depth].path]
			}
			s.valueEnds()
			s.closed = s.depth == 0
		}
	case ',':
		s.await = s.depth > 0 && s.depth <= maxLevels && !s.levels[s.depth-1].array
	case '"':
		s.state, s.name = inText, s.await
		s.await, s.text, s.size = false, s.text[:0], 0
	default:
		s.state, s.text, s.size = inWord, s.text[:0], 0
		s.keep(b)
	}
}

func (s *scanner) keep(b byte) {
	if s.size++; len(s.text) < maxText {
		s.text = append(s.text, b)
	}
}

func (s *scanner) textEnds() {
	s.state = between
	if !s.name {
		s.value(true)
		return
	}
	s.name = false
	if s.depth > maxLevels {
		return
	}
	s.valueEnds()
	if len(s.path)+len(s.text) < maxPath {
		if len(s.path) > 0 {
			s.path = append(s.path, '.')
		}
		s.path = append(s.path, s.text...)
	}
}

// value tells the value at hand.
func (s *scanner) value(quoted bool) {
	if s.depth <= maxLevels {
		s.emit(s.path, s.text, s.size, quoted)
		s.valueEnds()
	}
}

// valueEnds takes the name of a member from the path.
func (s *scanner) valueEnds() {
	if s.depth == 0 {
		s.path = s.path[:0]
	} else if s.depth <= maxLevels {
		l := s.levels[s.depth-1]
		end := l.path
		if l.array {
			end += 2
		}
		s.path = s.path[:min(end, len(s.path))]
	}
}
