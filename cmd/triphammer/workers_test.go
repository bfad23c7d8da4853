package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"triphammer/server/api"
)

// TestDrainTellsTrue: a server that is alone writes no sign of life, and is not called lost by the
// answer to drain and resume (SPEC 17.4).
func TestDrainTellsTrue(t *testing.T) {
	t.Parallel()
	w := newWorld(t, smallFactory())
	w.clock = filepath.Join(w.dir, clockFile)
	w.start()
	later := fmt.Sprint(time.Now().Add(10 * time.Minute).Unix())
	if err := os.WriteFile(w.clock, []byte(later), 0o600); err != nil {
		t.Fatal(err)
	}
	var all api.WorkerList
	w.list(&all.Workers, "workers", "list")
	name := all.Workers[0].Name
	for action, want := range map[string]string{"drain": "drained", "resume": "ready"} {
		if w.list(&all.Workers, "workers", action, name); len(all.Workers) != 1 || all.Workers[0].State != want {
			t.Errorf("%s: %+v", action, all.Workers)
		}
	}
}
