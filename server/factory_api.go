package server

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"triphammer/applier"
	"triphammer/factory"
	"triphammer/schema"
	"triphammer/server/access"
	"triphammer/server/api"
	"triphammer/server/run"
	"triphammer/server/store"
	"triphammer/server/terms"
)

// The routes below /factory are those of the published API. What they show of a factory is
// what it serves. The routes below /factories are this server's own.

// theFactory is the factory that a path below /factory names. Its UID is its name.
func theFactory(_ context.Context, c *call) (access.Factory, error) {
	return c.FactoryNamed(c.Param("uid"))
}

// serving is the revision that a factory serves.
func serving(f access.Factory) (*applier.Revision, error) {
	if r := f.State().Applied; r != nil {
		return r, nil
	}
	return nil, api.Refuse(api.Conflict, "the factory "+f.Name+" serves nothing yet: GET "+api.Base+"/factories/"+f.Name+" says why")
}

func (s *Server) findFactories(ctx context.Context, c *call) (list api.List[api.Factory], err error) {
	wanted, team, after := strings.ToLower(c.Query("search")), c.Query("filter_team_uid"), c.Query("cursor")
	limit, err := c.limit()
	if err != nil {
		return list, err
	}
	found := []api.Factory{}
	for _, f := range c.Factories() {
		shown, err := s.showFactory(ctx, c, f)
		if err != nil {
			return list, err
		}
		matches := strings.Contains(strings.ToLower(shown.Name), wanted) || strings.Contains(f.Name, wanted) ||
			shown.Alias != nil && strings.Contains(strings.ToLower(*shown.Alias), wanted)
		if matches && (team == "" || team == shown.TeamUID) && f.Name > after {
			found = append(found, shown)
		}
	}
	slices.SortFunc(found, func(a, b api.Factory) int { return strings.Compare(a.UID, b.UID) })
	return listPage(found, limit, func(f api.Factory) string { return f.UID }, func(f api.Factory) api.Factory { return f }), nil
}

func (s *Server) showFactory(ctx context.Context, _ *call, f access.Factory) (api.Factory, error) {
	state := f.State()
	shown := api.Factory{
		UID: f.Name, ID: f.Name, TeamUID: f.Name, Name: f.Name, CodeForges: []string{}, Repositories: []api.FactoryRepository{}, CredentialStrategy: "EXECUTOR",
		AgentDefaults: showDefaults(factory.Settings{}), State: s.stateOf(state),
	}
	first, err := f.FirstApply(ctx)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return shown, err
	}
	shown.CreatedAt = api.Time(first)
	if r := state.Applied; r != nil {
		d := r.Definition
		shown.Name, shown.Commit, shown.UpdatedAt = d.Name, r.Commit.Hash, api.Time(r.AppliedAt)
		shown.Alias, shown.Description = texted(d.Alias), texted(d.Description)
		shown.DefaultModel, shown.AgentDefaults = texted(d.Defaults.Harness.Model), showDefaults(d.Defaults)
		if id := d.Defaults.EnvironmentID; id != "" {
			shown.DefaultEnvironment = texted(f.Name + "/" + id)
		}
		for _, own := range d.OfKind("factory") {
			own.Decode("codeForges", &shown.CodeForges)
			own.Decode("credentialStrategy", &shown.CredentialStrategy)
			own.Decode("integrations", &shown.Integrations)
		}
		shown.Repositories = terms.Each(d.Repositories, showFactoryRepository)
	}
	if len(shown.CodeForges) == 0 {
		shown.CodeForges = []string{"NONE"}
		if len(shown.Repositories) > 0 {
			shown.CodeForges = []string{cmp.Or(shown.Repositories[0].CodeForge, "NONE")}
		}
	}
	shown.CodeForge = shown.CodeForges[0]
	return shown, nil
}

// texted is a text that is null if it is empty.
func texted(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

func showFactoryRepository(r factory.Repository) api.FactoryRepository {
	shown := api.FactoryRepository{CodeForge: r.Forge, URL: r.URL}
	if u, err := url.Parse(r.URL); err == nil {
		path := strings.TrimSuffix(strings.Trim(u.Path, "/"), ".git")
		if i := strings.LastIndexByte(path, '/'); i >= 0 {
			shown.Owner, shown.Repo = path[:i], path[i+1:]
		} else {
			shown.Repo = path
		}
	}
	return shown
}

// showDefaults shows settings as the published API does. The environment and the headers of
// MCP servers can hold credentials, so they are left out.
func showDefaults(s factory.Settings) api.AgentDefaults {
	shown := api.AgentDefaults{
		RunnerUID: s.Runner, WorkerHost: s.WorkerHost, MCPServers: make(map[string]api.MCPServer),
		Secrets: terms.Each(s.Secrets, func(name string) api.SecretName { return api.SecretName{Name: name} }),
	}
	for _, m := range s.MCPServers {
		shown.MCPServers[m.Name] = api.MCPServer{WarpID: m.WarpID, Command: m.Command, Args: m.Args, URL: m.URL}
	}
	if h := s.Harness; h.Type != "" {
		shown.Harness = &api.HarnessConfig{Type: h.Type, ModelID: h.Model, ReasoningLevel: h.ReasoningLevel}
		if field := authSecrets[h.Type]; field != "" && h.AuthSecret != "" {
			shown.HarnessAuthSecrets = map[string]string{field: h.AuthSecret}
		}
	}
	return shown
}

// adhoc is the source of a ticket that a run has if its request names none.
const adhoc = "adhoc"

// dispatch starts a run of the factory's foreman.
func (s *Server) dispatch(ctx context.Context, c *call, f access.Factory) (shown api.CreatedFactoryRun, err error) {
	body, err := readBody(c.Context, maxRequest)
	if err != nil {
		return shown, err
	}
	var asked api.FactoryRun
	if err := decode(body, &asked); err != nil {
		return shown, err
	}
	r, err := serving(f)
	if err != nil {
		return shown, err
	}
	foreman := r.Definition.Foreman()
	if foreman == nil {
		return shown, api.Refuse(api.NotSupported, "the factory "+f.Name+" has no foreman, to whom such runs go: commit agents/NAME/agent.md with agentType: FOREMAN, or start a run with POST "+api.Base+"/agent/runs")
	}
	source, id, ok := strings.Cut(asked.TicketRef, ":")
	switch {
	case asked.TicketRef == "":
		source, id = adhoc, strings.ToLower(rand.Text())
	case !ok || source == "" || id == "":
		return shown, invalid("ticket_ref", "is <source>:<id>, such as linear:ACME-238")
	}
	metadata := map[string]string{"ticket_source": source, "ticket_id": id}
	if asked.TicketURL != "" {
		metadata["ticket_url"] = asked.TicketURL
	}
	made, err := c.NewRun(ctx, run.Request{Factory: f.Name, Agent: f.Name + "/" + foreman.Name, Title: asked.Title, Prompt: asked.Prompt, Metadata: metadata})
	if err != nil {
		return shown, err
	}
	stored, err := s.storeRun(ctx, c, made, "factory.run", "of "+foreman.Name, body)
	if err != nil {
		return shown, err
	}
	// With an Idempotency-Key, the run can be an earlier one, which has its own ticket.
	known, err := c.Run(ctx, stored.RunID)
	if err != nil {
		return shown, err
	}
	of, err := access.Metadata(ctx, known)
	if err != nil {
		return shown, err
	}
	return api.CreatedFactoryRun{
		FactoryUID: f.Name, ForemanAgent: foreman.Name, RunID: stored.RunID, ID: stored.RunID, RunURL: s.runLink(known.ID), State: stored.State,
		TicketRef: of[known.ID]["ticket_source"] + ":" + of[known.ID]["ticket_id"],
	}, nil
}

// factoryMetrics are the figures of GET /stats for one factory, with those of the published
// ones that this server has. It takes the published parameters too.
func (s *Server) factoryMetrics(ctx context.Context, c *call, f access.Factory) (shown api.FactoryMetrics, err error) {
	now := s.cfg.Now().UTC()
	span := figuresSpan{since: c.Query("since"), by: c.Query("group_by_period")}
	for _, name := range []string{"start_date", "end_date"} {
		text := c.Query(name)
		if text == "" {
			continue
		}
		at, err := time.Parse(time.RFC3339, text)
		day, notDay := time.Parse(time.DateOnly, text)
		switch {
		case notDay == nil && name == "end_date": // that day is one of them
			at = day.AddDate(0, 0, 1).Add(-time.Second)
		case notDay == nil:
			at = day
		case err != nil:
			return shown, refuse(name, text, "%s is a date such as 2026-01-31, or a time in RFC 3339", name)
		}
		if name == "start_date" {
			span.since = at.UTC().Format(time.RFC3339)
		} else if at.Before(now) {
			span.ended = now.Sub(at)
		}
	}
	stats, err := s.statsOf(ctx, c, f.Name, span)
	if err != nil {
		return shown, err
	}
	shown = api.FactoryMetrics{Stats: *stats, AsOf: now, FactoryUID: f.Name}
	for _, n := range stats.Total.Runs {
		shown.RunCount += n
	}
	spent, err := c.Spent(ctx, stats.Since, now.Add(-span.ended), f.Name)
	for _, s := range spent {
		shown.PRCount, shown.MergedPRs = shown.PRCount+s.PullRequests, shown.MergedPRs+s.Merged
	}
	return shown, err
}

func resourceErrors(found schema.Diagnostics) []api.ResourceError {
	all := []api.ResourceError{}
	for _, d := range found {
		if d.Severity == schema.Error {
			all = append(all, api.ResourceError{Path: d.Path, Line: d.Line, Message: d.Message})
		}
	}
	return all
}

// syncFactory asks for a look at the repository, as POST /factories/NAME/sync. A dry run
// says what the newest commit would change.
func (s *Server) syncFactory(ctx context.Context, c *call, f access.Factory) (any, error) {
	asked, err := optionalBody[api.SyncRequest](c)
	if err != nil {
		return nil, err
	}
	head, tree, err := f.Newest(ctx)
	if err != nil {
		return nil, api.Refuse(api.Unavailable, err.Error())
	}
	if asked.SHA != "" && asked.SHA != head.Hash {
		return nil, api.Refuse(api.NotSupported, "a sync applies the newest commit of the branch, "+head.Hash+"; an earlier one is made to serve by POST "+api.Base+"/factories/"+f.Name+"/pin",
			api.FieldProblem{Field: "sha", Message: "is not the newest commit of the branch"})
	}
	shown := api.SyncAnswer{CommitSHA: head.Hash}
	if !asked.DryRun {
		f.Kick("push")
		c.audit("factory.sync", f.Name, f.Name, "")
		c.JSON(http.StatusAccepted, shown)
		return written{}, nil
	}
	proposal, err := f.Propose(ctx, tree, 0)
	if err != nil {
		return nil, err
	}
	change := func(c applier.Change) api.SyncChange {
		return api.SyncChange{Path: c.Path, Kind: c.Kind, Reason: strings.Join(c.Keys, ", ")}
	}
	p := proposal.Plan
	shown.Plan = &api.SyncPlan{Creates: terms.Each(p.Create, change), Updates: terms.Each(p.Update, change), Deletes: terms.Each(p.Delete, change), NoOps: len(p.Unchanged)}
	shown.ResourceErrors = resourceErrors(proposal.Diagnostics)
	return shown, nil
}
