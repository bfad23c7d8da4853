package main

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// Exit statuses of every command (SPEC 3.4).
const (
	exitBad         = 1 // it ran, and the answer is bad
	exitUsage       = 2 // wrong use, or it could not check
	exitPending     = 3
	exitAuth        = 4
	exitNotFound    = 5
	exitConflict    = 6
	exitUnreachable = 7
	exitTimeout     = 8
	exitInterrupted = 130 // as of a shell's command that SIGINT ended
)

// exitError is an error with its exit status. Without a text nothing is printed:
// the command has said what there is to say.
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

// silently ends a command whose output was the message.
func silently(code int) error { return &exitError{code: code} }

// report prints an error, if it has something to say, and returns its status.
// Whatever is not an answer of a command is wrong use, or could not be done.
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
