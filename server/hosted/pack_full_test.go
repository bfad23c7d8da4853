//go:build full

package hosted

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLargePushes: a push is refused for what it becomes, and its person is told why. What is taken
// stays as small as it came.
func TestLargePushes(t *testing.T) {
	r := open(t)
	url := begin(t, r)
	zeros := func(sizes ...int64) func(dir string) {
		return func(dir string) {
			for i, size := range sizes {
				name := filepath.Join(dir, fmt.Sprint("large", i))
				if err := os.WriteFile(name, []byte{byte(i)}, 0o600); err != nil {
					t.Fatal(err)
				}
				if err := os.Truncate(name, size); err != nil {
					t.Fatal(err)
				}
			}
			commitFile(t, dir, "more", nil)
		}
	}
	for _, c := range []struct {
		name    string
		make    func(dir string)
		refused string // empty: it is taken
	}{
		{"a file", zeros(maxObject + 1), "a file of the push has more than 64 MiB"},
		{"many files", zeros(60<<20, 60<<20, 60<<20, 60<<20, 60<<20), "more than 256 MiB in all their versions"},
		{"versions of a file", func(dir string) {
			text := make([]byte, 1<<20)
			_, _ = rand.NewChaCha8([32]byte{}).Read(text)
			for i := range 40 {
				text[i*1000]++
				commitFile(t, dir, "version", text)
			}
		}, ""},
	} {
		dir := clone(t, url)
		c.make(dir)
		before := sizeOf(t, r.Dir())
		out, err := command(t, dir, "-c", "pack.window=50", "push", "origin", "HEAD")
		if c.refused == "" && err != nil || c.refused != "" && (err == nil || !strings.Contains(out, c.refused)) {
			t.Errorf("%s: %v %s", c.name, err, out)
		}
		if grown := sizeOf(t, r.Dir()) - before; grown > 4<<20 {
			t.Errorf("%s: the repository has %d MB more", c.name, grown>>20)
		}
	}
}
