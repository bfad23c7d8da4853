package filter

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"unicode/utf16"
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
	s := scanner{data: body}
	if err := s.document(); err != nil {
		return err
	}
	return nil
}

// scanner walks JSON without decoding it. It never recurses over the payload.
type scanner struct {
	data []byte
	pos  int
	open containers // of skip
}

// containers is a stack of the objects and arrays that are open: one bit each,
// so that a body of usual depth needs no memory.
type containers struct {
	depth int
	bits  uint64   // the innermost up to 64, 1 for an object
	outer []uint64 // those further out, 64 each
}

func (c *containers) push(object uint64) {
	if c.depth > 0 && c.depth&63 == 0 {
		c.outer = append(c.outer, c.bits)
	}
	c.depth++
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

func (s *scanner) fail(offset int, format string, args ...any) *SyntaxError {
	return &SyntaxError{Offset: int64(offset), Msg: fmt.Sprintf(format, args...)}
}

// unexpected is the error at pos: the end of the body or a byte that cannot be.
func (s *scanner) unexpected(pos int, want string) *SyntaxError {
	if pos >= len(s.data) {
		return s.fail(len(s.data), "the body ends where %s is expected", want)
	}
	c := s.data[pos]
	if c == 0xEF && pos == 0 {
		return s.fail(pos, "a byte order mark is not JSON")
	}
	if c < 0x20 || c >= 0x7F {
		return s.fail(pos, "byte 0x%02x where %s is expected", c, want)
	}
	return s.fail(pos, "%q where %s is expected", c, want)
}

// document skips one value that is the whole of the body.
func (s *scanner) document() *SyntaxError {
	s.space()
	if err := s.skip(); err != nil {
		return err
	}
	return s.end()
}

func (s *scanner) end() *SyntaxError {
	s.space()
	if s.pos < len(s.data) {
		return s.fail(s.pos, "text after the JSON value")
	}
	return nil
}

func (s *scanner) space() {
	i := s.pos
	for i < len(s.data) {
		if c := s.data[i]; c > ' ' || c != ' ' && c != '\n' && c != '\r' && c != '\t' {
			break
		}
		i++
	}
	s.pos = i
}

// peek is the byte at pos, 0 at the end of the body: no token starts with it.
func (s *scanner) peek() byte {
	if s.pos < len(s.data) {
		return s.data[s.pos]
	}
	return 0
}

// skip validates one value of any depth and leaves pos behind it.
func (s *scanner) skip() *SyntaxError {
	s.open = containers{outer: s.open.outer[:0]}
	for {
		switch c := s.peek(); c {
		case '{':
			s.pos++
			if s.space(); s.peek() != '}' {
				s.open.push(1)
				if err := s.key(); err != nil {
					return err
				}
				continue
			}
			s.pos++
		case '[':
			s.pos++
			if s.space(); s.peek() != ']' {
				s.open.push(0)
				continue
			}
			s.pos++
		default:
			if err := s.scalar(c); err != nil {
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
func (s *scanner) after() (more bool, err *SyntaxError) {
	for s.open.depth > 0 {
		s.space()
		c, object := s.peek(), s.open.inObject()
		switch {
		case c == ',' && object:
			s.pos++
			s.space()
			return true, s.key()
		case c == ',':
			s.pos++
			s.space()
			return true, nil
		case c == '}' && object, c == ']' && !object:
			s.pos++
			s.open.pop()
		case object:
			return false, s.unexpected(s.pos, "',' or '}'")
		default:
			return false, s.unexpected(s.pos, "',' or ']'")
		}
	}
	return false, nil
}

// key skips `"name" :` and leaves pos at the value.
func (s *scanner) key() *SyntaxError {
	if s.peek() != '"' {
		return s.unexpected(s.pos, "a key in double quotes")
	}
	if _, err := s.text(); err != nil {
		return err
	}
	return s.colon()
}

func (s *scanner) colon() *SyntaxError {
	s.space()
	if s.peek() != ':' {
		return s.unexpected(s.pos, "':'")
	}
	s.pos++
	s.space()
	return nil
}

func (s *scanner) scalar(first byte) *SyntaxError {
	switch first {
	case '"':
		_, err := s.text()
		return err
	case 't':
		return s.literal("true")
	case 'f':
		return s.literal("false")
	case 'n':
		return s.literal("null")
	}
	return s.number()
}

func (s *scanner) literal(word string) *SyntaxError {
	rest := s.data[s.pos:]
	if len(rest) >= len(word) && string(rest[:len(word)]) == word {
		s.pos += len(word)
		return nil
	}
	for i := range len(word) {
		if i >= len(rest) || rest[i] != word[i] {
			return s.unexpected(s.pos+i, word)
		}
	}
	return nil
}

func (s *scanner) number() *SyntaxError {
	i, data := s.pos, s.data
	if i < len(data) && data[i] == '-' {
		i++
	}
	start := i
	for i < len(data) && isDigit(data[i]) {
		i++
	}
	switch {
	case i == start && i == s.pos:
		return s.unexpected(i, "a value")
	case i == start:
		return s.unexpected(i, "a digit")
	case data[start] == '0' && i > start+1:
		return s.fail(start, "a number with a leading zero")
	}
	if i < len(data) && data[i] == '.' {
		i++
		start = i
		for i < len(data) && isDigit(data[i]) {
			i++
		}
		if i == start {
			return s.unexpected(i, "a digit")
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
			return s.unexpected(i, "a digit")
		}
	}
	s.pos = i
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

// text skips a string and tells whether it is plain: without escapes, so that
// the bytes between its quotes are its value.
func (s *scanner) text() (plain bool, err *SyntaxError) {
	data, i := s.data, s.pos+1
	plain = true
	var seen uint64 // high bits of the bytes: whether one is not ASCII
	for {
		// Eight bytes at a time, up to the first that is a quote, a backslash or a
		// control.
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
			return false, s.inText(s.fail(len(data), "the body ends inside a string"))
		}
		switch c := data[i]; {
		case c == '"':
			if seen&highs != 0 && !utf8.Valid(data[s.pos+1:i]) {
				return false, s.inText(s.fail(i, "a string is not UTF-8"))
			}
			s.pos = i + 1
			return plain, nil
		case c == '\\':
			plain = false
			n, err := s.escape(i)
			if err != nil {
				return false, s.inText(err)
			}
			i += n
		case c < 0x20:
			return false, s.inText(s.fail(i, "control character 0x%02x in a string: it must be escaped", c))
		default:
			seen |= uint64(c)
			i++
		}
	}
}

// inText is the first error in the string at pos: that of its encoding, if it
// comes before err.
func (s *scanner) inText(err *SyntaxError) *SyntaxError {
	for i := s.pos + 1; i < int(err.Offset); {
		r, size := utf8.DecodeRune(s.data[i:])
		if r == utf8.RuneError && size <= 1 {
			return s.fail(i, "byte 0x%02x is not UTF-8", s.data[i])
		}
		i += size
	}
	return err
}

// escape is the length of the escape sequence at i.
func (s *scanner) escape(i int) (int, *SyntaxError) {
	if i+1 >= len(s.data) {
		return 0, s.fail(len(s.data), "the body ends inside a string")
	}
	switch s.data[i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2, nil
	case 'u':
		for k := i + 2; k < i+6; k++ {
			if k >= len(s.data) {
				return 0, s.fail(len(s.data), "the body ends inside a string")
			}
			if hexDigit(s.data[k]) < 0 {
				return 0, s.unexpected(k, "a hexadecimal digit")
			}
		}
		return 6, nil
	}
	return 0, s.unexpected(i+1, "an escape character")
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

// unescape appends the value of a valid string to dst; raw is what stood
// between its quotes. A lone surrogate becomes U+FFFD, as in encoding/json.
func unescape(dst, raw []byte) []byte {
	for i := 0; i < len(raw); {
		if raw[i] != '\\' {
			dst = append(dst, raw[i])
			i++
			continue
		}
		switch c := raw[i+1]; c {
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 't':
			dst = append(dst, '\t')
		case 'u':
			r := hex4(raw[i+2:])
			if utf16.IsSurrogate(r) && i+11 < len(raw) && raw[i+6] == '\\' && raw[i+7] == 'u' {
				if pair := utf16.DecodeRune(r, hex4(raw[i+8:])); pair != utf8.RuneError {
					dst = utf8.AppendRune(dst, pair)
					i += 12
					continue
				}
			}
			dst = utf8.AppendRune(dst, r)
			i += 6
			continue
		default:
			dst = append(dst, c)
		}
		i += 2
	}
	return dst
}

func hex4(b []byte) rune {
	return hexDigit(b[0])<<12 | hexDigit(b[1])<<8 | hexDigit(b[2])<<4 | hexDigit(b[3])
}
