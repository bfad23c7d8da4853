package inside

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	full := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(full), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// plain is the view of a Git that ignores nothing.
func plain(string) ([]string, map[string]blobID) { return nil, nil }

func TestSnapshot(t *testing.T) { // SPEC 9.5
	dir, outside := t.TempDir(), t.TempDir()
	write(t, outside, "passwd", "secret\n")
	write(t, dir, "same", "1")
	write(t, dir, "rewritten", "1")
	write(t, dir, "binary", "a\x00b")
	write(t, dir, "long", strings.Repeat("x", maxFile+1))
	write(t, dir, "mode", "1")
	write(t, dir, ".git/config", "x")
	write(t, dir, "replaced", "old\n")
	s, err := takeSnapshot(dir, t.TempDir(), nil, plain)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	write(t, dir, "rewritten", "1")
	write(t, dir, "binary", "a\x00c")
	write(t, dir, "long", strings.Repeat("y", maxFile+1))
	write(t, dir, ".git/config", "y")
	write(t, dir, "sub/\xffname", "new")
	steps := []error{
		os.Chmod(filepath.Join(dir, "mode"), 0o700),
		os.Remove(filepath.Join(dir, "replaced")),
		os.Symlink(filepath.Join(outside, "passwd"), filepath.Join(dir, "replaced")),
		os.Symlink(outside, filepath.Join(dir, "link")),
		// The agent may take the folder's place: what is looked at stays the same.
		os.Rename(dir, dir+".moved"),
		os.Symlink(outside, dir),
	}
	for _, err := range steps {
		if err != nil {
			t.Fatal(err)
		}
	}
	all, ignored, err := s.changes(plain, ".")
	if err != nil || len(ignored) > 0 {
		t.Fatal(err, ignored)
	}
	var got []string
	for _, c := range all {
		before, after := s.contents(c)
		f := c.describe(before, after, maxDiffs)
		got = append(got, fmt.Sprintf("%s %s %t %q", f.Path, f.Change, f.Omitted != "", f.Diff))
	}
	want := []string{
		`binary modified true ""`,
		"link created false " + fmt.Sprintf("%q", "--- /dev/null\n+++ b/link\n@@ -0,0 +1,1 @@\n+"+outside+"\n\\ No newline at end of file\n"),
		`long modified true ""`,
		`mode modified false ""`,
		"replaced modified false " + fmt.Sprintf("%q", "--- a/replaced\n+++ b/replaced\n@@ -1,1 +1,1 @@\n-old\n+"+outside+"/passwd\n\\ No newline at end of file\n"),
		"sub/\uFFFDname created false " + fmt.Sprintf("%q", "--- /dev/null\n+++ b/sub/\uFFFDname\n@@ -0,0 +1,1 @@\n+new\n\\ No newline at end of file\n"),
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("changes\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestUnifiedDiff(t *testing.T) {
	numbers := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintln(&b, i)
		}
		return b.String()
	}
	for _, tt := range []struct{ name, before, after, want string }{
		{"nothing", "a\n", "a\n", ""},
		{"insert", "a\nc\n", "a\nb\nc\n", "@@ -1,2 +1,3 @@\n a\n+b\n c\n"},
		{"delete", "a\nb\n", "b\n", "@@ -1,2 +1,1 @@\n-a\n b\n"},
		{"newline at the end", "a", "a\n", "@@ -1,1 +1,1 @@\n-a\n\\ No newline at end of file\n+a\n"},
		{
			"two hunks", numbers(20), strings.Replace(strings.Replace(numbers(20), "\n3\n", "\nthree\n", 1), "\n15\n", "\n", 1),
			"@@ -1,7 +1,7 @@\n 0\n 1\n 2\n-3\n+three\n 4\n 5\n 6\n@@ -13,7 +13,6 @@\n 12\n 13\n 14\n-15\n 16\n 17\n 18\n",
		},
		{
			"context that touches", numbers(12), strings.Replace(strings.Replace(numbers(12), "\n2\n", "\n", 1), "\n8\n", "\n", 1),
			"@@ -1,12 +1,10 @@\n 0\n 1\n-2\n 3\n 4\n 5\n 6\n 7\n-8\n 9\n 10\n 11\n",
		},
	} {
		want := tt.want
		if want != "" {
			want = "--- a/f\n+++ b/f\n" + want
		}
		if got := unifiedDiff("a/f", "b/f", []byte(tt.before), []byte(tt.after)); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", tt.name, got, want)
		}
	}
}

// TestManyFiles: what is not listed is counted, and a workspace that is too large or too deep
// loses no more than it must.
func TestManyFiles(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "old", "a\n")
	s, err := takeSnapshot(dir, t.TempDir(), nil, plain)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	write(t, dir, "old", "b\n")
	write(t, dir, strings.Repeat("d/", maxDepth+2)+"file", "x")
	write(t, dir, "z", "x")
	all, _, err := s.changes(plain, ".")
	if !errors.Is(err, errTooDeep) || len(all) != 2 || all[0].name != "old" || all[1].name != "z" {
		t.Errorf("changes %+v, %v", all, err)
	}
	s.partial = true // as if it had not come to z, but to all that is older
	delete(s.files, "old")
	all, _, err = s.changes(plain, ".")
	if !errors.Is(err, errTooDeep) || len(all) != 2 {
		t.Errorf("changes %+v, %v", all, err)
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("1 (a) b) S 2 3 4 5"))
	f.Fuzz(func(_ *testing.T, data []byte) { parseStat(1, data) })
}

func FuzzReadFrame(f *testing.F) {
	f.Add([]byte("o\x00\x00\x00\x02hi"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, got, err := ReadFrame(strings.NewReader(string(data))); err == nil && len(got) > MaxFrame {
			t.Fatal(len(got))
		}
	})
}
