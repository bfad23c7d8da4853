package secret

import (
	"encoding/binary"
	"io"
	"slices"
	"strings"
)

// Shorter values are not hidden, because their text occurs too often. The lengths are in bytes.
const (
	minExact   = 4 // unencoded
	minEncoded = 8 // in other encodings, and single lines of a longer value
)

// Redactor hides values in text: unencoded, per line, and in the encodings in which
// programs commonly print them (forms). It also hides texts in the form of a well-known
// kind of credential (tokens). It does not hide a value that a program transforms in
// another way. It is safe for concurrent use.
//
// If hidden texts overlap, the Redactor hides everything that any of them covers, so that
// no part of a value stays.
type Redactor struct {
	forms   map[uint32][]form // by their first bytes
	starts  map[string]bool   // beginnings of forms that are shorter than the index
	present [1 << 16 / 64]uint64
	only    bool // no text is hidden but the values
}

// indexed is how many bytes of a text the index looks at. No form is shorter.
const indexed = minExact

// NewRedactor makes a Redactor for the values.
func NewRedactor(values ...Value) *Redactor {
	r := &Redactor{forms: make(map[uint32][]form), starts: make(map[string]bool)}
	for _, v := range values {
		r.add(form{text: v.text}, minExact)
		r.add(form{text: strings.TrimSpace(v.text)}, minExact) // a shell drops the last line's end
		for line := range strings.Lines(v.text) {
			r.add(form{text: strings.TrimSpace(line)}, minEncoded)
		}
		if len(v.text) < minEncoded {
			continue
		}
		for _, form := range forms(v.text) {
			r.add(form, minEncoded)
		}
		if trimmed := strings.TrimSpace(v.text); trimmed != v.text && len(trimmed) >= minEncoded {
			for _, form := range forms(trimmed) {
				r.add(form, minEncoded)
			}
		}
	}
	for start := range tokens {
		r.mark(start)
	}
	return r
}

// NewExact makes a Redactor that hides the values and no other credentials: for text that others
// work with.
func NewExact(values ...Value) *Redactor {
	r := NewRedactor(values...)
	r.only = true
	return r
}

func (r *Redactor) add(f form, shortest int) {
	if len(f.text) < shortest {
		return
	}
	start := binary.LittleEndian.Uint32([]byte(f.text[:indexed]))
	if slices.Contains(r.forms[start], f) {
		return
	}
	r.forms[start] = append(r.forms[start], f)
	r.mark(start)
	for n := 1; n < indexed; n++ {
		r.starts[f.text[:n]] = true
	}
}

// mark makes the scan look closer at texts that begin with start.
func (r *Redactor) mark(start uint32) {
	h := hash(start)
	r.present[h/64] |= 1 << (h % 64)
}

// marked tells whether the scan must look closer at the beginning of a text. The text has at
// least as many bytes as are indexed.
func (r *Redactor) marked(text []byte) bool {
	h := hash(binary.LittleEndian.Uint32(text))
	return r.present[h/64]&(1<<(h%64)) != 0
}

// hash spreads the first bytes of a text over the bits of present.
func hash(start uint32) uint32 { return start * 0x9E3779B1 >> 16 }

// Redact returns text with every hidden value replaced.
func (r *Redactor) Redact(text []byte) []byte {
	s := scan{redactor: r}
	out, _ := s.redact(nil, text, true)
	return out
}

// scan is the position of a Redactor in a text.
type scan struct {
	redactor *Redactor
	covered  int     // bytes at the front of the text that a match already covers
	before   [2]byte // the bytes before the text
}

// redact appends the redacted text to out. Unless the text is final, it stops where a value
// could begin that the end of the text cuts off, and returns the rest. Each decision depends
// only on the bytes from its position on and the two bytes before. So a stream is redacted
// like the whole text, wherever it is cut.
func (s *scan) redact(out, text []byte, final bool) (_, rest []byte) {
	r := s.redactor
	clear := 0 // text[clear:i] will be copied
	i := 0
	for ; i < len(text); i++ {
		if s.covered == 0 { // almost always
			for i+indexed <= len(text) && !r.marked(text[i:]) {
				i++
			}
		} else if i+indexed <= len(text) && !r.marked(text[i:]) {
			s.covered--
			clear = i + 1
			continue
		}
		n, open := r.at(text[i:], s.last(text[:i]))
		if open && !final {
			break
		}
		if n > 0 && s.covered == 0 {
			out = append(append(out, text[clear:i]...), hidden...)
		}
		if s.covered = max(s.covered, n); s.covered > 0 {
			s.covered--
			clear = i + 1
		}
	}
	s.before = s.last(text[:i])
	return append(out, text[clear:i]...), text[i:]
}

// last are the last two bytes of the text, or of the text before it.
func (s *scan) last(text []byte) [2]byte {
	switch n := len(text); n {
	case 0:
		return s.before
	case 1:
		return [2]byte{s.before[1], text[0]}
	default:
		return [2]byte{text[n-2], text[n-1]}
	}
}

// at returns how many bytes at the beginning of text are hidden. open tells that more text could
// hide more bytes.
func (r *Redactor) at(text []byte, before [2]byte) (n int, open bool) {
	if len(text) < indexed {
		return 0, r.starts[string(text)] || !r.only && follows(before) && tokenStarts[string(text)]
	}
	start := binary.LittleEndian.Uint32(text)
	for _, f := range r.forms[start] {
		length, more := f.match(text)
		n, open = max(n, length), open || more
	}
	if !r.only && follows(before) {
		for _, match := range tokens[start] {
			length, more := match(text)
			n, open = max(n, length), open || more
		}
	}
	return n, open
}

// maxBreak is the length of the longest line break, in bytes.
const maxBreak = 8

// match returns the length of the form at the beginning of text. open tells that more text could
// complete the form.
func (f form) match(text []byte) (n int, open bool) {
	if !f.wraps {
		if len(text) < len(f.text) {
			return 0, f.text[:len(text)] == string(text)
		}
		if string(text[:len(f.text)]) == f.text {
			return len(f.text), false
		}
		return 0, false
	}
	at, gap := 0, 0
	for i := 0; i < len(text); {
		if text[i] == f.text[at] {
			i, at, gap = i+1, at+1, 0
			if at == len(f.text) {
				return i, false
			}
			continue
		}
		skip := lineBreak(text[i:])
		if gap += skip; skip == 0 || at < indexed || gap > maxBreak {
			return 0, false
		}
		i += skip
	}
	return 0, true
}

// lineBreak is the length of a line break at the beginning of text, or of a part of one.
// It may be written as in a string of JSON.
func lineBreak(text []byte) int {
	switch {
	case text[0] == '\n' || text[0] == '\r':
		return 1
	case text[0] != '\\':
		return 0
	case len(text) == 1 || text[1] == '\\': // a backslash is escaped in a string within a string
		return 1
	case text[1] == 'n' || text[1] == 'r':
		return 2
	}
	return 0
}

// Writer makes a writer that redacts a stream, even a value that is split over writes. It holds
// back only the beginning of a possible value, which Flush writes.
func (r *Redactor) Writer(w io.Writer) *RedactWriter {
	return &RedactWriter{scan: scan{redactor: r}, to: w}
}

// RedactWriter is a Redactor's io.Writer. It is not safe for concurrent use.
type RedactWriter struct {
	scan scan
	to   io.Writer
	held []byte
}

// Write implements io.Writer. After an error the stream has a gap.
func (w *RedactWriter) Write(p []byte) (int, error) {
	text := p
	if len(w.held) > 0 {
		w.held = append(w.held, p...)
		text = w.held
	}
	out, rest := w.scan.redact(nil, text, false)
	w.held = append(w.held[:0], rest...) // rest may be part of p, which belongs to the caller
	if len(out) > 0 {
		if _, err := w.to.Write(out); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// Flush writes the bytes that were held back. Call it when the stream ends, or when the next bytes
// do not continue it.
func (w *RedactWriter) Flush() error {
	out, _ := w.scan.redact(nil, w.held, true)
	w.held = nil
	if len(out) == 0 {
		return nil
	}
	_, err := w.to.Write(out)
	return err
}
