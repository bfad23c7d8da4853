package worker

import (
	"errors"
	"strings"
	"testing"

	"triphammer/server/disk"
)

// TestNoRoomForArtifacts: an artifact never takes the last space from the store.
func TestNoRoomForArtifacts(t *testing.T) {
	for text, want := range map[string]error{"0": nil, "1000000TiB": noRoom} { // all of the disk must stay free
		floor, err := disk.ParseFloor(text)
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		var b strings.Builder
		_, err = (&bounded{to: &b, most: 10, over: "too large", watch: disk.NewWatch(floor, dir, dir)}).Write([]byte("x"))
		if !errors.Is(err, want) || (b.Len() == 0) != (want != nil) {
			t.Errorf("--min-free %s: %v, %q is written", text, err, b.String())
		}
	}
}
