package server

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"triphammer/factory/native"
	"triphammer/server/access"
	"triphammer/server/api"
	"triphammer/server/delivery"
	"triphammer/server/run"
	"triphammer/server/run/event"
	"triphammer/server/store"
	"triphammer/server/terms"
)

// Values that the published API knows and that no run of this server has. A filter with
// such a value selects nothing. A filter with an unknown value is refused.
var (
	otherStates  = []string{"PENDING", "CLAIMED", "ERROR"}
	otherSources = []string{
		"AZURE_DEVOPS_WEBHOOK", "LOCAL", "WEB_APP", "GITHUB_ACTION", "CLOUD_MODE", "CLI", "SELF_IMPROVEMENT", "AUTOFIX", "RUN_SCORER", "ORCHESTRATION",
		"BENCHMARK_TRIAL", "CREATE_BENCHMARK_TASK",
	}
	artifactTypes = []string{"PLAN", "PULL_REQUEST", "SCREENSHOT", "FILE", "EXTERNAL_REFERENCE"}
)

// runSources are the sources that runs of this server have.
func runSources() []string {
	all := []string{store.SourceAPI, store.SourceWebhook, store.SourceSchedule}
	for _, s := range native.Senders() {
		all = append(all, s.Source)
	}
	return all
}

// sourceNames are the published names of sources that have another name here.
var sourceNames = map[string]string{"SCHEDULED_AGENT": store.SourceSchedule, "CUSTOM_WEBHOOK": store.SourceWebhook}

// taskStatuses are the states that the published words for the status of a task mean.
var taskStatuses = map[string][]store.RunState{
	"running": {store.Queued, store.InProgress}, "failed": {store.FailedRun}, "cancelled": {store.Cancelled}, "complete": {store.Succeeded}, "blocked": {store.Blocked},
}

// emptyEnvironment selects the runs without an environment.
const emptyEnvironment = "empty-environment"

const maxMetadataFilters = 5

var runSorts = map[string]store.RunSort{
	"updated_at": store.ByUpdated, "created_at": store.ByCreated, "title": store.ByTitle, "agent": store.ByAgent,
}

// runListing is a request for a list of runs, while it is parsed.
type runListing struct {
	store.RunQuery
	sort  string // name of the order
	none  bool   // it selects no run
	about bool   // it tells what runs are about and what came of them
	event string // part of the name of their events, in any case
	wrong *api.FieldProblem
}

func (l *runListing) refuse(field, format string, args ...any) {
	if l.wrong == nil {
		l.wrong = &api.FieldProblem{Field: field, Message: fmt.Sprintf(format, args...)}
	}
}

// runFilters are the parameters of the list besides limit, cursor and metadata[…]. TestParameters
// asks for each that openapi.yaml has.
var runFilters = map[string]func(l *runListing, values []string){
	"state":              (*runListing).states,
	"task_status":        (*runListing).taskStatus,
	"source":             (*runListing).source,
	"sort_by":            (*runListing).sortBy,
	"sort_order":         (*runListing).sortOrder,
	"execution_location": (*runListing).location,
	"artifact_type":      (*runListing).artifact,
	"environment_id":     (*runListing).environment,
	"factory":            (*runListing).factories,
	"factory_uid":        (*runListing).factories,
	"created_after":      timeFilter("created_after", func(l *runListing) *time.Time { return &l.CreatedAfter }),
	"created_before":     timeFilter("created_before", func(l *runListing) *time.Time { return &l.CreatedBefore }),
	"updated_after":      timeFilter("updated_after", func(l *runListing) *time.Time { return &l.UpdatedAfter }),
	"delivery_id":        idFilter("delivery_id", func(l *runListing) *store.DeliveryID { return &l.DeliveryID }),
	"schedule_id":        idFilter("schedule_id", func(l *runListing) *store.ScheduleID { return &l.ScheduleID }),
	"ancestor_run_id":    idFilter("ancestor_run_id", func(l *runListing) *store.RunID { return &l.AncestorID }),
	"conversation_id":    idFilter("conversation_id", func(l *runListing) *store.RunID { return &l.ConversationID }),
	"retry_of_run_id":    idFilter("retry_of_run_id", func(l *runListing) *store.RunID { return &l.RetryOf }),
	"automation":         textFilter(func(l *runListing) *string { return &l.Automation }),
	"automation_id":      textFilter(func(l *runListing) *string { return &l.Automation }),
	"agent":              textFilter(func(l *runListing) *string { return &l.Agent }),
	"webhook":            textFilter(func(l *runListing) *string { return &l.Webhook }),
	"name":               textFilter(func(l *runListing) *string { return &l.Name }),
	"model_id":           textFilter(func(l *runListing) *string { return &l.Model }),
	"creator":            textFilter(func(l *runListing) *string { return &l.Creator }),
	"executor":           textFilter(func(l *runListing) *string { return &l.Executor }),
	"subject":            textFilter(func(l *runListing) *string { return &l.Subject }),
	"person":             textFilter(func(l *runListing) *string { return &l.Person }),
	"event":              textFilter(func(l *runListing) *string { return &l.event }),
	"about":              func(l *runListing, values []string) { l.about = values[0] == "true" },
	"q":                  (*runListing).search,
	"factory_only":       (*runListing).factoryOnly,
	"skill":              func(l *runListing, _ []string) { l.none = true },
	"skill_spec":         func(l *runListing, _ []string) { l.none = true },
}

func (l *runListing) states(values []string) {
	var wanted []store.RunState
	for _, state := range values {
		switch {
		case slices.Contains(terms.RunStates, store.RunState(state)):
			wanted = append(wanted, store.RunState(state))
		case !slices.Contains(otherStates, state):
			l.refuse("state", "%q is no state: they are %s", state, terms.Words(terms.RunStates))
		}
	}
	l.within(wanted)
}

func (l *runListing) taskStatus(values []string) {
	var wanted []store.RunState
	for _, status := range values {
		states, known := taskStatuses[status]
		if !known {
			l.refuse("task_status", "%q is no status: it is running, failed, blocked, cancelled or complete", status)
		}
		wanted = append(wanted, states...)
	}
	l.within(wanted)
}

// within limits the list to runs in states, of those that it selects so far.
func (l *runListing) within(wanted []store.RunState) {
	if len(l.States) > 0 {
		wanted = slices.DeleteFunc(wanted, func(s store.RunState) bool { return !slices.Contains(l.States, s) })
	}
	l.States = wanted
	l.none = l.none || len(wanted) == 0
}

// search takes the id of a run, or the address of its page, or words.
func (l *runListing) search(values []string) {
	last := values[0][strings.LastIndexByte(values[0], '/')+1:]
	if id, err := store.ParseID[store.Run](last); err == nil && id != 0 {
		l.ID = id
		return
	}
	l.Search = values[0]
}

// factoryOnly selects all runs: each is of a factory.
func (l *runListing) factoryOnly(values []string) {
	if values[0] != "true" && values[0] != "false" {
		l.refuse("factory_only", "it is true or false")
	}
}

func (l *runListing) source(values []string) {
	for _, source := range values {
		source = cmp.Or(sourceNames[source], source)
		switch {
		case slices.Contains(runSources(), source):
			l.Sources = append(l.Sources, source)
		case !slices.Contains(otherSources, source):
			l.refuse("source", "%q is no source: they are %s", source, strings.Join(runSources(), ", "))
		}
	}
	l.none = l.none || len(l.Sources) == 0
}

func (l *runListing) sortBy(values []string) {
	by, ok := runSorts[values[0]]
	if !ok {
		l.refuse("sort_by", "runs are sorted by updated_at (default), created_at, title or agent, not by %q", values[0])
	}
	l.Sort, l.sort = by, values[0]
}

func (l *runListing) sortOrder(values []string) {
	if l.Ascending = values[0] == "asc"; !l.Ascending && values[0] != "desc" {
		l.refuse("sort_order", "it is asc or desc (default), not %q", values[0])
	}
}

func (l *runListing) location(values []string) {
	switch values[0] {
	case "REMOTE": // all runs
	case "LOCAL":
		l.none = true
	default:
		l.refuse("execution_location", "it is LOCAL or REMOTE")
	}
}

func (l *runListing) artifact(values []string) {
	if l.ArtifactType = values[0]; !slices.Contains(artifactTypes, values[0]) {
		l.refuse("artifact_type", "it is one of %s", terms.Words(artifactTypes))
	}
}

func (l *runListing) environment(values []string) {
	factory, name, qualified := strings.Cut(values[0], "/")
	switch {
	case values[0] == emptyEnvironment:
		l.NoEnvironment = true
	case qualified:
		l.factories([]string{factory})
		l.Environment = name
	default:
		l.Environment = values[0]
	}
}

func (l *runListing) factories(values []string) {
	if len(l.Factories) == 0 {
		l.Factories = values
		return
	}
	l.Factories = slices.DeleteFunc(slices.Clone(l.Factories), func(f string) bool { return !slices.Contains(values, f) })
	l.none = l.none || len(l.Factories) == 0
}

func textFilter(of func(l *runListing) *string) func(*runListing, []string) {
	return func(l *runListing, values []string) {
		field := of(l)
		l.none = l.none || *field != "" && *field != values[0]
		*field = values[0]
	}
}

func timeFilter(name string, of func(l *runListing) *time.Time) func(*runListing, []string) {
	return func(l *runListing, values []string) {
		t, err := time.Parse(time.RFC3339, values[0])
		if err != nil || t.Year() < 1 || t.Year() > 9999 {
			l.refuse(name, "%q is no time in RFC 3339", values[0])
			return
		}
		*of(l) = t
	}
}

func idFilter[Row any](name string, of func(l *runListing) *store.ID[Row]) func(*runListing, []string) {
	return func(l *runListing, values []string) {
		id, err := store.ParseID[Row](values[0])
		if err != nil {
			l.refuse(name, "%q is not an id such as %s…", values[0], id.Prefix())
			return
		}
		*of(l) = id
	}
}

// parseRunList reads the query of a list of runs.
func parseRunList(query map[string][]string) *runListing {
	l := &runListing{sort: "updated_at"}
	l.Sort = store.ByUpdated
	var cursor string
	for name, values := range query {
		if slices.Contains(values, "") {
			if values = slices.DeleteFunc(slices.Clone(values), func(v string) bool { return v == "" }); len(values) == 0 && !strings.HasPrefix(name, "metadata[") {
				continue
			}
		}
		key, isMetadata := strings.CutPrefix(name, "metadata[")
		switch {
		case name == "limit":
		case name == "cursor":
			cursor = values[0]
		case isMetadata:
			l.metadata(strings.TrimSuffix(key, "]"), strings.Join(values, ""))
		case runFilters[name] == nil: // the API refuses it before, with what it does take
			l.refuse(name, "runs cannot be selected by it")
		default:
			runFilters[name](l, values)
		}
	}
	if cursor != "" {
		l.goOn(cursor)
	}
	return l
}

// metadata selects runs by one key of their metadata. The key of the automation is not
// stored, so it is a filter by the automation.
func (l *runListing) metadata(key, value string) {
	if key == automationKey {
		runFilters["automation_id"](l, []string{value})
		return
	}
	if l.Metadata == nil {
		l.Metadata = make(map[string]string)
	}
	l.Metadata[key] = value
	problem := "there are too many"
	refused := run.CheckMetadata(map[string]string{key: value})
	if refused != nil {
		problem = refused.Message
	}
	if refused != nil || len(l.Metadata) > maxMetadataFilters {
		l.refuse("metadata["+key+"]", "%s; at most %d keys select runs", problem, maxMetadataFilters)
	}
}

// runCursor is the position where a page ended. It includes the order, because the position
// is only valid in that order.
type runCursor struct {
	Sort string `json:"s"`
	Asc  bool   `json:"a,omitempty"`
	Key  string `json:"k,omitempty"`
	ID   string `json:"i"`
}

func (l *runListing) cursor(r access.Run) string {
	at := l.Cursor(r.Run)
	text, _ := json.Marshal(runCursor{l.sort, l.Ascending, at.Key, at.ID.String()}) // plain data always encodes
	return base64.RawURLEncoding.EncodeToString(text)
}

func (l *runListing) goOn(text string) {
	var c runCursor
	data, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		err = json.Unmarshal(data, &c)
	}
	if err == nil {
		l.After.Key = c.Key
		l.After.ID, err = store.ParseID[store.Run](c.ID)
	}
	if err != nil || l.After.ID == 0 {
		l.refuse("cursor", "it is not the next_cursor of a list of runs")
		return
	}
	if _, err := strconv.ParseInt(c.Key, 10, 64); err != nil && c.Sort == "updated_at" {
		l.refuse("cursor", "it is not the next_cursor of a list of runs")
		return
	}
	if c.Sort != l.sort || c.Asc != l.Ascending {
		l.refuse("cursor", "it is from a list that was sorted by %s", c.Sort)
		return
	}
}

func (s *Server) listRuns(ctx context.Context, c *call) (shown api.List[api.Run], err error) {
	limit, err := c.limit()
	if err != nil {
		return shown, err
	}
	l := parseRunList(c.Request.URL.Query())
	if l.wrong != nil {
		return shown, api.Refuse(api.InvalidRequest, l.wrong.Field+": "+l.wrong.Message, *l.wrong)
	}
	all, info, err := l.read(ctx, c, limit)
	if err != nil {
		return shown, err
	}
	runs, err := s.showRuns(ctx, all)
	if err == nil && l.about {
		err = tellOfRuns(ctx, c, all, runs)
		if err == nil {
			err = outputsOf(ctx, all, runs)
		}
	}
	return api.List[api.Run]{Entries: runs, PageInfo: info}, err
}

// read reads a page of the list.
func (l *runListing) read(ctx context.Context, c *call, limit int) (all []access.Run, info api.PageInfo, err error) {
	if l.none {
		return nil, info, nil
	}
	if l.event != "" {
		return runsOf(ctx, c, l, limit)
	}
	l.Limit = limit + 1
	all, err = c.Runs(ctx, l.RunQuery)
	all, info = page(all, limit, l.cursor)
	return all, info, err
}

// aboutRuns says what the deliveries of runs are about, as far as they are kept.
func aboutRuns(ctx context.Context, c *call, all []access.Run) (map[store.DeliveryID]delivery.About, error) {
	var deliveries []*store.Delivery
	for _, r := range all {
		if r.DeliveryID == 0 || slices.ContainsFunc(deliveries, func(d *store.Delivery) bool { return d.ID == r.DeliveryID }) {
			continue
		}
		if d, err := c.Delivery(ctx, r.DeliveryID.String()); err == nil { // else it is not kept any more
			deliveries = append(deliveries, d.Delivery)
		}
	}
	return c.About(ctx, deliveries)
}

// tellOfRuns adds to runs what they are about and what came of them.
func tellOfRuns(ctx context.Context, c *call, all []access.Run, shown []api.Run) error {
	about, err := aboutRuns(ctx, c, all)
	if err != nil {
		return err
	}
	files, err := access.EventCounts(ctx, event.KindFile, all...)
	if err != nil {
		return err
	}
	answers, err := access.Answers(ctx, all...)
	if err != nil {
		return err
	}
	for i, r := range all {
		of := about[r.DeliveryID]
		shown[i].About = &api.RunAbout{Title: of.Title, Event: of.Event, Files: files[r.ID]}
		for _, a := range answers {
			if a.RunID == r.ID && (shown[i].About.Answer == "" || a.Status == store.AnswerFailed) {
				shown[i].About.Answer = a.Status
			}
		}
		shown[i].About.Outcome = outcomeOf(r.Run, shown[i])
	}
	return nil
}

// outcomeOf is what came of a run (SPEC 27.1): of its pull request, if it opened one; of several, the best.
func outcomeOf(r *store.Run, shown api.Run) string {
	if !r.State.Terminal() {
		return ""
	}
	best := len(pullOutcomes)
	for _, a := range shown.Artifacts {
		if a.Type == event.ArtifactPullRequest {
			best = min(best, slices.Index(pullOutcomes, cmp.Or(a.Data.Outcome, native.PullOpen)))
		}
	}
	switch {
	case best < len(pullOutcomes):
		return pullOutcomes[best]
	case r.State != store.Succeeded:
		return "failed"
	case shown.About.Answer == store.AnswerDelivered:
		return "answered"
	}
	return "nothing"
}

// pullOutcomes are the values of store.Artifact.Outcome, the best first.
var pullOutcomes = []string{native.PullMerged, store.MergedWithChanges, native.PullOpen, native.PullClosed}

// outputsOf adds to runs what their agents asked for.
func outputsOf(ctx context.Context, all []access.Run, shown []api.Run) error {
	outputs, err := access.Outputs(ctx, all...)
	for i, r := range all {
		for _, o := range outputs {
			if o.RunID == r.ID {
				shown[i].Outputs = append(shown[i].Outputs, showOutput(o))
			}
		}
	}
	return err
}

// countRuns counts the runs that the filters of a list select, by state.
func (s *Server) countRuns(ctx context.Context, c *call) (shown api.RunCounts, err error) {
	shown.Most = store.MaxCount
	l := parseRunList(c.Request.URL.Query())
	if l.wrong != nil {
		return shown, api.Refuse(api.InvalidRequest, l.wrong.Field+": "+l.wrong.Message, *l.wrong)
	}
	if _, err := c.Runs(ctx, l.RunQuery); err != nil || l.event != "" { // with a limit of 0: whether the caller may
		return shown, err
	}
	counts, ok, err := c.CountRuns(ctx, l.RunQuery)
	if err != nil || !ok {
		return shown, err
	}
	shown.States = make(map[string]int64)
	for _, state := range terms.RunStates {
		switch {
		case l.none:
			shown.States[string(state)] = 0
		case len(l.States) == 0 || slices.Contains(l.States, state):
			shown.States[string(state)] = counts[state]
		}
	}
	return shown, nil
}
