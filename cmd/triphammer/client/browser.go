package client

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// findBrowser finds what shows an address in a browser: the first program of $BROWSER that is
// there, or else the one of the system. The error says why there is none.
func findBrowser() (show func(address string) *exec.Cmd, err error) {
	wanted := os.Getenv("BROWSER")
	for _, one := range filepath.SplitList(wanted) {
		words := strings.Fields(one)
		if len(words) == 0 {
			continue
		}
		if program, err := exec.LookPath(words[0]); err == nil {
			return func(address string) *exec.Cmd { return exec.Command(program, withAddress(words[1:], address)...) }, nil
		}
	}
	program := "xdg-open"
	switch {
	case wanted != "":
		return nil, fmt.Errorf("$BROWSER names %q, which is not there", wanted)
	case runtime.GOOS == "darwin":
		program = "open"
	case cmp.Or(os.Getenv("DISPLAY"), os.Getenv("WAYLAND_DISPLAY")) == "":
		return nil, errors.New("there is no display here") // xdg-open would look for a browser in the terminal
	}
	if program, err = exec.LookPath(program); err != nil {
		return nil, fmt.Errorf("there is no browser here that %s or $BROWSER names", program)
	}
	return func(address string) *exec.Cmd { return exec.Command(program, address) }, nil
}

// withAddress are arguments with the address at %s, or else at their end.
func withAddress(words []string, address string) (args []string) {
	placed := false
	for _, word := range words {
		placed = placed || strings.Contains(word, "%s")
		args = append(args, strings.ReplaceAll(word, "%s", address))
	}
	if !placed {
		args = append(args, address)
	}
	return args
}
