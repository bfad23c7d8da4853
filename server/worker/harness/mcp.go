package harness

import (
	"maps"
	"slices"
	"strings"

	"triphammer/factory"
)

// jsonServer is a server for harnesses that replace ${NAME} themselves.
type jsonServer struct {
	Type    string            `json:"type,omitempty"`
	Command string            `json:"command,omitempty"`
	Args    []string          `json:"args,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	URL     string            `json:"url,omitempty"`
	HTTPURL string            `json:"httpUrl,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
}

// usable are the servers that an agent can get without harm. References to variables in a
// command line are refused, because the values may be secret.
func (s *Start) usable(servers []factory.MCPServer) []factory.MCPServer {
	var all []factory.MCPServer
	for _, m := range servers {
		line := strings.Join(append([]string{m.Command}, m.Args...), " ")
		if refers := names(line); len(refers) > 0 {
			s.warn("mcpServers.%s: ${%s} would put its value on a command line: name the variable in env; this server is left out", m.Name, refers[0])
			continue
		}
		values := slices.Concat([]string{m.URL}, slices.Collect(maps.Values(m.Env)), slices.Collect(maps.Values(m.Headers)))
		missing := slices.DeleteFunc(names(strings.Join(values, "\n")), s.has)
		slices.Sort(missing)
		for _, name := range slices.Compact(missing) {
			s.warn("mcpServers.%s refers to ${%s}, which this run does not have: grant it as a secret, or set it in the environment's env", m.Name, name)
		}
		all = append(all, m)
	}
	return all
}

var variable, names = factory.Variable, factory.Variables

// rewrite replaces each reference to a variable by the harness's own form of reference.
func rewrite(value string, reference func(name string) string) string {
	return variable.ReplaceAllStringFunc(value, func(m string) string {
		return reference(strings.TrimSuffix(strings.TrimPrefix(m, "${"), "}"))
	})
}

func rewriteAll(values map[string]string, reference func(name string) string) map[string]string {
	all := make(map[string]string, len(values))
	for k, v := range values {
		all[k] = rewrite(v, reference)
	}
	return all
}
