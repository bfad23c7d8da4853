package run

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"triphammer/factory"
	"triphammer/server/run/task"
	"triphammer/server/secret"
)

// started is a task of a spec on a server, with secrets whose values are their names with -value, and
// what its start says.
func started(t *testing.T, s Spec, can Capabilities, foreign bool, secrets ...string) (work *task.Task, notes, warnings string) {
	t.Helper()
	can.Adapt(&s)
	work = &task.Task{Secrets: make(map[string]secret.Value), Credentials: make(map[string]secret.Value), Foreign: foreign}
	all := make(map[string]secret.Value)
	for _, name := range secrets {
		all[name] = secret.New(name + "-value")
	}
	for _, name := range s.Secrets {
		work.Secrets[name] = all[name]
	}
	s.Demand(work)
	s.GatewaySecrets(work, all)
	agent := s.Start(work, "")
	return work, strings.Join(agent.Notes, "\n"), strings.Join(agent.Warnings, "\n")
}

// inside tells whether a value is anywhere in what a run gets.
func inside(work *task.Task, value string) bool {
	for _, v := range work.Secrets {
		if strings.Contains(v.Reveal(), value) {
			return true
		}
	}
	for _, f := range work.Files {
		if strings.Contains(string(f.Data), value) {
			return true
		}
	}
	return strings.Contains(strings.Join(work.Command, " "), value)
}

// TestKeyOutside: which key of the model is outside, which is not, and what is said of it (SPEC 25.1).
func TestKeyOutside(t *testing.T) {
	t.Setenv("ANTHROPIC_AUTH_TOKEN", "unused")
	auth := func(kind, model string) Spec {
		return Spec{Harness: factory.Harness{Type: kind, Model: model, AuthSecret: "KEY"}, Environment: &Environment{Models: []string{"a*"}, HostedTools: true}}
	}
	with := func(s Spec, change func(*Spec)) Spec {
		change(&s)
		return s
	}
	for _, tt := range []struct {
		name   string
		spec   Spec
		can    Capabilities
		url    string // of the provider; empty: the key is inside
		header string
		note   string
	}{
		{"claude", auth("claude", ""), Capabilities{}, "https://api.anthropic.com", "X-Api-Key: KEY-value", "the key for anthropic (the secret KEY) is outside this run"},
		{"codex", auth("codex", ""), Capabilities{}, "https://api.openai.com/v1", "Authorization: Bearer KEY-value", "openai (the secret KEY) is outside"},
		{"gemini", auth("gemini", ""), Capabilities{}, "https://generativelanguage.googleapis.com", "X-Goog-Api-Key: KEY-value", "gemini (the secret KEY) is outside"},
		{"opencode", auth("opencode", "google/gemini-3"), Capabilities{}, "https://generativelanguage.googleapis.com", "X-Goog-Api-Key: KEY-value", "is outside"},
		{"a provider of one's own", auth("opencode", "loop/m"), Capabilities{ModelProviders: map[string]string{"loop": "http://loop/v1"}}, "http://loop/v1", "Authorization: Bearer KEY-value", "is outside"},
		{"codex with that", auth("codex", "loop/m"), Capabilities{ModelProviders: map[string]string{"loop": "http://loop/v1"}}, "http://loop/v1", "Authorization: Bearer KEY-value", "is outside"},
		{"the operator's address", auth("claude", ""), Capabilities{ModelProviders: map[string]string{"anthropic": "https://models.example.com"}}, "https://models.example.com", "X-Api-Key: KEY-value", "is outside"},
		{
			"the environment's address", with(auth("claude", ""), func(s *Spec) { s.Environment.Env = map[string]string{"ANTHROPIC_BASE_URL": "https://own.example.com"} }),
			Capabilities{ModelProviders: map[string]string{"anthropic": "https://models.example.com"}},
			"https://own.example.com", "X-Api-Key: KEY-value", "is outside",
		},
		{
			"Azure", with(auth("codex", ""), func(s *Spec) {
				s.Environment.Env = map[string]string{"OPENAI_BASE_URL": "https://a.openai.azure.com/openai/v1"}
			}),
			Capabilities{},
			"https://a.openai.azure.com/openai/v1", "Api-Key: KEY-value", "is outside",
		},
		{"an agent for ACP", with(auth("acp", ""), func(s *Spec) {
			s.Harness.Command = []string{"npx", "-y", "@agentclientprotocol/claude-agent-acp@0.49.0"}
		}), Capabilities{}, "https://api.anthropic.com", "X-Api-Key: KEY-value", "is outside"},
		{"another", with(auth("acp", ""), func(s *Spec) { s.Harness.Command = []string{"goose"} }), Capabilities{}, "", "", "a key of the model is inside this run, where its agent can read it: KEY (the gateway does not carry this agent"},
		{"another that is told an address", with(auth("acp", ""), func(s *Spec) {
			s.Harness.Command, s.Environment.Env = []string{"goose"}, map[string]string{"OPENAI_BASE_URL": "https://models.example.com/v1"}
		}), Capabilities{}, "https://models.example.com/v1", "Authorization: Bearer KEY-value", "is outside"},
		{"opencode for ACP", with(auth("acp", "anthropic/m"), func(s *Spec) { s.Harness.Command = []string{"opencode", "acp"} }), Capabilities{}, "https://api.anthropic.com", "X-Api-Key: KEY-value", "is outside"},
		{"opencode for ACP without a model", with(auth("acp", ""), func(s *Spec) { s.Harness.Command = []string{"opencode", "acp"} }), Capabilities{}, "", "", "KEY (the gateway does not carry this agent"},
		{"an unknown provider", auth("opencode", "else/m"), Capabilities{}, "", "", "KEY (the gateway does not carry this agent or this model)"},
		{"a granted key", with(auth("claude", ""), func(s *Spec) { s.Secrets = []string{"KEY"} }), Capabilities{}, "", "", "inside this run, where its agent can read it: KEY (it is granted as a variable"},
		{"a command", with(auth("claude", ""), func(s *Spec) { s.Environment.Command = []string{"run"} }), Capabilities{}, "", "", "KEY (the environment has a command of its own)"},
		{"Bedrock", with(auth("claude", ""), func(s *Spec) { s.Environment.Env = map[string]string{"CLAUDE_CODE_USE_BEDROCK": "1"} }), Capabilities{}, "", "", "(with CLAUDE_CODE_USE_BEDROCK, claude signs its requests itself)"},
		{"Vertex", with(auth("gemini", ""), func(s *Spec) { s.Environment.Env = map[string]string{"GOOGLE_GENAI_USE_VERTEXAI": "1"} }), Capabilities{}, "", "", "Vertex takes tokens of an hour"},
	} {
		work, notes, _ := started(t, tt.spec, tt.can, false, "KEY")
		if !strings.Contains(notes, tt.note) {
			t.Errorf("%s: it says %q", tt.name, notes)
		}
		if tt.url == "" {
			if !inside(work, "KEY-value") {
				t.Errorf("%s: the agent has no key: %v", tt.name, work.Services)
			}
			continue
		}
		if len(work.Services) != 1 || inside(work, "KEY-value") {
			t.Errorf("%s: the key is inside, or not at the gateway: %+v", tt.name, work.Services)
			continue
		}
		to := work.Services[0]
		name, value, _ := strings.Cut(tt.header, ": ")
		if to.URL != tt.url || to.Header[name].Reveal() != value || !to.Extras || !reflect.DeepEqual(to.Models, [][]string{{"a*"}}) || !inside(work, to.Token) || !inside(work, to.Address()) {
			t.Errorf("%s: %+v", tt.name, to)
		}
	}
	login := Spec{Harness: factory.Harness{Type: "claude", AuthSecret: "sk-ant-oat"}}
	if work, notes, _ := started(t, login, Capabilities{Models: []string{"x"}}, false, "sk-ant-oat"); len(work.Services) > 0 || !strings.Contains(notes, "it is a login of a subscription") || !strings.Contains(notes, "warning: models does not hold the agent") {
		t.Errorf("%+v %q", work.Services, notes)
	}
}

// TestWorkerKeyOutside: a key that a run borrows from its worker is outside, too.
func TestWorkerKeyOutside(t *testing.T) {
	s := Spec{Harness: factory.Harness{Type: "claude", AuthWorker: true}}
	can := &Capabilities{AgentEnv: []string{"ANTHROPIC_AUTH_TOKEN", "OTHER"}}
	can.Adapt(&s)
	work := &task.Task{Secrets: map[string]secret.Value{"ANTHROPIC_AUTH_TOKEN": secret.New("borrowed"), "OTHER": secret.New("o")}}
	agent := s.Start(work, "")
	if len(work.Services) != 1 || inside(work, "borrowed") || work.Services[0].Header["Authorization"].Reveal() != "Bearer borrowed" || work.Secrets["OTHER"].Reveal() != "o" || !strings.Contains(strings.Join(agent.Notes, ""), "anthropic (a variable of the worker) is outside") {
		t.Errorf("%+v %v %q", work.Services, work.Secrets, agent.Notes)
	}
}

// TestServices: a run finds the addresses of services, and no secrets; a run on a stranger's code finds
// nothing (SPEC 25.4, 21.7).
func TestServices(t *testing.T) {
	mcp := MCPServer{Name: "linear", URL: "https://mcp.example.com/mcp", Headers: map[string]string{"Authorization": "Bearer ${LINEAR_KEY}", "X-Plain": "p"}, Outside: []string{"LINEAR_KEY"}}
	asked := mcp // of a request, which cannot name secrets
	asked.Name, asked.URL, asked.Outside = "asked", "https://evil.example.com/", nil
	s := Spec{
		Harness: factory.Harness{Type: "claude", AuthSecret: "KEY"}, MCPServers: []MCPServer{mcp, asked},
		Environment: &Environment{Services: []factory.Service{{Name: "own-app", URL: "https://app.example.com", Secret: "APP", Header: "Authorization: token", Methods: []string{"GET"}, Paths: []string{"/a"}}}},
	}
	if got := s.AllSecrets(); !slices.Equal(got, []string{"APP", "KEY"}) || !slices.Equal(s.OutsideSecrets(), []string{"LINEAR_KEY"}) {
		t.Errorf("its secrets are %q and %q", got, s.OutsideSecrets())
	}
	work, _, warnings := started(t, s, Capabilities{}, false, "KEY", "APP", "LINEAR_KEY")
	if len(work.Services) != 3 || inside(work, "APP-value") || inside(work, "LINEAR_KEY-value") || !inside(work, "${TRIPHAMMER_MCP_") {
		t.Fatalf("%+v", work.Services)
	}
	app, linear := work.Services[0], work.Services[2]
	if app.Header["Authorization"].Reveal() != "token APP-value" || work.Secrets["OWN_APP_URL"].Reveal() != app.Address() || !slices.Equal(app.Paths, []string{"/a"}) {
		t.Errorf("%+v", app)
	}
	if linear.URL != mcp.URL || linear.Header["Authorization"].Reveal() != "Bearer LINEAR_KEY-value" || len(linear.Header) != 2 || linear.Header["X-Plain"].Reveal() != "p" || !slices.Equal(linear.Paths, []string{""}) {
		t.Errorf("%+v", linear)
	}
	if !strings.Contains(warnings, "mcpServers.asked refers to ${LINEAR_KEY}, which this run does not have") || strings.Contains(warnings, "mcpServers.linear") {
		t.Errorf("it warns %q", warnings)
	}
	work, _, warnings = started(t, s, Capabilities{}, true, "KEY", "APP", "LINEAR_KEY")
	if len(work.Services) != 1 || work.Services[0].Provider != "anthropic" || inside(work, "APP-value") || inside(work, "LINEAR_KEY-value") || !strings.Contains(warnings, "this run does not get own-app") {
		t.Errorf("on a stranger's code: %+v %q", work.Services, warnings)
	}
	// Nor if the secret is the model's own, or that of a repository.
	mcp.Headers, mcp.Outside = map[string]string{"Authorization": "Bearer ${KEY}"}, []string{"KEY"}
	s.MCPServers, s.Environment.Services[0].Secret = []MCPServer{mcp}, "KEY"
	for foreign, services := range map[bool]int{false: 3, true: 1} {
		if work, _, _ = started(t, s, Capabilities{}, foreign, "KEY"); len(work.Services) != services || inside(work, "KEY-value") {
			t.Errorf("on a stranger's code %v: %+v", foreign, work.Services)
		}
	}
}
