// Command withpostgres runs a command beside a PostgreSQL server of its own, which is gone
// afterwards. Tests of the command find it in TRIPHAMMER_TEST_POSTGRES.
//
// It needs PostgreSQL's programs: in a folder of Debian's packages, or on the PATH. As root, it
// starts the server as the user postgres.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"triphammer/server/store/storetest"
)

func main() {
	code, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "withpostgres:", err)
	}
	os.Exit(code)
}

func run(args []string) (code int, err error) {
	if len(args) == 0 {
		return 2, errors.New("usage: withpostgres COMMAND…")
	}
	server, err := storetest.NewServer(nil, nil)
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	stops := make(chan os.Signal, 1)
	signal.Notify(stops, syscall.SIGINT, syscall.SIGTERM) // which the command gets, too
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), "TRIPHAMMER_TEST_POSTGRES="+server.URL("127.0.0.1", "postgres"))
	err = cmd.Run()
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		return failed.ExitCode(), nil
	}
	if err != nil {
		return 1, err
	}
	return 0, nil
}
