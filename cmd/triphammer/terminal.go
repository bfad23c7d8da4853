package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/term"
)

// What senders, agents and repositories wrote is among what commands print. Text
// for people passes through printable wherever it goes; on a terminal everything
// does, so that no command can forget it. Elsewhere JSON, bodies and files keep
// their bytes.

// standard is one of the program's own outputs as commands write to it.
func standard(f *os.File) io.Writer {
	if term.IsTerminal(int(f.Fd())) {
		return printable{f}
	}
	return f
}

// terminalOf is the terminal that w writes to, nil if it writes elsewhere.
func terminalOf(w io.Writer) *os.File {
	switch w := w.(type) {
	case printable:
		return terminalOf(w.w)
	case *os.File:
		if term.IsTerminal(int(w.Fd())) {
			return w
		}
	}
	return nil
}

// printable writes what can be seen. Control characters, which can rewrite what a
// terminal shows, characters that turn the direction of text or are invisible, and
// bytes that are no UTF-8 become escapes, which JSON reads as what they stand for.
type printable struct{ w io.Writer }

func (p printable) Write(text []byte) (int, error) {
	if _, err := io.WriteString(p.w, visible(string(text))); err != nil {
		return 0, err
	}
	return len(text), nil
}

// visible is text as printable shows it.
func visible(text string) string {
	if utf8.ValidString(text) && !strings.ContainsFunc(text, unprintable) {
		return text
	}
	var b strings.Builder
	text = strings.ReplaceAll(text, "\r\n", "\n")
	for i, r := range text {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(text[i:], string(utf8.RuneError)):
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case !unprintable(r):
			b.WriteRune(r)
		case r == '\r':
			b.WriteString(`\r`)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// unprintable tells whether a terminal must not get the character. Joiners stay:
// words of some languages and compound emoji need them.
func unprintable(r rune) bool {
	switch r {
	case '\n', '\t', '\u200c', '\u200d':
		return false
	}
	return unicode.IsControl(r) || unicode.In(r, unicode.Zl, unicode.Zp, unicode.Cf) && !unicode.Is(unicode.Prepended_Concatenation_Mark, r)
}

// oneLine keeps a text from breaking its line.
var oneLine = strings.NewReplacer("\r\n", `\n`, "\n", `\n`, "\t", `\t`)
