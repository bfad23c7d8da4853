package worker

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"triphammer/factory/native"
	"triphammer/schema/output"
	"triphammer/server/githubapp"
	"triphammer/server/run"
	"triphammer/server/run/event"
	"triphammer/server/run/task"
	"triphammer/server/secret"
	"triphammer/server/store"
)

// Event is the content of the run.EventFile.
type Event struct {
	Webhook    string            `json:"webhook"`
	DeliveryID string            `json:"delivery_id"`
	Headers    map[string]string `json:"headers"`
}

func eventFile(webhook string, d *store.Delivery) task.Attachment {
	data, _ := json.MarshalIndent(Event{webhook, d.ID.String(), d.Headers}, "", "  ") // strings always encode
	return task.Attachment{Name: run.EventFile, Data: append(data, '\n')}
}

// commitAs makes the run the committer of its commits, unless the environment names a
// committer. So a push shows which run made it. Without another author, Git makes the
// committer the author (configureGit of package inside).
func commitAs(t *task.Task) {
	for _, name := range []string{"GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"} {
		if _, set := t.Secrets[name]; set || t.Env[name] != "" {
			return
		}
	}
	t.Vars["GIT_COMMITTER_NAME"], t.Vars["GIT_COMMITTER_EMAIL"] = "Triphammer", t.RunID+run.CommitterDomain
}

// inFactory sets the variable in which published definitions look for the factory of the run,
// unless the environment or a secret sets it. Without a factory it sets no variable.
func inFactory(t *task.Task, factory string) {
	const name = "WARP_FACTORY_ID"
	_, plain := t.Env[name]
	if _, set := t.Secrets[name]; factory != "" && !plain && !set {
		t.Vars[name] = factory
	}
}

// prepared is everything that a run needs.
type prepared struct {
	row      *store.Run
	spec     run.Spec      // with its meaning on this server
	warnings []string      // about parts that do not act here
	session  store.Session // the conversation that goes on; empty: a new one begins
	task     *task.Task    // nil with an error
}

// prepare reads everything that the run needs. An error is for the user.
func (a *attempt) prepare(ctx context.Context) (p prepared, err error) {
	s := a.manager.cfg.Store
	row, err := s.Runs.Get(ctx, a.lease.RunID)
	if err != nil {
		return p, fmt.Errorf("the run could not be read: %w", err)
	}
	p.row = row
	data, err := s.Specs.Get(ctx, row.SpecHash)
	if err != nil {
		return p, fmt.Errorf("the run's spec could not be read: %w", err)
	}
	spec := &p.spec
	*spec, err = run.DecodeSpec(data)
	if err != nil {
		return p, err
	}
	if spec.Problem != "" {
		return p, errors.New(spec.Problem)
	}
	can := a.manager.cfg.Capabilities
	goesOn := row.ConversationID != row.ID
	if goesOn {
		p.session, err = s.Conversations.SessionOf(ctx, row.ConversationID)
		if errors.Is(err, store.ErrNotFound) {
			return p, errors.New("the conversation has no session: its runs ended before an agent had begun one; start a new run")
		}
		if err != nil {
			return p, fmt.Errorf("the session of the conversation could not be read: %w", err)
		}
		can.DefaultHarness = p.session.Harness // a conversation stays with its agent
		if err := a.manager.hasWorkspace(ctx, row); err != nil {
			return p, err
		}
	}
	p.warnings = append(spec.WithoutEnvironment(), can.Adapt(spec)...)
	if err := spec.Plans(); err != nil {
		return p, err
	}
	if why := spec.Unreachable(); why != "" {
		return p, errors.New(why)
	}
	delivery, err := a.delivery(ctx, row, spec)
	if err != nil {
		return p, fmt.Errorf("the delivery that this run is to act on could not be read: %w", err)
	}
	t := &task.Task{
		RunID: row.ID.String(), Attempt: row.Attempt, Workspace: row.ConversationID.String(), Resume: goesOn,
		Prompt:      spec.WholePrompt(row.Webhook, row.DeliveryID.String(), delivery.Headers),
		Vars:        a.manager.vars(row, delivery),
		Attachments: spec.Attachments, Skills: spec.AskedElsewhere(),
	}
	all, err := a.secrets(ctx, spec.AllSecrets())
	if err != nil {
		return p, err
	}
	t.Secrets = chosen(all, spec.Secrets)
	for name, v := range t.Secrets {
		if githubapp.Is(v) {
			return p, errors.New(run.IsApp(name))
		}
	}
	maps.Copy(t.Secrets, workerSecrets(&can, spec))
	spec.Demand(t)
	t.Factory = row.Factory
	if t.Cache != nil {
		t.Cache.Scope = row.Factory + "/" + t.Cache.Scope
	}
	unknown, head, err := a.head(ctx, row, spec)
	if err != nil {
		return p, err
	}
	p.warnings = append(p.warnings, spec.About(t, head, unknown)...)
	if err := errors.Join(a.credentials(t, spec.RepositorySecrets(), all), a.outside(ctx, spec, t, all)); err != nil {
		return p, err
	}
	if err := a.earlierPushes(ctx, row, spec, t); err != nil {
		return p, err
	}
	if p.warnings, err = a.outputs(ctx, row.ID, spec, t, p.warnings); err != nil {
		return p, err
	}
	commitAs(t)
	inFactory(t, row.Factory)
	if spec.Skills, err = a.skills(ctx, spec.Skills); err != nil {
		return p, err
	}
	if row.DeliveryID != 0 {
		payload, err := s.Deliveries.Payload(ctx, row.DeliveryID)
		if err != nil {
			return p, fmt.Errorf("the payload that this run is to act on could not be read: %w", err)
		}
		t.Attachments = append(t.Attachments, task.Attachment{Name: run.PayloadFile, Data: payload}, eventFile(row.Webhook, delivery))
	}
	p.task = t
	return p, nil
}

// outside gives the task what its gateway adds outside the walls to requests to models and services.
func (a *attempt) outside(ctx context.Context, spec *run.Spec, t *task.Task, all map[string]secret.Value) error {
	found, err := a.manager.cfg.Store.Secrets.Newest(ctx, spec.OutsideSecrets())
	if err != nil {
		return fmt.Errorf("the secrets of MCP servers could not be read: %w", err)
	}
	for name, v := range found {
		all[name] = v.Value
	}
	spec.GatewaySecrets(t, all)
	for name, v := range t.Credentials {
		if githubapp.Is(v) {
			return errors.New(run.IsApp(name))
		}
	}
	return nil
}

// delivery is the one that started the run; empty: none did. The spec gets what the run replies to.
func (a *attempt) delivery(ctx context.Context, row *store.Run, spec *run.Spec) (d *store.Delivery, err error) {
	if row.DeliveryID == 0 {
		return &store.Delivery{}, nil
	}
	if d, err = a.manager.cfg.Store.Deliveries.Get(ctx, row.DeliveryID); err == nil {
		spec.Reply, err = run.Replied(ctx, a.manager.cfg.Store, row)
	}
	return d, err
}

// outputs gives the agent the tools with which it asks the server to do something (SPEC 23.2).
func (a *attempt) outputs(ctx context.Context, id store.RunID, spec *run.Spec, t *task.Task, warnings []string) ([]string, error) {
	if len(spec.Outputs) == 0 {
		return warnings, nil
	}
	place, err := a.manager.cfg.Store.Outputs.Place(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("where the outputs of this run go could not be read: %w", err)
	}
	if place == nil || place.Place == "" {
		why := "the run is about no event of a sender"
		if place != nil {
			why = place.Detail
		}
		spec.Outputs = nil
		return append(warnings, "outputs: the agent gets no tools for them: "+why), nil
	}
	may := make(output.Allowed)
	_, thread, of := place.About()
	for _, k := range output.Kinds {
		b, is := spec.Outputs[k.Name]
		switch {
		case !is || k.Needs[place.Provider] == "":
		case !k.Fits(thread, of):
			warnings = append(warnings, "outputs: the agent gets no tool "+k.Name+": the event is not about "+k.On)
		default:
			may[k.Name] = b
		}
	}
	spec.Outputs, t.Outputs = may, may
	if len(may) == 0 {
		return warnings, nil
	}
	t.Secrets[task.OutputsToken] = secret.New(rand.Text())
	spec.MCPServers = append(spec.MCPServers, run.MCPServer{
		Name: "triphammer", URL: task.OutputsURL, Headers: map[string]string{"Authorization": "Bearer ${" + task.OutputsToken + "}"},
	})
	if place.Detail != "" {
		warnings = append(warnings, "outputs: what the agent asks for is not done: "+place.Detail)
	}
	return warnings, nil
}

func (a *attempt) skills(ctx context.Context, skills []run.Skill) ([]run.Skill, error) {
	for i, s := range skills {
		skills[i].Files = make(map[string][]byte, len(s.Sums))
		for path, sum := range s.Sums {
			hash, err := hex.DecodeString(sum)
			if err == nil {
				skills[i].Files[path], err = a.manager.cfg.Store.Applies.File(ctx, hash)
			}
			if err != nil {
				return nil, fmt.Errorf("the file %s of the skill %s could not be read: %w", path, s.Name, err)
			}
		}
	}
	return skills, nil
}

func chosen(all map[string]secret.Value, names []string) map[string]secret.Value {
	some := make(map[string]secret.Value, len(names))
	for _, name := range names {
		some[name] = all[name]
	}
	return some
}

// secrets reads the newest value of each granted secret.
func (a *attempt) secrets(ctx context.Context, names []string) (map[string]secret.Value, error) {
	found, err := a.manager.cfg.Store.Secrets.Newest(ctx, names)
	if err != nil {
		return nil, fmt.Errorf("the granted secrets could not be read: %w", err)
	}
	values := make(map[string]secret.Value, len(names))
	var missing []string
	for _, name := range names {
		v, ok := found[name]
		if !ok {
			missing = append(missing, name)
			continue
		}
		if strings.ContainsRune(v.Value.Reveal(), 0) {
			return nil, fmt.Errorf("the secret %s holds a NUL byte, which no variable can: set it again without", name)
		}
		values[name] = v.Value
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("granted secrets are not set: %s; set each with `triphammer secrets set NAME`, or take it out of the definition",
			strings.Join(missing, ", "))
	}
	return values, nil
}

// hasWorkspace returns task.ErrNoWorkspace if the run goes on in a workspace that another worker
// has. A folder of the same name here may be left from an earlier attempt.
func (m *Manager) hasWorkspace(ctx context.Context, r *store.Run) error {
	if _, everywhere := m.outliving(); !m.cfg.Shared || everywhere {
		return nil
	}
	c, err := m.cfg.Store.Conversations.Get(ctx, r.ID)
	if err != nil {
		return fmt.Errorf("the conversation could not be read: %w", err)
	}
	c.Runs = slices.DeleteFunc(c.Runs, func(one *store.Run) bool { return one.ID >= r.ID })
	if last := run.LastStarted(c); last != nil && last.Worker != m.worker {
		return task.ErrNoWorkspace
	}
	return nil
}

// workerSecrets are the variables of this process for a run that asks for the worker's
// variables. They are credentials.
func workerSecrets(can *run.Capabilities, s *run.Spec) map[string]secret.Value {
	values := make(map[string]secret.Value)
	for _, name := range can.AgentEnv {
		if text := os.Getenv(name); s.Harness.AuthWorker && text != "" {
			values[name] = secret.New(text)
		}
	}
	return values
}

// pushes tells whether a run can push by its gateway.
func pushes(t *task.Task) bool {
	return slices.ContainsFunc(t.Repositories, func(r task.Repository) bool { return r.Secret != "" && !r.ReadOnly })
}

// earlierPushes finds what runs of the same automation, and earlier attempts of this run, pushed, if the
// run can push.
func (a *attempt) earlierPushes(ctx context.Context, row *store.Run, spec *run.Spec, t *task.Task) (err error) {
	t.Pushes.Outputs = spec.Outputs
	if len(spec.Outputs) > 0 {
		place, err := a.manager.cfg.Store.Outputs.Place(ctx, row.ID)
		if err != nil {
			return fmt.Errorf("where the outputs of this run go could not be read: %w", err)
		}
		if place != nil {
			t.Pushes.Into, _, _ = place.About()
			t.Pushes.Waits = cmp.Or(t.Pushes.Waits, place.Waits) // the server may ask for approval too
		}
		t.Pushes.Waits = cmp.Or(t.Pushes.Waits, a.manager.cfg.Store.Outputs.Approval()) // of a run from before it was so
	}
	if row.Automation == "" || !pushes(t) {
		return nil
	}
	m := a.manager
	if len(t.Pushes.Outputs) > 0 {
		asked, err := m.cfg.Store.Transcripts.OfKinds(ctx, row.ID, event.KindRequest)
		if err != nil {
			return fmt.Errorf("what earlier attempts asked for could not be read: %w", err)
		}
		for _, e := range asked {
			r, _ := decoded(e).(event.Request)
			if request, err := output.Parse([]byte(r.Request)); r.Done != "" && err == nil {
				t.Pushes.Opened = append(t.Pushes.Opened, request)
			}
		}
	}
	t.Pushes.Earlier, err = run.Pushed(ctx, m.cfg.Store, row.Factory, row.Automation, m.cfg.Now())
	return err
}

// head finds the code that the event of a run is about; nil: there is none, or no repository of the run
// wants it. A follow-up has the code of the first run of its conversation. unknown tells that the event of
// that run is not kept any more.
func (a *attempt) head(ctx context.Context, row *store.Run, spec *run.Spec) (unknown bool, head *native.Head, err error) {
	s := a.manager.cfg.Store
	if row.ConversationID != row.ID {
		if row, err = s.Runs.Get(ctx, row.ConversationID); err != nil {
			return false, nil, fmt.Errorf("the first run of the conversation could not be read: %w", err)
		}
	}
	sender := native.BySource(row.Source)
	if sender == nil || !sender.HasHeads() || !spec.Checkouts() {
		return false, nil, nil
	}
	if row.DeliveryID == 0 {
		return true, nil, nil
	}
	delivery, err := s.Deliveries.Get(ctx, row.DeliveryID)
	if err == nil {
		var payload []byte
		if payload, err = s.Deliveries.Payload(ctx, row.DeliveryID); err == nil {
			if h, ok := sender.Head(native.Delivery{Header: delivery.Headers, Body: payload}); ok {
				head = &h
			}
			return false, head, nil
		}
	}
	if errors.Is(err, store.ErrNotFound) {
		return true, nil, nil
	}
	return false, nil, fmt.Errorf("the event that the code of this run is of could not be read: %w", err)
}

// vars are the variables that tell a run who it is.
func (m *Manager) vars(r *store.Run, d *store.Delivery) map[string]string {
	vars := map[string]string{
		"TRIPHAMMER_RUN_ID":          r.ID.String(),
		"TRIPHAMMER_CONVERSATION_ID": r.ConversationID.String(),
		"TRIPHAMMER_DELIVERY_ID":     r.DeliveryID.String(),
		"TRIPHAMMER_WEBHOOK":         r.Webhook,
		"TRIPHAMMER_AUTOMATION":      r.Automation,
	}
	if m.cfg.TraceParent != nil {
		vars["TRACEPARENT"] = m.cfg.TraceParent(r, d.Headers)
	}
	return vars
}
