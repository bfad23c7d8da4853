// Command triphammer serves factories of coding agents: webhooks and automations
// that are files in a Git repository.
//
// There is one file per command, or per noun of commands. What they share:
// root.go (flags), client.go (how a command reaches the server), output.go,
// exit.go, datadir.go (who may have a data directory, and what makes one), and
// instance.go (the parts of a server, wired together).
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"triphammer/server/sandbox"
)

// version is set by the linker.
var version = "dev"

func main() { os.Exit(execute(os.Args[1:])) }

// execute runs the program and returns its exit status (SPEC 3.4).
func execute(args []string) int {
	if len(args) > 0 && args[0] == sandbox.SuperviseCommand {
		return sandbox.Supervise(args[1:])
	}
	guardErr := guardProcess()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends it at once
	root := newRoot()
	if guardErr != nil {
		fmt.Fprintln(root.ErrOrStderr(), "warning:", guardErr)
	}
	root.SetArgs(args)
	root.SetOut(standard(os.Stdout))
	root.SetErr(standard(os.Stderr))
	err := root.ExecuteContext(ctx)
	status := report(root.ErrOrStderr(), err)
	if w, ok := root.ErrOrStderr().(*logWriter); ok { // that of a server
		w.close()
	}
	return status
}
