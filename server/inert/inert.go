// Package inert makes text of strangers harmless: the text cannot affect the rest of a terminal
// or a page.
package inert

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Text is text with escapes for control characters, which can change what a terminal shows,
// for characters that are invisible or change the direction of text, and for bytes that are
// not UTF-8. The escapes are also valid in JSON, with the same meaning.
func Text(text string) string {
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

// unprintable tells whether a terminal or a page must not get the character. Joiners are
// printable, because words of some languages and compound emoji need them.
func unprintable(r rune) bool {
	switch r {
	case '\n', '\t', '\u200c', '\u200d':
		return false
	}
	if r < utf8.RuneSelf { // nearly all text
		return unicode.IsControl(r)
	}
	return unicode.IsControl(r) || unicode.In(r, unicode.Zl, unicode.Zp, unicode.Cf) && !unicode.Is(unicode.Prepended_Concatenation_Mark, r)
}
