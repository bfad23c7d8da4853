package main

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// Exit statuses of every command (SPEC 3.4).
const (
	exitBad         = 1 // the command ran, and the result is bad
	exitUsage       = 2 // wrong use, or the command could not run
	exitPending     = 3
	exitAuth        = 4
	exitNotFound    = 5
	exitConflict    = 6
	exitUnreachable = 7
	exitTimeout     = 8
	exitInterrupted = 130 // as in a shell, for a command that SIGINT ended
)

// exitError is an error with an exit status. If err is nil, nothing is printed, because
// the command has printed everything.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit status %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

func exitWith(code int, format string, args ...any) error {
	return &exitError{code, fmt.Errorf(format, args...)}
}

// silently is an error that sets the exit status and prints nothing.
func silently(code int) error { return &exitError{code: code} }

// report prints an error, if it has a text, and returns its exit status. The status is
// exitUsage for every error that is not an exitError.
func report(w io.Writer, err error) int {
	if err == nil {
		return 0
	}
	e := (*exitError)(nil)
	switch {
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	case !errors.As(err, &e):
		e = &exitError{exitUsage, err}
	}
	if e.err != nil {
		fmt.Fprintln(w, "triphammer:", err)
	}
	return e.code
}

const exitTopic = `Exit statuses, of every command:

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
