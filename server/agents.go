package server

import (
	"context"
	"slices"
	"strings"

	"triphammer/server/api"
)

// listEnvironments and listAgents list what a request for a run can name.
func (s *Server) listEnvironments(_ context.Context, c *call) (all api.List[api.AgentEnvironment], err error) {
	all.Entries = []api.AgentEnvironment{}
	for _, r := range c.Revisions(c.Query("factory")) {
		for _, e := range r.Definition.Environments {
			shown := api.AgentEnvironment{
				UID: r.Factory + "/" + e.Name, ID: r.Factory + "/" + e.Name, Name: e.Name, Factory: r.Factory, Description: e.Description, DockerImage: e.DockerImage,
				Repositories: []api.AgentRepository{}, GitHubRepos: []map[string]string{}, SetupCommands: append([]string{}, e.SetupCommands...),
				LastUpdated: r.AppliedAt, Scope: teamScope(r.Factory),
			}
			for _, repository := range e.Repositories {
				shown.Repositories = append(shown.Repositories, api.AgentRepository{URL: repository.URL, Ref: repository.Ref, Path: repository.Path})
				if rest, ok := strings.CutPrefix(repository.URL, "https://github.com/"); ok {
					if owner, name, ok := strings.Cut(strings.TrimSuffix(rest, ".git"), "/"); ok {
						shown.GitHubRepos = append(shown.GitHubRepos, map[string]string{"owner": owner, "repo": name})
					}
				}
			}
			shown.Config = api.EnvironmentConfig{
				Name: shown.Name, Description: texted(shown.Description), DockerImage: shown.DockerImage, GitHubRepos: shown.GitHubRepos, SetupCommands: shown.SetupCommands,
			}
			all.Entries = append(all.Entries, shown)
		}
	}
	switch by := c.Query("sort_by"); by {
	case "":
	case "name":
		slices.SortStableFunc(all.Entries, func(a, b api.AgentEnvironment) int { return strings.Compare(a.Name, b.Name) })
	case "last_updated":
		slices.SortStableFunc(all.Entries, func(a, b api.AgentEnvironment) int { return b.LastUpdated.Compare(a.LastUpdated) })
	default:
		err = refuse("sort_by", by, "environments are sorted by name or last_updated")
	}
	return all, err
}

func (s *Server) listAgents(_ context.Context, c *call) (none api.List[api.AgentEntry], err error) {
	// Nothing is cached that could be refreshed, and a skill that is malformed does not serve.
	if by := c.Query("sort_by"); by != "" && by != "name" {
		return none, refuse("sort_by", by, "agents are sorted by name")
	}
	byName := make(map[string]*api.AgentEntry)
	all := []*api.AgentEntry{}
	for _, r := range c.Revisions(c.Query("factory")) {
		for _, a := range r.Definition.Agents {
			entry := byName[a.Name]
			if entry == nil {
				entry = &api.AgentEntry{Name: a.Name}
				byName[a.Name] = entry
				all = append(all, entry)
			}
			v := api.AgentVariant{
				ID: r.Factory + "/" + a.Name, AgentType: a.Type, Description: a.Description, BasePrompt: a.Prompt, Environments: []map[string]string{},
				Source: map[string]string{"owner": r.Factory, "name": r.Definition.Name, "skill_path": a.Path},
			}
			if id := a.Settings.EnvironmentID; id != "" {
				v.Environments = append(v.Environments, map[string]string{"uid": r.Factory + "/" + id, "name": id})
			}
			entry.Variants = append(entry.Variants, v)
		}
	}
	slices.SortFunc(all, func(a, b *api.AgentEntry) int { return strings.Compare(a.Name, b.Name) })
	return listOf(all, func(a *api.AgentEntry) api.AgentEntry { return *a }), nil
}

// teamScope is the owner of what belongs to a factory.
func teamScope(factory string) api.Scope { return api.Scope{Type: "Team", UID: factory, ID: factory} }
