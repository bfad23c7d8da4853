package run

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"triphammer/factory"
	"triphammer/schema/output"
	"triphammer/server/run/task"
	"triphammer/server/secret"
	"triphammer/server/worker/harness"
)

// Spec is everything that a run needs, except the payload of its delivery. It is stored as
// self-contained JSON. A stored spec outlives the program that wrote it, so fields may
// only be added.
type Spec struct {
	Automation string `json:"automation,omitempty"`
	Path       string `json:"path,omitempty"` // of the automation's definition
	Blob       string `json:"blob,omitempty"` // Git object name of that definition
	Agent      string `json:"agent,omitempty"`

	AgentPrompt string `json:"agent_prompt,omitempty"`
	Prompt      string `json:"prompt,omitempty"` // the automation's, or what was posted

	Harness     factory.Harness `json:"harness,omitzero"`
	Environment *Environment    `json:"environment,omitempty"`
	Secrets     []string        `json:"secrets,omitempty"` // names of all granted secrets, sorted

	MCPServers              []MCPServer          `json:"mcp_servers,omitempty"`    // sorted by name
	Skills                  []Skill              `json:"skills,omitempty"`         // sorted by name
	Repositories            []factory.Repository `json:"repositories,omitempty"`   // of the factory, if the environment says nothing about them
	SetupCommands           []string             `json:"setup_commands,omitempty"` // of the runner; they run before the environment's
	DockerImage             string               `json:"docker_image,omitempty"`   // of the environment, or else of the runner
	Arch                    string               `json:"arch,omitempty"`           // of the runner: x86_64, aarch64 or any
	Limits                  task.Limits          `json:"limits,omitzero"`          // of runner and environment: the lower of each
	Budget                  factory.Budget       `json:"budget,omitzero"`          // of environment and automation: the lower of each
	Push                    factory.Push         `json:"push,omitzero"`
	Retry                   Retry                `json:"retry,omitzero"`
	WorkerHost              string               `json:"worker_host,omitempty"` // the run waits for a worker of this name
	TrustRepositorySettings bool                 `json:"trust_repository_settings,omitempty"`

	// Lacking names an environment of another service that the run goes without.
	Lacking string `json:"lacking_environment,omitempty"`

	// Mode is ModePlan, or empty: normal.
	Mode string `json:"mode,omitempty"`
	// Outputs are what the agent may ask the server to do (SPEC 23.1).
	Outputs output.Allowed `json:"outputs,omitempty"`
	// Waits is for how long what leaves the run waits for a person; 0: it does not.
	Waits time.Duration `json:"waits,omitempty"`
	// Asked are the skills that the run must work by.
	Asked []task.AskedSkill `json:"asked_skills,omitempty"`

	// Attachments were posted with the request.
	Attachments []task.Attachment `json:"attachments,omitempty"`

	// Config is what a caller of the run API posted, kept to be shown again.
	Config json.RawMessage `json:"config,omitempty"`

	// Reply is what Replied says of a run; no spec keeps it.
	Reply string `json:"-"`

	here *Capabilities // of this server, once Adapt has been called

	// Problem says why a run of this spec cannot start. The run FAILS with this text (SPEC
	// 2.2a). It is empty if no problem is known.
	Problem string `json:"problem,omitempty"`
}

// MCPServer, Skill and Retry are types of the definitions.
type (
	MCPServer = factory.MCPServer
	Skill     = factory.Skill
	Retry     = factory.Retry
)

// DefaultHarness is the harness for the type oz, a bare model or no harness at all, unless
// the operator sets another.
const DefaultHarness = "claude"

// Environment is a copy of the environment at the time when the spec was made.
type Environment struct {
	Name          string               `json:"name"`
	Path          string               `json:"path"`
	Blob          string               `json:"blob,omitempty"`
	DockerImage   string               `json:"docker_image,omitempty"`
	Repositories  []factory.Repository `json:"repositories,omitempty"`
	SetupCommands []string             `json:"setup_commands,omitempty"`
	Cache         *factory.Cache       `json:"cache,omitempty"`
	Env           map[string]string    `json:"env,omitempty"`
	Command       []string             `json:"command,omitempty"`
	Timeout       time.Duration        `json:"timeout_ns"`
	Idle          time.Duration        `json:"idle_ns"`
	NetworkOn     bool                 `json:"network_on,omitempty"`
	NetworkOff    bool                 `json:"network_off,omitempty"`
	NetworkHosts  []string             `json:"network_hosts,omitempty"`
	Isolation     string               `json:"isolation,omitempty"`
	Services      []factory.Service    `json:"services,omitempty"`
	Models        []string             `json:"models,omitempty"`
	HostedTools   bool                 `json:"hosted_tools,omitempty"`
}

// SpecFor makes the spec of an automation. If something keeps its runs from starting, Problem
// says so. This is no error, because it must not prevent the apply.
func SpecFor(f *factory.Factory, a *factory.Automation) Spec {
	s := Spec{Automation: a.Name, Path: a.Path, Blob: f.Blob(a.Path), Prompt: a.Prompt}
	if agent := f.Agent(a.Agent); agent != nil {
		s.Agent, s.AgentPrompt = agent.Name, agent.Prompt
	}
	s.settle(f, a.Settings)
	if s.Outputs = a.Outputs; a.Approval.Outputs {
		s.Waits = a.Approval.Timeout
	}
	s.Retry, s.Budget, s.Push = a.Retry, lowerBudget(s.Budget, a.Budget), a.Push
	return s
}

// Demand sets the fields of the task that the executor must satisfy.
func (s *Spec) Demand(t *task.Task) {
	t.Setup = s.SetupCommands
	for _, r := range s.repositories() {
		if r.Ref == factory.RefEvent {
			r.Ref = "" // unless an event says more (About)
		}
		t.Repositories = append(t.Repositories, task.Repository{URL: r.URL, Ref: r.Ref, Path: r.Path, Secret: r.Secret, ReadOnly: r.ReadOnly()})
	}
	p := s.Push.WithDefaults()
	t.Pushes = task.Pushes{Branches: p.Branches, Tags: p.Tags, Max: int(p.Max), MaxBytes: p.MaxBytes, Waits: s.Waits}
	t.Limits, t.DockerImage, t.TrustRepositorySettings = s.Limits, s.DockerImage, s.TrustRepositorySettings
	e := s.Environment
	if e == nil {
		return
	}
	t.Env, t.Setup = e.Env, slices.Concat(s.SetupCommands, e.SetupCommands)
	if e.Cache != nil {
		t.Cache = &task.Cache{Scope: e.Name, Paths: e.Cache.Paths, Files: e.Cache.Files}
	}
	t.Network = task.Network{On: e.NetworkOn, Off: e.NetworkOff, Hosts: e.NetworkHosts}
	t.Isolation, t.DockerImage = factory.IsolationNow(e.Isolation), cmp.Or(e.DockerImage, s.DockerImage)
}

// Encode is the stored form of the spec.
func (s Spec) Encode() ([]byte, error) { return json.Marshal(s) }

// DecodeSpec reads a stored spec.
func DecodeSpec(data []byte) (Spec, error) {
	var s Spec
	if err := json.Unmarshal(data, &s); err != nil {
		return Spec{}, fmt.Errorf("reading the run's spec: %w", err)
	}
	return s, nil
}

// settle resolves the names in the settings, and records in Problem the names that it cannot
// resolve. Settings that depend on the server, such as its default harness, are resolved when
// a run starts (Capabilities).
func (s *Spec) settle(f *factory.Factory, settings factory.Settings) {
	s.Harness, s.WorkerHost = settings.Harness, settings.WorkerHost
	s.Secrets = slices.Concat(f.Secrets, settings.Secrets)
	s.MCPServers = mergedServers(f.MCPServers, settings.MCPServers)
	for _, skill := range f.SkillsOf(s.Agent) {
		s.Skills = append(s.Skills, *skill)
	}
	if name := settings.Runner; name != "" {
		if r := f.Runner(name); r != nil {
			s.runOn(r)
		} else {
			s.Problem = fmt.Sprintf("the runner %q has no file: add runners/%s.yaml, or change runner", name, name)
		}
	}
	s.Repositories = f.Repositories
	if name := settings.EnvironmentID; name != "" {
		if e := f.Environment(name); e != nil {
			s.runIn(f, e)
		} else if factory.ElsewhereEnvironment(name) {
			s.Lacking = name
		} else {
			s.Problem = fmt.Sprintf("the environment %q has no file: add environments/%s.yaml, or change environmentId", name, name)
		}
	}
	slices.Sort(s.Secrets)
	s.Secrets = slices.Compact(s.Secrets)
}

// macHost is the worker that a run on macOS waits for, if it names no other worker.
const macHost = "macos"

func (s *Spec) runOn(r *factory.Runner) {
	s.SetupCommands, s.DockerImage, s.Arch, s.Limits = r.SetupCommands, r.DockerImage, r.Arch, limitsOf(r.Resources)
	if r.MacOS {
		s.WorkerHost = cmp.Or(s.WorkerHost, macHost)
	}
}

func (s *Spec) runIn(f *factory.Factory, e *factory.Environment) {
	s.Environment = environmentOf(f, e)
	s.Secrets = append(s.Secrets, e.Secrets...)
	s.DockerImage = cmp.Or(e.DockerImage, s.DockerImage)
	s.Budget = e.Budget
	s.TrustRepositorySettings = e.TrustRepositorySettings
	if e.Repositories != nil {
		s.Repositories = nil
	}
	own := limitsOf(e.Resources)
	s.Limits.Memory, s.Limits.CPUs = lower(s.Limits.Memory, own.Memory), lower(s.Limits.CPUs, own.CPUs)
	s.Limits.Processes, s.Limits.Disk = lower(s.Limits.Processes, own.Processes), lower(s.Limits.Disk, own.Disk)
}

func limitsOf(r factory.Resources) task.Limits {
	return task.Limits{Memory: r.Memory, CPUs: r.CPUs, Processes: r.Processes, Disk: r.Disk}
}

// lower is the lower of two limits; 0 means no limit.
func lower[N int64 | float64](a, b N) N {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

func lowerBudget(a, b factory.Budget) factory.Budget {
	return factory.Budget{
		USD: lower(a.USD, b.USD), Tokens: lower(a.Tokens, b.Tokens), Turns: lower(a.Turns, b.Turns),
		USDPerDay: lower(a.USDPerDay, b.USDPerDay), TokensPerDay: lower(a.TokensPerDay, b.TokensPerDay),
	}
}

// mergedServers are the servers of all lists, sorted by name. A server of a later list
// replaces a server of the same name.
func mergedServers(lists ...[]MCPServer) []MCPServer {
	byName := make(map[string]MCPServer)
	for _, m := range slices.Concat(lists...) {
		byName[m.Name] = m
	}
	return slices.SortedFunc(maps.Values(byName), func(a, b MCPServer) int { return strings.Compare(a.Name, b.Name) })
}

func environmentOf(f *factory.Factory, e *factory.Environment) *Environment {
	return &Environment{
		Name: e.Name, Path: e.Path, Blob: f.Blob(e.Path),
		DockerImage:   e.DockerImage,
		Repositories:  e.Repositories,
		SetupCommands: e.SetupCommands,
		Cache:         e.Cache,
		Env:           e.Env,
		Command:       e.Command,
		Timeout:       e.Timeout,
		Idle:          e.Idle,
		NetworkOn:     e.Network.On,
		NetworkOff:    e.Network.Off,
		NetworkHosts:  e.Network.Hosts,
		Isolation:     e.Isolation,
		Services:      e.Services,
		Models:        e.Models,
		HostedTools:   e.HostedTools,
	}
}

// Times are how long the agent may take and how long it may be silent.
func (s *Spec) Times() (timeout, idle time.Duration) {
	if s.Environment == nil {
		return factory.DefaultTimeout, factory.DefaultIdle
	}
	return s.Environment.Timeout, s.Environment.Idle
}

// Start completes the task with everything that starts its agent. session is the conversation
// that goes on; empty: a new conversation begins. The environment's own command overrides the
// harness, because its author knows the machine; then the result has nothing about the agent.
func (s *Spec) Start(t *task.Task, session string) harness.Start {
	served := s.serve(t)
	if s.Commanded() {
		t.Command = s.Environment.Command
		agent := harness.Command(t.Command)
		if v, is := t.Credentials[s.Harness.AuthSecret]; is && !v.IsZero() {
			t.Secrets[s.Harness.AuthSecret] = v
			agent.Notes = []string{"a key of the model is inside this run, where its agent can read it: " + s.Harness.AuthSecret + " (the environment has a command of its own)"}
		}
		return agent
	}
	h := harness.Named(s.Harness.Type)
	if h == nil {
		return harness.Start{}
	}
	r := harness.Request{
		Command: s.Harness.Command, Model: s.Harness.Model, ReasoningLevel: s.Harness.ReasoningLevel,
		MCPServers: s.MCPServers, Skills: s.Skills, Budget: s.Budget,
		Auth: t.Credentials[s.Harness.AuthSecret], AuthName: s.Harness.AuthSecret, Env: t.Env, Secrets: t.Secrets,
		Plan: s.Mode == ModePlan, Session: session, TrustRepositorySettings: s.TrustRepositorySettings,
		Outside: make(map[string]secret.Value),
	}
	if granted, is := t.Secrets[s.Harness.AuthSecret]; is && r.Auth.IsZero() {
		r.Auth = granted // of a spec that an older program made, or granted
	}
	for _, name := range s.OutsideSecrets() {
		if v, is := t.Credentials[name]; is && !t.Foreign {
			r.Outside[name] = v
		}
	}
	if e := s.Environment; e != nil {
		if r.Extras = e.HostedTools; len(e.Models) > 0 {
			r.Models = append(r.Models, e.Models)
		}
	}
	if s.here != nil {
		r.Providers = s.here.ModelProviders
		if len(s.here.Models) > 0 {
			r.Models = append(r.Models, s.here.Models)
		}
		if s.Harness.AuthWorker {
			r.Worker = s.here.AgentEnv
		}
	}
	agent := h.Start(r)
	agent.Warnings = append(served, agent.Warnings...)
	t.Services = append(t.Services, agent.Services...)
	t.Program = agent.Program
	t.Command, t.Env, t.Secrets, t.Files = agent.Command, agent.Env, agent.Secrets, append(t.Files, agent.Files...)
	return agent
}
