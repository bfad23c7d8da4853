// Package harness starts the command-line agents that this server knows, and reads what
// they print (SPEC 15.1 to 15.3, 14.8).
//
// A [Harness] turns a [Request], which says in the words of a definition what a run asks of
// its agent, into a [Start]: command line, variables, files below the home, and a [Parser]
// of the agent's output. What the harness cannot do of the request is a warning there, never
// silence. There is one file per harness. Nothing here starts a process or touches a file.
//
// No secret is put on a command line. A file holds the value of a secret only where a
// harness takes a credential or an address from nowhere else; other files name variables.
//
// A repository can bring settings for agents: hooks, servers, plugins, variables. They run
// programs, so they act only where Request.TrustRepositorySettings says so (SPEC 14.8). The
// text of AGENTS.md and its like is read in any case.
package harness

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"triphammer/factory"
	"triphammer/server/run/event"
	"triphammer/server/run/task"
	"triphammer/server/secret"
)

// Request is what a run asks of its agent. The prompt is not part of it, because every
// harness gets that on its standard input.
type Request struct {
	Command        []string // of an agent of type acp
	Model          string
	ReasoningLevel string
	MCPServers     []factory.MCPServer
	Skills         []factory.Skill
	Budget         factory.Budget

	Auth    secret.Value            // the credential for the model; zero: the variables have it, or nothing
	Env     map[string]string       // plain variables of the run, which win over those of the harness
	Secrets map[string]secret.Value // granted ones, by the name of their variable

	// Plan asks the agent to make a plan and to change nothing. Only a harness with Plans is
	// asked.
	Plan bool

	// Session is the conversation that goes on, as the harness named it in an event.Session.
	// Empty means a new one.
	Session string

	// TrustRepositorySettings lets the agent settings of the cloned repositories act.
	TrustRepositorySettings bool
}

// Start says how to start an agent.
type Start struct {
	Command []string
	Program string                  // that must be there to start the agent; Command may begin with another one
	Env     map[string]string       // those of the request too
	Secrets map[string]secret.Value // those of the request too
	Files   []task.File
	Parse   Parser // of the agent's standard output; nil: it is plain text

	harness *Harness

	// Warnings say what of the request this harness cannot do. They depend on what the
	// definition says alone, not on values of secrets.
	Warnings []string
}

// Parser makes events of one line of a harness's output. ok is false for a line that it does
// not know, which is then kept as output. It accepts any input, because lines come from
// outside. It remembers what it has read, so each attempt needs its own. An empty line is the
// end of the output: what is known but was not told yet follows.
type Parser func(line []byte) (events []event.Event, ok bool)

// Harness is a kind of agent that this server can start.
type Harness struct {
	Name string
	// Sessions tells whether it keeps its conversations, so that Request.Session can name one.
	Sessions bool
	// Plans tells whether it keeps an agent from changing files while that makes a plan. Codex
	// does so by namespaces of its own, which no run may make (SPEC 14.1).
	Plans bool
	// Variables are those in which it looks for its credential.
	Variables []string

	tested string // the version that the tests run; empty: any
	models string // in words: the names of models that it takes
	knows  func(model string) bool
	start  func(r Request, s *Start)
	parse  func() Parser
}

// Tested is the harness with the version that is tested, such as "claude 2.1.197". It is empty
// for an agent of which none is known.
func (s *Start) Tested() string {
	if s.harness == nil || s.harness.tested == "" {
		return ""
	}
	return s.harness.Name + " " + s.harness.tested
}

// all are the harnesses, in the order in which people read of them.
var all = []*Harness{&claude, &codex, &gemini, &opencode, &acpAgent}

// Named returns the harness of that name, or nil.
func Named(name string) *Harness {
	for _, h := range all {
		if h.Name == name {
			return h
		}
	}
	return nil
}

// Names are the names of all harnesses.
func Names() []string { return namesOf(func(*Harness) bool { return true }) }

// Planning are the names of the harnesses with Plans.
func Planning() []string { return namesOf(func(h *Harness) bool { return h.Plans }) }

func namesOf(which func(*Harness) bool) (names []string) {
	for _, h := range all {
		if which(h) {
			names = append(names, h.Name)
		}
	}
	return names
}

// Resolve says which harness is meant by what a definition asks for. The type "oz" and none
// mean the server's default harness (SPEC 15.1). That gets the model if it knows a model of
// such a name. Otherwise it chooses the model itself, and the warning says so.
func Resolve(asked factory.Harness, byDefault string) (_ factory.Harness, warning string) {
	if asked.Type != "" && asked.Type != "oz" {
		return asked, ""
	}
	h := Named(byDefault)
	asked.Type = byDefault
	if h != nil && asked.Model != "" && !h.knows(asked.Model) {
		warning = fmt.Sprintf("the model %q is not one of %s, this server's default harness, which takes %s: it chooses the model itself", asked.Model, h.Name, h.models)
		asked.Model = ""
	}
	return asked, warning
}

// Command is an agent that a definition starts by a command of its own. Nothing is made for it,
// but if its program is that of a harness, its last words are understood.
func Command(argv []string) Start {
	return Start{Program: argv[0], harness: Named(path.Base(argv[0]))}
}

// Start makes all that is needed to start the agent.
func (h *Harness) Start(r Request) Start {
	s := Start{Env: maps.Clone(r.Env), Secrets: maps.Clone(r.Secrets), Parse: h.parse(), harness: h}
	if s.Env == nil {
		s.Env = make(map[string]string)
	}
	if s.Secrets == nil {
		s.Secrets = make(map[string]secret.Value)
	}
	if r.Model != "" && !h.knows(r.Model) {
		s.warn("the model %q does not look like one of %s, which takes %s: it is passed on as it is", r.Model, h.Name, h.models)
	}
	r.MCPServers = s.usable(r.MCPServers)
	h.start(r, &s)
	if s.Program == "" && len(s.Command) > 0 {
		s.Program = s.Command[0]
	}
	return s
}

func (s *Start) warn(format string, args ...any) {
	s.Warnings = append(s.Warnings, fmt.Sprintf(format, args...))
}

// set sets a variable unless the run sets it.
func (s *Start) set(name, value string) {
	if !s.has(name) {
		s.Env[name] = value
	}
}

// has tells whether the run has a variable.
func (s *Start) has(name string) bool {
	_, env := s.Env[name]
	_, granted := s.Secrets[name]
	return env || granted
}

// lookup is the value of a variable of the run, secret or not.
func (s *Start) lookup(name string) string {
	if v, ok := s.Secrets[name]; ok {
		return v.Reveal()
	}
	return s.Env[name]
}

// add adds arguments to the command.
func (s *Start) add(args ...string) { s.Command = append(s.Command, args...) }

func (s *Start) file(path string, data []byte) {
	s.Files = append(s.Files, task.File{Path: path, Data: data})
}

// skills puts each skill into its own folder below dir.
func (s *Start) skills(dir string, skills []factory.Skill) {
	for _, k := range skills {
		for _, path := range slices.Sorted(maps.Keys(k.Files)) {
			mode := uint32(0) // the default
			if slices.Contains(k.Executable, path) {
				mode = 0o700
			}
			s.Files = append(s.Files, task.File{Path: dir + "/" + k.Name + "/" + path, Data: k.Files[path], Mode: mode})
		}
	}
}

// level adds the flag for how much the model is to think, if the harness knows the level.
func (s *Start) level(asked string, known []string, args func(level string) []string) {
	level := strings.ToLower(asked)
	switch {
	case level == "":
	case slices.Contains(known, level):
		s.add(args(level)...)
	default:
		s.warn("reasoningLevel %q: %s takes %s: it is left out", asked, s.harness.Name, strings.Join(known, ", "))
	}
}

// instructions is what an agent is told that does not read the instructions of a repository
// by itself, because it reads nothing of its settings.
const instructions = `If the working directory holds a file AGENTS.md, CLAUDE.md or GEMINI.md, read it before you begin:
it has the instructions of that repository.
`

// prefixed makes a function that tells whether a name begins with one of the prefixes.
func prefixed(prefixes ...string) func(string) bool {
	return func(name string) bool {
		return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
	}
}

// derived names a variable that holds a value in which other variables are replaced. It is
// secret, because they may be.
func (s *Start) derived(value string) string {
	name := fmt.Sprintf("TRIPHAMMER_MCP_%d", len(s.Secrets))
	s.Secrets[name] = secret.New(rewrite(value, s.lookup))
	return name
}
