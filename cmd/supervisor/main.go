// Command supervisor is the part of this program that works within the walls of a run, alone. Package
// executor starts it in the place of the whole program, which needs eight times as much processor time to
// start: most of that is the initialisation of packages that only a server needs.
//
// The whole program contains it (make build), and does without it if built without the tag supervisor.
package main

import (
	"fmt"
	"os"

	"triphammer/server/inside"
)

func main() {
	if len(os.Args) < 2 || os.Args[1] != inside.SuperviseCommand {
		fmt.Fprintln(os.Stderr, "this program is a part of Triphammer: a server or worker starts it for each run")
		os.Exit(2)
	}
	os.Exit(inside.Supervise(os.Args[2:]))
}
