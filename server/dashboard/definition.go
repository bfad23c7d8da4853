package dashboard

import (
	"cmp"
	"encoding/json"
	"html/template"
	"net/url"
	"slices"
	"strings"
	"time"

	"triphammer/applier"
	"triphammer/schema"
	"triphammer/server/api"
	"triphammer/server/store"
)

var definitionRoutes = []Route{
	get("/definition", definitionPage),
	get("/definition/applies/:id", applyPage),
	post("/factories/:name/sync", store.ScopeOperate, applyNow, "POST /factories/:name/sync"),
	post("/factories/:name/pin", store.ScopeOperate, pin, "POST /factories/:name/pin"),
	post("/factories/:name/unpin", store.ScopeOperate, unpin, "DELETE /factories/:name/pin"),
}

// Definition says which commit of a factory is live, and why a newer commit is not.
type Definition struct {
	Page
	Home     *api.FactoryStatus // nil: several factories, and none is chosen
	State    state
	Serves   *api.Apply
	Failed   *api.Apply // the newest apply, if it did not succeed
	Findings []finding
	Plan     Plan
	Applies  []api.Apply
	Counts   []string // numbers of live definitions, such as 6 webhooks
}

var definition = parse("definition")

func (Definition) template() *template.Template { return definition() }

// Plan is what an apply changes.
type Plan struct {
	applier.Plan
	BackTests []applier.BackTest
}

// planOf reads the plan of an apply. The plan is empty if the apply has none.
func planOf(raw json.RawMessage) (p Plan) {
	_ = json.Unmarshal(raw, &p.Plan)
	return p
}

// Changes tells whether anything changes.
func (p Plan) Changes() bool { return p.Pending() }

// Sum is a plan in a few words.
func (p Plan) Sum() string {
	var parts []string
	for _, group := range []struct {
		verb    string
		changes []applier.Change
	}{{"created", p.Create}, {"changed", p.Update}, {"deleted", p.Delete}} {
		switch {
		case len(group.changes) > 1:
			parts = append(parts, plural(len(group.changes), "definition")+" "+group.verb)
		case len(group.changes) == 1:
			parts = append(parts, group.changes[0].Kind+" "+group.changes[0].Name+" "+group.verb)
		}
	}
	return cmp.Or(strings.Join(parts, ", "), "nothing changed")
}

// finding is a finding of the validator, with its place in the text.
type finding struct {
	schema.Diagnostic
	Lines []numbered
	Caret string // a line that points at the column
	To    string // address of the place; empty: none
}

type numbered struct {
	N    int
	Text string
}

// findingsOf shows diagnostics, with the lines of their files if text has the files.
func findingsOf(all schema.Diagnostics, text func(path string) string, to func(path string, line int) string) []finding {
	var shown []finding
	for _, d := range all {
		f := finding{Diagnostic: d, To: to(d.Path, d.Line)}
		if lines := strings.Split(text(d.Path), "\n"); d.Line > 0 && d.Line <= len(lines) && lines[d.Line-1] != "" {
			for n := max(1, d.Line-1); n <= d.Line; n++ {
				f.Lines = append(f.Lines, numbered{n, clipped(lines[n-1])})
			}
			f.Caret = caret(lines[d.Line-1], d.Column)
		}
		shown = append(shown, f)
	}
	slices.SortStableFunc(shown, func(a, b finding) int { return cmp.Compare(severity(a), severity(b)) })
	return shown
}

func occasion(trigger string) string {
	in, known := map[string]string{
		"watch": "found in the repository", "start": "at the start of the server", "retry": "tried again", "secret": "after a secret was set",
		"dashboard": "by Apply now", "pin": "to pin it", "unpin": "after a pin", "recovery": "after the store was replaced", "push": "pushed", "change": "changed on this server",
	}[trigger]
	if !known {
		return words(trigger)
	}
	return in
}

// findingGroup are findings of one kind.
type findingGroup struct{ Whole, Rest []finding }

// findingGroups puts findings of one code together, because one slip can be a finding in each of
// many files. The page shows the first finding whole, and only the places and messages of the
// others.
func findingGroups(all []finding) (groups []findingGroup) {
	const many = 4
	found := make(map[string]int)
	for _, f := range all {
		key := string(f.Severity) + " " + string(f.Code)
		i, known := found[key]
		if !known {
			i, found[key] = len(groups), len(groups)
			groups = append(groups, findingGroup{})
		}
		groups[i].Whole = append(groups[i].Whole, f)
	}
	for i, g := range groups {
		if len(g.Whole) >= many {
			groups[i] = findingGroup{g.Whole[:1], g.Whole[1:]}
		}
	}
	return groups
}

func severity(f finding) int {
	if f.Severity == schema.Error {
		return 0
	}
	return 1
}

const maxLine = 300 // characters of a line that is shown

func clipped(line string) string {
	if r := []rune(line); len(r) > maxLine {
		return string(r[:maxLine]) + "…"
	}
	return line
}

// caret points at a column of a line. It keeps tabs, so that the mark stands below the column.
func caret(line string, column int) string {
	r := []rune(line)
	if column < 1 || column > min(len(r)+1, maxLine) {
		return ""
	}
	blank := strings.Map(func(c rune) rune {
		if c == '\t' {
			return c
		}
		return ' '
	}, string(r[:column-1]))
	end := column
	for end < min(len(r), maxLine) && !strings.ContainsRune(" \t:,]}#", r[end]) {
		end++
	}
	return blank + strings.Repeat("^", end-column+1)
}

func definitionState(f api.FactoryStatus) state {
	switch f.State {
	case "failing":
		if f.LastApply != nil && f.LastApply.Outcome == "refused" {
			return state{"fail", "Newest refused"}
		}
		return state{"fail", "Failing"}
	case "waiting":
		return state{"wait", "Waiting"}
	case "pinned":
		return state{"warn", "Pinned"}
	}
	return state{"ok", "Serves"}
}

// applyState is the outcome of an apply for people; serves is the ID of the live apply.
func applyState(a api.Apply, serves string) state {
	switch {
	case a.ID == serves:
		return state{"ok", "Serves"}
	case a.Outcome == "applied":
		return state{"none", "Served before"}
	case a.Outcome == "refused":
		return state{"fail", "Refused"}
	}
	return state{"fail", "Failed"}
}

func init() {
	functions["applyState"], functions["planOf"], functions["counted"], functions["definitionState"], functions["findingGroups"], functions["occasion"] = applyState, planOf, counted, definitionState, findingGroups, occasion
}

// counted are the numbers of findings in words; empty: there are none.
func counted(raw json.RawMessage) string {
	var all schema.Diagnostics
	_ = json.Unmarshal(raw, &all)
	errors, warnings := all.Counts()
	var parts []string
	if errors > 0 {
		parts = append(parts, plural(errors, "error"))
	}
	if warnings > 0 {
		parts = append(parts, plural(warnings, "warning"))
	}
	return strings.Join(parts, ", ")
}

func definitionPage(v *Visit) (page Definition, err error) {
	if page.Page, err = v.Page("Definition"); err != nil {
		return page, err
	}
	if page.Home = page.Serving(); page.Home == nil {
		return page, nil
	}
	f := page.Home
	page.limit(f.Name)
	page.State = definitionState(*f)
	var list api.List[api.Apply]
	if err = v.Get("/applies?"+url.Values{"factory": {f.Name}, "limit": {"20"}}.Encode(), &list); err != nil {
		return page, err
	}
	page.Applies = list.Entries
	if f.Applied != nil {
		page.Serves = new(api.Apply)
		if err = v.Get("/applies/"+url.PathEscape(f.Applied.ApplyID), page.Serves); err != nil {
			return page, err
		}
		for _, kind := range []string{"webhook", "automation", "environment", "agent"} {
			if n := len(filesOfKind(v, f, kind)); n > 0 {
				page.Counts = append(page.Counts, plural(n, kind))
			}
		}
	}
	if last := f.LastApply; last != nil && last.Outcome != "applied" && len(page.Applies) > 0 {
		page.Failed = &page.Applies[0]
		page.Plan = planOf(page.Failed.Plan)
		page.Findings = v.findingsAt(page.Page, f, last.Commit, page.Failed.Diagnostics)
	}
	return page, nil
}

// filesOfKind are the paths of the live definitions of a kind.
func filesOfKind(v *Visit, f *api.FactoryStatus, kind string) (paths []string) {
	var shown api.ApplyFiles
	if v.applied == nil {
		if v.Get("/applies/"+url.PathEscape(f.Applied.ApplyID)+"/files", &shown) != nil {
			return nil // the page is useful without the paths
		}
		v.applied = &shown
	}
	for _, file := range v.applied.Files {
		rest, ok := strings.CutPrefix(file.Path, kind+"s/")
		if ok && (strings.Count(rest, "/") == 0 || strings.HasSuffix(rest, "/"+kind+".md") && strings.Count(rest, "/") == 1) {
			paths = append(paths, file.Path)
		}
	}
	return paths
}

// findingsAt shows the findings of a commit, with the lines of its files if it is the newest.
func (v *Visit) findingsAt(page Page, f *api.FactoryStatus, commit string, raw json.RawMessage) []finding {
	var all schema.Diagnostics
	_ = json.Unmarshal(raw, &all)
	texts := make(map[string]string)
	text := func(path string) string {
		if _, known := texts[path]; !known && commit == f.Head {
			var file api.FileText
			address := "/factories/" + url.PathEscape(f.Name) + "/files/" + escapedPath(path) + "?commit=" + url.QueryEscape(commit)
			if v.Get(address, &file) == nil && file.Encoding == "" {
				texts[path] = file.Content
			}
		}
		return texts[path]
	}
	return findingsOf(all, text, func(path string, line int) string { return page.fileAt(f, commit, path, line) })
}

// escapedPath is the path of a file in an address.
func escapedPath(path string) string {
	parts := strings.Split(path, "/")
	for i, part := range parts {
		parts[i] = url.PathEscape(part)
	}
	return strings.Join(parts, "/")
}

func applyNow(v *Visit) (SeeOther, error) {
	name := v.Param("name")
	var done api.Apply
	err := v.Send("POST", "/factories/"+url.PathEscape(name)+"/sync?wait=true", nil, &done)
	said := "Commit " + short(done.Commit) + " is " + done.Outcome + "."
	if done.Outcome == "applied" {
		said = "Commit " + short(done.Commit) + " serves."
	}
	return SeeOther{To: to("/definition", "factory", name), Said: said}, err
}

func pin(v *Visit) (SeeOther, error) {
	name := v.Param("name")
	req := api.PinRequest{Commit: strings.TrimSpace(v.Form.Get("commit")), Reason: v.Form.Get("reason")}
	until, err := v.until()
	if err != nil {
		return SeeOther{}, err
	}
	req.Until = until
	err = v.Send("POST", "/factories/"+url.PathEscape(name)+"/pin", req, nil)
	return SeeOther{To: to("/definition", "factory", name), Said: "Commit " + short(req.Commit) + " is pinned: newer ones wait."}, err
}

func unpin(v *Visit) (SeeOther, error) {
	name := v.Param("name")
	err := v.Send("DELETE", "/factories/"+url.PathEscape(name)+"/pin", nil, nil)
	return SeeOther{To: to("/definition", "factory", name), Said: "The pin is lifted: the factory follows its branch again."}, err
}

// to is the path of a page with parameters; empty ones are left out.
func to(path string, parameters ...string) string { return Page{}.To(path, parameters...) }

// until reads the end of a pause or a pin from the form, as a number of hours from now; nil: no
// end.
func (v *Visit) until() (*time.Time, error) {
	hours := v.Form.Get("hours")
	if hours == "" {
		return nil, nil
	}
	d, err := time.ParseDuration(hours + "h")
	if err != nil || d <= 0 {
		return nil, &Refused{Problem: api.NewProblem(api.InvalidRequest, "the time is a number of hours")}
	}
	at := Now().Add(d)
	return &at, nil
}

// Apply is the page of one apply: what it changed, or why it was refused.
type Apply struct {
	Page
	Apply    api.Apply
	State    state
	Findings []finding
	Plan     Plan
	From     *api.ApplyDiff // the difference to an earlier apply
	Files    []api.AppliedFile
	Text     *api.AppliedFile // the requested file
	Earlier  []api.Apply      // for comparisons
}

var applyTemplate = parse("apply")

func (Apply) template() *template.Template { return applyTemplate() }

func applyPage(v *Visit) (page Apply, err error) {
	if page.Page, err = v.Page("Apply"); err != nil {
		return page, err
	}
	path := "/applies/" + url.PathEscape(v.Param("id"))
	if err = v.Get(path+"?"+url.Values{"factory": {page.Factory}}.Encode(), &page.Apply); err != nil {
		return page, err
	}
	a := &page.Apply
	page.Title = "Apply of " + short(a.Commit)
	page.Plan = planOf(a.Plan)
	f := page.status(a.Factory)
	if f == nil {
		f = &api.FactoryStatus{Name: a.Factory}
	}
	serves := ""
	if f.Applied != nil {
		serves = f.Applied.ApplyID
	}
	page.State = applyState(*a, serves)
	page.Findings = v.findingsAt(page.Page, f, a.Commit, a.Diagnostics)
	if a.Outcome != "applied" {
		return page, nil
	}
	if from := v.Query("from"); from != "" {
		page.From = new(api.ApplyDiff)
		if err = v.Get(path+"/diff?"+url.Values{"from": {from}, "factory": {a.Factory}}.Encode(), page.From); err != nil {
			return page, err
		}
		page.Plan = Plan{Plan: page.From.Plan}
	}
	var files api.ApplyFiles
	if err = v.Get(path+"/files", &files); err != nil {
		return page, err
	}
	page.Files = files.Files
	if file := v.Query("file"); file != "" {
		var one api.ApplyFiles
		if err = v.Get(path+"/files?"+url.Values{"path": {file}}.Encode(), &one); err != nil {
			return page, err
		}
		if len(one.Files) > 0 {
			page.Text = &one.Files[0]
		}
	}
	var list api.List[api.Apply]
	if err = v.Get("/applies?"+url.Values{"factory": {a.Factory}, "limit": {"50"}}.Encode(), &list); err != nil {
		return page, err
	}
	page.Earlier = slices.DeleteFunc(list.Entries, func(b api.Apply) bool { return b.Outcome != "applied" || b.ID == a.ID })
	return page, nil
}
