package native

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// mentionsIn are the names that a Markdown text mentions as @name, in lower case, without
// the @. inner are the marks that a name may have between its letters and digits. A mention
// stands alone: neither a word nor a path goes before it, and what looks like one in code,
// or in a quotation of an earlier text, is none (SPEC 16.5).
func mentionsIn(text, inner string) []string {
	if !strings.Contains(text, "@") {
		return nil
	}
	text = withoutCode(text)
	var all []string
	before := ' '
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		if r == '@' && !isNameRune(before) && before != '@' && before != '/' && before != '.' {
			if name := nameAt(text[i+1:], inner); name != "" {
				all = append(all, strings.ToLower(name))
				i += 1 + len(name)
				before = 'x'
				continue
			}
		}
		before, i = r, i+size
	}
	return all
}

// nameAt is the name at the beginning of a text: letters, digits and _, with the inner marks
// between them. A name that goes on into an address is none.
func nameAt(text, inner string) string {
	end := 0
	for i, r := range text {
		if isNameRune(r) {
			end = i + utf8.RuneLen(r)
			continue
		}
		if strings.ContainsRune(inner, r) && end == i {
			continue
		}
		break
	}
	if strings.HasPrefix(text[end:], "@") {
		return ""
	}
	return text[:end]
}

func isNameRune(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) }

// withoutCode replaces the code of a Markdown text (CommonMark 4.5, 6.1), and the lines that quote
// (5.1), by blanks.
func withoutCode(text string) string {
	var out strings.Builder
	fence := ""
	for line := range strings.Lines(text) {
		bare := strings.TrimLeft(line, " ")
		indent := len(line) - len(bare)
		switch {
		case fence != "":
			if indent < 4 && strings.HasPrefix(bare, fence) && strings.Trim(bare, fence[:1]+" \t\r\n") == "" {
				fence = ""
			}
			out.WriteByte('\n')
		case indent < 4 && (strings.HasPrefix(bare, "```") && !strings.Contains(strings.TrimLeft(bare, "`"), "`") || strings.HasPrefix(bare, "~~~")):
			fence = bare[:len(bare)-len(strings.TrimLeft(bare, bare[:1]))]
			out.WriteByte('\n')
		case indent < 4 && strings.HasPrefix(bare, ">"):
			out.WriteByte('\n')
		default:
			out.WriteString(line)
		}
	}
	return withoutSpans(out.String())
}

// withoutSpans replaces what stands between equally long runs of backticks by a blank.
func withoutSpans(text string) string {
	if !strings.Contains(text, "`") {
		return text
	}
	var out strings.Builder
	missing := make(map[int]bool) // lengths of runs that do not come again
	for text != "" {
		i := strings.IndexByte(text, '`')
		if i < 0 {
			break
		}
		n := len(text[i:]) - len(strings.TrimLeft(text[i:], "`"))
		out.WriteString(text[:i])
		rest := text[i+n:]
		end := -1
		if !missing[n] {
			end = runOf(rest, n)
			missing[n] = end < 0
		}
		if end < 0 {
			out.WriteString(text[i : i+n])
			text = rest
			continue
		}
		out.WriteByte(' ')
		text = rest[end+n:]
	}
	out.WriteString(text)
	return out.String()
}

// runOf is where a run of exactly n backticks begins, -1 if there is none.
func runOf(text string, n int) int {
	for at := 0; ; {
		i := strings.IndexByte(text[at:], '`')
		if i < 0 {
			return -1
		}
		at += i
		length := len(text[at:]) - len(strings.TrimLeft(text[at:], "`"))
		if length == n {
			return at
		}
		at += length
	}
}

// branch is a branch's name without what marks it as one.
func branch(ref string) string { return strings.TrimPrefix(ref, "refs/heads/") }

// keyword is the form of a keyword, and of a text in which it is looked for.
func keyword(text string) string { return strings.ToLower(strings.TrimSpace(text)) }
