package run

import (
	"crypto/rand"
	"fmt"
	"slices"
	"strings"

	"triphammer/server/run/task"
	"triphammer/server/secret"
)

// gatewaySecrets are the names of the credentials of the model and of services, which the gateway of a
// run has.
func (s *Spec) gatewaySecrets() (names []string) {
	if s.Harness.AuthSecret != "" {
		names = append(names, s.Harness.AuthSecret)
	}
	if s.Environment != nil {
		for _, to := range s.Environment.Services {
			names = append(names, to.Secret)
		}
	}
	return names
}

// OutsideSecrets are the names of the variables in headers of MCP servers that are no variables of the
// run: the gateway of the run adds the managed secrets of these names. A secret that is not set is left
// out, with a warning.
func (s *Spec) OutsideSecrets() (names []string) {
	for _, m := range s.MCPServers {
		for _, name := range m.Outside {
			plain := false
			if s.Environment != nil {
				_, plain = s.Environment.Env[name]
			}
			if m.URL != "" && !plain && name != task.OutputsToken && !slices.Contains(s.Secrets, name) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// nominal is a task with the names of the secrets of a spec, and without values.
func (s *Spec) nominal() *task.Task {
	t := &task.Task{Secrets: make(map[string]secret.Value), Credentials: make(map[string]secret.Value)}
	s.Demand(t)
	for _, name := range s.Secrets {
		t.Secrets[name] = secret.Value{}
	}
	for _, name := range slices.Concat(s.gatewaySecrets(), s.OutsideSecrets()) {
		t.Credentials[name] = secret.Value{}
	}
	return t
}

// GatewaySecrets gives a task the credentials that its gateway has besides those of repositories. all
// are the newest values. A run on a stranger's code gets that of its model alone (SPEC 21.7).
func (s *Spec) GatewaySecrets(t *task.Task, all map[string]secret.Value) {
	names := slices.Concat(s.gatewaySecrets(), s.OutsideSecrets())
	if t.Foreign {
		names = []string{s.Harness.AuthSecret}
	}
	for _, name := range names {
		if v, is := all[name]; is {
			t.Credentials[name] = v
		}
	}
}

// serve makes the services of the environment services of the task (SPEC 25.4), and sets their variables.
func (s *Spec) serve(t *task.Task) (warnings []string) {
	if s.Environment == nil {
		return nil
	}
	for _, to := range s.Environment.Services {
		v, is := t.Credentials[to.Secret]
		if !is || t.Foreign { // its secret may be that of the model or of a repository, too
			warnings = append(warnings, fmt.Sprintf("services: this run does not get %s, because it works on the code of another repository", to.Name))
			continue
		}
		if slices.Contains(s.Secrets, to.Secret) {
			warnings = append(warnings, fmt.Sprintf("the secret %s of the service %s is also granted as a variable, so the agent can read it: take it out of secrets", to.Secret, to.Name))
		}
		header, value := to.HeaderOf(strings.TrimSpace(v.Reveal()))
		own := task.Service{
			Name: to.Name, Token: rand.Text(), URL: to.URL, Secret: to.Secret, Header: map[string]secret.Value{header: secret.New(value)},
			Methods: to.Methods, Paths: to.Paths,
		}
		t.Services = append(t.Services, own)
		t.Secrets[to.Variable()] = secret.New(own.Address())
	}
	return warnings
}
