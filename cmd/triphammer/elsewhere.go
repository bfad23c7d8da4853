package main

import (
	"runtime"

	"github.com/spf13/cobra"

	"triphammer/cmd/triphammer/client"
	"triphammer/cmd/triphammer/client/exit"
)

// On systems other than Linux this program checks definitions and is a client of servers
// elsewhere. A server needs Linux: the walls around runs are made of what that has. So host.go
// puts a host in the place of the following. The build tag "client" leaves it out on Linux, for
// TestClient.

// start runs what this program is inside a run, if args call for that.
var start = func([]string) (status int, is bool) { return 0, false }

// thisHost is what the client has of this machine.
var thisHost = client.Host{
	Commands: func() []*cobra.Command {
		return []*cobra.Command{
			onLinux("serve", "Serve the production branch of a repository"),
			onLinux("worker", "Execute runs for servers that share a store"),
			onLinux("dev", "Serve a working tree while you write it"),
			onLinux("db", "The store of a server"),
			onLinux("doctor", "Check the machine of a server"),
			onLinux("config", "The settings of a server"),
			onLinux("executor", "What executes the runs of a server"),
			onLinux("demo-agent", "The demonstration agent"),
		}
	},
	Local: func(*cobra.Command, string, bool, bool) (*client.Client, error) {
		return nil, exit.With(exit.Usage, "--data (or TRIPHAMMER_DATA) names a server on this machine, and a server needs Linux. Give --server URL")
	},
	Reseal: func(*cobra.Command, string) error {
		return exit.With(exit.Usage, "secrets reseal needs Linux: call it on the machine of the server")
	},
	NearestDev: func() string { return "" },
	Installed:  func() string { return "" },
	MadeSecret: func(string, string) (string, error) { return "", nil },
}

// onLinux stands for a command that needs Linux, so that it says so.
func onLinux(use, short string) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short + " (on Linux alone)", DisableFlagParsing: true,
		RunE: func(c *cobra.Command, _ []string) error {
			return exit.With(exit.Usage, "%s needs Linux, and this is %s. Here commands check definitions, and reach a server elsewhere: --server URL", c.CommandPath(), runtime.GOOS)
		},
	}
}
