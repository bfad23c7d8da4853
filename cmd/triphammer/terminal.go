package main

import (
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"triphammer/server/inert"
)

// Commands print text that senders, agents and repositories wrote. Text for people always
// passes through printable. On a terminal all output does, so that no command can forget
// it. Elsewhere JSON, bodies and files keep their bytes.

// standard wraps a standard output of the program for the commands.
func standard(f *os.File) io.Writer {
	if term.IsTerminal(int(f.Fd())) {
		return printable{f}
	}
	return f
}

// terminalOf is the terminal to which w writes; nil if it writes elsewhere.
func terminalOf(w io.Writer) *os.File {
	switch w := w.(type) {
	case printable:
		return terminalOf(w.w)
	case *os.File:
		if term.IsTerminal(int(w.Fd())) {
			return w
		}
	}
	return nil
}

// printable writes only visible text, as inert.Text.
type printable struct{ w io.Writer }

func (p printable) Write(text []byte) (int, error) {
	if _, err := io.WriteString(p.w, inert.Text(string(text))); err != nil {
		return 0, err
	}
	return len(text), nil
}

// oneLine escapes the characters that would end or shift a line.
var oneLine = strings.NewReplacer("\r\n", `\n`, "\n", `\n`, "\t", `\t`)
