// Package exit has the ways in which a command ends.
package exit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"
	"unicode"
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
		fmt.Fprintln(w, "triphammer:", plain(err))
	}
	return e.Code
}

// plain is the text of an error, with words of ours for what files, networks and JSON say in Go's.
func plain(err error) string {
	text := err.Error()
	if file := (*fs.PathError)(nil); errors.As(err, &file) {
		text = strings.ReplaceAll(text, file.Error(), plainFile(file))
	}
	if request := (*url.Error)(nil); errors.As(err, &request) {
		address := request.URL
		if u, err := url.Parse(address); err == nil && u.Host != "" {
			address = u.Scheme + "://" + u.Host
		}
		text = strings.ReplaceAll(text, request.Error(), address+": "+plainNetwork(request.Err))
	} else if network := (*net.OpError)(nil); errors.As(err, &network) {
		said := plainNetwork(network)
		if network.Addr != nil {
			said = network.Addr.String() + ": " + said
		}
		text = strings.ReplaceAll(text, network.Error(), said)
	}
	if json := (*json.SyntaxError)(nil); errors.As(err, &json) {
		text = strings.ReplaceAll(text, json.Error(), "it is not JSON")
	}
	return text
}

func plainFile(e *fs.PathError) string {
	path := e.Path
	if strings.ContainsFunc(path, unicode.IsControl) || path == "" {
		path = strconv.Quote(path)
	}
	switch {
	case errors.Is(e, fs.ErrNotExist) && e.Op == "mkdir":
		return path + " cannot be made there"
	case errors.Is(e, fs.ErrNotExist):
		return path + " does not exist"
	case errors.Is(e, fs.ErrPermission):
		return path + ": your user may not do this"
	case errors.Is(e, syscall.EISDIR):
		return path + " is a folder, and not a file"
	case errors.Is(e, syscall.ENOTDIR):
		return path + " is no folder, or lies below a file"
	}
	return path + ": " + e.Err.Error()
}

func plainNetwork(err error) string {
	name, network := (*net.DNSError)(nil), (*net.OpError)(nil)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "nothing listens there"
	case errors.As(err, &name) && name.IsNotFound:
		return "there is no host of this name"
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return "no answer came in time"
	case errors.Is(err, io.EOF):
		return "the connection was closed without an answer"
	case errors.As(err, &network):
		return network.Err.Error()
	}
	return err.Error()
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
