package run

import (
	"errors"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"triphammer/factory"
)

// TestLacks: what of a spec cannot act on a server, and what can on one that is set up for
// it (SPEC 15.1, 15.2).
func TestLacks(t *testing.T) {
	found := func(name string) (string, error) { return "/bin/" + name, nil }
	other := map[string]string{"x86_64": "aarch64"}[arch()]
	if other == "" {
		other = "x86_64"
	}
	for _, tt := range []struct {
		name string
		spec Spec
		can  Capabilities // that has it; LookPath is set
		want string
	}{
		{"a worker", Spec{WorkerHost: "attic"}, Capabilities{WorkerHosts: []string{"attic"}}, "waits for a worker named attic (serve --worker-host)"},
		{"an MCP server", Spec{MCPServers: []MCPServer{{Name: "m", WarpID: "w"}}}, Capabilities{MCPServers: map[string]MCPServer{"w": {Command: "run"}}}, "mcpServers.m: this server knows none by the identifier w"},
		{"a worker's variables", Spec{Harness: factory.Harness{Type: "claude", AuthWorker: true}}, Capabilities{AgentEnv: []string{"KEY"}}, "harness.auth asks for variables of the worker"},
		{"a processor", Spec{Arch: other}, Capabilities{}, "a processor of the kind " + other},
		{"a forge", Spec{Repositories: []Repository{{URL: "/a/b.git", Forge: "FORGE"}}}, Capabilities{CodeForges: map[string]string{"FORGE": "https://git.example.com"}}, "no address of the code forge FORGE"},
		{"a key for ssh", Spec{Environment: &Environment{Command: []string{"run"}, Repositories: []Repository{{URL: "git@git.example.com:a/b.git", Secret: "KEY"}}}}, Capabilities{}, "the secret KEY of the repository git@git.example.com:a/b.git works over https alone"},
		{"a credential that the agent gets too", Spec{Secrets: []string{"KEY"}, Environment: &Environment{Command: []string{"run"}, Repositories: []Repository{{URL: "https://git.example.com/a/b.git", Secret: "KEY"}}}}, Capabilities{}, "is also granted as a variable"},
		{"a model", Spec{Harness: factory.Harness{Type: "oz", Model: "gpt-5"}}, Capabilities{DefaultHarness: "codex"}, `the model "gpt-5" is not one of claude`},
		{"what a command is not given", Spec{Skills: []Skill{{Name: "s"}}, Environment: &Environment{Path: "environments/e.yaml", Command: []string{"run"}}}, Capabilities{}, "environments/e.yaml has a command of its own, which is not given the skills"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			none := Capabilities{LookPath: found}
			fine := func(*Task) (Place, error) { return Place{}, nil }
			if got, _ := none.Lacks(tt.spec, fine); len(got) != 1 || !strings.Contains(got[0], tt.want) {
				t.Errorf("a server of which nobody said anything: %q, want %q", got, tt.want)
			}
			if tt.can.LookPath = found; slices.Contains([]string{"a processor", "what a command is not given", "a key for ssh", "a credential that the agent gets too"}, tt.name) {
				return
			}
			if got, _ := tt.can.Lacks(tt.spec, fine); len(got) > 0 {
				t.Errorf("a server that has it: %q", got)
			}
		})
	}
	fine := func(*Task) (Place, error) { return Place{}, nil }
	if got, _ := (&Capabilities{LookPath: found}).Lacks(Spec{}, func(*Task) (Place, error) { return Place{}, errors.New("no walls") }); !slices.Equal(got, []string{"no walls: a run fails"}) {
		t.Errorf("%q", got)
	}
	// The program is named that has to be there, whatever starts it.
	missing := Capabilities{LookPath: func(string) (string, error) { return "", exec.ErrNotFound }}
	for program, s := range map[string]Spec{
		"claude": {}, "codex": {Harness: factory.Harness{Type: "codex"}}, "gemini": {Harness: factory.Harness{Type: "gemini"}},
		"opencode": {Harness: factory.Harness{Type: "opencode"}}, "speaker": {Harness: factory.Harness{Type: "acp", Command: []string{"speaker", "--acp"}}},
		"/opt/agent": {Environment: &Environment{Command: []string{"/opt/agent"}}},
		"":           {Environment: &Environment{Command: []string{"./agent"}}},
		ThisProgram:  {Environment: &Environment{Command: []string{"triphammer", "demo-agent"}}},
	} {
		var told []string
		all, noProgram := missing.Lacks(s, fine)
		for _, one := range all {
			if strings.Contains(one, "program") {
				told = append(told, one)
			}
		}
		want := []string{"this server has no program " + program + " on its PATH, which starts the agent: a run fails"}
		if program == "" || program == ThisProgram {
			want = nil // it may be in the workspace, or it is this program
		}
		if !slices.Equal(told, want) || noProgram != (want != nil) {
			t.Errorf("%s: %q, %t", program, told, noProgram)
		}
	}
}

// TestLacksUnknown: where no server runs, only what acts on no server is said.
func TestLacksUnknown(t *testing.T) {
	none := Capabilities{Unknown: true, LookPath: func(string) (string, error) { return "", exec.ErrNotFound }}
	refuses := func(*Task) (Place, error) { return Place{}, errors.New("no walls") }
	for _, tt := range []struct {
		spec Spec
		want string // of the only warning; empty: there is none
	}{
		{Spec{WorkerHost: "attic", DockerImage: "debian", MCPServers: []MCPServer{{Name: "m", WarpID: "w"}}, Harness: factory.Harness{Type: "oz", Model: "gpt-5", AuthWorker: true}}, ""},
		{Spec{Harness: factory.Harness{Type: "claude"}, MCPServers: []MCPServer{{Name: "m", WarpID: "w"}}}, ""},
		{Spec{Harness: factory.Harness{Type: "cursor"}}, `this server cannot start the harness "cursor"`},
		{Spec{Harness: factory.Harness{Type: "codex"}, Budget: factory.Budget{USD: 1}}, "codex does not tell what it costs"},
		{Spec{Skills: []Skill{{Name: "s"}}, Environment: &Environment{Path: "environments/e.yaml", Command: []string{"run"}}}, "which is not given the skills"},
	} {
		got, _ := none.Lacks(tt.spec, refuses)
		if tt.want == "" && len(got) > 0 || tt.want != "" && (len(got) != 1 || !strings.Contains(got[0], tt.want)) {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}

// TestWorkerSecrets: the operator's variables go only to runs that ask for them.
func TestWorkerSecrets(t *testing.T) {
	t.Setenv("TH_TEST_KEY", "value")
	can := Capabilities{AgentEnv: []string{"TH_TEST_KEY", "TH_TEST_UNSET"}}
	if got := can.workerSecrets(&Spec{Harness: factory.Harness{AuthWorker: true}}); len(got) != 1 || got["TH_TEST_KEY"].Reveal() != "value" {
		t.Errorf("%v", got)
	}
	if got := can.workerSecrets(&Spec{}); len(got) > 0 {
		t.Errorf("a run that does not ask gets %v", got)
	}
}
