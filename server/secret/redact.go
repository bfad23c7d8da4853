package secret

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/url"
	"slices"
	"strings"
)

// Values shorter than these are not hidden: their text would be everywhere.
const (
	minExact   = 4 // as they are
	minEncoded = 8 // in other encodings, and single lines of a longer value
)

// Redactor hides values in text: as they are, per line, and in the encodings in
// which programs commonly print them (base64 at any alignment, hex, percent
// encoding, JSON escapes). It does not hide what a program transforms otherwise.
type Redactor struct {
	byFirst [256][][]byte // needles by first byte, longest first
	longest int
}

// NewRedactor makes a Redactor for the values.
func NewRedactor(values ...Value) *Redactor {
	r := &Redactor{}
	for _, v := range values {
		r.add(v.text, minExact)
		for line := range strings.Lines(v.text) {
			r.add(strings.TrimSpace(line), minEncoded)
		}
		if len(v.text) < minEncoded {
			continue
		}
		for offset := range 3 {
			padded := append(make([]byte, offset), v.text...)
			// Characters that also hold bits of a neighbour are left out.
			from, to := (offset*8+5)/6, len(padded)*8/6
			r.add(base64.RawStdEncoding.EncodeToString(padded)[from:to], minEncoded)
			r.add(base64.RawURLEncoding.EncodeToString(padded)[from:to], minEncoded)
		}
		hexed := hex.EncodeToString([]byte(v.text))
		r.add(hexed, minEncoded)
		r.add(strings.ToUpper(hexed), minEncoded)
		r.add(url.QueryEscape(v.text), minEncoded)
		r.add(url.PathEscape(v.text), minEncoded)
		if quoted, err := json.Marshal(v.text); err == nil {
			r.add(string(quoted[1:len(quoted)-1]), minEncoded)
		}
	}
	for i := range r.byFirst {
		slices.SortFunc(r.byFirst[i], func(a, b []byte) int { return len(b) - len(a) })
	}
	return r
}

func (r *Redactor) add(needle string, shortest int) {
	if len(needle) < shortest {
		return
	}
	list := &r.byFirst[needle[0]]
	if !slices.ContainsFunc(*list, func(n []byte) bool { return string(n) == needle }) {
		*list = append(*list, []byte(needle))
		r.longest = max(r.longest, len(needle))
	}
}

// Redact returns text with every hidden value replaced.
func (r *Redactor) Redact(text []byte) []byte {
	out, _ := r.replace(nil, text, true)
	return out
}

// replace appends the redacted text to out, up to where a value could still
// begin in what is to come, and returns the rest.
func (r *Redactor) replace(out, text []byte, final bool) (_, rest []byte) {
	i := 0
	for i < len(text) {
		if !final && len(text)-i < r.longest && r.mayBegin(text[i:]) {
			break
		}
		if needle := r.at(text[i:]); needle != nil {
			out = append(out, hidden...)
			i += len(needle)
			continue
		}
		out = append(out, text[i])
		i++
	}
	return out, text[i:]
}

func (r *Redactor) at(text []byte) []byte {
	for _, needle := range r.byFirst[text[0]] {
		if bytes.HasPrefix(text, needle) {
			return needle
		}
	}
	return nil
}

// mayBegin tells whether a longer text could begin with a hidden value that
// text does not hold whole.
func (r *Redactor) mayBegin(text []byte) bool {
	for _, needle := range r.byFirst[text[0]] {
		if len(needle) > len(text) && bytes.HasPrefix(needle, text) {
			return true
		}
	}
	return false
}

// Writer redacts a stream, also where a value is split over writes. It holds
// back no more than the beginning of a possible value; Flush lets that go.
func (r *Redactor) Writer(w io.Writer) *RedactWriter { return &RedactWriter{redactor: r, to: w} }

// RedactWriter is a Redactor's io.Writer. It is not safe for concurrent use.
type RedactWriter struct {
	redactor *Redactor
	to       io.Writer
	held     []byte
}

func (w *RedactWriter) Write(p []byte) (int, error) {
	out, rest := w.redactor.replace(nil, append(w.held, p...), false)
	w.held = slices.Clone(rest)
	if len(out) > 0 {
		if _, err := w.to.Write(out); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// Flush writes what was held back.
func (w *RedactWriter) Flush() error {
	out := w.redactor.Redact(w.held)
	w.held = nil
	if len(out) == 0 {
		return nil
	}
	_, err := w.to.Write(out)
	return err
}
