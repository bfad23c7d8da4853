package run

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"triphammer/applier"
	"triphammer/factory"
	"triphammer/schema"
	"triphammer/server/run/task"
	"triphammer/server/store"
	"triphammer/server/terms"
	"triphammer/server/worker/harness"
)

// Limits of what a run is created with.
const (
	MaxTitle = 200 // characters

	maxAttachments  = 5
	maxMetadata     = 20
	maxMetadataName = 64  // bytes
	maxMetadataText = 256 // bytes
	maxDepth        = 10  // length of a chain of runs that each asked for the next
)

// FromAutomation makes the run of an automation, which a delivery or a tick of a
// schedule starts.
func FromAutomation(r *applier.Revision, a *applier.Automation, source string) store.NewRun {
	made := store.NewRun{
		Factory: r.Factory, Automation: a.Def.Name, Source: source, Title: a.Def.Name, CreatorKind: "automation", CreatorName: a.Def.Name,
		Commit: r.Commit.Hash, SpecHash: a.SpecHash, MaxPerHour: a.Def.MaxRunsPerHour, MaxPerPerson: a.Def.MaxPerPerson,
		Overflow: a.Def.Overflow, PerSubject: a.Def.PerSubject, Settle: a.Def.Settle,
	}
	if a.Def.Approval.Start {
		made.Approval = &store.NewApproval{For: a.Def.Approval.Timeout}
	}
	return made
}

// ByHand asks for a run of an automation, as if it had been triggered.
type ByHand struct {
	Caller  Caller
	Title   string // empty: the automation's name
	Prompt  string // comes after the prompt of the automation
	Payload []byte // JSON, like the body of a delivery; nil: there is none
}

// FromHand makes the run of an automation that a person starts. A request that cannot be met
// is a *RefusedError.
func FromHand(r *applier.Revision, a *applier.Automation, req ByHand) (store.NewRun, error) {
	made := FromAutomation(r, a, store.SourceAPI)
	made.CreatorKind, made.CreatorName = req.Caller.CreatorKind, req.Caller.CreatorName
	made.Approval = nil // whoever starts it has approved it by that
	if title := (&Request{Title: req.Title}).title(); title != "" {
		made.Title = title
	}
	if made.Priority = (&Request{Caller: req.Caller}).priority(); req.Prompt == "" && req.Payload == nil {
		return made, nil // with the spec that is already stored
	}
	spec, err := DecodeSpec(a.Spec)
	if err != nil {
		return store.NewRun{}, err
	}
	spec.Prompt = strings.TrimSpace(spec.Prompt + "\n\n" + req.Prompt)
	if req.Payload != nil {
		spec.Prompt += "\n\n" + handEnvelope
		spec.Attachments = append(spec.Attachments, task.Attachment{Name: PayloadFile, Data: req.Payload})
	}
	if made.Spec, err = spec.Encode(); err != nil {
		return store.NewRun{}, err
	}
	made.SpecHash, made.Search = sha256.Sum256(made.Spec), []string{made.Title, req.Prompt}
	return made, nil
}

// Caller is who asks for a run.
type Caller struct {
	CreatorKind, CreatorName string // the owner of the run: user or agent, and the name
	Factory                  string // the only factory that the caller may touch; empty: any
}

func (c Caller) mayTouch(factory string) bool { return c.Factory == "" || c.Factory == factory }

// Request asks for a run that no automation starts (SPEC 9.7).
type Request struct {
	Caller Caller
	// Factory resolves names that do not name their factory; empty: any factory that has
	// them does.
	Factory string

	Title       string          // empty: the first line of the prompt
	Prompt      string          // may be empty with Skills
	Skills      []WantedSkill   // skills that the agent must work by, in this order
	Mode        string          // ModePlan; empty: normal
	BasePrompt  string          // comes before the prompt
	Agent       string          // NAME or FACTORY/NAME; empty: no agent of the definitions
	Environment string          // NAME or FACTORY/NAME; empty: the agent's or the factory's
	Runner      string          // empty: the agent's or the factory's
	Harness     factory.Harness // fields that are set win over the agent's or the factory's
	MCPServers  []MCPServer     // besides the servers of the definitions; they win over servers of the same name
	Worker      string          // the worker that the run waits for; empty: the agent's or the factory's
	// AuthSecrets are the granted secrets that are credentials, by the harness that needs them.
	AuthSecrets map[string]string
	Config      json.RawMessage // as posted, kept to be shown again
	Parent      store.RunID     // the run that asks for this run; 0: no run does
	Metadata    map[string]string
	Attachments []task.Attachment
	Interactive bool          // somebody wants to go on with the conversation
	Keep        time.Duration // how long the files stay after the run's end; 0: as long as the server's setting
	Priority    *int64        // from -MaxPriority to MaxPriority; nil: PeoplesPriority for people, else 0
}

const (
	// ModePlan is the mode of a run that makes a plan and changes nothing.
	ModePlan = "plan"
	// NoEnvironment as a Request.Environment means no environment, whatever the definitions say.
	NoEnvironment = "empty-environment"
)

// Priorities of runs. Queued runs of a higher priority start first. Runs of automations and
// schedules have the priority 0.
const (
	MaxPriority     = 10
	PeoplesPriority = 1 // of runs that people start, because somebody waits for them
)

func (req *Request) priority() int64 {
	switch {
	case req.Priority != nil:
		return *req.Priority
	case req.Caller.CreatorKind == "user":
		return PeoplesPriority
	}
	return 0
}

// RefusedError says why a request makes no run.
type RefusedError struct {
	Field   string // name of the wrong field in the run API; empty: no single field is wrong
	Message string // what is wrong with the field
	Detail  string // what is wrong as a whole; empty: Field and Message say it

	Unsupported bool // the run's agent cannot do what the request asks for
	Conflict    bool // the state of a run does not allow it
}

func (e *RefusedError) Error() string { return cmp.Or(e.Detail, e.Field+" "+e.Message) }

func refuse(field, format string, args ...any) *RefusedError {
	return &RefusedError{Field: field, Message: fmt.Sprintf(format, args...)}
}

// FromRequest makes the run that a request asks for, from the live definitions. A request
// that cannot be met is a *RefusedError.
func FromRequest(ctx context.Context, st *store.Store, live *applier.Live, req Request) (store.NewRun, error) {
	r, _, err := fromRequest(ctx, st, live, &req)
	return r, err
}

// FromRequest does what the function FromRequest does, and also refuses requests that this
// server cannot meet.
func (d *Desk) FromRequest(ctx context.Context, live *applier.Live, req Request) (store.NewRun, error) {
	r, spec, err := fromRequest(ctx, d.cfg.Store, live, &req)
	if err == nil {
		err = d.refuses(&req, spec)
	}
	for _, name := range spec.Secrets {
		if _, isApp := d.look(ctx, name); err == nil && isApp {
			err = &RefusedError{Detail: IsApp(name)}
		}
	}
	return r, err
}

func fromRequest(ctx context.Context, st *store.Store, live *applier.Live, req *Request) (r store.NewRun, spec Spec, err error) {
	if err := req.check(); err != nil {
		return r, spec, err
	}
	revision, spec, err := req.resolve(live)
	if err != nil {
		return r, spec, err
	}
	if err := spec.ask(ctx, st, req.Skills); err != nil {
		return r, spec, err
	}
	metadata, err := req.inherit(ctx, st)
	if err != nil {
		return r, spec, err
	}
	encoded, err := spec.Encode()
	if err != nil {
		return r, spec, err
	}
	title := req.title()
	return store.NewRun{
		Factory: revision.Factory, Source: store.SourceAPI, Title: title, CreatorKind: req.Caller.CreatorKind, CreatorName: req.Caller.CreatorName,
		Commit: revision.Commit.Hash, SpecHash: sha256.Sum256(encoded), Spec: encoded, ParentID: req.Parent, Metadata: metadata,
		Search: []string{title, req.Prompt}, Priority: req.priority(),
	}, spec, nil
}

// FromSchedule makes the run of a schedule that the API made, as if its creator sent the
// schedule's request now.
func FromSchedule(ctx context.Context, st *store.Store, live *applier.Live, n *store.Schedule, req Request) (store.NewRun, error) {
	req.Caller = Caller{CreatorKind: n.CreatorKind, CreatorName: n.CreatorName, Factory: n.Factory}
	r, err := FromRequest(ctx, st, live, req)
	r.Source, r.Title, r.Search = store.SourceSchedule, n.Name, append(r.Search, n.Name)
	if req.Priority == nil {
		r.Priority = 0 // nobody waits for it
	}
	return r, err
}

func (req *Request) check() error {
	if strings.TrimSpace(req.Prompt) == "" && len(req.Skills) == 0 {
		return &RefusedError{Field: "prompt", Message: "is required", Detail: "prompt is missing"}
	}
	if p := req.Priority; p != nil && (*p < -MaxPriority || *p > MaxPriority) {
		return refuse("priority", "is a number from -%d to %d", MaxPriority, MaxPriority)
	}
	if refused := CheckMetadata(req.Metadata); refused != nil {
		return refused
	}
	if len(req.Attachments) > maxAttachments {
		return refuse("attachments", "are at most %d", maxAttachments)
	}
	taken := make(map[string]bool)
	for i, a := range req.Attachments {
		field := fmt.Sprintf("attachments[%d].file_name", i)
		switch name := a.Name; {
		case name == "" || name == "." || name == ".." || len(name) > 255 || strings.ContainsAny(name, "/\\\x00") || !utf8.ValidString(name):
			return refuse(field, "is a plain file name of at most 255 bytes")
		case taken[name]:
			return refuse(field, "is there twice")
		}
		taken[a.Name] = true
	}
	return nil
}

var metadataName = regexp.MustCompile(`^[a-zA-Z0-9._-]+$`)

// CheckMetadata says what is wrong with the metadata of a run; nil: nothing is.
func CheckMetadata(metadata map[string]string) *RefusedError {
	if len(metadata) > maxMetadata {
		return refuse("metadata", "has at most %d keys", maxMetadata)
	}
	for name, value := range metadata {
		switch {
		case len(name) > maxMetadataName || !metadataName.MatchString(name):
			return refuse("metadata", "has keys of 1 to %d of a-z, A-Z, 0-9, dot, _ and -", maxMetadataName)
		case len(value) > maxMetadataText || !utf8.ValidString(value) || strings.ContainsRune(value, 0):
			return refuse("metadata."+name, "has at most %d bytes of UTF-8, without NUL", maxMetadataText)
		}
	}
	return nil
}

// title is the first line of the title or the prompt, cut to what a list shows.
func (req *Request) title() string {
	text := cmp.Or(strings.TrimSpace(req.Title), strings.TrimSpace(req.Prompt))
	if text == "" && len(req.Skills) > 0 {
		text = req.Skills[0].Text
	}
	title, _, _ := strings.Cut(text, "\n")
	if utf8.RuneCountInString(title) > MaxTitle {
		title = string([]rune(title)[:MaxTitle-1]) + "…"
	}
	return title
}

// resolve finds everything that the request names, in one factory.
func (req *Request) resolve(live *applier.Live) (*applier.Revision, Spec, error) {
	owner, name, qualified := strings.Cut(req.Agent, "/")
	if !qualified {
		owner, name = req.Factory, req.Agent
	}
	r, environment, err := req.environment(live, owner)
	if err != nil {
		return nil, Spec{}, err
	}
	agent := r.Definition.Agent(name)
	if req.Agent != "" && (agent == nil || qualified && owner != r.Factory) {
		return nil, Spec{}, refuse("agent_identity_uid", "names no agent of the factory %s", r.Factory)
	}
	if req.Runner != "" && r.Definition.Runner(req.Runner) == nil {
		return nil, Spec{}, refuse("config.runner_id", "names no runner of the factory %s", r.Factory)
	}
	spec, err := req.spec(r.Definition, environment, agent)
	return r, spec, err
}

// environment finds the factory and the name of the environment. If within names a factory,
// only that factory is searched for a bare name.
func (req *Request) environment(live *applier.Live, within string) (*applier.Revision, string, error) {
	const field = "config.environment_id"
	owner, name, qualified := strings.Cut(req.Environment, "/")
	switch {
	case req.Environment == NoEnvironment:
		owner, name = within, ""
	case !qualified:
		owner, name = within, req.Environment
	case owner == "" || name == "":
		return nil, "", refuse(field, "%q is not NAME or FACTORY/NAME", req.Environment)
	}
	serving := live.Revisions()
	var found []*applier.Revision
	var names []string
	for _, r := range serving {
		if !req.Caller.mayTouch(r.Factory) || owner != "" && owner != r.Factory {
			continue
		}
		if name == "" || r.Definition.Environment(name) != nil {
			found = append(found, r)
		}
		for _, e := range r.Definition.Environments {
			names = append(names, e.Name)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], name, nil
	case len(found) > 1 && name == "":
		return nil, "", refuse(field, "is missing, and there are several factories")
	case len(found) > 1:
		return nil, "", refuse(field, "%q is in several factories: write FACTORY/%s", name, name)
	case len(serving) == 0:
		return nil, "", refuse(field, "names nothing: no definitions serve yet (triphammer status)")
	case name == "":
		return nil, "", refuse(field, "is missing, and there is no factory %q", owner)
	}
	said := fmt.Sprintf("%q is no environment here; %s", req.Environment, schema.OneOf(name, names))
	return nil, "", refuse(field, "%s", strings.TrimSuffix(said, "; "))
}

// inherit finds the parent, and its metadata under the run's own.
func (req *Request) inherit(ctx context.Context, st *store.Store) (map[string]string, error) {
	if req.Parent == 0 {
		return req.Metadata, nil
	}
	depth := 0
	for id := req.Parent; id != 0; depth++ {
		r, err := st.Runs.Get(ctx, id)
		if errors.Is(err, store.ErrNotFound) && depth > 0 {
			break // the parent was deleted as too old
		}
		if errors.Is(err, store.ErrNotFound) || err == nil && !req.Caller.mayTouch(r.Factory) {
			return nil, refuse("parent_run_id", "names no run")
		}
		if err != nil {
			return nil, err
		}
		if depth >= maxDepth-1 {
			return nil, refuse("parent_run_id", "would make a chain of more than %d runs", maxDepth)
		}
		id = r.ParentID
	}
	all, err := st.Runs.Metadata(ctx, req.Parent)
	if err != nil {
		return nil, err
	}
	merged := make(map[string]string)
	for _, from := range []map[string]string{all[req.Parent], req.Metadata} {
		maps.Copy(merged, from)
	}
	if len(merged) > maxMetadata {
		return nil, refuse("metadata", "has at most %d keys, with those of the parent", maxMetadata)
	}
	return merged, nil
}

// spec makes the spec of the run. An empty environment means the environment of the agent, or
// of the factory's agentDefaults, if they name one.
func (req *Request) spec(f *factory.Factory, environment string, agent *factory.Agent) (Spec, error) {
	settings := f.Defaults
	if agent != nil {
		settings = agent.Settings
	}
	settings.EnvironmentID = cmp.Or(environment, settings.EnvironmentID)
	if req.Environment == NoEnvironment {
		settings.EnvironmentID = ""
	}
	if err := req.checkHarness(settings.Harness); err != nil {
		return Spec{}, err
	}
	if name := settings.EnvironmentID; name != "" && f.Environment(name) == nil && !factory.ElsewhereEnvironment(name) {
		return Spec{}, &RefusedError{Detail: fmt.Sprintf("there is no environment %q: the factory %s", name, environmentsOf(f, name))}
	}
	// Another harness does not inherit a model or a credential that are not its own.
	if h := req.Harness; h.Type != "" && h.Type != settings.Harness.Type {
		settings.Harness = h
	} else {
		settings.Harness.Model = cmp.Or(h.Model, settings.Harness.Model)
		settings.Harness.ReasoningLevel = cmp.Or(h.ReasoningLevel, settings.Harness.ReasoningLevel)
		settings.Harness.AuthSecret = cmp.Or(h.AuthSecret, settings.Harness.AuthSecret)
	}
	settings.Runner = cmp.Or(req.Runner, settings.Runner)
	settings.WorkerHost = cmp.Or(req.Worker, settings.WorkerHost)
	settings.MCPServers = slices.Concat(settings.MCPServers, req.MCPServers)
	s := Spec{AgentPrompt: req.BasePrompt, Prompt: req.Prompt, Mode: req.Mode, Config: req.Config, Attachments: req.Attachments}
	if agent != nil {
		s.Agent = agent.Name
		s.AgentPrompt = strings.TrimSpace(agent.Prompt + "\n\n" + req.BasePrompt)
	}
	s.settle(f, settings)
	if err := cmp.Or(req.grant(&s), req.suits(&s)); err != nil {
		return Spec{}, err
	}
	s.Path = "factory.yaml" // unless the environment or the agent decided
	if s.Environment != nil {
		s.Path = s.Environment.Path
	}
	s.Blob = f.Blob(s.Path)
	return s, nil
}

// grant takes a credential that the definitions have granted to the run, and refuses settings
// that the environment's own command could not act on.
func (req *Request) grant(s *Spec) error {
	const servers, auth = "config.mcp_servers", "config.harness_auth_secrets"
	if s.Commanded() {
		for field, asked := range map[string]bool{servers: len(req.MCPServers) > 0, auth: len(req.AuthSecrets) > 0} {
			if asked {
				return unsupported(field, "%s has a command of its own, which is not given them", s.Environment.Path)
			}
		}
	}
	if len(req.AuthSecrets) == 0 {
		return nil
	}
	name := req.AuthSecrets[s.Harness.Type]
	switch {
	case name == "":
		return unsupported(auth, "they have none for the harness of this run, which is %q: set config.harness.type", s.Harness.Type)
	case name != s.Harness.AuthSecret && !slices.Contains(s.Secrets, name):
		return unsupported(auth, "the definitions do not grant the secret %s to this run, and a request cannot", name)
	}
	s.Harness.AuthSecret, s.Harness.AuthWorker = name, false
	return nil
}

// checkHarness refuses a harness that needs more than its name to start.
func (req *Request) checkHarness(inherited factory.Harness) error {
	const field = "config.harness.type"
	switch asked := req.Harness.Type; {
	case asked == "" || asked == "oz" || asked == inherited.Type:
	case asked == "acp":
		return unsupported(field, "an agent of type acp needs a command, which only definitions have")
	case harness.Named(asked) == nil:
		return unsupported(field, "there is no harness %q: it is oz or one of %s", asked, strings.Join(harness.Names(), ", "))
	}
	return nil
}

// suits refuses a request that the agent of the run cannot meet.
func (req *Request) suits(s *Spec) error {
	if err := s.Plans(); err != nil {
		return err
	}
	if req.Interactive && !s.Sessions() {
		return unsupported("interactive", "%s keeps no session that a follow-up could go on with", s.agent())
	}
	return nil
}

// Plans returns an error if Mode is ModePlan and the harness has no such mode, so that nothing
// would keep the agent from changing files. The default harness counts as having it, because
// only a server knows which harness is the default.
func (s *Spec) Plans() error {
	h := harness.Named(s.Harness.Type)
	if s.Mode != ModePlan || !s.Commanded() && (h == nil && s.byDefault() || h != nil && h.Plans) {
		return nil
	}
	return unsupported("mode", "%s has no mode plan; these harnesses have it: %s", s.agent(), strings.Join(harness.Planning(), ", "))
}

// agent names what starts the agent of the run.
func (s *Spec) agent() string {
	if s.Commanded() {
		return "the command of " + s.Environment.Path
	}
	return fmt.Sprintf("the harness %q", s.Harness.Type)
}

func unsupported(field, format string, args ...any) *RefusedError {
	r := refuse(field, format, args...)
	r.Message, r.Unsupported = "is not supported here: "+r.Message, true
	return r
}

// environmentsOf says which environments a factory has, for a message that it lacks one.
func environmentsOf(f *factory.Factory, lacked string) string {
	if len(f.Environments) == 0 {
		return fmt.Sprintf("defines none; add environments/%s.yaml", lacked)
	}
	return "has " + strings.Join(terms.Each(f.Environments, func(e *factory.Environment) string { return e.Name }), ", ")
}
