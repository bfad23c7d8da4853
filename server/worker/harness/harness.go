// Package harness starts the command-line agents that this server knows, and reads what
// they print (SPEC 15.1 to 15.3, 14.8).
//
// A [Request] says in the words of definitions what a run asks of its agent. A [Harness]
// turns it into a [Start]: command line, variables, files below the home, and a [Parser] of
// the agent's output. A Start has a warning for each part of the request that the harness
// cannot do. Each harness has its own file. The package itself starts no process and touches
// no file.
//
// No secret is on a command line. A file holds the value of a secret only if the harness
// takes the credential or address from nowhere else; other files name variables.
//
// A repository can bring settings for agents: hooks, servers, plugins, variables. They run
// programs, so they act only with Request.TrustRepositorySettings (SPEC 14.8). Agents read
// the text of AGENTS.md and its like in any case.
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

// Request is what a run asks of its agent. It lacks the prompt, because every harness gets the
// prompt on its standard input.
type Request struct {
	Command        []string // starts an agent of the type acp
	Model          string
	ReasoningLevel string
	MCPServers     []factory.MCPServer
	Skills         []factory.Skill
	Budget         factory.Budget

	Auth     secret.Value // the credential for the model; zero: the variables may have it
	AuthName string       // the secret that it is
	Worker   []string     // names of Secrets that come from the worker's variables

	// Providers are the addresses of model providers that the operator has set, by their names.
	Providers map[string]string
	Models    [][]string // as in task.Service
	Extras    bool       // as in task.Service

	// Outside are secrets that only headers of MCP servers may use, outside the run.
	Outside map[string]secret.Value

	Env     map[string]string       // plain variables of the run; they win over variables of the harness
	Secrets map[string]secret.Value // granted secrets, by the name of their variable

	// Plan asks the agent to make a plan and to change nothing. It is only for a harness with
	// Plans.
	Plan bool

	// Session is the conversation that goes on, as the harness named it in an event.Session.
	// Empty means a new conversation.
	Session string

	// TrustRepositorySettings makes the agent settings of the cloned repositories act.
	TrustRepositorySettings bool
}

// Start says how to start an agent.
type Start struct {
	Command []string
	Program string                  // the agent's program, which must exist; Command may begin with another program
	Env     map[string]string       // includes the request's variables
	Secrets map[string]secret.Value // includes the request's secrets
	Files   []task.File
	// Services are what the agent reaches by the gateway of the run. Variables have their addresses.
	Services []task.Service
	// Notes say for each credential of the model whether it is inside the run. They may depend on
	// the kinds of values.
	Notes []string
	// ModelKey says the same in few words; empty: no credential of the model is known.
	ModelKey string
	Parse    Parser // for the agent's standard output; nil: it is plain text

	harness *Harness

	// Warnings say which parts of the request this harness cannot do. They depend only on the
	// definition, not on values of secrets.
	Warnings []string
}

// Parser makes events of one line of a harness's output. ok is false for an unknown line, which
// the caller keeps as output. A Parser accepts any input, because lines come from outside. It
// remembers earlier lines, so each attempt needs its own Parser. An empty line marks the end of
// the output; the Parser then returns the events that it has held back.
type Parser func(line []byte) (events []event.Event, ok bool)

// Harness is a kind of agent that this server can start.
type Harness struct {
	Name string
	// Sessions tells whether the harness keeps its conversations, so that Request.Session can
	// name one.
	Sessions bool
	// Plans tells whether the harness keeps an agent from changing files while it makes a plan.
	// Codex would need its own namespaces for that, which no run may make (SPEC 14.1).
	Plans bool
	// Variables are the variables in which the harness looks for its credential.
	Variables []string

	// instructs are the names of the files and folders of a repository, in any of its folders, that tell
	// the agent how to work or what to start.
	instructs []string

	tested string // the version that the tests run; empty: any
	models string // in words: the names of models that it takes
	knows  func(model string) bool
	start  func(r Request, s *Start)
	parse  func() Parser
	// ways are the models that the gateway of a run can carry; nil: there are none.
	ways func(r Request, s *Start) []way
}

// Tested is the harness with its tested version, such as "claude 2.1.197". It is empty if no
// version is known.
func (s *Start) Tested() string {
	if s.harness == nil || s.harness.tested == "" {
		return ""
	}
	return s.harness.Name + " " + s.harness.tested
}

// all are the harnesses, in the order of lists for people.
var all = []*Harness{&claude, &codex, &gemini, &opencode, &acpAgent}

// Named returns the harness with the name; nil: there is none.
func Named(name string) *Harness {
	for _, h := range all {
		if h.Name == name {
			return h
		}
	}
	return nil
}

// Instructions are the names of all files and folders of a repository that instruct agents, in any of
// its folders (SPEC 21.7). Letters count without regard to case.
func Instructions() []string {
	var names []string
	for _, h := range all {
		names = append(names, h.instructs...)
	}
	slices.Sort(names)
	return slices.Compact(names)
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

// Resolve finds the harness that a definition asks for. The type "oz" and an empty type mean
// the server's default harness (SPEC 15.1). The default harness gets the model if it knows
// models of such names. Otherwise it chooses the model itself, and the warning says so.
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

// Command starts an agent with a definition's own command. It adds nothing to the command. If
// the program is a known harness's, Start.Explain understands its last words.
func Command(argv []string) Start {
	return Start{Program: argv[0], harness: OfCommand(argv)}
}

// OfCommand is the harness whose program a command starts; nil: it is none that is known.
func OfCommand(argv []string) *Harness { return Named(path.Base(argv[0])) }

// Start makes everything that is needed to start the agent.
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
	ways := s.outward(&r)
	r.MCPServers = s.usable(s.remote(r))
	h.start(r, &s)
	s.note(r, ways)
	if s.Program == "" && len(s.Command) > 0 {
		s.Program = s.Command[0]
	}
	return s
}

func (s *Start) warn(format string, args ...any) {
	s.Warnings = append(s.Warnings, fmt.Sprintf(format, args...))
}

func (s *Start) set(name, value string) {
	if !s.has(name) {
		s.Env[name] = value
	}
}

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

// level adds the flag for the reasoning level, if the harness knows the level.
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

// instructions is for an agent that does not read a repository's settings, and so does not read
// the repository's instructions by itself.
const instructions = `If the working directory holds a file AGENTS.md, CLAUDE.md or GEMINI.md, read it before you begin:
it has the instructions of that repository.
`

// prefixed makes a function that tells whether a name begins with one of the prefixes.
func prefixed(prefixes ...string) func(string) bool {
	return func(name string) bool {
		return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
	}
}

// derived names a variable that holds a value in which other variables are replaced. The
// variable is secret, because the other variables may be.
func (s *Start) derived(value string) string {
	name := fmt.Sprintf("TRIPHAMMER_MCP_%d", len(s.Secrets))
	s.Secrets[name] = secret.New(rewrite(value, s.lookup))
	return name
}
