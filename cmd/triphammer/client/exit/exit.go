// Package exit has the ways in which a command ends.
package exit

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// Exit statuses of every command (SPEC 3.4).
const (
	Bad         = 1 // the command ran, and the result is bad
	Usage       = 2 // wrong use, or the command could not run
	Pending     = 3
	Auth        = 4
	NotFound    = 5
	Conflict    = 6
	Unreachable = 7
	Timeout     = 8
	Interrupted = 130 // as in a shell, for a command that SIGINT ended
)

// Error is an error with an exit status. If Err is nil, nothing is printed, because
// the command has printed everything.
type Error struct {
	Code int
	Err  error
}

func (e *Error) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit status %d", e.Code)
	}
	return e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// With is an error with an exit status. The rest is as for fmt.Errorf.
func With(code int, format string, args ...any) error {
	return &Error{code, fmt.Errorf(format, args...)}
}

// Silently is an error that sets the exit status and prints nothing.
func Silently(code int) error { return &Error{Code: code} }

// Report prints an error, if it has a text, and returns its exit status. The status is
// Usage for every error that is not an Error.
func Report(w io.Writer, err error) int {
	if err == nil {
		return 0
	}
	e := (*Error)(nil)
	switch {
	case errors.Is(err, context.Canceled):
		return Interrupted
	case !errors.As(err, &e):
		e = &Error{Usage, err}
	}
	if e.Err != nil {
		fmt.Fprintln(w, "triphammer:", err)
	}
	return e.Code
}

const Topic = `Exit statuses, of every command:

  0  ok
  1  it ran, and the answer is bad (not valid, refused, a run that failed)
  2  wrong use, or it could not check
  3  changes are pending (plan --exit-code)
  4  authentication or permission is missing
  5  not found
  6  conflict
  7  the server cannot be reached
  8  timed out
130  interrupted

Warnings alone exit with 0.`
