package server

import (
	"context"
	"hash/fnv"
	"path"
	"slices"
	"strconv"
	"strings"

	"triphammer/applier"
	"triphammer/factory"
	"triphammer/server/access"
	"triphammer/server/api"
)

// Scorers and benchmark suites are files of the definitions. They are listed, and this
// server neither scores runs nor runs benchmarks: no scorer has a result, and no suite a run.

// scorer is a scorer, and where it is defined.
type scorer struct {
	factory.Definition
	of *applier.Revision
}

// id is a number, because the published API has one; it stays as long as the file has its
// place.
func (d scorer) id() int64 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(d.of.Factory + "/" + d.Path))
	return int64(h.Sum32())
}

func (c *call) scorers(of string) (all []scorer) {
	for _, r := range c.Revisions(of) {
		for _, d := range r.Definition.OfKind("scorer") {
			all = append(all, scorer{d, r})
		}
	}
	return all
}

// aScorer finds the scorer that a path names.
func aScorer(_ context.Context, c *call) (found scorer, err error) {
	for _, d := range c.scorers("") {
		if strconv.FormatInt(d.id(), 10) == c.Param("scorer") {
			return d, nil
		}
	}
	return found, api.Refuse(api.NotFound, "there is no scorer "+c.Param("scorer"))
}

func (s *Server) listScorers(_ context.Context, c *call) (shown api.List[api.Scorer], err error) {
	return listOf(c.scorers(c.Query("factory_uid")), showScorer), nil
}

func showScorer(d scorer) api.Scorer {
	shown := api.Scorer{
		ID: d.id(), FactoryUID: d.of.Factory, Name: d.Name, Kind: "user", ScopeMode: "selected_agents", Agents: []api.ScorerAgent{}, Version: 1,
		PassRate: api.ScorerPassRate{Outcomes: []string{}}, CreatedAt: d.of.AppliedAt, UpdatedAt: d.of.AppliedAt, Path: d.Path,
	}
	var agents []string
	for key, into := range map[string]any{
		"name": &shown.Name, "description": &shown.Description, "agents": &agents, "labels": &shown.Classifications, "model": &shown.ModelID,
		"rubric": &shown.ScoringPrompt, "passingScore": &shown.Threshold, "samplingRate": &shown.SamplingRate, "selfImprovement": &shown.SelfImprovement,
	} {
		d.Decode(key, into)
	}
	for _, name := range agents {
		shown.Agents = append(shown.Agents, api.ScorerAgent{UID: d.of.Factory + "/" + name, ID: d.of.Factory + "/" + name, Name: name})
	}
	return shown
}

func (s *Server) scorerResults(context.Context, *call, scorer) (api.List[api.ScorerResult], error) {
	return api.List[api.ScorerResult]{Entries: []api.ScorerResult{}}, nil
}

// scorerReasons says of each run that no judge gave a reason.
func (s *Server) scorerReasons(ctx context.Context, c *call, _ scorer) (shown api.ScorerReasons, err error) {
	shown.Reasons = []api.ScorerReason{}
	for _, id := range c.QueryArray("run_id") {
		r, err := c.Run(ctx, id)
		if err != nil {
			return shown, err
		}
		shown.Reasons = append(shown.Reasons, api.ScorerReason{RunID: r.ID.String(), ID: r.ID.String(), Status: "absent"})
	}
	if len(shown.Reasons) == 0 {
		return shown, invalid("run_id", "is the id of a run, and can be repeated")
	}
	return shown, nil
}

func (s *Server) runScores(_ context.Context, _ *call, r access.Run) (api.RunScores, error) {
	return api.RunScores{RunID: r.ID.String(), ID: r.ID.String(), Scores: []struct{}{}}, nil
}

func (s *Server) listSuites(_ context.Context, c *call, f access.Factory) (shown api.List[api.Suite], err error) {
	var all []api.Suite
	if r := f.State().Applied; r != nil {
		all = each(r.Definition.OfKind("benchmark suite"), func(d factory.Definition) api.Suite { return showSuite(r, d) })
	}
	return named(c, all, func(s api.Suite) string { return s.UID }, func(s api.Suite) api.Suite { return s })
}

func showSuite(r *applier.Revision, d factory.Definition) api.Suite {
	shown := api.Suite{
		UID: path.Base(path.Dir(d.Path)), ID: path.Base(path.Dir(d.Path)), FactoryUID: r.Factory, Name: d.Name, CreatedAt: r.AppliedAt, UpdatedAt: r.AppliedAt, Path: d.Path,
	}
	agent := ""
	d.Decode("agent", &agent)
	d.Decode("name", &shown.Name)
	d.Decode("description", &shown.Description)
	shown.AgentUID = r.Factory + "/" + agent
	if a := r.Definition.Agent(agent); a != nil {
		shown.AgentType = a.Type
	}
	var configurations []struct {
		Name, Role string
		Agents     []struct {
			Agent, Model string
			Harness      struct{ Type, Model string }
		}
	}
	d.Decode("configurations", &configurations)
	for _, c := range configurations {
		to := api.SuiteConfiguration{Role: c.Role, DisplayName: c.Name}
		for _, a := range c.Agents {
			model, harness := a.Harness.Model, a.Harness.Type
			if a.Model != "" {
				model, harness = a.Model, "oz"
			}
			to.Agents = append(to.Agents, api.SuiteAgent{UID: r.Factory + "/" + a.Agent, Name: a.Agent, Harness: harness, Model: model})
		}
		shown.Configurations = append(shown.Configurations, to)
	}
	return shown
}

// aSuite finds the suite that a path names.
func (c *call) aSuite(f access.Factory) (*applier.Revision, factory.Definition, error) {
	if r := f.State().Applied; r != nil {
		for _, d := range r.Definition.OfKind("benchmark suite") {
			if path.Base(path.Dir(d.Path)) == c.Param("suite") {
				return r, d, nil
			}
		}
	}
	return nil, factory.Definition{}, api.Refuse(api.NotFound, "the factory "+f.Name+" has no benchmark suite "+c.Param("suite"))
}

func (s *Server) getSuite(_ context.Context, c *call, f access.Factory) (shown api.SuiteDetail, err error) {
	r, d, err := c.aSuite(f)
	if err != nil {
		return shown, err
	}
	shown = api.SuiteDetail{Suite: showSuite(r, d), Spawnable: []string{}, Tasks: []api.SuiteTask{}}
	var names []string
	d.Decode("tasks", &names)
	for _, t := range r.Definition.OfKind("benchmark task") {
		name := strings.TrimSuffix(path.Base(t.Path), path.Ext(t.Path))
		if path.Dir(path.Dir(t.Path)) != path.Dir(d.Path) || len(names) > 0 && !slices.Contains(names, name) {
			continue
		}
		work := api.SuiteTask{UID: name, ID: int64(len(shown.Tasks) + 1)}
		t.Decode("title", &work.Title)
		t.Decode("prompt", &work.Prompt)
		t.Decode("successCriteria", &work.SuccessCriteria)
		t.Decode("sourceRunId", &work.SourceRunID)
		shown.Tasks = append(shown.Tasks, work)
	}
	return shown, nil
}

// launchSuite is the answer to requests that run a benchmark.
func (s *Server) launchSuite(_ context.Context, c *call, f access.Factory) (none written, err error) {
	if _, _, err := c.aSuite(f); err != nil {
		return none, err
	}
	return none, api.Refuse(api.NotSupported, noBenchmarks+": start a run for each task with POST "+api.Base+"/agent/runs, and compare their request_usage")
}

func (s *Server) listBenchmarkRuns(context.Context, *call, access.Factory) (api.List[api.BenchmarkRun], error) {
	return api.List[api.BenchmarkRun]{Entries: []api.BenchmarkRun{}}, nil
}
