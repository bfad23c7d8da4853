package dashboard

import (
	"slices"
	"strings"

	"triphammer/server/api"
)

// Column is a column that a person can leave out of a list.
type Column struct {
	Key, Name string
	Shown     bool
}

// columns are the columns that a person can leave out, by list. What became of an entry is in none of
// them, because it says why nothing was started, or why a run failed.
var columns = map[string][]Column{
	"deliveries": {{Key: "from", Name: "Webhook"}, {Key: "size", Name: "Size"}},
	"runs":       {{Key: "from", Name: "From"}, {Key: "took", Name: "Took"}, {Key: "cost", Name: "Cost"}},
}

// columnsCookie and the name of a list is the cookie with the keys of the columns that are left out.
const columnsCookie = "triphammer_columns_"

// columnsRoute remembers the columns that a person wants in a list.
var columnsRoute = post("/columns", "", func(v *Visit) (SetCookie, error) {
	list, out := v.Form.Get("list"), []string(nil)
	if columns[list] == nil {
		return SetCookie{}, &Refused{Problem: api.NewProblem(api.InvalidRequest, "the columns are those of deliveries or runs")}
	}
	for _, c := range columns[list] {
		if !slices.Contains(v.Form["column"], c.Key) {
			out = append(out, c.Key)
		}
	}
	return v.remember(columnsCookie+list, strings.Join(out, ".")), nil
})

// Columns are the columns of a list that the person can leave out.
func (p Page) Columns(list string) []Column {
	all := slices.Clone(columns[list])
	for i, c := range all {
		all[i].Shown = !slices.Contains(p.leftOut[list], c.Key)
	}
	return all
}

// Hides are the classes of a table without the columns that are left out.
func (p Page) Hides(list string) (classes string) {
	for _, c := range p.Columns(list) {
		if !c.Shown {
			classes += " no-" + c.Key
		}
	}
	return classes
}
