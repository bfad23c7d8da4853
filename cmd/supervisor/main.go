// Command supervisor is a small program that supervises a run, within its walls. Package executor starts
// the supervisor in place of the whole program, which needs eight times as much processor time to start:
// most of that time initialises packages that only a server needs.
//
// make build embeds the supervisor in the whole program. Built without the tag supervisor, the whole
// program supervises runs itself.
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
