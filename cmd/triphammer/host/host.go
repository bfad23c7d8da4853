// Package host has the commands that need the parts of a server, and what the client needs of the
// machine of a server. They share instance.go (the parts of a server) and datadir.go (how a data
// directory is made and locked). The package needs Linux.
package host

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"triphammer/cmd/triphammer/client"
)

// Start runs what this program is inside a run, if args call for that. If they do not, it
// protects this process.
func Start(args []string) (status int, is bool) {
	if status, is := ofRun(args); is {
		return status, true
	}
	if err := guardProcess(); err != nil {
		fmt.Fprintln(os.Stderr, "warning:", err)
	}
	return 0, false
}

// Here is what the client has of this machine.
func Here() client.Host {
	return client.Host{
		Commands: func() []*cobra.Command {
			return []*cobra.Command{
				serveCommand(), workerCommand(), devCommand(), dbCommand(), doctorCommand(), configCommand(), executorCommand(), demoAgentCommand(),
			}
		},
		Local: localClient, Reseal: resealSecrets, NearestDev: nearestDev, Installed: installedServer, MadeSecret: madeSecret,
	}
}
