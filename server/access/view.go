package access

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"triphammer/applier"
	"triphammer/server/api"
	"triphammer/server/delivery"
	"triphammer/server/run"
	"triphammer/server/run/task"
	"triphammer/server/store"
)

// View is the part of the data that its caller may use. Things of other factories are not
// found.
type View struct {
	*Caller
	data *Data
}

// Whole is the store, for callers whose key is not limited to one factory, because secrets and
// keys belong to the whole server.
func (v *View) Whole() (*store.Store, error) {
	if v.Factory != "" {
		return nil, api.Refuse(api.NotAuthorized, "this concerns all factories, and the key is for one")
	}
	return v.data.cfg.Store, nil
}

// Workers are the processes that execute runs.
func (v *View) Workers(ctx context.Context) ([]*store.Worker, error) {
	return v.data.cfg.Runs.Workers(ctx)
}

// only is the factory to which a list is limited: the requested factory, or the caller's.
func (v *View) only(asked string) (string, error) {
	if asked != "" && !v.Touches(asked) {
		return "", api.Refuse(api.NotAuthorized, "the key is for another factory", api.FieldProblem{Field: "factory", Message: asked})
	}
	asked = cmp.Or(asked, v.Factory)
	return asked, nil
}

// find reads the row with an id, given as text. A row of a factory that the caller may not
// use is not found.
func find[Row any](
	ctx context.Context, v *View, kind, text string, read func(context.Context, store.ID[Row]) (*Row, error), of func(*Row) string,
) (*Row, error) {
	id, err := store.ParseID[Row](text)
	if err != nil {
		return nil, err
	}
	row, err := read(ctx, id)
	if err == nil && !v.Touches(of(row)) {
		err = fmt.Errorf("%s %s: %w", kind, text, store.ErrNotFound)
	}
	return row, err
}

// Audit records a change of state that the caller made (SPEC 10.4).
func (v *View) Audit(ctx context.Context, e store.AuditEntry) error {
	e.Actor = v.Name
	return v.data.cfg.Store.Audit.Add(ctx, e)
}

// Revisions are the live revisions of one factory, or of all if factory is empty.
func (v *View) Revisions(factory string) []*applier.Revision {
	return slices.DeleteFunc(v.data.cfg.Live.Revisions(), func(r *applier.Revision) bool {
		return !v.Touches(r.Factory) || factory != "" && factory != r.Factory
	})
}

// LiveWebhook is a webhook as it serves, nil if it does not.
func (v *View) LiveWebhook(factory, name string) *applier.Webhook {
	for _, r := range v.Revisions(factory) {
		for _, w := range r.Webhooks {
			if w.Def.Name == name {
				return w
			}
		}
	}
	return nil
}

// Factory is a factory of this server.
type Factory struct {
	*applier.Applier
	Name string
	data *Data
}

// Factories are the factories that the caller may use.
func (v *View) Factories() []Factory {
	var all []Factory
	for _, a := range v.data.factories() {
		if name := a.State().Factory; v.Touches(name) {
			all = append(all, Factory{a, name, v.data})
		}
	}
	return all
}

// SecretSet tells the factories that a secret has a new generation.
func (v *View) SecretSet(name string) {
	for _, f := range v.Factories() {
		f.SecretSet(name)
	}
}

// FactoryNamed finds a factory by its name.
func (v *View) FactoryNamed(name string) (Factory, error) {
	var names []string
	for _, f := range v.Factories() {
		if f.Name == name {
			return f, nil
		}
		names = append(names, f.Name)
	}
	return Factory{}, api.Refuse(api.NotFound, api.NoneNamed("factory", name, names))
}

// Pause pauses a webhook or an automation of the factory until it is resumed, or until the
// time of p.
func (f Factory) Pause(ctx context.Context, p store.Pause) (store.Pause, error) {
	p.Factory = f.Name
	if err := f.has(p.Pausable); err != nil {
		return p, err
	}
	return f.data.cfg.Store.Pauses.Pause(ctx, p)
}

// Resume ends the pause of a webhook or an automation.
func (f Factory) Resume(ctx context.Context, kind, name string) error {
	return f.data.cfg.Store.Pauses.Resume(ctx, store.Pausable{Kind: kind, Factory: f.Name, Name: name})
}

// has returns an error unless the factory has the webhook or automation.
func (f Factory) has(what store.Pausable) error {
	if slices.Contains(f.names(what.Kind), what.Name) {
		return nil
	}
	return f.NoneNamed(what.Kind, what.Name)
}

// NoneNamed is the refusal of a name that no live webhook or automation of the factory has.
func (f Factory) NoneNamed(kind, name string) error {
	return api.Refuse(api.NotFound, "in the factory "+f.Name+", "+api.NoneNamed(kind, name, f.names(kind)))
}

// names are the names of the live webhooks or automations.
func (f Factory) names(kind string) (names []string) {
	for _, r := range f.data.cfg.Live.Revisions() {
		switch {
		case r.Factory != f.Name:
		case kind == store.KindWebhook:
			for _, w := range r.Webhooks {
				names = append(names, w.Def.Name)
			}
		default:
			for _, a := range r.Automations {
				names = append(names, a.Def.Name)
			}
		}
	}
	return names
}

// Pauses are the pauses of the factory, sorted by kind and name.
func (f Factory) Pauses() []store.Pause { return f.data.cfg.Store.Pauses.List(f.Name) }

// CannotSend says why no test can be sent to a webhook of the view; empty: a test can be sent.
func (v *View) CannotSend(w *applier.Webhook) string { return v.data.cfg.Delivery.CannotSend(w) }

// SendTest sends a test to a webhook of the factory, as delivery.SendTest.
func (f Factory) SendTest(ctx context.Context, w *applier.Webhook, t delivery.Test) (delivery.Answer, error) {
	return f.data.cfg.Delivery.SendTest(ctx, w, t)
}

// Credential is what the sender of a webhook of the factory says of its credential, as delivery.Credential.
func (f Factory) Credential(ctx context.Context, w *applier.Webhook) (delivery.Account, error) {
	return f.data.cfg.Delivery.Credential(ctx, w)
}

// LastApply is the newest apply of any outcome. The error is store.ErrNotFound if there is
// none.
func (f Factory) LastApply(ctx context.Context) (*store.Apply, error) {
	return f.data.cfg.Store.Applies.Last(ctx, f.Name, "")
}

// Unanswered are the newest answers of the factory's runs that could not be told in the last week
// (SPEC 22.5).
func (f Factory) Unanswered(ctx context.Context, now time.Time, limit int) ([]store.Answer, error) {
	return f.data.cfg.Store.Answers.Failed(ctx, f.Name, now.Add(-7*24*time.Hour), limit)
}

// Undone are the newest outputs of the factory's runs that could not be done in the last week (SPEC 23.2).
func (f Factory) Undone(ctx context.Context, now time.Time, limit int) ([]store.Output, error) {
	return f.data.cfg.Store.Outputs.Failed(ctx, f.Name, now.Add(-7*24*time.Hour), limit)
}

// SameBodies counts the factory's deliveries of the last 24 hours whose signed body had come before, and names the newest
// (SPEC 5.13).
func (f Factory) SameBodies(ctx context.Context, now time.Time) (n int64, newest store.DeliveryID, err error) {
	return f.data.cfg.Store.Deliveries.SameBodies(ctx, f.Name, now.Add(-24*time.Hour))
}

// Asked are the newest questions of the factory's runs that wait for a reply, of the last week (SPEC 26.3).
func (f Factory) Asked(ctx context.Context, limit int) ([]store.Output, error) {
	return f.data.cfg.Store.Outputs.Asked(ctx, f.Name, limit)
}

// FirstApply is when the first apply of any outcome began. The error is store.ErrNotFound
// if there is none.
func (f Factory) FirstApply(ctx context.Context) (time.Time, error) {
	return f.data.cfg.Store.Applies.First(ctx, f.Name, "")
}

// SetPin pins the factory to a commit that was applied before. p.Commit may be the
// beginning of its hash; the returned pin has the whole hash. The next apply makes the
// commit serve.
func (f Factory) SetPin(ctx context.Context, p applier.Pin) (applier.Pin, error) {
	past, err := f.data.cfg.Store.Applies.Commit(ctx, f.Name, p.Commit)
	if err != nil {
		return p, err
	}
	p.Commit = past.Commit
	if err := f.data.cfg.Store.Pins.Set(ctx, f.Name, store.Pin(p)); err != nil {
		return p, err
	}
	f.Applier.SetPin(&p)
	return p, nil
}

// Unpin removes the pin and returns it. The error is store.ErrNotFound if there is none.
func (f Factory) Unpin(ctx context.Context) (store.Pin, error) {
	p, err := f.data.cfg.Store.Pins.Of(ctx, f.Name)
	if err == nil {
		err = f.data.cfg.Store.Pins.Delete(ctx, f.Name)
	}
	if err == nil {
		f.Applier.SetPin(nil)
	}
	return p, err
}

// Apply is a recorded apply.
type Apply struct {
	*store.Apply
	data *Data
}

// Applies lists applies, the newest first.
func (v *View) Applies(ctx context.Context, q store.ApplyQuery) (all []*store.Apply, err error) {
	if q.Factory, err = v.only(q.Factory); err != nil {
		return nil, err
	}
	return v.data.cfg.Store.Applies.List(ctx, q)
}

// Apply finds an apply by its id. If id is a commit, it is the newest apply that made the
// commit live in the factory.
func (v *View) Apply(ctx context.Context, id, factory string) (Apply, error) {
	if !strings.HasPrefix(id, "apl_") {
		a, err := v.data.cfg.Store.Applies.Commit(ctx, cmp.Or(v.Factory, factory), id)
		if err != nil {
			return Apply{}, err
		}
		id = a.ID.String() // read it again by its id, with its bindings
	}
	a, err := find(ctx, v, "apply", id, v.data.cfg.Store.Applies.Get, func(a *store.Apply) string { return a.Factory })
	return Apply{a, v.data}, err
}

// Files are the definition files of the apply.
func (a Apply) Files(ctx context.Context) ([]store.File, error) {
	return a.data.cfg.Store.Applies.Files(ctx, a.ID)
}

// Revision rebuilds the revision that the apply made live.
func (a Apply) Revision(ctx context.Context) (*applier.Revision, error) {
	if a.Outcome != string(applier.Applied) {
		return nil, api.Refuse(api.Conflict, "apply "+a.ID.String()+" was "+a.Outcome+": it made nothing live")
	}
	return a.data.cfg.Load(ctx, a.ID)
}

// Delivery is a recorded delivery.
type Delivery struct {
	*store.Delivery
	data *Data
}

// Deliveries lists deliveries, the newest first.
func (v *View) Deliveries(ctx context.Context, q store.DeliveryQuery) (all []*store.Delivery, err error) {
	if q.Factory, err = v.only(q.Factory); err != nil {
		return nil, err
	}
	return v.data.cfg.Store.Deliveries.List(ctx, q)
}

// About says what deliveries that the caller may see are about, as delivery.Service.About.
func (v *View) About(ctx context.Context, all []*store.Delivery) (map[store.DeliveryID]delivery.About, error) {
	return v.data.cfg.Delivery.About(ctx, all)
}

// SearchDeliveries lists those that a text is in, as store.Deliveries.Search.
func (v *View) SearchDeliveries(ctx context.Context, q store.DeliveryQuery) (found []*store.Delivery, next store.DeliveryID, err error) {
	if q.Factory, err = v.only(q.Factory); err != nil {
		return nil, 0, err
	}
	return v.data.cfg.Store.Deliveries.Search(ctx, q)
}

// Subjects lists what events are about, as store.Subjects.List.
func (v *View) Subjects(ctx context.Context, q store.SubjectQuery) (all []store.Subject, err error) {
	if q.Factory, err = v.only(q.Factory); err != nil {
		return nil, err
	}
	return v.data.cfg.Store.Subjects.List(ctx, q)
}

// SubjectPullRequests are the links to pull requests that runs about a subject left, the newest first.
func (v *View) SubjectPullRequests(ctx context.Context, factory, subject string, limit int) (all []*store.Artifact, err error) {
	if factory, err = v.only(factory); err != nil {
		return nil, err
	}
	return v.data.cfg.Store.Subjects.PullRequests(ctx, factory, subject, limit)
}

// Figures calls the functions with the figures of one factory, or of all, by hour or day since a
// time, as store.Figures does. It tells whether everything is counted. With wait, it waits until
// everything is.
func (v *View) Figures(
	ctx context.Context, since time.Time, byDay bool, factory string, wait bool, delivery func(store.DeliveryFigure), run func(store.RunFigure),
) (complete bool, err error) {
	if factory, err = v.only(factory); err != nil {
		return false, err
	}
	if err := v.data.figures.Catch(ctx, wait); err != nil {
		return false, err
	}
	return v.data.figures.Each(since, byDay, func(d store.DeliveryFigure) {
		if factory == "" || d.Factory == factory {
			delivery(d)
		}
	}, func(r store.RunFigure) {
		if factory == "" || r.Factory == factory {
			run(r)
		}
	}), nil
}

// ModelUsage is what runs of one factory, or of all, used of models from the day of a time on.
func (v *View) ModelUsage(ctx context.Context, since time.Time, factory string) ([]store.DayUsage, error) {
	factory, err := v.only(factory)
	if err != nil {
		return nil, err
	}
	return v.data.cfg.Store.Usage.Daily(ctx, since, factory)
}

// Spent is what the runs that ended in a time used and left, as store.Usage.Spent.
func (v *View) Spent(ctx context.Context, since, until time.Time, factory string) ([]store.Spent, error) {
	factory, err := v.only(factory)
	if err != nil {
		return nil, err
	}
	return v.data.cfg.Store.Usage.Spent(ctx, since, until, factory)
}

// Delivery finds a delivery.
func (v *View) Delivery(ctx context.Context, id string) (Delivery, error) {
	d, err := find(ctx, v, "delivery", id, v.data.cfg.Store.Deliveries.Get, func(d *store.Delivery) string { return d.Factory })
	return Delivery{d, v.data}, err
}

// Payload is the body of the delivery.
func (d Delivery) Payload(ctx context.Context) ([]byte, error) {
	return d.data.cfg.Store.Deliveries.Payload(ctx, d.ID)
}

// Trace says which stage the delivery reached, and why it stopped there.
func (d Delivery) Trace(ctx context.Context) (*delivery.Trace, error) {
	return d.data.cfg.Delivery.Show(ctx, d.ID)
}

// Runs are the runs that the delivery started and that are still stored.
func (d Delivery) Runs(ctx context.Context) ([]Run, error) {
	var all []Run
	for _, ref := range d.Delivery.Runs {
		r, err := d.data.cfg.Store.Runs.Get(ctx, ref.ID)
		if errors.Is(err, store.ErrNotFound) {
			continue // deleted with its age meanwhile
		}
		if err != nil {
			return nil, err
		}
		all = append(all, Run{r, d.data})
	}
	return all, nil
}

// Replay starts the automations that match the delivery now.
func (d Delivery) Replay(ctx context.Context) (store.Recorded, error) {
	return d.data.cfg.Delivery.Replay(ctx, d.ID)
}

// TestFilter evaluates a filter or an automation on a stored delivery or on a given
// payload.
func (v *View) TestFilter(ctx context.Context, req delivery.TestRequest) (delivery.TestResult, error) {
	if req.DeliveryID != 0 {
		if _, err := v.Delivery(ctx, req.DeliveryID.String()); err != nil {
			return delivery.TestResult{}, err
		}
	}
	if !v.Touches(req.Factory) {
		return delivery.TestResult{}, api.Refuse(api.NotAuthorized, "the key is for another factory")
	}
	return v.data.cfg.Delivery.TestFilter(ctx, req)
}

// Warnings returns the function that warns of an automation of the revision: which parts of its
// definition cannot act on this server. The function's result is never nil.
func (v *View) Warnings(ctx context.Context, r *applier.Revision) func(*applier.Automation) []string {
	of := v.data.cfg.Runs.Warnings(ctx, r.Definition)
	return func(a *applier.Automation) []string { return of(a.Def) }
}

// Runs lists runs. With a limit of 0 it only checks whether the caller may list them.
func (v *View) Runs(ctx context.Context, q store.RunQuery) ([]Run, error) {
	if only := v.Factory; only != "" {
		if slices.ContainsFunc(q.Factories, func(f string) bool { return f != only }) {
			return nil, api.Refuse(api.NotAuthorized, "the key is for another factory",
				api.FieldProblem{Field: "factory", Message: strings.Join(q.Factories, ", ")})
		}
		q.Factories = []string{only}
	}
	if q.Limit == 0 {
		return nil, nil
	}
	found, err := v.data.cfg.Store.Runs.List(ctx, q)
	all := make([]Run, len(found))
	for i, r := range found {
		all[i] = Run{r, v.data}
	}
	return all, err
}

// CountRuns is how many runs of each state a query selects, as store.Runs.Count.
func (v *View) CountRuns(ctx context.Context, q store.RunQuery) (counts map[store.RunState]int64, ok bool, err error) {
	if v.Factory != "" {
		q.Factories = []string{v.Factory} // Runs refuses others
	}
	return v.data.cfg.Store.Runs.Count(ctx, q)
}

// Run finds a run.
func (v *View) Run(ctx context.Context, id string) (Run, error) {
	r, err := find(ctx, v, "run", id, v.data.cfg.Store.Runs.Get, func(r *store.Run) string { return r.Factory })
	return Run{r, v.data}, err
}

// OwnRun is for a run that the server has read itself, not for a caller.
func (d *Data) OwnRun(r *store.Run) Run { return Run{r, d} }

// Artifact is an artifact of a run that the caller may see.
type Artifact struct {
	*store.Artifact
	data *Data
}

// Artifact finds an artifact. A caller who may see its run may see it.
func (v *View) Artifact(ctx context.Context, id string) (found Artifact, err error) {
	uid, err := store.ParseID[store.Artifact](id)
	if err != nil {
		return found, err
	}
	row, err := v.data.cfg.Store.Artifacts.Get(ctx, uid)
	if err != nil {
		return found, err
	}
	r, err := v.data.cfg.Store.Runs.Get(ctx, row.RunID)
	if err == nil && !v.Touches(r.Factory) {
		err = fmt.Errorf("artifact %s: %w", id, store.ErrNotFound)
	}
	return Artifact{row, v.data}, err
}

// RunByReference finds the first run that left a link, among the runs that the caller may see.
func (v *View) RunByReference(ctx context.Context, url string) (found Run, err error) {
	r, err := v.data.cfg.Store.Artifacts.RunByReference(ctx, url, v.Factory)
	return Run{r, v.data}, err
}

// Open opens the content of the artifact.
func (a Artifact) Open(ctx context.Context) (io.ReadCloser, error) {
	return a.data.cfg.Store.Artifacts.Open(ctx, a.Artifact)
}

// Subjects are what runs are about that have no subject of their own, by the id of the run: what
// their deliveries are about. A run that is not in the index of subjects yet has none.
func Subjects(ctx context.Context, runs ...Run) (map[store.RunID][]string, error) {
	var without []store.RunID
	for _, r := range runs {
		if r.Subject == "" && (r.DeliveryID != 0 || r.ConversationID != r.ID) {
			without = append(without, r.ID)
		}
	}
	if len(without) == 0 {
		return nil, nil
	}
	return runs[0].data.cfg.Store.Subjects.Of(ctx, without...)
}

// Cancel asks for the end of a run.
func (v *View) Cancel(ctx context.Context, r Run) error {
	return v.data.cfg.Runs.Cancel(ctx, r.ID, v.caller().CreatorName)
}

// Interrupt asks for the end of a run's turn. Its conversation can go on.
func (v *View) Interrupt(ctx context.Context, r Run) error {
	return v.data.cfg.Runs.Interrupt(ctx, r.ID, v.caller().CreatorName)
}

// Conversation finds the runs of a conversation by the id of one of them, the oldest first.
func (v *View) Conversation(ctx context.Context, id string) ([]Run, error) {
	r, err := v.Run(ctx, id)
	if err != nil {
		return nil, err
	}
	found, err := v.data.cfg.Store.Conversations.Get(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	all := make([]Run, len(found.Runs))
	for i, r := range found.Runs {
		all[i] = Run{r, v.data}
	}
	return all, nil
}

// Continue makes a run from a request that goes on in the conversation of a run. It does
// not store it.
func (v *View) Continue(ctx context.Context, of Run, req run.Request) (store.NewRun, error) {
	req.Caller = v.caller()
	return v.data.cfg.Runs.Continue(ctx, of.Run, req)
}

// Retry makes a run that does again what a run did, as run.FromRun. It does not store it.
func (v *View) Retry(ctx context.Context, of Run, resume bool) (store.NewRun, error) {
	return v.data.cfg.Runs.Retry(ctx, of.Run, v.caller(), resume)
}

func (v *View) caller() run.Caller {
	kind, name := v.Creator()
	return run.Caller{CreatorKind: kind, CreatorName: name, Factory: v.Factory}
}

// NewRun makes a run from a request, with the caller as its creator. It does not store it.
func (v *View) NewRun(ctx context.Context, req run.Request) (store.NewRun, error) {
	req.Caller = v.caller()
	return v.data.cfg.Runs.FromRequest(ctx, v.data.cfg.Live, req)
}

// CreateRun stores a run that NewRun made. With the same key and the same body it creates
// the run only once. key may be empty. full tells that the run has to wait, because the
// limit of runs in progress is reached.
func (v *View) CreateRun(ctx context.Context, r store.NewRun, key string, body []byte) (made *store.Run, created, full bool, err error) {
	if _, err := v.only(r.Factory); err != nil {
		return nil, false, false, err
	}
	if key != "" {
		key = cmp.Or(v.KeyID.String(), v.Name) + "\x00" + key
	}
	until, err := v.data.cfg.Runs.CheckBudget(ctx)
	if errors.Is(err, task.ErrBudget) {
		err = api.Refuse(api.BudgetExceeded, err.Error()+"; the next day begins at "+until.Format(time.RFC3339))
	}
	if err != nil {
		return nil, false, false, err
	}
	made, created, err = v.data.cfg.Store.Runs.Create(ctx, r, key, body)
	full = v.data.cfg.Runs.AtCapacity(ctx)
	if created {
		v.data.cfg.Runs.Wake()
	}
	return made, created, full, err
}

// Schedule is a schedule.
type Schedule struct {
	*store.Schedule
	data *Data
}

// Schedules lists schedules.
func (v *View) Schedules(ctx context.Context, factory string) ([]*store.Schedule, error) {
	factory, err := v.only(factory)
	if err != nil {
		return nil, err
	}
	return v.data.cfg.Store.Schedules.List(ctx, factory)
}

// Schedule finds a schedule.
func (v *View) Schedule(ctx context.Context, id string) (Schedule, error) {
	n, err := find(ctx, v, "schedule", id, v.data.cfg.Store.Schedules.Get, func(n *store.Schedule) string { return n.Factory })
	return Schedule{n, v.data}, err
}

// CreateSchedule stores a new schedule.
func (v *View) CreateSchedule(ctx context.Context, n store.Schedule) (*store.Schedule, error) {
	if _, err := v.only(n.Factory); err != nil {
		return nil, err
	}
	return v.data.cfg.Store.Schedules.Create(ctx, n)
}

// Update replaces the schedule with to. The id and the factory stay.
func (n Schedule) Update(ctx context.Context, to store.Schedule) (*store.Schedule, error) {
	to.ID, to.Factory = n.ID, n.Factory
	return n.data.cfg.Store.Schedules.Update(ctx, to)
}

// Delete deletes the schedule.
func (n Schedule) Delete(ctx context.Context) error {
	return n.data.cfg.Store.Schedules.Delete(ctx, n.ID)
}
