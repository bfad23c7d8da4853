//go:build full

package main

import (
	"os/exec"
	"testing"
)

// newEmptyServer starts a server that has no repository and no factory.
func newEmptyServer(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, dir: openDir(t), addr: freeAddress(t)}
	w.cleanUp()
	w.startWith(func(cmd *exec.Cmd) { cmd.Args = []string{cmd.Args[0], "serve"} })
	return w
}

// TestFirstVisit: from an empty server to the first factory by pages alone, each of which
// says the next step.
func TestFirstVisit(t *testing.T) {
	w := newEmptyServer(t)
	b := w.newTab()
	for _, path := range []string{"/start", "/secrets", "/system", "/runs"} {
		b.check(path)
	}
	b.open("/start")
	b.see("This server has no factory yet")
	b.fill("Name", "Not a name")
	b.press("Start a factory here")
	b.see("This server has no factory yet", "name")
	b.expect("422")
	b.fill("Name", "payments")
	b.press("Start a factory here")
	b.see("The factory payments is started", "A webhook Now")
	b.notSee("This server has no factory yet")
}
