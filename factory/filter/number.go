package filter

import (
	"strconv"

	"triphammer/factory/jsonscan"
)

// maxExponent bounds the exponents that are told apart. A number with a larger exponent is
// refused in a filter, and equals no filter's value in a payload.
const maxExponent = 1 << 40

// isNumber tells whether text is a JSON number and nothing else. Files in other formats may
// spell a number in ways that JSON does not allow.
func isNumber(text string) bool {
	s := jsonscan.Scanner{Data: []byte(text)}
	return s.Number() == nil && s.Pos == len(text)
}

// appendDecimal appends the canonical text of a number's exact decimal value: sign,
// digits without zeros at either end, exponent. 1.0, 1 and 10e-1 have the same text;
// 9007199254740993 and 9007199254740992 do not (SPEC 8.2). It walks the literal once,
// however large the exponent is. ok is false if the exponent is out of range.
func appendDecimal(dst, literal []byte) (_ []byte, ok bool) {
	i := 0
	negative := literal[0] == '-'
	if negative {
		i++
	}
	var exponent int64
	mark := len(dst)
	if negative {
		dst = append(dst, '-')
	}
	digits := len(dst)
	fraction := false
	for ; i < len(literal); i++ {
		c := literal[i]
		if c == '.' {
			fraction = true
			continue
		}
		if c < '0' || c > '9' {
			break
		}
		if fraction {
			exponent--
		}
		if c != '0' || len(dst) > digits {
			dst = append(dst, c)
		}
	}
	for len(dst) > digits && dst[len(dst)-1] == '0' {
		dst = dst[:len(dst)-1]
		exponent++
	}
	if len(dst) == digits {
		return append(dst[:mark], '0'), true
	}
	if i < len(literal) {
		written, ok := parseExponent(literal[i+1:])
		if !ok {
			return dst[:mark], false
		}
		exponent += written
	}
	if exponent != 0 {
		dst = append(dst, 'e')
		dst = strconv.AppendInt(dst, exponent, 10)
	}
	return dst, true
}

func parseExponent(literal []byte) (int64, bool) {
	negative := false
	if literal[0] == '+' || literal[0] == '-' {
		negative = literal[0] == '-'
		literal = literal[1:]
	}
	var n int64
	for _, c := range literal {
		if n = n*10 + int64(c-'0'); n > maxExponent {
			return 0, false
		}
	}
	if negative {
		n = -n
	}
	return n, true
}
