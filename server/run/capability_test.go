package run

import (
	"errors"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"triphammer/factory"
	"triphammer/server/run/task"
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
		{"a forge", Spec{Repositories: []factory.Repository{{URL: "/a/b.git", Forge: "FORGE"}}}, Capabilities{CodeForges: map[string]string{"FORGE": "https://git.example.com"}}, "no address of the code forge FORGE"},
		{"a key for ssh", Spec{Environment: &Environment{Command: []string{"run"}, Repositories: []factory.Repository{{URL: "git@git.example.com:a/b.git", Secret: "KEY"}}}}, Capabilities{}, "the secret KEY of the repository git@git.example.com:a/b.git works over https alone"},
		{"a credential that the agent gets too", Spec{Secrets: []string{"KEY"}, Environment: &Environment{Command: []string{"run"}, Repositories: []factory.Repository{{URL: "https://git.example.com/a/b.git", Secret: "KEY"}}}}, Capabilities{}, "is also granted as a variable"},
		{"a model", Spec{Harness: factory.Harness{Type: "oz", Model: "gpt-5"}}, Capabilities{DefaultHarness: "codex"}, `the model "gpt-5" is not one of claude`},
		{"what a command is not given", Spec{Skills: []Skill{{Name: "s"}}, Environment: &Environment{Path: "environments/e.yaml", Command: []string{"run"}}}, Capabilities{}, "environments/e.yaml has a command of its own, which is not given the skills"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			none := Capabilities{LookPath: found}
			fine := func(*task.Task) (task.Place, error) { return task.Place{}, nil }
			if got, _ := none.Lacks(tt.spec, fine); len(got) != 1 || !strings.Contains(got[0], tt.want) {
				t.Errorf("a server whose operator said nothing: %q, want %q", got, tt.want)
			}
			if tt.can.LookPath = found; slices.Contains([]string{"a processor", "what a command is not given", "a key for ssh", "a credential that the agent gets too"}, tt.name) {
				return
			}
			if got, _ := tt.can.Lacks(tt.spec, fine); len(got) > 0 {
				t.Errorf("a server that has it: %q", got)
			}
		})
	}
	fine := func(*task.Task) (task.Place, error) { return task.Place{}, nil }
	if got, _ := (&Capabilities{LookPath: found}).Lacks(Spec{}, func(*task.Task) (task.Place, error) { return task.Place{}, errors.New("no walls") }); !slices.Equal(got, []string{"no walls: a run fails"}) {
		t.Errorf("%q", got)
	}
	// The program is named that has to be there, whatever starts it.
	missing := Capabilities{LookPath: func(string) (string, error) { return "", exec.ErrNotFound }}
	for program, s := range map[string]Spec{
		"claude": {}, "codex": {Harness: factory.Harness{Type: "codex"}}, "gemini": {Harness: factory.Harness{Type: "gemini"}},
		"opencode": {Harness: factory.Harness{Type: "opencode"}}, "speaker": {Harness: factory.Harness{Type: "acp", Command: []string{"speaker", "--acp"}}},
		"/opt/agent":     {Environment: &Environment{Command: []string{"/opt/agent"}}},
		"":               {Environment: &Environment{Command: []string{"./agent"}}},
		task.ThisProgram: {Environment: &Environment{Command: []string{"triphammer", "demo-agent"}}},
	} {
		var told []string
		all, noProgram := missing.Lacks(s, fine)
		for _, one := range all {
			if strings.Contains(one, "program") {
				told = append(told, one)
			}
		}
		want := []string{"this server has no program " + program + " on its PATH, which starts the agent: a run fails"}
		if program == "" || program == task.ThisProgram {
			want = nil // it may be in the workspace, or it is this program
		}
		if !slices.Equal(told, want) || noProgram != (want != nil) {
			t.Errorf("%s: %q, %t", program, told, noProgram)
		}
	}
}

// TestLacksInImage: of an image is said what it is known to lack of what a run starts in it, and
// nothing of one that may have it all.
func TestLacksInImage(t *testing.T) {
	const stock, own = "ubuntu:24.04", "registry.example.com/team/agent:1"
	noGit := "the image " + own + " has no program git on its PATH, which clones the repositories: add it to the image, or name another image (dockerImage): a run fails"
	noClaude := strings.NewReplacer("git", "claude", "clones the repositories", "starts the agent").Replace(noGit)
	clones := Spec{Repositories: []factory.Repository{{URL: "https://example.com/r.git"}}}
	for _, tt := range []struct {
		name, image string
		spec        Spec
		here        bool
		lacks       []string
		want        []string
		noProgram   bool
	}{
		{task.Cluster, stock, clones, false, []string{"claude"}, []string{"the image " + stock + " of Docker Hub has no program claude, which starts the agent: name an image that has it, and git if " +
			"there are repositories (dockerImage): a run fails, unless the image of --kube-program-image has the program: this server looked on its own machine alone"}, true},
		{"both", own, clones, true, []string{"git", "claude"}, []string{noGit, noClaude}, true},
		{"git", own, clones, true, []string{"git"}, []string{noGit}, false},
		{"nothing to clone", own, Spec{}, true, []string{"git", "claude"}, []string{noClaude}, true},
		{"a good one", own, clones, true, nil, nil, false},
		{"not pulled yet", own, clones, false, []string{"git", "claude"}, nil, false},
		{"not pulled yet, and brought", stock, clones, false, nil, nil, false},
		{"not pulled yet, and stock", stock, clones, false, []string{"claude"}, []string{"the image " + stock +
			" of Docker Hub has no program claude, which starts the agent: name an image that has it, and git if there are repositories (dockerImage): a run fails"}, true},
		{"stock in full", "docker.io/library/debian", Spec{}, false, []string{"claude"}, []string{"the image docker.io/library/debian of Docker Hub has no program claude, " +
			"which starts the agent: name an image that has it, and git if there are repositories (dockerImage): a run fails"}, true},
		{"of an account", "docker.io/team/agent", Spec{}, false, []string{"claude"}, nil, false},
		{"made here under such a name", stock, clones, true, nil, nil, false},
		{"a command", stock, Spec{Environment: &Environment{Command: []string{"python3", "x"}}}, false, []string{"python3"}, nil, false},
		{"a command in the workspace", own, Spec{Environment: &Environment{Command: []string{"./x"}}}, true, []string{"./x"}, nil, false},
		{"a PATH", own, Spec{Repositories: clones.Repositories, Environment: &Environment{Env: map[string]string{"PATH": "/opt/bin"}}}, true, []string{"git", "claude"}, nil, false},
	} {
		there := func(*task.Task) (task.Place, error) {
			return task.Place{Isolation: tt.name, Elsewhere: true, Image: tt.image, Lacks: func(programs []string) (lacking []string, here bool) {
				return slices.DeleteFunc(programs, func(p string) bool { return !slices.Contains(tt.lacks, p) }), tt.here
			}}, nil
		}
		if got, noProgram := (&Capabilities{}).Lacks(tt.spec, there); !slices.Equal(got, tt.want) || noProgram != tt.noProgram {
			t.Errorf("%s: %q, %t; want %q", tt.name, got, noProgram, tt.want)
		}
	}
}

// TestLacksUnknown: where no server runs, only what acts on no server is said.
func TestLacksUnknown(t *testing.T) {
	none := Capabilities{Unknown: true, LookPath: func(string) (string, error) { return "", exec.ErrNotFound }}
	refuses := func(*task.Task) (task.Place, error) { return task.Place{}, errors.New("no walls") }
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
