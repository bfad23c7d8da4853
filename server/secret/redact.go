package secret

import (
	"io"
	"slices"
	"strings"
)

// Values shorter than these are not hidden, because their text occurs too often.
const (
	minExact   = 4 // unencoded
	minEncoded = 8 // in other encodings, and single lines of a longer value
)

// Redactor hides values in text: unencoded, per line, and in the encodings in which
// programs commonly print them (forms). It does not hide a value that a program
// transforms in another way. It is safe for concurrent use.
//
// If hidden texts overlap, everything that any of them covers is hidden, so that no
// part of one stays.
type Redactor struct {
	byFirst [256][]string        // needles by first byte, longest first
	pairs   [1 << 16 / 64]uint64 // the first two bytes of any needle, as a set
}

// NewRedactor makes a Redactor for the values.
func NewRedactor(values ...Value) *Redactor {
	r := &Redactor{}
	for _, v := range values {
		r.add(v.text, minExact)
		r.add(strings.TrimSpace(v.text), minExact) // a shell drops the last line's end
		for line := range strings.Lines(v.text) {
			r.add(strings.TrimSpace(line), minEncoded)
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
	for i := range r.byFirst {
		slices.SortFunc(r.byFirst[i], func(a, b string) int { return len(b) - len(a) })
	}
	return r
}

func (r *Redactor) add(needle string, shortest int) {
	if len(needle) < shortest || slices.Contains(r.byFirst[needle[0]], needle) {
		return
	}
	r.byFirst[needle[0]] = append(r.byFirst[needle[0]], needle)
	pair := int(needle[0])<<8 | int(needle[1])
	r.pairs[pair/64] |= 1 << (pair % 64)
}

// Redact returns text with every hidden value replaced.
func (r *Redactor) Redact(text []byte) []byte {
	s := scan{redactor: r}
	out, _ := s.redact(nil, text, true)
	return out
}

// scan is the position of a Redactor in a text.
type scan struct {
	redactor *Redactor
	covered  int // bytes at the front of the text that a match already covers
}

// redact appends the redacted text to out. Unless the text is final, it stops where a
// value could begin that is cut off at the end of the text, and returns the rest. Each
// decision depends only on the bytes from its position on, so a stream is redacted like
// the whole text, wherever it is cut.
func (s *scan) redact(out, text []byte, final bool) (_, rest []byte) {
	r := s.redactor
	clear := 0 // text[clear:i] is to be copied
	i := 0
	for ; i < len(text); i++ {
		if i+1 < len(text) {
			pair := int(text[i])<<8 | int(text[i+1])
			if r.pairs[pair/64]&(1<<(pair%64)) == 0 {
				if s.covered > 0 {
					s.covered--
					clear = i + 1
				}
				continue
			}
		}
		n, open := r.at(text[i:])
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
	return append(out, text[clear:i]...), text[i:]
}

// at returns the length of the longest needle with which text begins, and whether a
// longer one could match if there were more text.
func (r *Redactor) at(text []byte) (n int, open bool) {
	for _, needle := range r.byFirst[text[0]] {
		switch {
		case len(needle) > len(text):
			open = open || needle[:len(text)] == string(text)
		case needle == string(text[:len(needle)]):
			return len(needle), open
		}
	}
	return 0, open
}

// Writer redacts a stream, also where a value is split over writes. It holds back only
// the beginning of a possible value; Flush writes that.
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

// Flush writes what was held back. Call it when the stream ends, or when what follows
// does not continue it.
func (w *RedactWriter) Flush() error {
	out, _ := w.scan.redact(nil, w.held, true)
	w.held = nil
	if len(out) == 0 {
		return nil
	}
	_, err := w.to.Write(out)
	return err
}
