// Package termtest gives tests a terminal.
package termtest

import (
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Open makes a terminal for a program. What person writes to it are keys.
func Open(t *testing.T) (person, program *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = person.Close() })
	if err := unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(person.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = program.Close() })
	return person, program
}

// LineMode tells whether a terminal gives whole lines, and echoes.
func LineMode(t *testing.T, f *os.File) bool {
	t.Helper()
	m, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return m.Lflag&unix.ICANON != 0 && m.Lflag&unix.ECHO != 0
}

// Shown is what a person sees at a terminal of some columns, of what write writes to it.
func Shown(t *testing.T, columns uint16, write func(program *os.File) error) string {
	t.Helper()
	person, program := Open(t)
	if err := unix.IoctlSetWinsize(int(program.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: columns}); err != nil {
		t.Fatal(err)
	}
	read := make(chan []byte)
	go func() {
		text, _ := io.ReadAll(person) // it ends with an error, because the other side was closed
		read <- text
	}()
	if err := write(program); err != nil {
		t.Fatal(err)
	}
	if err := program.Close(); err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(<-read), "\r\n", "\n")
}
