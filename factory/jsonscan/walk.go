package jsonscan

import (
	"unicode/utf16"
	"unicode/utf8"
)

// Enter steps into the object or array at Pos. More then tells whether another
// member follows, and steps out behind the last member.
func (s *Scanner) Enter() { s.Pos++ }

// More moves to the next member of an object, or item of an array, and returns false after
// the last. The caller must have read or skipped the member before.
func (s *Scanner) More() bool {
	s.Space()
	switch s.Peek() {
	case '}', ']':
		s.Pos++
		return false
	case ',':
		s.Pos++
		s.Space()
	}
	return true
}

// Name returns the key of a member, and moves to the value.
func (s *Scanner) Name() []byte {
	name := s.Unquote()
	_ = s.Colon()
	return name
}

// Unquote returns the value of the string at Pos, and steps over the string. The result may
// share the text's bytes.
func (s *Scanner) Unquote() []byte {
	start := s.Pos + 1
	plain, _ := s.Text()
	raw := s.Data[start : s.Pos-1]
	if plain {
		return raw
	}
	return Unescape(nil, raw)
}

// Unescape appends the value of a valid string to dst; raw is the text between the quotes.
// A lone surrogate becomes U+FFFD, as in encoding/json.
func Unescape(dst, raw []byte) []byte {
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
