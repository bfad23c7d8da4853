//go:build race

package executor

// Otherwise a program with the race detector sleeps for a second at its end, and each run of
// the tests has a supervisor.
func init() { supervisorEnv = []string{"GORACE=atexit_sleep_ms=0"} }
