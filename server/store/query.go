package store

import (
	"strconv"
	"strings"
)

// maxLimit is the most rows of one answer.
const maxLimit = 1000

// where collects the conditions of a query.
type where struct {
	terms []string
	args  []any
}

// add adds a condition, in which each ? stands for the next of the values.
func (w *where) add(term string, values ...any) { w.terms = append(w.terms, w.bind(term, values...)) }

// bind adds values and returns the text with their placeholders $1, $2 … in place of
// each ?.
func (w *where) bind(text string, values ...any) string {
	for _, v := range values {
		w.args = append(w.args, v)
		text = strings.Replace(text, "?", "$"+strconv.Itoa(len(w.args)), 1)
	}
	return text
}

// lowered is a text as lower makes it of a column in both databases: it changes letters of ASCII alone.
func lowered(text string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			r += 'a' - 'A'
		}
		return r
	}, text)
}

// in is the condition that a column has one of some values.
func in[T any](w *where, column string, values []T) string {
	if len(values) == 0 {
		return "1 = 0"
	}
	marks := make([]string, len(values))
	for i, v := range values {
		marks[i] = w.bind("?", v)
	}
	return column + " IN (" + strings.Join(marks, ", ") + ")"
}

// text adds column = value, unless the value is empty.
func (w *where) text(column, value string) {
	if value != "" {
		w.add(column+" = ?", value)
	}
}

// before continues after the id, towards older rows.
func before[Row any](w *where, column string, id ID[Row]) {
	if id != 0 {
		w.add(column+" < ?", id)
	}
}

func (w *where) sql() string {
	if len(w.terms) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(w.terms, " AND ")
}

func (w *where) limit(n int) string { return " LIMIT " + strconv.Itoa(limited(n)) }

func limited(n int) int {
	if n <= 0 || n > maxLimit {
		return maxLimit
	}
	return n
}
