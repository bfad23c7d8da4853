package main

import (
	"os/user"
	"testing"
)

// TestUserName: without a login shell the operating system knows who it is
// (SPEC 10.2).
func TestUserName(t *testing.T) {
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"SUDO_USER", "USER", "LOGNAME"} {
		t.Setenv(name, "")
	}
	if got := userName(); got != me.Username {
		t.Errorf("%q, not %q", got, me.Username)
	}
	t.Setenv("LOGNAME", "ada")
	if got := userName(); got != "ada" {
		t.Errorf("%q, not ada", got)
	}
}
