// Command triphammer serves factories of coding agents. A factory is webhooks and
// automations that are defined by files in a Git repository.
//
// There is one file for each command, or for each noun of commands. They share root.go
// (flags), client.go (how a command reaches the server), output.go, exit.go, datadir.go
// (how a data directory is made and locked), and instance.go (the parts of a server).
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// version is set by the linker.
var version = "dev"

func main() { os.Exit(execute(os.Args[1:])) }

// execute runs the program and returns its exit status (SPEC 3.4).
func execute(args []string) int {
	if status, is := ofRun(args); is {
		return status
	}
	guardErr := guardProcess()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	root := newRoot(args...)
	if guardErr != nil {
		fmt.Fprintln(root.ErrOrStderr(), "warning:", guardErr)
	}
	root.SetArgs(args)
	root.SetOut(standard(os.Stdout))
	root.SetErr(standard(os.Stderr))
	refuseOtherShells(root)
	c, err := root.ExecuteContextC(ctx)
	if err != nil {
		err = plainMistake(c, err)
	}
	status := report(root.ErrOrStderr(), err)
	if w, ok := root.ErrOrStderr().(*logWriter); ok { // the log of a server
		w.close()
	}
	return status
}
