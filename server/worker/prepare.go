package worker

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"triphammer/factory/native"
	"triphammer/server/githubapp"
	"triphammer/server/run"
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
	delivery := &store.Delivery{}
	if row.DeliveryID != 0 {
		if delivery, err = s.Deliveries.Get(ctx, row.DeliveryID); err != nil {
			return p, fmt.Errorf("the delivery that this run is to act on could not be read: %w", err)
		}
	}
	t := &task.Task{
		RunID: row.ID.String(), Attempt: row.Attempt, Workspace: row.ConversationID.String(), Resume: goesOn,
		Prompt: spec.WholePrompt(row.Webhook, row.DeliveryID.String(), delivery.Headers),
		Vars: map[string]string{
			"TRIPHAMMER_RUN_ID":          row.ID.String(),
			"TRIPHAMMER_CONVERSATION_ID": row.ConversationID.String(),
			"TRIPHAMMER_DELIVERY_ID":     row.DeliveryID.String(),
			"TRIPHAMMER_WEBHOOK":         row.Webhook,
			"TRIPHAMMER_AUTOMATION":      row.Automation,
		},
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
	unknown, head, err := a.head(ctx, row, spec)
	if err != nil {
		return p, err
	}
	p.warnings = append(p.warnings, spec.About(t, head, unknown)...)
	if err := a.credentials(t, spec.RepositorySecrets(), all); err != nil {
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
