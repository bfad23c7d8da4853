package dashboard

import (
	"bytes"
	"cmp"
	"encoding/json"
	"html/template"
	"maps"
	"net/url"
	"slices"
	"strings"

	"triphammer/schema"
	"triphammer/server/api"
)

var environmentRoutes = append(
	formRoutes("environment", environmentForm, saveEnvironment, environmentPage),
	get("/environments", environmentsPage),
)

// Environments is the list of environments.
type Environments struct {
	Page
	Environments []EnvironmentRow
	Turn         Turn
	All          int
}

// EnvironmentRow is an environment in the list.
type EnvironmentRow struct {
	api.AgentEnvironment
	Users int // number of automations whose runs work in the environment
}

var environments = parse("environments")

func (Environments) template() *template.Template { return environments() }

func environmentsPage(v *Visit) (page Environments, err error) {
	if page.Page, err = v.Page("Environments"); err != nil {
		return page, err
	}
	query := url.Values{"factory": {page.Factory}}
	list, err := all[api.AgentEnvironment](v, "/agent/environments", query, maxListed)
	if err != nil {
		return page, err
	}
	automations, err := all[api.Automation](v, "/automations", query, maxListed)
	if err != nil {
		return page, err
	}
	users := make(map[string]int)
	for _, a := range automations {
		users[a.Factory+"/"+a.EnvironmentID]++
	}
	page.All = len(list)
	list, page.Turn = turn(v, list, func(e api.AgentEnvironment) []string { return []string{e.Name, e.Description} })
	for _, e := range list {
		page.Environments = append(page.Environments, EnvironmentRow{e, users[e.UID]})
	}
	return page, nil
}

// Environment is the page of an environment.
type Environment struct {
	resourcePage
	Description  string
	Repositories []repository
	Setup        []string
	Variables    []string
	Secrets      []string
}

// repository is an entry of the repositories of an environment.
type repository struct {
	Address string // a URL, or OWNER/NAME
	Ref     string
	Secret  string
	Access  string
	Path    string

	was map[string]json.RawMessage
}

var environment = parse("environment")

func (Environment) template() *template.Template { return environment() }

func environmentPage(v *Visit, factory, name string) (page Environment, err error) {
	if err = page.load(v, "environment", factory, name); err != nil {
		return page, err
	}
	text := func(key string) string {
		text, _ := environmentFields[key].show(at(page.Definition.Keys, key))
		return text
	}
	page.Description, page.Secrets = text("description"), linesOf(text("secrets"))
	page.Setup, page.Variables = linesOf(text("setupCommands")), linesOf(text("env"))
	page.Repositories, _ = repositoriesOf(page.Definition.Keys)
	page.Keys = otherKeys(page.Definition.Keys, "description", "secrets", "setupCommands", "env", "repositories")
	return page, nil
}

// EnvironmentForm is the form for the common keys of an environment.
type EnvironmentForm struct {
	definitionForm
	Texts        url.Values // of the other keys
	Repositories []repository
	SecretNames  []string // choices of the form
}

var environmentEdit = parse("environment_edit")

func (EnvironmentForm) template() *template.Template { return environmentEdit() }

// environmentFields are the keys that have a field, beside repositories.
var environmentFields = map[string]field{
	"description": textField, "dockerImage": textField, "setupCommands": linesField, "env": pairsField, "secrets": linesField, "command": linesField,
	"timeoutMinutes": numberField, "idleMinutes": numberField, "isolation": textField,
	"network": {
		func(raw json.RawMessage) (string, bool) {
			if text, ok := textField.show(raw); ok {
				return text, text == "on" || text == "off"
			}
			return linesField.show(raw)
		},
		func(text string, _ json.RawMessage) (any, error) {
			if text == "on" || text == "off" {
				return text, nil
			}
			return linesOf(text), nil
		},
	},
}

// Isolations are the isolations to choose from, weakest first.
func (EnvironmentForm) Isolations() []string { return schema.Isolations }

// Network is the choice that the form shows: on, off or hosts.
func (p EnvironmentForm) Network() string {
	switch text := p.Texts.Get("network"); text {
	case "", "on":
		return "on"
	case "off":
		return "off"
	}
	return "hosts"
}

// Hosts are the hosts that a run may reach, if the environment lists them.
func (p EnvironmentForm) Hosts() string {
	if p.Network() == "hosts" {
		return p.Texts.Get("network")
	}
	return ""
}

func environmentForm(v *Visit) (page EnvironmentForm, err error) {
	if err = page.begin(v, "environment"); err != nil {
		return page, err
	}
	page.Texts = page.show(environmentFields)
	var ok bool
	if page.Repositories, ok = repositoriesOf(page.there.Keys); !ok {
		page.Beyond["repositories"] = true
	}
	return page, page.offer(v)
}

// offer reads the choices of the form, and adds an empty row for another repository.
func (p *EnvironmentForm) offer(v *Visit) (err error) {
	p.Repositories = append(p.Repositories, repository{})
	p.SecretNames, err = secretChoices(v, p.Texts.Get("secrets"))
	return err
}

func saveEnvironment(v *Visit) (Content, error) {
	var page EnvironmentForm
	if err := page.typed(v, "environment"); err != nil {
		return nil, err
	}
	if chosen := v.Form.Get("network"); chosen == "hosts" {
		if v.Form.Set("network", v.Form.Get("hosts")); len(linesOf(v.Form.Get("hosts"))) == 0 {
			page.Failed = "List the hosts that a run may reach, or choose another network."
		}
	} else if was := string(at(page.there.Keys, "network")); chosen == "on" && was == "" {
		v.Form.Set("network", "")
	}
	texts, keys := page.take(v, environmentFields)
	page.Texts = texts
	before, ok := repositoriesOf(page.there.Keys)
	page.Beyond["repositories"] = !ok
	if ok {
		page.Repositories = typedRepositories(v.Form, before)
		if list := valuesOf(page.Repositories); len(list) == 0 && len(before) > 0 {
			keys["repositories"] = nil
		} else if !slices.EqualFunc(list, valuesOf(before), sameValue) {
			keys["repositories"] = list
		}
	}
	if page.Failed == "" {
		if done, err := page.save(v, keys); err != nil || done != nil {
			return done, err
		}
	}
	return page, page.offer(v)
}

// repositoriesOf reads the repositories of an environment; false: the form cannot show them.
func repositoriesOf(keys json.RawMessage) (all []repository, ok bool) {
	var list []map[string]json.RawMessage
	if raw := at(keys, "repositories"); raw != nil && json.Unmarshal(raw, &list) != nil {
		return nil, false
	}
	for _, was := range list {
		text := make(map[string]string)
		for key, raw := range was {
			if text[key], ok = shown(textField, raw); !ok {
				return nil, false
			}
		}
		r := repository{Address: text["url"], Ref: text["ref"], Secret: text["secret"], Access: text["access"], Path: text["path"], was: was}
		r.Address = cmp.Or(r.Address, text["owner"]+"/"+text["name"])
		all = append(all, r)
	}
	return all, true
}

// typedRepositories are the rows of the form that have an address. Keys that a row does not show
// stay as in before: the entry there has the same address, or, for a new address, the same place.
func typedRepositories(form url.Values, before []repository) (all []repository) {
	cell := func(name string, i int) string {
		if i < len(form[name]) {
			return strings.TrimSpace(form[name][i])
		}
		return ""
	}
	for i := range form["repository"] {
		r := repository{Address: cell("repository", i), Ref: cell("ref", i), Secret: cell("secret", i)}
		if r.Address == "" {
			continue
		}
		same := slices.IndexFunc(before, func(b repository) bool { return b.Address == r.Address })
		if same < 0 && i < len(before) && !slices.Contains(form["repository"], before[i].Address) {
			same = i
		}
		was := repository{}
		if same >= 0 {
			was = before[same]
		}
		if r.was = maps.Clone(was.was); r.was == nil {
			r.was = make(map[string]json.RawMessage)
		}
		set := func(key, value, before string) {
			if value == before {
				return
			}
			if delete(r.was, key); value != "" {
				r.was[key], _ = json.Marshal(value) // a string always encodes
			}
		}
		set("ref", r.Ref, was.Ref)
		set("secret", r.Secret, was.Secret)
		if r.Address != was.Address {
			for _, key := range []string{"url", "owner", "name"} {
				delete(r.was, key)
			}
			if owner, name, is := strings.Cut(r.Address, "/"); is && owner != "" && name != "" && !strings.ContainsAny(owner, ":@.~") && !strings.ContainsAny(name, "/:") {
				set("owner", owner, "")
				set("name", name, "")
			} else {
				set("url", r.Address, "")
			}
		}
		all = append(all, r)
	}
	return all
}

func valuesOf(all []repository) (list []map[string]json.RawMessage) {
	for _, r := range all {
		list = append(list, r.was)
	}
	return list
}

func sameValue(a, b map[string]json.RawMessage) bool {
	return maps.EqualFunc(a, b, func(a, b json.RawMessage) bool { return bytes.Equal(a, b) })
}
