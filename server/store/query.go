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

// add adds a condition that ends where its value stands.
func (w *where) add(term string, value any) {
	w.args = append(w.args, value)
	w.terms = append(w.terms, term+"$"+strconv.Itoa(len(w.args)))
}

// list adds values and returns their placeholders.
func (w *where) list(values []any) string {
	marks := make([]string, len(values))
	for i, v := range values {
		w.args = append(w.args, v)
		marks[i] = "$" + strconv.Itoa(len(w.args))
	}
	return strings.Join(marks, ", ")
}

// text adds column = value, unless the value is empty.
func (w *where) text(column, value string) {
	if value != "" {
		w.add(column+" = ", value)
	}
}

// before continues after the id, towards older rows.
func before[Row any](w *where, column string, id ID[Row]) {
	if id != 0 {
		w.add(column+" < ", id)
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

// marks is $1, $2 … for n values.
func marks(n int) string {
	out := make([]string, n)
	for i := range out {
		out[i] = "$" + strconv.Itoa(i+1)
	}
	return strings.Join(out, ", ")
}
