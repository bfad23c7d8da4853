//go:build full

package main

import (
	"strings"
	"testing"
)

// TestConnecting runs the walk of senders that tell their secret late
// (docs/connecting.md).
func TestConnecting(t *testing.T) {
	out := walk(t, "../../docs/connecting.md")
	for _, want := range []string{"/webhooks/w/whk_", "newer value waits for the next apply", "X-Hook-Secret: b537207f20cbfa02357cf448134da559", "psc_", "ASANA_SECRET: generation 2 is set"} {
		if !strings.Contains(out, want) {
			t.Errorf("the walk does not print %q:\n%s", want, out)
		}
	}
	if n := strings.Count(out, "202 {"); n != 2 {
		t.Errorf("%d deliveries are accepted, want 2:\n%s", n, out)
	}
}

// TestScriptsFull is TestScripts for scripts that need curl.
func TestScriptsFull(t *testing.T) { runScripts(t, "testdata/script-full", new(recorder)) }
