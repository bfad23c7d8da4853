package executor

import (
	"bytes"
	"compress/gzip"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"triphammer/server/inside"
)

// TestPlaceSupervisor: the small program is placed once for each version of this program, and the whole
// program supervises, with a line in the log, where the small one does not work.
func TestPlaceSupervisor(t *testing.T) {
	built := packedSupervisor
	t.Cleanup(func() { packedSupervisor = built })
	pack := func(text string) {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		if _, err := z.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		packedSupervisor = b.Bytes()
	}
	var log bytes.Buffer
	e := &Executor{dir: t.TempDir(), logger: slog.New(slog.NewTextHandler(&log, nil))}
	file := filepath.Join(e.dir, ".supervisor")
	packedSupervisor = nil
	if got := e.placeSupervisor(); got != inside.Self {
		t.Errorf("without the small program, %s supervises", got)
	}
	pack("#!/bin/sh\nexit 2 # as it does without a server\n")
	if got := e.placeSupervisor(); got != file || log.Len() > 0 {
		t.Errorf("%s supervises:\n%s", got, log.String())
	}
	first, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	again := func() bool {
		t.Helper()
		if got := e.placeSupervisor(); got != file {
			t.Errorf("%s supervises", got)
		}
		now, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		return !os.SameFile(first, now)
	}
	if again() {
		t.Error("the same program is placed twice")
	}
	if err := os.Chtimes(file, time.Time{}, first.ModTime().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	if !again() {
		t.Error("the small program of another version stays")
	}
	pack("#!/bin/sh\necho no; exit 1\n")
	if got := e.placeSupervisor(); got != inside.Self || !strings.Contains(log.String(), "runs start more slowly") {
		t.Errorf("%s supervises, which does not work:\n%s", got, log.String())
	}
}
