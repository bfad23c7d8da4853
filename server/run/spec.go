package run

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"triphammer/factory"
	"triphammer/server/run/harness"
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
	Secrets     []string        `json:"secrets,omitempty"` // names of all that are granted, sorted

	MCPServers              []MCPServer    `json:"mcp_servers,omitempty"`
	Skills                  []Skill        `json:"skills,omitempty"`
	Repositories            []Repository   `json:"repositories,omitempty"`   // of the factory; cloned if the environment has none
	SetupCommands           []string       `json:"setup_commands,omitempty"` // of the runner, before those of the environment
	DockerImage             string         `json:"docker_image,omitempty"`   // of the runner, if the environment names none
	Limits                  Limits         `json:"limits,omitzero"`          // of runner and environment
	Budget                  factory.Budget `json:"budget,omitzero"`          // of environment and automation: the lower of each
	Retry                   Retry          `json:"retry,omitzero"`
	WorkerHost              string         `json:"worker_host,omitempty"` // the run waits for a worker of this name
	TrustRepositorySettings bool           `json:"trust_repository_settings,omitempty"`

	// Attachments were posted with the request.
	Attachments []Attachment `json:"attachments,omitempty"`

	// Config is what a caller of the run API posted, kept to be shown again.
	Config json.RawMessage `json:"config,omitempty"`

	// Problem says why a run of this spec cannot start. The run FAILS with this text (SPEC
	// 2.2a). It is empty if no problem is known.
	Problem string `json:"problem,omitempty"`
}

// MCPServer and Skill are those of the definitions.
type (
	MCPServer = factory.MCPServer
	Skill     = factory.Skill
)

// Retry says how often a run that fails is tried again (SPEC 9.6).
type Retry struct {
	Attempts int           `json:"attempts,omitempty"` // in all; 0 and 1 mean once
	Delay    time.Duration `json:"delay_ns,omitempty"` // before the second attempt; it doubles from then on
}

// Environment is a copy of the environment at the time when the spec was made.
type Environment struct {
	Name          string               `json:"name"`
	Path          string               `json:"path"`
	Blob          string               `json:"blob,omitempty"`
	DockerImage   string               `json:"docker_image,omitempty"`
	Repositories  []factory.Repository `json:"repositories,omitempty"`
	SetupCommands []string             `json:"setup_commands,omitempty"`
	Env           map[string]string    `json:"env,omitempty"`
	Command       []string             `json:"command,omitempty"`
	Timeout       time.Duration        `json:"timeout_ns"`
	Idle          time.Duration        `json:"idle_ns"`
	NetworkOff    bool                 `json:"network_off,omitempty"`
	NetworkHosts  []string             `json:"network_hosts,omitempty"`
	Isolation     string               `json:"isolation,omitempty"`
}

// SpecFor makes the spec of an automation. If something keeps its runs from starting, that
// is in Problem and not an error, because it must not prevent the apply.
func SpecFor(f *factory.Factory, a *factory.Automation) Spec {
	s := Spec{Automation: a.Name, Path: a.Path, Blob: f.Blob(a.Path), Prompt: a.Prompt}
	if agent := f.Agent(a.Agent); agent != nil {
		s.Agent, s.AgentPrompt = agent.Name, agent.Prompt
	}
	s.settle(f, a.Settings)
	return s
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

// settle resolves the names in the settings, and records in Problem those that it cannot
// resolve.
func (s *Spec) settle(f *factory.Factory, settings factory.Settings) {
	s.Harness = settings.Harness
	s.Secrets = slices.Concat(f.Secrets, settings.Secrets)
	if settings.Harness.AuthSecret != "" {
		s.Secrets = append(s.Secrets, settings.Harness.AuthSecret)
	}
	if name := settings.EnvironmentID; name != "" {
		if e := f.Environment(name); e != nil {
			s.Environment = environmentOf(f, e)
			s.Secrets = append(s.Secrets, e.Secrets...)
		} else {
			s.Problem = fmt.Sprintf("the environment %q has no file: add environments/%s.yaml, or change environmentId", name, name)
		}
	}
	slices.Sort(s.Secrets)
	s.Secrets = slices.Compact(s.Secrets)
	if name := settings.Runner; name != "" && s.Problem == "" && !slices.Contains(f.Runners, name) {
		s.Problem = fmt.Sprintf("the runner %q has no file: add runners/%s.yaml, or change runner", name, name)
	}
	if s.Environment != nil && len(s.Environment.Command) > 0 {
		return
	}
	if s.Problem == "" && harness.Named(s.Harness.Type) == nil {
		s.Problem = s.noCommand()
	}
}

// noCommand is the problem that no command starts the agent, with the cure.
func (s *Spec) noCommand() string {
	where := "name an environment that has a command (environmentId)"
	if s.Environment != nil {
		where = "give " + s.Environment.Path + " a command"
	}
	cause := "no harness is set"
	if s.Harness.Type != "" {
		cause = fmt.Sprintf("this server cannot start the harness %q", s.Harness.Type)
	}
	return fmt.Sprintf("nothing says how to start the agent: %s; %s, or set harness.type to one of %s", cause, where, strings.Join(harness.Names(), ", "))
}

func environmentOf(f *factory.Factory, e *factory.Environment) *Environment {
	return &Environment{
		Name: e.Name, Path: e.Path, Blob: f.Blob(e.Path),
		DockerImage:   e.DockerImage,
		Repositories:  e.Repositories,
		SetupCommands: e.SetupCommands,
		Env:           e.Env,
		Command:       e.Command,
		Timeout:       e.Timeout,
		Idle:          e.Idle,
		NetworkOff:    e.Network.Off,
		NetworkHosts:  e.Network.Hosts,
		Isolation:     e.Isolation,
	}
}
