// Package jsonscan checks and walks JSON that anybody may have sent, without decoding it
// and without recursion, so that no body can exhaust the stack. Filters and signatures
// read bodies with it.
package jsonscan

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"unicode/utf8"
)

// SyntaxError is where a body stops being JSON.
type SyntaxError struct {
	Offset int64 // of the offending byte, 0-based; the length if the body ends too early
	Msg    string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("invalid JSON at offset %d: %s", e.Offset, e.Msg)
}

// Check reports whether body is one JSON value per RFC 8259 in UTF-8, with any
// top-level value and any depth, token count and number length (SPEC 5.3). The
// error is a *SyntaxError. A byte order mark, an empty body and text after the
// value are errors.
func Check(body []byte) error {
	s := Scanner{Data: body}
	return s.document()
}

// Depth is how deeply the objects and arrays of a body are nested, without empty ones. The
// error is the same as from Check.
func Depth(body []byte) (int, error) {
	s := Scanner{Data: body}
	err := s.document()
	return s.open.most, err
}

// Scanner walks a JSON text from Pos on. At an error, Pos stays at the error.
//
// A text that Check has passed gives no errors. Enter, More and Name are only for such a
// text.
type Scanner struct {
	Data []byte
	Pos  int        // of the next byte
	open containers // used by Skip
}

// containers is a stack of the objects and arrays that are open: one bit each,
// so that a body of usual depth needs no memory.
type containers struct {
	depth int
	most  int      // the greatest depth so far
	bits  uint64   // the innermost containers, up to 64; 1 for an object
	outer []uint64 // the containers further out, 64 in each
}

func (c *containers) push(object uint64) {
	if c.depth > 0 && c.depth&63 == 0 {
		c.outer = append(c.outer, c.bits)
	}
	c.depth++
	c.most = max(c.most, c.depth)
	c.bits = c.bits<<1 | object
}

func (c *containers) pop() {
	c.depth--
	c.bits >>= 1
	if c.depth > 0 && c.depth&63 == 0 {
		last := len(c.outer) - 1
		c.bits, c.outer = c.outer[last], c.outer[:last]
	}
}

func (c *containers) inObject() bool { return c.bits&1 == 1 }

// document skips one value, which must be the whole body.
func (s *Scanner) document() error {
	s.Space()
	if err := s.Skip(); err != nil {
		return err
	}
	if err := s.End(); err != nil {
		return err
	}
	return nil
}

// Fail makes an error at an offset.
func (s *Scanner) Fail(offset int, format string, args ...any) *SyntaxError {
	return &SyntaxError{Offset: int64(offset), Msg: fmt.Sprintf(format, args...)}
}

// Unexpected makes the error that the body ends at pos, or has a wrong byte there; want says
// what should be there.
func (s *Scanner) Unexpected(pos int, want string) *SyntaxError {
	if pos >= len(s.Data) {
		return s.Fail(len(s.Data), "the body ends where %s is expected", want)
	}
	c := s.Data[pos]
	if c == 0xEF && pos == 0 {
		return s.Fail(pos, "a byte order mark is not JSON")
	}
	if c < 0x20 || c >= 0x7F {
		return s.Fail(pos, "byte 0x%02x where %s is expected", c, want)
	}
	return s.Fail(pos, "%q where %s is expected", c, want)
}

// End fails if anything but blanks follows.
func (s *Scanner) End() *SyntaxError {
	s.Space()
	if s.Pos < len(s.Data) {
		return s.Fail(s.Pos, "text after the JSON value")
	}
	return nil
}

// Space skips blanks.
func (s *Scanner) Space() {
	i := s.Pos
	for i < len(s.Data) {
		if c := s.Data[i]; c > ' ' || c != ' ' && c != '\n' && c != '\r' && c != '\t' {
			break
		}
		i++
	}
	s.Pos = i
}

// Peek is the byte at Pos, or 0 at the end of the body; no token starts with 0.
func (s *Scanner) Peek() byte {
	if s.Pos < len(s.Data) {
		return s.Data[s.Pos]
	}
	return 0
}

// Skip validates the value at Pos, of any depth, and leaves Pos behind it.
func (s *Scanner) Skip() *SyntaxError {
	s.open = containers{outer: s.open.outer[:0]}
	for {
		switch c := s.Peek(); c {
		case '{':
			s.Pos++
			if s.Space(); s.Peek() != '}' {
				s.open.push(1)
				if err := s.key(); err != nil {
					return err
				}
				continue
			}
			s.Pos++
		case '[':
			s.Pos++
			if s.Space(); s.Peek() != ']' {
				s.open.push(0)
				continue
			}
			s.Pos++
		default:
			if err := s.Scalar(c); err != nil {
				return err
			}
		}
		more, err := s.after()
		if err != nil || !more {
			return err
		}
	}
}

// after closes the containers that end here; more tells that a value follows.
func (s *Scanner) after() (more bool, err *SyntaxError) {
	for s.open.depth > 0 {
		s.Space()
		c, object := s.Peek(), s.open.inObject()
		switch {
		case c == ',' && object:
			s.Pos++
			s.Space()
			return true, s.key()
		case c == ',':
			s.Pos++
			s.Space()
			return true, nil
		case c == '}' && object, c == ']' && !object:
			s.Pos++
			s.open.pop()
		case object:
			return false, s.Unexpected(s.Pos, "',' or '}'")
		default:
			return false, s.Unexpected(s.Pos, "',' or ']'")
		}
	}
	return false, nil
}

// key skips `"name" :` and leaves Pos at the value.
func (s *Scanner) key() *SyntaxError {
	if s.Peek() != '"' {
		return s.Unexpected(s.Pos, "a key in double quotes")
	}
	if _, err := s.Text(); err != nil {
		return err
	}
	return s.Colon()
}

// Colon skips the colon after a key, and the blanks around the colon.
func (s *Scanner) Colon() *SyntaxError {
	s.Space()
	if s.Peek() != ':' {
		return s.Unexpected(s.Pos, "':'")
	}
	s.Pos++
	s.Space()
	return nil
}

// Scalar skips a value that is no object and no array, and begins with first.
func (s *Scanner) Scalar(first byte) *SyntaxError {
	switch first {
	case '"':
		_, err := s.Text()
		return err
	case 't':
		return s.literal("true")
	case 'f':
		return s.literal("false")
	case 'n':
		return s.literal("null")
	}
	return s.Number()
}

func (s *Scanner) literal(word string) *SyntaxError {
	rest := s.Data[s.Pos:]
	if len(rest) >= len(word) && string(rest[:len(word)]) == word {
		s.Pos += len(word)
		return nil
	}
	for i := range len(word) {
		if i >= len(rest) || rest[i] != word[i] {
			return s.Unexpected(s.Pos+i, word)
		}
	}
	return nil
}

// Number skips a number.
func (s *Scanner) Number() *SyntaxError {
	i, data := s.Pos, s.Data
	if i < len(data) && data[i] == '-' {
		i++
	}
	start := i
	for i < len(data) && isDigit(data[i]) {
		i++
	}
	switch {
	case i == start && i == s.Pos:
		return s.Unexpected(i, "a value")
	case i == start:
		return s.Unexpected(i, "a digit")
	case data[start] == '0' && i > start+1:
		return s.Fail(start, "a number with a leading zero")
	}
	if i < len(data) && data[i] == '.' {
		i++
		start = i
		for i < len(data) && isDigit(data[i]) {
			i++
		}
		if i == start {
			return s.Unexpected(i, "a digit")
		}
	}
	if i < len(data) && (data[i] == 'e' || data[i] == 'E') {
		i++
		if i < len(data) && (data[i] == '+' || data[i] == '-') {
			i++
		}
		start = i
		for i < len(data) && isDigit(data[i]) {
			i++
		}
		if i == start {
			return s.Unexpected(i, "a digit")
		}
	}
	s.Pos = i
	return nil
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

const (
	ones   = 0x0101010101010101
	highs  = 0x8080808080808080
	quotes = ones * '"'
	slants = ones * '\\'
	blanks = ones * ' '
)

// Text skips the string at Pos and tells whether it is plain: without escapes, so that
// the bytes between its quotes are its value.
func (s *Scanner) Text() (plain bool, err *SyntaxError) {
	data, i := s.Data, s.Pos+1
	plain = true
	var seen uint64 // high bits of the bytes: whether one is not ASCII
	for {
		// Read eight bytes at a time, up to the first quote, backslash or control character.
		for i+8 <= len(data) {
			x := binary.LittleEndian.Uint64(data[i:])
			seen |= x
			q, b := x^quotes, x^slants
			if m := ((q-ones)&^q | (b-ones)&^b | (x-blanks)&^x) & highs; m != 0 {
				i += bits.TrailingZeros64(m) >> 3
				break
			}
			i += 8
		}
		if i >= len(data) {
			return false, s.inText(s.Fail(len(data), "the body ends inside a string"))
		}
		switch c := data[i]; {
		case c == '"':
			if seen&highs != 0 && !utf8.Valid(data[s.Pos+1:i]) {
				return false, s.inText(s.Fail(i, "a string is not UTF-8"))
			}
			s.Pos = i + 1
			return plain, nil
		case c == '\\':
			plain = false
			n, err := s.escape(i)
			if err != nil {
				return false, s.inText(err)
			}
			i += n
		case c < 0x20:
			return false, s.inText(s.Fail(i, "control character 0x%02x in a string: it must be escaped", c))
		default:
			seen |= uint64(c)
			i++
		}
	}
}

// inText is the first error in the string at Pos: an error of the encoding, if there is one
// before err, or else err.
func (s *Scanner) inText(err *SyntaxError) *SyntaxError {
	for i := s.Pos + 1; i < int(err.Offset); {
		r, size := utf8.DecodeRune(s.Data[i:])
		if r == utf8.RuneError && size <= 1 {
			return s.Fail(i, "byte 0x%02x is not UTF-8", s.Data[i])
		}
		i += size
	}
	return err
}

// escape is the length of the escape sequence at i.
func (s *Scanner) escape(i int) (int, *SyntaxError) {
	if i+1 >= len(s.Data) {
		return 0, s.Fail(len(s.Data), "the body ends inside a string")
	}
	switch s.Data[i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2, nil
	case 'u':
		for k := i + 2; k < i+6; k++ {
			if k >= len(s.Data) {
				return 0, s.Fail(len(s.Data), "the body ends inside a string")
			}
			if hexDigit(s.Data[k]) < 0 {
				return 0, s.Unexpected(k, "a hexadecimal digit")
			}
		}
		return 6, nil
	}
	return 0, s.Unexpected(i+1, "an escape character")
}

func hexDigit(c byte) rune {
	switch {
	case isDigit(c):
		return rune(c - '0')
	case 'a' <= c && c <= 'f':
		return rune(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return rune(c-'A') + 10
	}
	return -1
}
