//go:build full

package executor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"triphammer/server/run/task"
)

// TestPrivateRepositoryNetworks: a sandbox and a container reach their private repository
// whatever their network is, and nothing else of the forge by that way.
func TestPrivateRepositoryNetworks(t *testing.T) {
	sandboxed := func(t *testing.T, cfg Config) *Executor {
		cfg.Isolation = Sandbox
		return newWalled(t, cfg)
	}
	t.Run("sandbox", func(t *testing.T) { privateRepositoryNetworks(t, sandboxed, "who are you?\n\n") })
	t.Run("container", func(t *testing.T) { privateRepositoryNetworks(t, newContained, "") })
}

// privateRepositoryNetworks tests with executors that create makes. direct is what a run with
// the network on hears from the loopback of the machine.
func privateRepositoryNetworks(t *testing.T, create func(*testing.T, Config) *Executor, direct string) {
	forge := newForge(t)
	for name, network := range map[string]task.Network{"on": {On: true}, "off": {Off: true}, "a list": {Hosts: []string{"api.example.com"}}} {
		t.Run(name, func(t *testing.T) {
			e, r := create(t, Config{Roots: forge.roots, Network: network}), newRecorder()
			branch := "from-" + strings.ReplaceAll(name, " ", "-")
			work := forge.task("git commit -q --allow-empty -m two && git push -q origin HEAD:refs/heads/" + branch + " && echo pushed\n" + hunt +
				"\nGIT_SSL_NO_VERIFY=1 git ls-remote " + strings.Replace(forge.url, "app.git", "app-of-others.git", 1) + " && echo reached\n" +
				"curl -sk --max-time 5 --noproxy '*' " + forge.URL + " && echo; true")
			work.Network = network
			if _, err := e.Preflight(work); err != nil {
				t.Fatal(err)
			}
			for _, resume := range []bool{false, true} {
				if work.Resume = resume; resume {
					work.Command = []string{"sh", "-c", "git fetch -q && echo pushed"}
					r = newRecorder()
				}
				exit, err := e.Start(t.Context(), work, r)
				want := "pushed\n"
				if name == "on" && !resume {
					want += direct
				}
				if err != nil || exit.Code != 0 || r.said("stdout") != want {
					t.Fatalf("%v %v: %q %q", exit, err, r.said("stdout"), r.said("stderr"))
				}
			}
			git(t, forge.bare, "rev-parse", "--verify", branch)
			forge.noToken(t, filepath.Join(e.dir, "run_1"))
			if left, _ := filepath.Glob(filepath.Join(e.dir, "run_1", "*.sock")); len(left) > 0 {
				t.Errorf("sockets are left: %q", left)
			}
			if _, err := os.Stat(filepath.Join(e.dir, "run_1", "workspace", "hunted")); err != nil {
				t.Error(err)
			}
		})
	}
}
