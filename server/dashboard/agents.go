package dashboard

import (
	"html/template"
	"net/url"
	"strings"

	"triphammer/schema"
	"triphammer/server/api"
)

var agentRoutes = append(
	formRoutes("agent", agentForm, saveAgent, agentPage),
	get("/agents", agentsPage),
)

// Agents is the list of agents.
type Agents struct {
	Page
	Agents []AgentRow
	Turn   Turn
	All    int
}

// AgentRow is an agent in the list.
type AgentRow struct {
	Name, Factory, Type, Description string
	Environment                      string // the environment in which the agent works, unless something names another
	Users                            int    // number of automations that the agent works for
}

// Foreman tells whether the agent works for the automations that name no agent.
func (a AgentRow) Foreman() bool { return a.Type == foreman }

const foreman = "FOREMAN"

var agents = parse("agents")

func (Agents) template() *template.Template { return agents() }

func agentsPage(v *Visit) (page Agents, err error) {
	if page.Page, err = v.Page("Agents"); err != nil {
		return page, err
	}
	if page.Agents, err = v.agents(page.Factory); err != nil {
		return page, err
	}
	automations, err := all[api.Automation](v, "/automations", url.Values{"factory": {page.Factory}}, maxListed)
	if err != nil {
		return page, err
	}
	users := make(map[string]int)
	for _, a := range automations {
		users[a.Factory+"/"+a.Agent]++
	}
	page.All = len(page.Agents)
	page.Agents, page.Turn = turn(v, page.Agents, func(a AgentRow) []string { return []string{a.Name, a.Description, a.Environment} })
	for i := range page.Agents {
		page.Agents[i].Users = users[page.Agents[i].Factory+"/"+page.Agents[i].Name]
	}
	return page, nil
}

// agents are the agents of a factory, or of all factories.
func (v *Visit) agents(factory string) (found []AgentRow, err error) {
	list, err := all[api.AgentEntry](v, "/agent", url.Values{"factory": {factory}}, maxListed)
	if err != nil {
		return nil, err
	}
	for _, a := range list {
		for _, in := range a.Variants {
			of, _, _ := strings.Cut(in.ID, "/")
			row := AgentRow{Name: a.Name, Factory: of, Type: in.AgentType, Description: in.Description}
			if len(in.Environments) > 0 {
				row.Environment = in.Environments[0]["name"]
			}
			found = append(found, row)
		}
	}
	return found, nil
}

// Agent is the page of an agent.
type Agent struct {
	resourcePage
	Description string
	Foreman     bool
}

var agent = parse("agent")

func (Agent) template() *template.Template { return agent() }

func agentPage(v *Visit, factory, name string) (page Agent, err error) {
	if err = page.load(v, "agent", factory, name); err != nil {
		return page, err
	}
	text := func(key string) string {
		text, _ := textField.show(at(page.Definition.Keys, key))
		return text
	}
	page.Description, page.Foreman = text("description"), text("agentType") == foreman || text("agentType") == "MAIN"
	page.Keys = otherKeys(page.Definition.Keys, "description")
	return page, nil
}

// AgentForm is the form for the common keys of an agent.
type AgentForm struct {
	definitionForm
	Texts       url.Values // of the other keys
	Model       string     // the key that has the model
	First       bool       // the factory has no agent yet
	Envs        []string
	SecretNames []string
}

var agentEdit = parse("agent_edit")

func (AgentForm) template() *template.Template { return agentEdit() }

// Types are the types of agents to choose from.
func (AgentForm) Types() []string { return schema.AgentTypes }

// Harnesses are the harnesses that need only a name.
func (AgentForm) Harnesses() []string { return []string{"claude", "codex", "gemini", "opencode"} }

// fields are the keys that have a field. The model may be a key of the harness or a separate key.
func (p *AgentForm) fields() map[string]field {
	p.Model = "harness.model"
	if at(p.there.Keys, "model") != nil {
		p.Model = "model"
	}
	return map[string]field{
		"description": textField, "agentType": textField, "harness.type": textField, p.Model: textField, "environmentId": textField, "secrets": linesField,
	}
}

func agentForm(v *Visit) (page AgentForm, err error) {
	if err = page.begin(v, "agent"); err != nil {
		return page, err
	}
	page.Texts = page.show(page.fields())
	if err = page.offer(v); page.New && page.First {
		page.Texts.Set("agentType", foreman)
	}
	return page, err
}

func (p *AgentForm) offer(v *Visit) error {
	known, err := v.agents(p.Home.Name)
	if err != nil {
		return err
	}
	p.First = len(known) == 0
	envs, err := all[api.AgentEnvironment](v, "/agent/environments", url.Values{"factory": {p.Home.Name}}, maxListed)
	if err != nil {
		return err
	}
	for _, e := range envs {
		p.Envs = append(p.Envs, e.Name)
	}
	p.SecretNames, err = secretChoices(v, p.Texts.Get("secrets"))
	return err
}

func saveAgent(v *Visit) (Content, error) {
	var page AgentForm
	if err := page.typed(v, "agent"); err != nil {
		return nil, err
	}
	texts, keys := page.take(v, page.fields())
	page.Texts = texts
	if page.Failed == "" {
		if done, err := page.save(v, keys); err != nil || done != nil {
			return done, err
		}
	}
	return page, page.offer(v)
}
