package secret

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"net/url"
	"regexp"
	"strings"
)

// form is a text in which a value may be printed.
type form struct {
	text  string
	wraps bool // line breaks may be anywhere in the text
}

// forms are the encodings in which programs commonly print a value: base64 at any alignment,
// hex, percent encoding, string escapes of JSON, and the quotings of shells and HTML.
func forms(text string) []form {
	var wrapping, all []string
	for _, encoding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for offset := range 3 {
			padded := append(make([]byte, offset), text...)
			// Leave out characters that also hold bits of a neighbour.
			from, to := (offset*8+5)/6, len(padded)*8/6
			wrapping = append(wrapping, encoding.EncodeToString(padded)[from:to])
		}
	}
	all = append(all, wrapped(wrapping[0])...)
	hexed := hex.EncodeToString([]byte(text))
	wrapping = append(wrapping, hexed, strings.ToUpper(hexed), strings.TrimSpace(hexPairs.ReplaceAllString(hexed, "$0 ")))
	all = append(all, percent(text)...)
	all = append(all, quoted(text)...)
	all = append(all, shell(text)...)
	all = append(all, markup(text)...)
	var out []form
	for _, text := range all {
		out = append(out, form{text: text})
	}
	for _, text := range wrapping {
		// A break among the first characters would hide the beginning from the index, so each
		// of these characters may be the first.
		for from := range min(indexed, len(text)) {
			if text[from] != ' ' {
				out = append(out, form{text: text[from:], wraps: true})
			}
		}
	}
	return out
}

var hexPairs = regexp.MustCompile("..")

// wrapped are the lines of a long base64 text, as base64(1) (76 characters) and PEM
// writers (64) break it, in case a program prints only some lines.
func wrapped(text string) []string {
	var lines []string
	for _, width := range []int{64, 76} {
		for rest := text; len(rest) > 0 && len(text) > width; {
			line := rest[:min(width, len(rest))]
			lines, rest = append(lines, line), rest[len(line):]
		}
	}
	return lines
}

// percent are the percent encodings of Go, of encodeURIComponent, and of programs that leave
// only the unreserved characters of RFC 3986, with upper-case and lower-case digits.
func percent(text string) []string {
	var all []string
	for _, plain := range []string{"-._~", "-._~!'()*"} {
		var upper strings.Builder
		for i := range len(text) {
			c := text[i]
			if '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' || strings.IndexByte(plain, c) >= 0 {
				upper.WriteByte(c)
			} else {
				fmt.Fprintf(&upper, "%%%02X", c)
			}
		}
		all = append(all, upper.String())
	}
	all = append(all, url.QueryEscape(text), url.PathEscape(text))
	for _, upper := range all {
		all = append(all, lowerEscapes(upper))
	}
	return all
}

// lowerEscapes writes %2F as %2f.
func lowerEscapes(text string) string {
	out := []byte(text)
	for i := 0; i+2 < len(out); i++ {
		if out[i] == '%' {
			copy(out[i+1:], bytes.ToLower(out[i+1:i+3]))
			i += 2
		}
	}
	return string(out)
}

// quoted are the inner texts of JSON strings: with and without the escapes for HTML, with
// escaped slashes, and in ASCII. Each also comes as a string within a JSON string, as in a
// tool call that a harness reports.
func quoted(text string) []string {
	escaped := jsonString(text, false)
	all := []string{escaped, jsonString(text, true), strings.ReplaceAll(escaped, "/", `\/`), ascii(escaped)}
	for _, once := range all {
		all = append(all, jsonString(once, false))
	}
	return all
}

func jsonString(text string, forHTML bool) string {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(forHTML)
	_ = enc.Encode(text) // a string into a buffer does not fail
	s := strings.TrimSuffix(out.String(), "\n")
	return s[1 : len(s)-1]
}

// ascii escapes characters outside ASCII as UTF-16 units.
func ascii(escaped string) string {
	var out strings.Builder
	for _, c := range escaped {
		switch {
		case c < 0x80:
			out.WriteRune(c)
		case c < 0x10000:
			fmt.Fprintf(&out, `\u%04x`, c)
		default:
			c -= 0x10000
			fmt.Fprintf(&out, `\u%04x\u%04x`, 0xd800+c>>10, 0xdc00+c&0x3ff)
		}
	}
	return out.String()
}

// shell are the words that a shell reads as the text: in single quotes, in double quotes,
// with backslashes (printf %q), and with bash's form of control characters ($'…').
func shell(text string) []string {
	slashed := func(special string) string {
		var out strings.Builder
		for i := range len(text) {
			if strings.IndexByte(special, text[i]) >= 0 {
				out.WriteByte('\\')
			}
			out.WriteByte(text[i])
		}
		return out.String()
	}
	var dollar strings.Builder
	for i := range len(text) {
		switch c := text[i]; {
		case c == '\n':
			dollar.WriteString(`\n`)
		case c == '\t':
			dollar.WriteString(`\t`)
		case c == '\'' || c == '\\':
			dollar.Write([]byte{'\\', c})
		case c < ' ' || c >= 0x7f:
			fmt.Fprintf(&dollar, `\%03o`, c)
		default:
			dollar.WriteByte(c)
		}
	}
	return []string{
		strings.ReplaceAll(text, `'`, `'\''`), strings.ReplaceAll(text, `'`, `'"'"'`), slashed("\"\\$`"), dollar.String(),
		slashed(" \t'\"\\|&;()<>!{}*[]?^$`,"), slashed("'\\"),
	}
}

// markup are the forms of the text in HTML and XML, with names and with numbers of characters.
func markup(text string) []string {
	all := []string{html.EscapeString(text)}
	for _, quotes := range [][2]string{{`"`, "'"}, {"&quot;", "&apos;"}, {"&quot;", "&#x27;"}, {"&quot;", "'"}} {
		all = append(all, strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, quotes[0], "'", quotes[1]).Replace(text))
	}
	return all
}
