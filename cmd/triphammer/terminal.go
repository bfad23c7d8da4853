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

// Commands print text that senders, agents and repositories wrote. Text for people always
// passes through printable. On a terminal all output does, so that no command can forget
// it. Elsewhere JSON, bodies and files keep their bytes.

// standard wraps a standard output of the program for the commands.
func standard(f *os.File) io.Writer {
	if term.IsTerminal(int(f.Fd())) {
		return printable{f}
	}
	return f
}

// terminalOf is the terminal to which w writes; nil if it writes elsewhere.
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

// printable writes only visible text. It escapes control characters, which can change what
// a terminal shows, characters that are invisible or change the direction of text, and
// bytes that are not UTF-8. The escapes are also valid in JSON, with the same meaning.
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

// unprintable tells whether a terminal must not get the character. Joiners are printable,
// because words of some languages and compound emoji need them.
func unprintable(r rune) bool {
	switch r {
	case '\n', '\t', '\u200c', '\u200d':
		return false
	}
	return unicode.IsControl(r) || unicode.In(r, unicode.Zl, unicode.Zp, unicode.Cf) && !unicode.Is(unicode.Prepended_Concatenation_Mark, r)
}

// oneLine escapes the characters that would end or shift a line.
var oneLine = strings.NewReplacer("\r\n", `\n`, "\n", `\n`, "\t", `\t`)
