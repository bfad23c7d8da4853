package dashboard

import (
	"slices"
	"strconv"
	"strings"
)

// pageRows is how many rows a page of a list shows.
const pageRows = 50

// Turn is which part of a list a page shows: of the entries with a text, those from a number on.
type Turn struct {
	Text              string // that the entries must have, in any case
	First, Last, Rows int    // the numbers of the shown entries, from 1, and how many there are
	path, number      string // of the address: the path, and the parameter with the number of the first entry
}

// turn cuts a list to the part that the address asks for. The texts of an entry are what a person searches.
func turn[T any](v *Visit, list []T, texts func(T) []string) ([]T, Turn) {
	return turnBy(v, "from", list, texts)
}

// turnBy is turn for one of several lists of a page: number is the list's own parameter.
func turnBy[T any](v *Visit, number string, list []T, texts func(T) []string) ([]T, Turn) {
	t := Turn{Text: strings.TrimSpace(v.Query("q")), path: v.URL.Path, number: number}
	if wanted := strings.ToLower(t.Text); wanted != "" {
		list = slices.DeleteFunc(list, func(one T) bool {
			return !slices.ContainsFunc(texts(one), func(text string) bool { return strings.Contains(strings.ToLower(text), wanted) })
		})
	}
	from, _ := strconv.Atoi(v.Query(number)) // anything else: the first page
	t.Rows = len(list)
	t.First = min(max(from, 1), max(t.Rows, 1))
	list = list[min(t.First-1, t.Rows):min(t.First-1+pageRows, t.Rows)]
	t.Last = t.First - 1 + len(list)
	return list, t
}

// At is the address of the page that begins with an entry; empty: there is none.
func (t Turn) At(p Page, first int) string {
	if first > t.Rows || first <= 1-pageRows {
		return ""
	}
	return p.To(t.path, "q", t.Text, t.number, strconv.Itoa(max(first, 1)))
}

// Before is the address of the page before.
func (t Turn) Before(p Page) string { return t.At(p, t.First-pageRows) }

// After is the address of the page after.
func (t Turn) After(p Page) string { return t.At(p, t.Last+1) }

// few are the first entries of a list of names that may be long. Who wants another one types it.
func few(names []string) []string { return names[:min(len(names), 300)] }

func init() { functions["few"] = few }
