// Command triphammer serves factories of coding agents. A factory is webhooks and
// automations that are defined by files in a Git repository.
//
// This package says which of the programs it is: what works inside a run, or a command. Package
// client has the commands, and package host those that need the parts of a server.
package main

import (
	"os"

	"triphammer/cmd/triphammer/client"
)

// version is set by the linker.
var version = "dev"

func main() { os.Exit(execute(os.Args[1:])) }

func execute(args []string) int {
	if status, is := start(args); is {
		return status
	}
	client.Version = version
	return client.Execute(thisHost, args)
}
