//go:build linux && !client

package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

// startHere runs what this program is inside a run, if args call for that. If they do not, it
// protects this process.
func startHere(args []string) (status int, is bool) {
	if status, is := ofRun(args); is {
		return status, true
	}
	if err := guardProcess(); err != nil {
		fmt.Fprintln(os.Stderr, "warning:", err)
	}
	return 0, false
}

// hostHere is what the client has of this machine.
func hostHere() Host {
	return Host{
		Commands: func() []*cobra.Command {
			return []*cobra.Command{
				serveCommand(), workerCommand(), devCommand(), dbCommand(), doctorCommand(), configCommand(), executorCommand(), demoAgentCommand(),
			}
		},
		Local: localClient, Reseal: resealSecrets, NearestDev: nearestDev, Installed: installedServer, MadeSecret: madeSecret,
	}
}
