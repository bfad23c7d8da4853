package dashboard

import (
	"cmp"
	"errors"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"triphammer/schema"
	"triphammer/server/api"
	"triphammer/server/inert"
	"triphammer/server/store"
)

var fileRoutes = []Route{
	get("/definition/files", filesPage),
	get("/definition/files/*path", filePage),
	{Method: "GET", Path: "/definition/new", Scope: store.ScopeManage, handle: func(v *Visit) (Content, error) { return editorPage(v) }},
	{Method: "GET", Path: "/definition/edit/*path", Scope: store.ScopeManage, handle: func(v *Visit) (Content, error) { return editorPage(v) }},
	post("/factories/:name/check", store.ScopeManage, checkFile, "POST /factories/:name/plan"),
	post("/factories/:name/files", store.ScopeManage, saveFile, "POST /factories/:name/changes", "POST /factories/:name/plan"),
}

// FileList is the list of the files of a factory.
type FileList struct {
	Page
	Home  api.FactoryStatus
	Files api.FactoryFiles
}

var fileList = parse("files")

func (FileList) template() *template.Template { return fileList() }

// chosen is the factory of the page. If there are several factories and none is chosen, chosen
// returns an error.
func (p *Page) chosen() (api.FactoryStatus, error) {
	f := p.Serving()
	if f == nil {
		return api.FactoryStatus{}, &Refused{Problem: api.NewProblem(api.NotFound, "choose a factory first")}
	}
	p.limit(f.Name)
	return *f, nil
}

// limit limits the page to a factory, if there are several.
func (p *Page) limit(factory string) {
	if len(p.Factories) > 1 {
		p.Factory = factory
	}
}

func filesPage(v *Visit) (page FileList, err error) {
	if page.Page, err = v.Page("Files"); err != nil {
		return page, err
	}
	if page.Home, err = page.chosen(); err != nil {
		return page, err
	}
	err = v.Get("/factories/"+url.PathEscape(page.Home.Name)+"/files", &page.Files)
	page.Files.Files = slices.DeleteFunc(page.Files.Files, func(f api.FactoryFile) bool { return f.Size > schema.MaxFile || strings.HasPrefix(f.Path, ".git/") })
	return page, err
}

// File is the text of a file of a factory.
type File struct {
	Page
	Home  api.FactoryStatus
	File  api.FileText
	Lines []string // empty if the file is not text
	Place Place
}

var fileTemplate = parse("file")

func (File) template() *template.Template { return fileTemplate() }

func filePage(v *Visit) (page File, err error) {
	path := strings.TrimPrefix(v.Param("path"), "/")
	if page.Page, err = v.Page(path); err != nil {
		return page, err
	}
	if page.Home, err = page.chosen(); err != nil {
		return page, err
	}
	query := ""
	if last := page.Home.LastApply; !page.Home.Hosted && last != nil && last.Outcome != "applied" && v.Query("newest") != "" {
		query = "?" + url.Values{"commit": {page.Home.Head}}.Encode()
	}
	if err = v.Get("/factories/"+url.PathEscape(page.Home.Name)+"/files/"+escapedPath(path)+query, &page.File); err != nil {
		return page, err
	}
	if page.File.Encoding == "" {
		page.Lines = strings.Split(strings.TrimSuffix(page.File.Content, "\n"), "\n")
	}
	page.Place = page.placeOf(page.Home.Name, path)
	return page, nil
}

// Editor is the form with the text of a file.
type Editor struct {
	Page
	Home    api.FactoryStatus
	Path    string
	New     bool   // the file does not exist yet
	Seen    string // the commit that the person has seen
	Text    string
	Message string
	Why     string // why the file cannot be edited here; empty: it can

	Checked  bool
	Findings []finding
	Plan     Plan
	Failed   string     // why the file was not saved
	Moved    *api.Moved // what others changed meanwhile
	Merged   mergedText // of the others' text and this text, if others changed it
}

var editor = parse("editor")

func (Editor) template() *template.Template { return editor() }

// Status implements Status.
func (p Editor) Status() int {
	switch {
	case p.Moved != nil:
		return http.StatusConflict
	case p.Failed != "":
		return http.StatusUnprocessableEntity
	}
	return http.StatusOK
}

// starts are the texts of new files, by their folder.
var starts = map[string]string{
	"webhooks/":     "# Whoever posts to it proves itself with this secret.\nsecretName: \n",
	"environments/": "description: \ncommand: []\n",
	"automations/":  "---\nenvironmentId: \ntriggers:\n  - provider: webhook\n    event: received\n    filter:\n      webhooks: []\n---\nSay here what the agent is to do.\n",
	"agents/":       "---\ndescription: \n---\nSay here who the agent is.\n",
}

func editorPage(v *Visit) (page Editor, err error) {
	page.Path = strings.TrimPrefix(v.Param("path"), "/")
	title := "Edit " + page.Path
	if page.Path == "" {
		page.New, page.Path, title = true, v.Query("path"), "New file"
	}
	if page.Page, err = v.Page(title); err != nil {
		return page, err
	}
	if page.Home, err = page.chosen(); err != nil {
		return page, err
	}
	if !page.Home.Hosted {
		page.Why = "The repository of this factory is elsewhere: edit the file there, commit and push."
		return page, nil
	}
	if page.New {
		var files api.FactoryFiles
		err = v.Get("/factories/"+url.PathEscape(page.Home.Name)+"/files", &files)
		page.Seen = files.Commit
		for folder, text := range starts {
			if strings.HasPrefix(page.Path, folder) {
				page.Text = text
			}
		}
		return page, err
	}
	var file api.FileText
	if err = v.Get("/factories/"+url.PathEscape(page.Home.Name)+"/files/"+escapedPath(page.Path), &file); err != nil {
		return page, err
	}
	page.Seen, page.Text = file.Commit, file.Content
	switch {
	case file.Encoding != "":
		page.Why = "It is not text: change it with git."
	case inert.Text(page.Text) != page.Text || strings.Contains(page.Text, "\r"):
		page.Why = "It has characters that a page cannot show as they are, such as invisible ones or the line ends of Windows, " +
			"and saving it here would change them: change it with git."
	}
	return page, nil
}

// typed is the page of a form with the text that the person typed.
func (v *Visit) typed() (page Editor, err error) {
	page.Path, page.Seen, page.Message = strings.TrimSpace(v.Form.Get("path")), v.Form.Get("base"), v.Form.Get("message")
	page.Text, page.New = strings.ReplaceAll(v.Form.Get("text"), "\r\n", "\n"), v.Form.Get("new") != ""
	title := "Edit " + page.Path
	if page.New {
		title = "New file"
	}
	if page.Page, err = v.Page(title); err != nil {
		return page, err
	}
	f := page.status(v.Param("name"))
	if f == nil {
		return page, &Refused{Problem: api.NewProblem(api.NotFound, "no factory is named "+v.Param("name"))}
	}
	page.Home = *f
	page.limit(f.Name)
	page.Here = "/definition"
	return page, nil
}

// check validates the typed text together with the other files of the newest commit.
func (p *Editor) check(v *Visit) error {
	var answer api.PlanAnswer
	tree := api.DefinitionFiles{Files: []api.DefinitionFile{{Path: p.Path, Content: &p.Text}}}
	err := v.Send("POST", "/factories/"+url.PathEscape(p.Home.Name)+"/plan?onto=newest&deliveries=20", tree, &answer)
	if err != nil {
		return err
	}
	p.Checked = true
	p.show(answer.Findings())
	p.Plan = Plan{Plan: answer.Plan, BackTests: answer.BackTests}
	return nil
}

// show shows findings with the lines of the typed text.
func (p *Editor) show(all schema.Diagnostics) {
	text := func(path string) string {
		if path == p.Path {
			return p.Text
		}
		return ""
	}
	// Warnings about other files do not come from this change.
	all = slices.DeleteFunc(all, func(d schema.Diagnostic) bool { return d.Severity != schema.Error && d.Path != p.Path })
	p.Findings = findingsOf(all, text, func(path string, line int) string {
		if path == p.Path {
			return ""
		}
		return p.fileAt(&p.Home, p.Seen, path, line)
	})
}

func checkFile(v *Visit) (page Editor, err error) {
	if page, err = v.typed(); err != nil {
		return page, err
	}
	if err = page.check(v); err != nil {
		refused, err := told(err)
		if err != nil {
			return page, err
		}
		page.Failed = refused.Message
	}
	return page, nil
}

// told returns a refusal that a form can show, or else the error.
func told(err error) (*Refused, error) {
	if refused := (*Refused)(nil); errors.As(err, &refused) && refused.Status < 500 && refused.Status != http.StatusForbidden {
		return refused, nil
	}
	return nil, err
}

func verdictOf(refused *Refused) schema.Diagnostics {
	if refused.Verdict == nil {
		return nil
	}
	return (*schema.Answer)(refused.Verdict).Findings()
}

func saveFile(v *Visit) (Content, error) {
	page, err := v.typed()
	if err != nil {
		return nil, err
	}
	text := &page.Text
	switch v.Form.Get("do") {
	case "check":
		return checkFile(v)
	case "delete":
		if v.Form.Get("sure") != page.Path {
			page.Failed = "To delete the file, type its path, " + page.Path + "."
			return page, nil
		}
		text = nil
	case "over":
		page.Seen = v.Form.Get("tip")
	case "both":
		tip, err := page.merge(v)
		if err != nil {
			return nil, err
		}
		page.Text, page.Seen = page.Merged.Both, tip
		if page.Merged.Clash {
			page.Failed = "You and others changed the same lines. The text has both now: theirs first, then yours. Keep what is right, then save."
			return page, nil
		}
	}
	var done api.Change
	req := api.ChangeRequest{Base: page.Seen, Message: page.Message, Files: map[string]*string{page.Path: text}}
	if page.New {
		if taken := v.Get("/factories/"+url.PathEscape(page.Home.Name)+"/files/"+escapedPath(page.Path), nil); taken == nil {
			page.Failed = "There is a file " + page.Path + " already: edit that one, or choose another path."
			return page, nil
		}
	}
	if err := v.Send("POST", "/factories/"+url.PathEscape(page.Home.Name)+"/changes", req, &done); err != nil {
		return page, page.refuse(v, err)
	}
	where := to("/definition/files/"+escapedPath(page.Path), "factory", page.Home.Name)
	if text == nil {
		where = to("/definition/files", "factory", page.Home.Name)
	}
	return SeeOther{To: where, Said: committed(done)}, nil
}

// refuse shows why a change was refused: findings, or changes by others.
func (p *Editor) refuse(v *Visit, err error) error {
	refused, err := told(err)
	if err != nil {
		return err
	}
	p.Failed, p.Moved = refused.Message, refused.Moved
	if p.Checked = refused.Verdict != nil; p.Checked {
		p.show(verdictOf(refused))
	}
	if p.Moved != nil {
		_, err := p.merge(v)
		return err
	}
	return nil
}

// merge joins the typed text with what others made of the file since the commit that the person has
// seen. tip is the newest commit. A file that is gone, or was not there, has no text.
func (p *Editor) merge(v *Visit) (tip string, err error) {
	var before, now api.FileText
	path := "/factories/" + url.PathEscape(p.Home.Name) + "/files/" + escapedPath(p.Path)
	if err := v.Get(path+"?commit="+url.QueryEscape(p.Seen), &before); err != nil && !isStatus(err, http.StatusNotFound) {
		return "", err
	}
	if err := v.Get(path, &now); err != nil && !isStatus(err, http.StatusNotFound) {
		return "", err
	}
	p.Merged = mergeLines(before.Content, now.Content, p.Text)
	return cmp.Or(now.Commit, v.Form.Get("tip")), nil
}

func committed(c api.Change) string {
	switch {
	case c.Unchanged:
		return "Nothing was changed: the newest commit is like this already."
	case c.Live:
		return "Saved as commit " + short(c.Commit) + ", which serves."
	}
	return "Saved as commit " + short(c.Commit) + ", which does not serve yet: " + c.Waits
}
