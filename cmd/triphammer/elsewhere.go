//go:build !linux || client

package main

import (
	"runtime"

	"github.com/spf13/cobra"
)

// On systems other than Linux this program checks definitions and is a client of servers
// elsewhere. A server needs Linux: the walls around runs are made of what that has. The build
// tag "client" makes the same on Linux, for TestClient.

// onLinux stands for a command that needs Linux, so that it says so.
func onLinux(use, short string) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short + " (on Linux alone)", DisableFlagParsing: true,
		RunE: func(c *cobra.Command, _ []string) error {
			return exitWith(exitUsage, "%s needs Linux, and this is %s. Here commands check definitions, and reach a server elsewhere: --server URL", c.CommandPath(), runtime.GOOS)
		},
	}
}

func serveCommand() *cobra.Command {
	return onLinux("serve", "Serve the production branch of a repository")
}

func devCommand() *cobra.Command    { return onLinux("dev", "Serve a working tree while you write it") }
func dbCommand() *cobra.Command     { return onLinux("db", "The store of a server") }
func doctorCommand() *cobra.Command { return onLinux("doctor", "Check the machine of a server") }
func configCommand() *cobra.Command { return onLinux("config", "The settings of a server") }
func executorCommand() *cobra.Command {
	return onLinux("executor", "What executes the runs of a server")
}
func demoAgentCommand() *cobra.Command { return onLinux("demo-agent", "The demonstration agent") }

func localClient(*cobra.Command, string, bool, bool) (*client, error) {
	return nil, exitWith(exitUsage, "--data (or TRIPHAMMER_DATA) names a server on this machine, and a server needs Linux. Give --server URL")
}

func resealSecrets(*cobra.Command, string) error {
	return exitWith(exitUsage, "secrets reseal needs Linux: call it on the machine of the server")
}

func ofRun([]string) (status int, is bool) { return 0, false }
func guardProcess() error                  { return nil }
func installedServer() string              { return "" }
func nearestDev() string                   { return "" }

func madeSecret(string, string) (string, error) { return "", nil }

func workerCommand() *cobra.Command {
	return onLinux("worker", "Execute runs for servers that share a store")
}
