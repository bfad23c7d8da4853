//go:build race

package executor

// A program with the race detector sleeps for a second at its end otherwise, and there is
// a supervisor for each run of the tests.
func init() { supervisorEnv = []string{"GORACE=atexit_sleep_ms=0"} }
