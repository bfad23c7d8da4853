//go:build full

package gitrepo

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"triphammer/applier/gitrepo/gittest"
)

// TestCacheDamage: whichever file of the cache is gone, cut off or empty, the next look
// gets the newest commit. What came by the last push is there as loose objects, to which a
// server sends differences.
func TestCacheDamage(t *testing.T) {
	bare, work := clone(t, "main")
	s := gittest.Serve(t, filepath.Dir(bare))
	r := remote(t, RemoteConfig{URL: s.URL + "/factory.git", Credentials: Credentials{CAFile: s.CAFile}})
	pushed := 0
	push := func() string {
		t.Helper()
		pushed++
		write(t, filepath.Join(work, "deep/note"), strings.Repeat(fmt.Sprintln("line of number", pushed), 200))
		write(t, filepath.Join(work, "deep/same"), strings.Repeat("another line\n", 2000)+fmt.Sprint(pushed))
		head := commit(t, work, "Next")
		runGit(t, work, "push", "-q", "origin", "main")
		return head
	}
	harms := map[string]func(path string, size int64) error{
		"removed": func(path string, _ int64) error { return os.Remove(path) },
		"cut":     func(path string, size int64) error { return os.Truncate(path, size/2) },
		"empty":   func(path string, _ int64) error { return os.Truncate(path, 0) },
	}
	for name, harm := range harms {
		for at := 0; ; at++ {
			if err := os.RemoveAll(r.Cache); err != nil {
				t.Fatal(err)
			}
			remoteHead(t, r, push()) // comes as a pack
			remoteHead(t, r, push())
			var files []string
			err := filepath.WalkDir(r.Cache, func(path string, d fs.DirEntry, err error) error {
				if err == nil && d.Type().IsRegular() {
					files = append(files, path)
				}
				return err
			})
			if err != nil || len(files) < 10 {
				t.Fatalf("the cache has %q, %v", files, err)
			}
			if at >= len(files) {
				break
			}
			info, err := os.Stat(files[at])
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(os.Chmod(files[at], 0o600), harm(files[at], info.Size())); err != nil {
				t.Fatal(err)
			}
			head := push()
			if c, err := r.Head(t.Context()); err != nil || c.Hash != head {
				t.Fatalf("%s is %s: head %s, %v", files[at], name, c.Hash, err)
			}
			// What the newest commit shares with the last one is noticed when it is read.
			if tree, err := r.Tree(t.Context(), head, "."); err == nil {
				_ = fs.WalkDir(tree, ".", func(path string, d fs.DirEntry, err error) error {
					if err == nil && !d.IsDir() {
						_, _ = fs.ReadFile(tree, path)
					}
					return nil
				})
			}
			remoteHead(t, r, head)
		}
	}
}
