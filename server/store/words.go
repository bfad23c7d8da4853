package store

import (
	"strings"
	"unicode"
)

const (
	maxWords = 64 // different ones of a run that are remembered
	maxWord  = 40 // bytes of one
)

// wordsOf are the different words of texts, in lower case: letters and digits.
func wordsOf(texts ...string) []string {
	var words []string
	seen := make(map[string]bool)
	for _, text := range texts {
		for word := range strings.FieldsFuncSeq(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
			if len(word) > maxWord {
				word = strings.ToValidUTF8(word[:maxWord], "")
			}
			if seen[word] {
				continue
			}
			seen[word] = true
			if words = append(words, word); len(words) == maxWords {
				return words
			}
		}
	}
	return words
}
