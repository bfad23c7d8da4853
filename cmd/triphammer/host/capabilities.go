package host

import (
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/spf13/pflag"

	"triphammer/cmd/triphammer/client/exit"
	"triphammer/factory"
	"triphammer/server/api"
	"triphammer/server/run"
	"triphammer/server/run/price"
	"triphammer/server/worker/harness"
)

// capabilityOptions are the flags that say what a server can do for runs.
type capabilityOptions struct {
	can        run.Capabilities
	mcpServers string // file
	prices     string // file
}

func (o *capabilityOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.can.DefaultHarness, "default-harness", run.DefaultHarness,
		"harness of runs whose definition says oz, a model alone, or nothing: "+strings.Join(DefaultHarnesses(), ", "))
	f.StringSliceVar(&o.can.AgentEnv, "agent-env", nil, "variables of this server that runs get whose harness.auth is workerEnvironment, such as ANTHROPIC_API_KEY")
	f.StringVar(&o.mcpServers, "mcp-servers", "", "file of MCP servers by the identifiers (warpId) of definitions: ID: {command: …} or {url: …}")
	f.StringToStringVar(&o.can.ModelProviders, "model-provider", nil, "address of the API of a model provider, to which the gateways of runs go, such as anthropic=https://models.example.com: anthropic, openai, gemini, or a name of your own (in OpenAI's format)")
	f.StringSliceVar(&o.can.Models, "models", nil, "models that runs may use whose key is outside, such as claude-*; * stands for any text (default: all)")
	f.StringVar(&o.prices, "model-prices", "", "JSON file with prices of models, in place of those of this program (docs/costs.md has the format)")
	f.StringToStringVar(&o.can.CodeForges, "code-forges", nil, "addresses of code forges, such as GITHUB=https://github.example.com")
}

var providerName = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)

// DefaultHarnesses are those that start without more words: acp needs a command.
func DefaultHarnesses() []string {
	return slices.DeleteFunc(harness.Names(), func(name string) bool { return name == "acp" })
}

// capabilities checks the flags and reads the file of MCP servers.
func (o *capabilityOptions) capabilities() (run.Capabilities, error) {
	can := o.can
	if names := DefaultHarnesses(); !slices.Contains(names, can.DefaultHarness) {
		return can, exit.With(exit.Usage, "--default-harness is one of %s, not %q", strings.Join(names, ", "), can.DefaultHarness)
	}
	for _, name := range append(slices.Clone(can.WorkerHosts), slices.Sorted(maps.Keys(can.Labels))...) {
		if strings.TrimSpace(name) != name || name == "" || strings.ContainsFunc(name, unicode.IsControl) {
			return can, exit.With(exit.Usage, "%q is no name of a worker", name)
		}
	}
	for _, name := range can.AgentEnv {
		if strings.ContainsAny(name, "=\x00") || name == "" {
			return can, exit.With(exit.Usage, "--agent-env takes the names of variables, without values")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(can.ModelProviders)) {
		if !providerName.MatchString(name) {
			return can, exit.With(exit.Usage, "--model-provider %s: a name has small letters, digits and dashes", name)
		}
		if err := harness.CheckProvider(name, can.ModelProviders[name]); err != nil {
			return can, exit.With(exit.Usage, "--model-provider %s: %w", name, err)
		}
	}
	can.CodeForges = make(map[string]string)
	for _, name := range slices.Sorted(maps.Keys(o.can.CodeForges)) {
		base := o.can.CodeForges[name]
		u, err := url.Parse(base)
		if err != nil || !slices.Contains([]string{"https", "http", "ssh", "file"}, u.Scheme) || (u.Host == "") != (u.Scheme == "file") || u.RawQuery != "" {
			return can, exit.With(exit.Usage, "--code-forges %s=%s: %q is not an address such as https://git.example.com", name, base, base)
		}
		can.CodeForges[strings.ToUpper(name)] = base
	}
	if o.prices != "" {
		text, err := os.ReadFile(o.prices)
		if err == nil {
			can.Prices, err = price.Standard().With(text)
		}
		if err != nil {
			return can, exit.With(exit.Usage, "--model-prices: %w", err)
		}
	}
	if o.mcpServers == "" {
		return can, nil
	}
	text, err := os.ReadFile(o.mcpServers)
	if err != nil {
		return can, exit.With(exit.Usage, "--mcp-servers: %w", err)
	}
	servers, found := factory.ReadMCPServers(o.mcpServers, text)
	if len(found) > 0 {
		d := found[0]
		return can, exit.With(exit.Usage, "--mcp-servers: %s:%d:%d: %s %s", d.Path, d.Line, d.Column, d.Message, d.Hint)
	}
	can.MCPServers = servers
	return can, nil
}

// machine is what status tells of the machine.
func (in *instance) machine() *api.Machine {
	found := &api.Machine{
		System: runtime.GOOS + "/" + runtime.GOARCH, Git: gitVersion(), Harnesses: []api.Harness{},
		MaxRuns: in.opt.runs.MaxRuns, WorkerHosts: append([]string{}, in.opt.runs.Capabilities.WorkerHosts...),
	}
	look := in.executor.LookPath
	if in.cluster != nil { // no run is behind the walls of this machine
		look = exec.LookPath
	}
	for _, name := range DefaultHarnesses() {
		_, err := look(name)
		found.Harnesses = append(found.Harnesses, api.Harness{Name: name, Found: err == nil})
	}
	return found
}

// gitVersion is what the git program says of itself; empty: there is none.
var gitVersion = sync.OnceValue(func() string {
	out, err := exec.Command("git", "--version").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
})

// unset are the variables of --agent-env that this process does not have.
func unset(can run.Capabilities) []string {
	return slices.DeleteFunc(slices.Clone(can.AgentEnv), func(name string) bool { return os.Getenv(name) != "" })
}

// warnOfUnset tells the operator of variables that no run will get.
func (s *serving) warnOfUnset() {
	if names := unset(s.runs.Capabilities); len(names) > 0 {
		s.logger.Warn("variables of --agent-env are not set, so no run gets them", "names", fmt.Sprint(names))
	}
}
