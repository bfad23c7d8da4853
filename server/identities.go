package server

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"triphammer/applier"
	"triphammer/factory"
	"triphammer/server/api"
	"triphammer/server/terms"
)

// An identity of the published API is an agent of the definitions. Its UID is FACTORY/NAME.

// identity is an agent, and where it is defined.
type identity struct {
	*factory.Agent
	of *applier.Revision
}

func (i identity) uid() string { return i.of.Factory + "/" + i.Name }

// identities are the agents of a factory, or of all if it is empty.
func (c *call) identities(of string) (all []identity) {
	for _, r := range c.Revisions(of) {
		for _, a := range r.Definition.Agents {
			all = append(all, identity{a, r})
		}
	}
	slices.SortFunc(all, func(a, b identity) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.of.Factory, b.of.Factory))
	})
	return all
}

// anIdentity finds the agent that a path names: by its UID, or by its name if one factory
// alone has an agent of that name.
func anIdentity(_ context.Context, c *call) (found identity, err error) {
	asked := strings.TrimPrefix(c.Param("uid"), "/")
	var all []identity
	var names []string
	for _, i := range c.identities("") {
		names = append(names, i.Name)
		if i.uid() == asked || i.Name == asked {
			all = append(all, i)
		}
	}
	switch len(all) {
	case 0:
		return found, api.Refuse(api.NotFound, api.NoneNamed("agent", asked, names))
	case 1:
		return all[0], nil
	}
	return found, invalid("uid", "is the name of an agent in several factories: write FACTORY/%s", asked)
}

func (s *Server) listIdentities(_ context.Context, c *call) (shown api.List[api.AgentIdentity], err error) {
	return listOf(c.identities(c.Query("factory_uid")), showIdentity), nil
}

func (s *Server) getIdentity(_ context.Context, _ *call, i identity) (api.AgentIdentity, error) {
	return showIdentity(i), nil
}

func showIdentity(i identity) api.AgentIdentity {
	shown := api.AgentIdentity{
		UID: i.uid(), ID: i.uid(), Name: i.Name, Available: true, AgentType: i.Type, FactoryUID: i.of.Factory, Description: texted(i.Description), Prompt: texted(i.Prompt),
		AgentDefaults: showDefaults(i.Settings), Memory: api.IdentityMemory{AttachedStores: []struct{}{}}, Path: i.Path,
		Skills:    terms.Each(i.of.Definition.SkillsOf(i.Name), func(s *factory.Skill) string { return s.Path }),
		CreatedAt: i.of.AppliedAt, UpdatedAt: i.of.AppliedAt,
	}
	if h := i.Settings.Harness; h.Type == "oz" {
		shown.BaseModel = h.Model
	}
	if id := i.Settings.EnvironmentID; id != "" {
		shown.EnvironmentID = i.of.Factory + "/" + id
	}
	for _, d := range i.of.Definition.OfKind("agent") {
		if d.Path == i.Path {
			d.Decode("credentialStrategy", &shown.CredentialStrategy)
		}
	}
	return shown
}

// inFile refuses to change what a file of a factory defines.
func (s *Server) inFile(kind, factory, path string) error {
	way := "commit it to the repository of the factory " + factory
	if s.cfg.Place(factory).Home != nil {
		way += ", or send it to POST " + api.Base + "/factories/" + factory + "/changes"
	}
	return api.Refuse(api.NotSupported, fmt.Sprintf("%s are files of the definitions: this one is %s; %s", kind, path, way))
}

// changeIdentity is the answer to requests that change or delete an agent.
func (s *Server) changeIdentity(_ context.Context, _ *call, i identity) (none written, err error) {
	return none, s.inFile("agents", i.of.Factory, i.Path)
}

// providersOf are the providers of models that the harnesses of one provider use.
var providersOf = map[string]string{"claude": "ANTHROPIC", "codex": "OPENAI", "gemini": "GOOGLE"}

// listModels lists the models that the live definitions name.
func (s *Server) listModels(_ context.Context, c *call) (shown api.Models, err error) {
	shown.Models = []api.Model{}
	defaults := make(map[string]bool)
	add := func(s factory.Settings) {
		h := s.Harness
		m := api.Model{
			ID: h.Model, DisplayName: h.Model, Provider: cmp.Or(providersOf[h.Type], "UNKNOWN"), ReasoningLevel: h.ReasoningLevel, Harness: h.Type,
		}
		if m.ID != "" && !slices.Contains(shown.Models, m) {
			shown.Models = append(shown.Models, m)
		}
	}
	for _, r := range c.Revisions("") {
		d := r.Definition
		defaults[d.Defaults.Harness.Model] = true
		add(d.Defaults)
		for _, a := range d.Agents {
			add(a.Settings)
		}
		for _, a := range d.Automations {
			add(a.Settings)
		}
	}
	slices.SortFunc(shown.Models, func(a, b api.Model) int {
		return cmp.Or(strings.Compare(a.ID, b.ID), strings.Compare(a.Harness, b.Harness), strings.Compare(a.ReasoningLevel, b.ReasoningLevel))
	})
	for model := range defaults {
		if len(defaults) == 1 {
			shown.Default = model
		}
	}
	return shown, nil
}
