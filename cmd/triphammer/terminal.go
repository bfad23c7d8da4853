package main

import (
	"context"
	"errors"
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
		return printable{w: f}
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
type printable struct {
	w      io.Writer
	colour string // what --color says; empty: auto
}

func (p printable) Write(text []byte) (int, error) {
	if _, err := io.WriteString(p.w, inert.Text(string(text))); err != nil {
		return 0, err
	}
	return len(text), nil
}

// oneLine escapes the characters that would end or shift a line.
var oneLine = strings.NewReplacer("\r\n", `\n`, "\n", `\n`, "\t", `\t`)

// screen is where a command prints for people. Printable would escape colours, so whoever
// writes to a screen passes all text of others through paint or inert.Text.
type screen struct {
	w       io.Writer
	width   int  // columns of the terminal; 0: not a terminal, and no line is cut
	colours bool // they are seen, and wanted
}

// screenOf is the screen behind a writer.
func screenOf(w io.Writer) screen {
	f := terminalOf(w)
	s := screen{w: bare(w), colours: wantsColours(f != nil)}
	if p, ok := w.(printable); ok && p.colour != "" && p.colour != "auto" {
		s.colours = p.colour == "always"
	}
	if f != nil {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width >= leastWidth {
			s.width = width
		}
	}
	return s
}

// leastWidth is the least width for which lines are made to fit.
const leastWidth = 20

// wantsColours tells whether to colour what a terminal, or something else, gets
// (no-color.org, bixense.com/clicolors).
func wantsColours(onTerminal bool) bool {
	forced := os.Getenv("CLICOLOR_FORCE")
	switch {
	case os.Getenv("NO_COLOR") != "":
		return false
	case forced != "" && forced != "0":
		return true
	}
	return onTerminal && os.Getenv("TERM") != "dumb" && os.Getenv("CLICOLOR") != "0"
}

// bare is the writer to which printable writes.
func bare(w io.Writer) io.Writer {
	if p, ok := w.(printable); ok {
		return bare(p.w)
	}
	return w
}

// Colours, by what they mean. All of them also have words or signs.
const (
	colourDim   = "\x1b[2m"
	colourBold  = "\x1b[1m"
	colourBad   = "\x1b[31m"
	colourGood  = "\x1b[32m"
	colourWarn  = "\x1b[33m"
	colourPlace = "\x1b[36m"
	colourReset = "\x1b[0m"
)

// paint is text as a part of a line, in a colour if there are any. An empty colour is none.
func (s screen) paint(colour, text string) string {
	text = oneLine.Replace(inert.Text(text))
	if !s.colours || colour == "" || text == "" {
		return text
	}
	return colour + text + colourReset
}

// columnsOf is the largest number of columns that a character can take.
func columnsOf(r rune) int {
	switch {
	case r == '\t':
		return 8
	case r < 0x80 || strings.ContainsRune("✓✗…·│→", r):
		return 1
	}
	return 2
}

// readUnseen reads a line from a terminal without echo. Ctrl-C ends it, and the terminal echoes
// again.
func readUnseen(ctx context.Context, terminal int) (string, error) {
	was, err := term.GetState(terminal)
	if err != nil {
		return "", err
	}
	type line struct {
		text []byte
		err  error
	}
	read := make(chan line, 1)
	go func() {
		text, err := term.ReadPassword(terminal)
		read <- line{text, err}
	}()
	select {
	case l := <-read:
		return string(l.text), l.err
	case <-ctx.Done():
		return "", errors.Join(ctx.Err(), term.Restore(terminal, was))
	}
}
