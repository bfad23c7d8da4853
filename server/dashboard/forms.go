package dashboard

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"triphammer/factory"
	"triphammer/server/api"
	"triphammer/server/inert"
	"triphammer/server/store"
	"triphammer/server/terms"
)

// formRoutes are the pages and actions that automations, environments and agents share. The form
// of a new definition has no name. asks are the requests that the page of a definition makes to
// show it.
func formRoutes[Form, One Content, Refuser interface {
	*One
	refuse(*Refused)
}](
	kind string, edit func(*Visit) (Form, error), save func(*Visit) (Content, error), page func(v *Visit, factory, name string) (One, error),
	asks ...string,
) []Route {
	one := "/factories/:name/" + kind + "s/:" + kind
	form := func(v *Visit) (Content, error) { return edit(v) }
	return []Route{
		sends(get("/"+kind+"s/:name", func(v *Visit) (One, error) { return page(v, v.Query("factory"), unreserved(v.Param("name"))) }), asks...),
		{Method: "GET", Path: "/" + kind + "s/new", Scope: store.ScopeManage, handle: form},
		{Method: "GET", Path: "/" + kind + "s/:name/edit", Scope: store.ScopeManage, handle: form},
		post("/factories/:name/"+kind+"s", store.ScopeManage, save, "POST /factories/:name/"+kind+"s", "PATCH "+one),
		post(one+"/delete", store.ScopeManage, deleteDefinition[One, Refuser](kind, page), append(asks, "DELETE "+one)...),
	}
}

// definitionForm has the common parts of the forms for automations, environments and agents.
type definitionForm struct {
	Page
	Kind     string
	Home     api.FactoryStatus
	New      bool
	Name     string
	Seen     string          // the commit that the person has seen
	File     string          // path of the file; the path of a new file has NAME
	Prompt   string          // the text of the file
	Beyond   map[string]bool // keys with values that the form cannot show and does not change
	Message  string          // of the commit
	Failed   string          // why the definition was not saved
	Findings []finding
	Moved    *api.Moved // what others changed meanwhile
	Changes  []keyChange
	Merged   mergedText // of the prompt

	there api.Definition // from the commit that the person has seen
	onto  string         // the commit onto which the changes of the person go; empty: that which the person has seen
}

// keyChange is a key that others or the person changed since the person has seen it, with its values as
// JSON. Without a value, the key is not there.
type keyChange struct {
	Key, Base, Theirs, Mine string
	Clash                   bool // both changed it, and not alike
}

// Clash tells whether others and the person changed the same thing, and not alike.
func (p definitionForm) Clash() bool {
	return p.Merged.Clash || slices.ContainsFunc(p.Changes, func(c keyChange) bool { return c.Clash })
}

// Status implements Status.
func (p definitionForm) Status() int { return Editor{Failed: p.Failed, Moved: p.Moved}.Status() }

// load makes the page of the form, and reads the existing definition.
func (p *definitionForm) load(v *Visit, kind, of string) (err error) {
	title := "Edit " + p.Name
	if p.New {
		title = "New " + kind
	}
	if p.Page, err = v.Page(title); err != nil {
		return err
	}
	p.Kind, p.Here, p.Factory = kind, "/"+kind+"s", of
	p.Beyond, p.File = make(map[string]bool), factory.PlaceOf(kind).Path("NAME")
	if p.Home, err = p.chosen(); err != nil || p.New {
		return err
	}
	if err = v.Get(p.path(kind)+"?"+p.seen().Encode(), &p.there); err != nil {
		return err
	}
	p.File = p.there.Path
	p.Seen = cmp.Or(p.Seen, p.there.Commit)
	return nil
}

func (p *definitionForm) path(kind string) string {
	return escaped("/factories", p.Home.Name, kind+"s", p.Name)
}

// seen asks for the definition that the person has seen, so that what the person changed is told from
// what others changed since. A factory elsewhere has only the newest one.
func (p *definitionForm) seen() url.Values {
	if p.Seen == "" || !p.Home.Hosted {
		return nil
	}
	return url.Values{"commit": {p.Seen}}
}

// At is the place of the file.
func (p definitionForm) At(path string) Place { return p.placeOf(p.Home.Name, path) }

// begin fills the form from the existing definition.
func (p *definitionForm) begin(v *Visit, kind string) error {
	p.Name = unreserved(v.Param("name"))
	p.New = p.Name == ""
	if err := p.load(v, kind, v.Query("factory")); err != nil {
		return err
	}
	p.Prompt, p.Beyond["prompt"] = p.there.Prompt, !showable(p.there.Prompt)
	return nil
}

func (p *definitionForm) typed(v *Visit, kind string) error {
	value := func(name string) string { return strings.TrimSpace(v.Form.Get(name)) }
	p.New, p.Name, p.Seen, p.Message = value("new") != "", value("name"), value("base"), value("message")
	if value("do") == "over" {
		p.onto = value("tip")
	}
	if err := p.load(v, kind, v.Param("name")); err != nil {
		return err
	}
	p.Prompt = strings.ReplaceAll(v.Form.Get("prompt"), "\r\n", "\n")
	return nil
}

// save saves the keys, and the prompt if it has changed. It returns nil if the form must be shown
// again.
func (p *definitionForm) save(v *Visit, keys map[string]any) (Content, error) {
	keys, onto := changedKeys(keys, p.there.Keys), p.there
	if p.onto != "" {
		var err error
		if onto, err = p.compare(v, keys); err != nil {
			return nil, err
		}
	}
	patch, err := json.Marshal(emptied(keys, onto.Keys))
	if err != nil {
		return nil, err
	}
	req := api.DefinitionPatch{Commit: api.Commit{Base: cmp.Or(p.onto, p.Seen), Message: p.Message}, Definition: patch}
	if p.Prompt != p.there.Prompt && v.Form.Has("prompt") {
		req.Prompt = &p.Prompt
	}
	if p.onto != "" && req.Prompt != nil {
		req.Prompt = &p.Merged.Mine
	}
	method, path := "PATCH", p.path(p.Kind)
	if p.New {
		method, path, req.Name, req.Base = "POST", escaped("/factories", p.Home.Name, p.Kind+"s"), p.Name, ""
	}
	var done api.DefinitionChange
	if err := v.Send(method, path, req, &done); err != nil {
		refused, err := told(err)
		if err != nil {
			return nil, err
		}
		if p.Failed, p.Findings, p.Moved = refused.Message, plainFindings(refused), refused.Moved; p.Moved != nil {
			_, err = p.compare(v, keys)
			return nil, err
		}
		return nil, nil
	}
	return changed(v, p.Kind, p.Name, committed(done.Change)), nil
}

// compare reads the newest definition, and says what others and the keys of the person changed since
// the person has seen it.
func (p *definitionForm) compare(v *Visit, keys map[string]any) (now api.Definition, err error) {
	patch, err := json.Marshal(keys)
	if err == nil {
		err = v.Get(p.path(p.Kind), &now)
	}
	if err != nil {
		return now, err
	}
	base, theirs, mine := leaves(p.there.Keys), leaves(now.Keys), leaves(p.there.Keys)
	for key, value := range leaves(patch) {
		maps.DeleteFunc(mine, func(old, _ string) bool { return old == key || strings.HasPrefix(old, key+".") })
		if value != "null" {
			mine[key] = value
		}
	}
	all := maps.Clone(base)
	maps.Copy(all, theirs)
	maps.Copy(all, mine)
	p.Changes = nil
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if c := (keyChange{Key: key, Base: base[key], Theirs: theirs[key], Mine: mine[key]}); c.Theirs != c.Base || c.Mine != c.Base {
			c.Clash = c.Theirs != c.Base && c.Mine != c.Base && c.Theirs != c.Mine
			p.Changes = append(p.Changes, c)
		}
	}
	prompt := p.Prompt
	if !v.Form.Has("prompt") {
		prompt = p.there.Prompt
	}
	p.Merged = mergeLines(p.there.Prompt, now.Prompt, prompt)
	return now, nil
}

// leaves are the values of an object that are no objects, by their keys, whose parts are separated by dots.
func leaves(raw json.RawMessage) map[string]string {
	all := make(map[string]string)
	var values map[string]json.RawMessage
	_ = json.Unmarshal(raw, &values) // the API answers with an object
	for key, value := range values {
		inner := leaves(value)
		for deep, text := range inner {
			all[key+"."+deep] = text
		}
		if len(inner) == 0 {
			var b bytes.Buffer
			_ = json.Compact(&b, value) // it was decoded
			all[key] = b.String()
		}
	}
	return all
}

// changedKeys leaves out of a patch what the definition says already, so that the patch has only what
// the person changed.
func changedKeys(patch map[string]any, was json.RawMessage) map[string]any {
	before := leaves(was)
	maps.DeleteFunc(patch, func(key string, value any) bool {
		one, err := json.Marshal(map[string]any{key: value})
		old := maps.Clone(before)
		maps.DeleteFunc(old, func(k, _ string) bool { return k != key && !strings.HasPrefix(k, key+".") })
		return err == nil && (value == nil && len(old) == 0 || maps.Equal(leaves(one), old))
	})
	return patch
}

// changed sends the browser to the page of a changed definition.
func changed(v *Visit, kind, name, said string) SeeOther {
	return SeeOther{To: to("/"+kind+"s/"+named(name), "factory", v.Param("name")), Said: said}
}

// deleteDefinition deletes a definition. If other definitions need it, its page says what would
// break.
func deleteDefinition[One Content, Refuser interface {
	*One
	refuse(*Refused)
}](
	kind string, page func(v *Visit, factory, name string) (One, error),
) func(*Visit) (Content, error) {
	return func(v *Visit) (Content, error) {
		name := v.Param(kind)
		if v.Form.Get("sure") != name {
			return changed(v, kind, name, "Nothing was deleted: to delete the "+kind+", type its name, "+name+"."), nil
		}
		err := v.Send("DELETE", escaped("/factories", v.Param("name"), kind+"s", name), nil, nil)
		if err == nil {
			return SeeOther{To: to("/"+kind+"s", "factory", v.Param("name")), Said: "The " + kind + " " + name + " is deleted. Its runs stay."}, nil
		}
		refused, err := told(err)
		if err != nil {
			return nil, err
		}
		shown, failed := page(v, v.Param("name"), name)
		if failed != nil { // the definition is not there
			return nil, refused
		}
		Refuser(&shown).refuse(refused)
		return shown, nil
	}
}

// resourcePage has the common parts of the pages of an environment and of an agent.
type resourcePage struct {
	Page
	Kind       string
	Name       string
	InFactory  string
	Definition api.Definition // from the newest commit
	Keys       []keyValue     // keys of the file that the page does not show elsewhere
	Users      []user
	File       Place
	kept
}

// kept says why a definition was not deleted.
type kept struct {
	Failed   string
	Findings []finding
}

// Status implements Status.
func (k kept) Status() int {
	if k.Failed != "" {
		return http.StatusUnprocessableEntity
	}
	return http.StatusOK
}

func (k *kept) refuse(refused *Refused) {
	k.Failed, k.Findings = refused.Message, plainFindings(refused)
}

func (p *resourcePage) load(v *Visit, kind, factory, name string) (err error) {
	if p.Page, err = v.Page(strings.ToUpper(kind[:1]) + kind[1:] + " " + name); err != nil {
		return err
	}
	p.Kind, p.Name, p.Here, p.Factory = kind, name, "/"+kind+"s/"+named(name), factory
	home, err := p.chosen()
	if err != nil {
		return err
	}
	p.InFactory = home.Name
	if err = v.Get(escaped("/factories", home.Name, kind+"s", name), &p.Definition); err != nil {
		return err
	}
	p.File = p.placeOf(home.Name, p.Definition.Path)
	p.Users, err = v.users(kind, home.Name, name)
	return err
}

// user is a definition or a schedule that names an environment or an agent.
type user struct{ Kind, Name, To, How string }

// users are the definitions and schedules that name an environment or an agent, or inherit it.
func (v *Visit) users(kind, factory, name string) (found []user, err error) {
	query := url.Values{"factory": {factory}}
	automations, err := all[api.Automation](v, "/automations", query, maxListed)
	if err != nil {
		return nil, err
	}
	for _, a := range automations {
		if kind == "agent" && a.Agent == name || kind == "environment" && a.EnvironmentID == name {
			found = append(found, user{Kind: "automation", Name: a.Name, To: "/automations/" + named(a.Name), How: automationState(a).Word})
		}
	}
	if kind == "environment" {
		agents, err := v.agents(factory)
		if err != nil {
			return nil, err
		}
		for _, a := range agents {
			if a.Environment == name {
				found = append(found, user{Kind: "agent", Name: a.Name, To: "/agents/" + named(a.Name)})
			}
		}
	}
	schedules, err := all[api.Schedule](v, "/agent/schedules", query, maxListed)
	if err != nil {
		return nil, err
	}
	for _, s := range schedules {
		var config api.AgentConfig
		if s.Automation != "" || s.Factory != factory || json.Unmarshal(s.AgentConfig, &config) != nil && len(s.AgentConfig) > 0 {
			continue
		}
		if of := strings.TrimPrefix(config.EnvironmentID, factory+"/"); kind == "environment" && of == name || kind == "agent" && s.AgentUID == factory+"/"+name {
			found = append(found, user{Kind: "schedule", Name: s.Name, To: "/schedules/" + s.ID})
		}
	}
	return found, nil
}

// field shows the value of a key as a text in a form, and reads the value from a text.
type field struct {
	// show makes the text; false: the form cannot show the value.
	show func(json.RawMessage) (string, bool)
	// read makes the value for a merge patch of the earlier value was. nil removes the key.
	read func(text string, was json.RawMessage) (any, error)
}

var (
	textField = field{
		func(raw json.RawMessage) (text string, ok bool) { return text, json.Unmarshal(raw, &text) == nil },
		func(text string, _ json.RawMessage) (any, error) { return text, nil },
	}
	numberField = field{
		func(raw json.RawMessage) (string, bool) {
			var n float64
			return string(raw), json.Unmarshal(raw, &n) == nil
		},
		func(text string, _ json.RawMessage) (any, error) {
			if n := 0.0; json.Unmarshal([]byte(text), &n) != nil {
				return nil, fmt.Errorf("%s is not a number", text)
			}
			return json.RawMessage(text), nil
		},
	}
	// linesField is a list with one entry per line.
	linesField = field{
		func(raw json.RawMessage) (string, bool) {
			var list []string
			err := json.Unmarshal(raw, &list)
			text := strings.Join(list, "\n")
			return text, err == nil && slices.Equal(linesOf(text), list)
		},
		func(text string, _ json.RawMessage) (any, error) { return linesOf(text), nil },
	}
	// pairsField is a mapping, with lines such as NAME=value.
	pairsField = field{
		func(raw json.RawMessage) (string, bool) {
			var values map[string]string
			if json.Unmarshal(raw, &values) != nil {
				return "", false
			}
			lines := terms.Each(slices.Sorted(maps.Keys(values)), func(name string) string { return name + "=" + values[name] })
			text := strings.Join(lines, "\n")
			back, err := pairsOf(text)
			return text, err == nil && maps.Equal(back, values)
		},
		func(text string, was json.RawMessage) (any, error) {
			values, err := pairsOf(text)
			if err != nil {
				return nil, err
			}
			patch := make(map[string]any)
			var before map[string]json.RawMessage
			_ = json.Unmarshal(was, &before) // without an earlier value, no name is removed
			for name := range before {
				patch[name] = nil
			}
			for name, value := range values {
				patch[name] = value
			}
			return patch, nil
		},
	}
)

// linesOf are the lines that are not blank, without space around them.
func linesOf(text string) (lines []string) {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

func pairsOf(text string) (map[string]string, error) {
	values := make(map[string]string)
	for _, line := range linesOf(text) {
		name, value, ok := strings.Cut(line, "=")
		if !ok || strings.TrimSpace(name) == "" {
			return nil, fmt.Errorf("%q is not such as NAME=value", line)
		}
		values[name] = value
	}
	return values, nil
}

// showable tells whether a text comes back from a form unchanged. Some do not, because a page makes
// characters visible that hide text, and browsers change line ends.
func showable(text string) bool { return inert.Text(text) == text && !strings.Contains(text, "\r") }

// at is the value of a key, whose parts are separated by dots.
func at(raw json.RawMessage, key string) json.RawMessage {
	for part := range strings.SplitSeq(key, ".") {
		var values map[string]json.RawMessage
		if json.Unmarshal(raw, &values) != nil {
			return nil
		}
		raw = values[part]
	}
	if string(bytes.TrimSpace(raw)) == "null" {
		return nil
	}
	return raw
}

// shown is the text of a key in the form, and whether the form can show it.
func shown(f field, raw json.RawMessage) (text string, ok bool) {
	if raw == nil {
		return "", true
	}
	if text, ok = f.show(raw); !ok || !showable(text) {
		return "", false
	}
	return text, true
}

func (p *definitionForm) show(fields map[string]field) url.Values {
	texts := make(url.Values)
	for key, f := range fields {
		text, ok := shown(f, at(p.there.Keys, key))
		texts.Set(key, text)
		p.Beyond[key] = !ok
	}
	return texts
}

// take reads the fields of the form. keys are the keys whose text has changed.
func (p *definitionForm) take(v *Visit, fields map[string]field) (texts url.Values, keys map[string]any) {
	texts, keys = p.show(fields), make(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		typed := strings.TrimSpace(strings.ReplaceAll(strings.Join(v.Form[key], "\n"), "\r\n", "\n"))
		if p.Beyond[key] || typed == strings.TrimSpace(texts.Get(key)) {
			continue
		}
		texts.Set(key, typed)
		was := at(p.there.Keys, key)
		var value any
		if typed != "" {
			var err error
			if value, err = fields[key].read(typed, was); err != nil && p.Failed == "" {
				p.Failed = err.Error() + "."
			}
		}
		setKey(keys, key, value)
	}
	return texts, keys
}

// setKey sets a key, whose parts are separated by dots.
func setKey(keys map[string]any, key string, value any) {
	first, rest, deep := strings.Cut(key, ".")
	if !deep {
		keys[first] = value
		return
	}
	inner, ok := keys[first].(map[string]any)
	if !ok {
		inner = make(map[string]any)
		keys[first] = inner
	}
	setKey(inner, rest, value)
}

// secretChoices are the names of the managed secrets that a form offers, with the names in the
// file. A person who may not read all secrets can choose only among the names in the file.
func secretChoices(v *Visit, named string) ([]string, error) {
	known, err := all[api.Secret](v, "/secrets", nil, maxListed)
	if allowed(err) != nil {
		return nil, err
	}
	names := linesOf(named)
	for _, s := range known {
		if !slices.Contains(names, s.Name) {
			names = append(names, s.Name)
		}
	}
	return names, nil
}

// emptied removes a mapping that a patch would leave empty.
func emptied(patch map[string]any, was json.RawMessage) map[string]any {
	var before map[string]json.RawMessage
	_ = json.Unmarshal(was, &before) // a value that is no mapping stays
	for key, value := range patch {
		if inner, is := value.(map[string]any); is {
			if inner = emptied(inner, before[key]); len(inner) > 0 && leavesNothing(inner, before[key]) {
				patch[key] = nil
			}
		}
	}
	return patch
}

func leavesNothing(patch map[string]any, was json.RawMessage) bool {
	var before map[string]json.RawMessage
	_ = json.Unmarshal(was, &before) // without an earlier value, before is empty
	for key, value := range patch {
		if value != nil {
			return false
		}
		delete(before, key)
	}
	return len(before) == 0
}

func init() {
	functions["has"] = func(lines, entry string) bool { return slices.Contains(linesOf(lines), entry) }
}
