package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"triphammer/applier"
	"triphammer/factory"
	"triphammer/server/githubapp"
	"triphammer/server/run/price"
	"triphammer/server/run/task"
	"triphammer/server/store"
	"triphammer/server/worker/harness"
)

// Capabilities is what this server can do for a run beyond what every server can: the
// operator's settings, and the programs of the machine. The zero value is a server without
// such settings.
type Capabilities struct {
	// Unknown tells that no server runs, so that nothing can be said of its settings.
	Unknown bool

	DefaultHarness string               // the harness for oz, a bare model or no harness at all; empty: the constant DefaultHarness
	WorkerHosts    []string             // names of this server, for runs that ask for a worker
	Labels         map[string]string    // labels of this server, for runs that ask for KEY=VALUE
	AgentEnv       []string             // names of variables of this server, for runs that ask for the worker's variables
	MCPServers     map[string]MCPServer // by the identifiers of definitions (warpId)
	CodeForges     map[string]string    // base URLs of code forges, by name in capitals
	ModelProviders map[string]string    // addresses of the APIs of models, by the names of their providers
	Prices         *price.Table         // of models; nil: those of this program
	Models         []string             // that runs may use; * stands for any text; empty: all

	LookPath func(string) (string, error) // finds a program as a run does; nil: exec.LookPath
}

// Carries tells whether this server executes runs that ask for the worker. Every server
// executes runs that ask for no worker.
func (c *Capabilities) Carries(worker string) bool {
	return worker == "" || slices.Contains(c.Hosts(), worker)
}

// Hosts are the names by which runs may ask for this server as a worker.
func (c *Capabilities) Hosts() []string {
	w := store.Worker{Names: c.WorkerHosts, Labels: c.Labels}
	return w.Hosts()
}

// Adapt changes the spec to its meaning on this server. The warnings tell the author of the
// definition which parts are left out, or mean something else on this server.
func (c *Capabilities) Adapt(s *Spec) (warnings []string) {
	warn := func(format string, args ...any) { warnings = append(warnings, fmt.Sprintf(format, args...)) }
	s.here = c
	s.Repositories = c.at(s.Repositories)
	if s.Environment != nil {
		e := *s.Environment
		e.Repositories = c.at(e.Repositories)
		s.Environment = &e
	}
	if s.Arch != "" && s.Arch != arch() {
		warn("the runner asks for a processor of the kind %s, and this server has %s", s.Arch, arch())
	}
	if s.Harness.AuthWorker && len(c.AgentEnv) == 0 {
		warn("harness.auth asks for variables of the worker, and this server passes none (serve --agent-env)")
	}
	for _, name := range s.RepositorySecrets() {
		if slices.Contains(s.Secrets, name) {
			warn("the secret %s of a repository is also granted as a variable, so the agent can read it: take it out of secrets", name)
		}
	}
	if s.Commanded() {
		return append(warnings, s.uncommanded()...)
	}
	asked, warning := harness.Resolve(s.Harness, cmp.Or(c.DefaultHarness, DefaultHarness))
	if s.Harness = asked; warning != "" {
		warn("%s", warning)
	}
	var servers []MCPServer
	for _, m := range s.MCPServers {
		if m.WarpID != "" {
			known, ok := c.MCPServers[m.WarpID]
			if !ok {
				warn("mcpServers.%s: this server knows none by the identifier %s, so the agent does not get it (serve --mcp-servers)", m.Name, m.WarpID)
				continue
			}
			known.Name, known.Outside = m.Name, nil // a request, too, names servers of the operator
			m = known
		}
		servers = append(servers, m)
	}
	s.MCPServers = servers
	return warnings
}

// uncommanded says which settings the environment's own command cannot act on. It is empty if
// the environment has no command.
func (s *Spec) uncommanded() []string {
	unused := s.unused()
	if !s.Commanded() || unused == "" {
		return nil
	}
	return []string{fmt.Sprintf("%s has a command of its own, which is not given the %s", s.Environment.Path, unused)}
}

// WithoutEnvironment is a warning that the run goes without an environment of another service.
// It is empty if the run does not name such an environment.
func (s *Spec) WithoutEnvironment() []string {
	if s.Lacking == "" {
		return nil
	}
	return []string{fmt.Sprintf("environmentId %s is an identifier of an environment elsewhere, and there is no environments/%s.yaml: the run goes without an environment", s.Lacking, s.Lacking)}
}

// unused are the settings that only a harness can act on.
func (s *Spec) unused() string {
	var all []string
	for _, one := range []struct {
		name string
		set  bool
	}{
		{"mcpServers", len(s.MCPServers) > 0},
		{"skills", len(s.Skills) > 0},
		{"reasoningLevel", s.Harness.ReasoningLevel != ""},
		{"budget", s.Budget != factory.Budget{}},
		{"models", s.Environment != nil && len(s.Environment.Models) > 0},
		{"hostedTools", s.Environment != nil && s.Environment.HostedTools},
	} {
		if one.set {
			all = append(all, one.name)
		}
	}
	return strings.Join(all, ", ")
}

// at are the repositories at the addresses of this server's code forges.
func (c *Capabilities) at(all []factory.Repository) []factory.Repository {
	all = slices.Clone(all)
	for i := range all {
		all[i] = all[i].At(c.CodeForges)
	}
	return all
}

func arch() string {
	switch runtime.GOARCH {
	case "amd64":
		return "x86_64"
	case "arm64":
		return "aarch64"
	}
	return runtime.GOARCH
}

// Commanded tells whether the environment's own command starts the agent. It overrides
// the harness, because its author knows the machine.
func (s *Spec) Commanded() bool { return s.Environment != nil && len(s.Environment.Command) > 0 }

// repositories are all repositories that a workspace holds.
func (s *Spec) repositories() []factory.Repository {
	if s.Environment == nil {
		return s.Repositories
	}
	return slices.Concat(s.Repositories, s.Environment.Repositories)
}

// RepositorySecrets are the names of the credentials of the repositories, sorted.
func (s *Spec) RepositorySecrets() []string {
	var names []string
	for _, r := range s.repositories() {
		if r.Secret != "" {
			names = append(names, r.Secret)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// AllSecrets are the names of the granted secrets and of the credentials of repositories, of the model
// and of services, sorted.
func (s *Spec) AllSecrets() []string {
	all := slices.Concat(s.Secrets, s.RepositorySecrets(), s.gatewaySecrets())
	slices.Sort(all)
	return slices.Compact(all)
}

// Unreachable says which repository this server cannot clone. It is empty if it can clone all.
func (s *Spec) Unreachable() string {
	for _, r := range s.repositories() {
		switch {
		case r.Secret != "" && r.URL != "" && !strings.HasPrefix(r.URL, "https://") && !strings.HasPrefix(r.URL, "http://"):
			return fmt.Sprintf("the secret %s of the repository %s works over https alone: write its https:// address, and keep a token in the secret", r.Secret, r.URL)
		case r.URL == "":
			return fmt.Sprintf("this server knows no address of the code forge %s: name it with serve --code-forges %s=https://…", r.Forge, r.Forge)
		}
	}
	return ""
}

// Lacks tells the author of the definition which parts of a spec cannot act on this server. If
// noProgram is set, the last text is about the program of the agent. preflight is the method
// of the executor.
func (c *Capabilities) Lacks(s Spec, preflight func(*task.Task) (task.Place, error)) (all []string, noProgram bool) {
	if c.Unknown {
		return s.lacksAnywhere(), false
	}
	if !c.Carries(s.WorkerHost) {
		return []string{store.WaitsFor(s.WorkerHost) + " (serve --worker-host)"}, false
	}
	all = c.Adapt(&s)
	fails := func(why string) { all = append(all, why+aRunFails) }
	if why := s.Unreachable(); why != "" {
		fails(why)
	}
	t := s.nominal()
	agent := s.Start(t, "")
	all = append(all, agent.Warnings...)
	if len(t.Command) == 0 {
		fails(s.noAgent())
		return all, true
	}
	place, refused := preflight(t)
	all = append(all, place.Warnings...)
	if refused != nil {
		fails(refused.Error())
	}
	program := agent.Program
	if place.Lacks != nil {
		lacks, noProgram := inImage(t, place, program)
		return append(all, lacks...), noProgram
	}
	if !place.Elsewhere {
		switch err := c.finds(t, program); {
		case errors.Is(err, exec.ErrNotFound):
			fails(fmt.Sprintf("this server has no program %s on its PATH, which starts the agent", program))
			return all, true
		case err != nil:
			fails(fmt.Sprintf("this server has the program %s, which starts the agent, where runs cannot use it: %v", program, err))
			return all, true
		}
	}
	return all, false
}

// inImage says which programs that Triphammer starts in the task's image are not there. If
// noProgram is set, the last text is about the program of the agent. An image that is not on
// this machine is judged only by its kind.
func inImage(t *task.Task, place task.Place, program string) (all []string, noProgram bool) {
	var asked []string
	if len(t.Repositories) > 0 {
		asked = append(asked, "git")
	}
	if !unknowable(program) {
		asked = append(asked, program)
	}
	if len(asked) == 0 || t.Env["PATH"] != "" {
		return nil, false
	}
	lacking, here := place.Lacks(asked)
	if !here && (!slices.Contains(lacking, program) || !slices.Contains(harness.Names(), program) || !official.MatchString(place.Image)) {
		return nil, false
	}
	if !here {
		why := fmt.Sprintf("the image %s of Docker Hub has no program %s, which starts the agent: name an image that has it, and git if there are repositories (dockerImage)",
			place.Image, program) + aRunFails
		if place.Isolation == task.Cluster {
			why += ", unless the image of --kube-program-image has the program: this server looked on its own machine alone"
		}
		return []string{why}, true
	}
	for _, name := range lacking {
		what := "clones the repositories"
		if noProgram = name == program; noProgram {
			what = "starts the agent"
		}
		all = append(all, fmt.Sprintf("the image %s has no program %s on its PATH, which %s: add it to the image, or name another image (dockerImage)", place.Image, name, what)+aRunFails)
	}
	return all, noProgram
}

// official matches Docker Hub's own images. They hold the programs of a distribution or a
// language, but no agent.
var official = regexp.MustCompile(`^(docker\.io/(library/)?)?[^/]+$`)

// agentAt is the place in a factory that says what starts the agent of an automation.
func agentAt(f *factory.Factory, a *factory.Automation, spec *Spec) factory.Position {
	if spec.Commanded() {
		if e := f.Environment(a.Settings.EnvironmentID); e != nil {
			return factory.Position{Path: e.Path, At: e.CommandAt}
		}
	}
	return a.Settings.HarnessAt
}

// finds says why the program is not here; nil: it is. A program that may be in a folder of the
// environment or in the workspace counts as found, because only the run can tell.
func (c *Capabilities) finds(t *task.Task, program string) error {
	if t.Env["PATH"] != "" || unknowable(program) {
		return nil
	}
	look := c.LookPath
	if look == nil {
		look = exec.LookPath
	}
	_, err := look(program)
	return err
}

// unknowable tells whether a program is Triphammer itself, or in the workspace.
func unknowable(program string) bool {
	return program == "" || program == task.ThisProgram || strings.Contains(program, "/") && !filepath.IsAbs(program)
}

// once remembers the results of searches for programs.
func once(look func(string) (string, error)) func(string) (string, error) {
	if look == nil {
		return nil
	}
	type found struct {
		path string
		err  error
	}
	known := make(map[string]found)
	return func(program string) (string, error) {
		f, is := known[program]
		if !is {
			f.path, f.err = look(program)
			known[program] = f
		}
		return f.path, f.err
	}
}

// lacksAnywhere says which parts of a spec act on no server, whatever its machine and settings.
func (s *Spec) lacksAnywhere() []string {
	if s.Commanded() || s.byDefault() {
		return s.uncommanded()
	}
	s.MCPServers = slices.DeleteFunc(slices.Clone(s.MCPServers), func(m MCPServer) bool { return m.WarpID != "" })
	t := s.nominal()
	agent := s.Start(t, "")
	if len(t.Command) == 0 {
		return []string{s.noAgent() + aRunFails}
	}
	return agent.Warnings
}

// aRunFails ends a warning of what keeps runs from starting.
const aRunFails = ": a run fails"

// noAgent says that nothing starts the agent, and how to cure that.
func (s *Spec) noAgent() string {
	return fmt.Sprintf("this server cannot start the harness %q; set harness.type to one of %s, or name an environment that has a command (environmentId)",
		s.Harness.Type, strings.Join(harness.Names(), ", "))
}

// Warnings returns the function that warns of an automation of the factory: of the lacks that
// Lacks finds, and of problems in the definitions that keep runs from starting. The function's
// result is never nil.
func (d *Desk) Warnings(ctx context.Context, f *factory.Factory) func(*factory.Automation) []string {
	lacks := d.Lacks(ctx, f)
	return func(a *factory.Automation) []string {
		all := []string{}
		spec := SpecFor(f, a)
		if problem := spec.Problem; problem != "" {
			all = append(all, problem)
		}
		all = append(all, spec.WithoutEnvironment()...)
		for _, lack := range lacks(a) {
			all = append(all, lack.Text)
		}
		return all
	}
}

// capabilities are the Capabilities of this server. A server that executes no runs itself does
// not know the capabilities of its workers.
func (d *Desk) capabilities() *Capabilities {
	can := d.cfg.Capabilities
	can.Unknown = can.Unknown || d.cfg.Shared && d.cfg.MaxRuns == 0
	return &can
}

// Lacks implements applier.Lacks: it returns the function that lists which parts of an
// automation's definition cannot act on this server.
func (d *Desk) Lacks(ctx context.Context, f *factory.Factory) func(*factory.Automation) []applier.Lack {
	preflight := func(*task.Task) (task.Place, error) { return task.Place{}, nil }
	if d.local != nil {
		preflight = d.local.Preflight
	}
	type found struct{ set, app bool }
	can, known := d.capabilities(), make(map[string]found)
	can.LookPath = once(can.LookPath) // many automations have the same agent
	return func(a *factory.Automation) (all []applier.Lack) {
		spec := SpecFor(f, a)
		if d.cfg.Shared && !can.Carries(spec.WorkerHost) {
			why, err := d.noneCarries(ctx, spec.WorkerHost)
			if err != nil {
				d.cfg.Logger.Warn("looking for a worker", "worker", spec.WorkerHost, "error", err)
			}
			if why == "" {
				return nil // only the worker knows its lacks
			}
			return []applier.Lack{{Text: why}}
		}
		texts, noProgram := can.Lacks(spec, preflight)
		for i, text := range texts {
			lack := applier.Lack{Text: text}
			if noProgram && i == len(texts)-1 {
				lack.At = agentAt(f, a, &spec)
			}
			all = append(all, lack)
		}
		if !can.Unknown && !can.Carries(spec.WorkerHost) {
			return all // another server has the secrets
		}
		for _, name := range spec.AllSecrets() {
			is, looked := known[name]
			if !looked {
				is.set, is.app = d.look(ctx, name)
				known[name] = is
			}
			if is.app && (slices.Contains(spec.Secrets, name) || slices.Contains(spec.gatewaySecrets(), name)) {
				all = append(all, applier.Lack{Text: IsApp(name) + aRunFails})
			}
			if !is.set {
				all = append(all, applier.Lack{Text: fmt.Sprintf("the secret %s is granted and not set (triphammer secrets set %s)", name, name) + aRunFails})
			}
		}
		for _, name := range spec.OutsideSecrets() {
			is, looked := known[name]
			if !looked {
				is.set, is.app = d.look(ctx, name)
				known[name] = is
			}
			if !is.set {
				all = append(all, applier.Lack{Text: fmt.Sprintf("mcpServers: a header refers to ${%s}, which is neither a variable of the environment nor a managed secret (triphammer secrets set %s)", name, name)})
			}
		}
		return all
	}
}

// refuses says which part of a request this server cannot do for a run of the spec. It says
// nothing of a run for another worker.
func (d *Desk) refuses(req *Request, spec Spec) error {
	can := d.capabilities()
	if keeps := d.cfg.keepFor(store.Succeeded, spec.Sessions()); req.Keep > keeps {
		return unsupported("config.idle_timeout_minutes", "this server keeps the files of a run for %v after its end (serve --keep-workspaces, --keep-sessions)", keeps)
	}
	if can.Unknown || !can.Carries(spec.WorkerHost) {
		return nil
	}
	spec.MCPServers = req.MCPServers
	warnings := can.Adapt(&spec)
	if err := spec.Plans(); err != nil {
		return err
	}
	if len(req.MCPServers) == 0 {
		return nil
	}
	t := spec.nominal()
	for _, warning := range append(warnings, spec.Start(t, "").Warnings...) {
		if strings.HasPrefix(warning, "mcpServers") {
			return unsupported("config.mcp_servers", "%s", warning)
		}
	}
	return nil
}

// IsApp says why a run cannot be granted a secret.
func IsApp(name string) string {
	return fmt.Sprintf("the secret %s is a GitHub App, whose key no run gets: take it out of secrets, harness.auth and services, and name it as the secretName of a repository", name)
}

// look tells whether there is a managed secret of the name, and whether it is a GitHub App. If
// the lookup fails, there is one, because the definitions are not the cause.
func (d *Desk) look(ctx context.Context, name string) (set, app bool) {
	found, err := d.cfg.Store.Secrets.Newest(ctx, []string{name})
	if err != nil {
		d.cfg.Logger.Warn("looking for a granted secret", "secret", name, "error", err)
		return true, false
	}
	v, is := found[name]
	return is, githubapp.Is(v.Value)
}
