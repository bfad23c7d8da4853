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

// text adds column = value, unless the value is empty.
func (w *where) text(column, value string) {
	if value != "" {
		w.add(column+" = ", value)
	}
}

// before goes on after the id, towards older rows.
func (w *where) before(prefix, id string) error {
	if id == "" {
		return nil
	}
	n, err := parseID(prefix, id)
	if err == nil {
		w.add("id < ", n)
	}
	return err
}

func (w *where) sql() string {
	if len(w.terms) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(w.terms, " AND ")
}

func (w *where) limit(n int) string {
	if n <= 0 || n > maxLimit {
		n = maxLimit
	}
	return " LIMIT " + strconv.Itoa(n)
}
