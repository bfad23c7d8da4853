package main

import (
	"encoding/json"
	"strings"
	"testing"

	"triphammer/server"
	"triphammer/server/run"
)

// TestExitLine: how an agent ended is told by its exit status, or by the signal
// that ended it, which leaves none.
func TestExitLine(t *testing.T) {
	for data, want := range map[string]string{
		`{"exit_code":0}`: "[exit] exit status 0\n",
		`{"exit_code":7}`: "[exit] exit status 7\n",
		`{"exit_code":-1,"signal":"SIGINT","stopped":true}`: "[exit] SIGINT\n",
	} {
		var b strings.Builder
		if err := printEvents(&b, []server.Event{{Seq: 1, Kind: run.KindExit, Data: json.RawMessage(data)}}); err != nil || b.String() != want {
			t.Errorf("%s is shown as %q, not %q; %v", data, b.String(), want, err)
		}
	}
}
