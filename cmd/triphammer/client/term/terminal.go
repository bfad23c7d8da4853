package term

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
// passes through Printable. On a terminal all output does, so that no command can forget
// it. Elsewhere JSON, bodies and files keep their bytes.

// Standard wraps a standard output of the program for the commands.
func Standard(f *os.File) io.Writer {
	if term.IsTerminal(int(f.Fd())) {
		return Printable{W: f}
	}
	return f
}

// TerminalOf is the terminal to which w writes; nil if it writes elsewhere.
func TerminalOf(w io.Writer) *os.File {
	switch w := w.(type) {
	case Printable:
		return TerminalOf(w.W)
	case *os.File:
		if term.IsTerminal(int(w.Fd())) {
			return w
		}
	}
	return nil
}

// Printable writes only visible text, as inert.Text.
type Printable struct {
	W      io.Writer
	colour string // what --color says; empty: auto
}

func (p Printable) Write(text []byte) (int, error) {
	if _, err := io.WriteString(p.W, inert.Text(string(text))); err != nil {
		return 0, err
	}
	return len(text), nil
}

// OneLine escapes the characters that would end or shift a line.
var OneLine = strings.NewReplacer("\r\n", `\n`, "\n", `\n`, "\t", `\t`)

// Screen is where a command prints for people. Printable would escape colours, so whoever
// writes to a screen passes all text of others through paint or inert.Text.
type Screen struct {
	W       io.Writer
	Width   int  // columns of the terminal; 0: not a terminal, and no line is cut
	colours bool // they are seen, and wanted
}

// ScreenOf is the screen behind a writer.
func ScreenOf(w io.Writer) Screen {
	f := TerminalOf(w)
	s := Screen{W: bare(w), colours: wantsColours(f != nil)}
	if p, ok := w.(Printable); ok && p.colour != "" && p.colour != "auto" {
		s.colours = p.colour == "always"
	}
	if f != nil {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width >= leastWidth {
			s.Width = width
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

// bare is the writer to which Printable writes.
func bare(w io.Writer) io.Writer {
	if p, ok := w.(Printable); ok {
		return bare(p.W)
	}
	return w
}

// Colours, by what they mean. All of them also have words or signs.
const (
	ColourDim   = "\x1b[2m"
	colourBold  = "\x1b[1m"
	ColourBad   = "\x1b[31m"
	ColourGood  = "\x1b[32m"
	colourWarn  = "\x1b[33m"
	colourPlace = "\x1b[36m"
	colourReset = "\x1b[0m"
)

// Paint is text as a part of a line, in a colour if there are any. An empty colour is none.
func (s Screen) Paint(colour, text string) string {
	text = OneLine.Replace(inert.Text(text))
	if !s.colours || colour == "" || text == "" {
		return text
	}
	return colour + text + colourReset
}

// ColumnsOf is the largest number of columns that a character can take.
func ColumnsOf(r rune) int {
	switch {
	case r == '\t':
		return 8
	case r < 0x80 || strings.ContainsRune("✓✗…·│→", r):
		return 1
	}
	return 2
}

// ReadUnseen reads a line from a terminal without echo. Ctrl-C ends it, and the terminal echoes
// again.
func ReadUnseen(ctx context.Context, terminal int) (string, error) {
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
