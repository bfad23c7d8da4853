//go:build linux

package term

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"triphammer/cmd/triphammer/client/term/termtest"
)

// onTerminal is what a command shows on a terminal of some columns.
func onTerminal(t *testing.T, width uint16, write func(c *cobra.Command) error) string {
	t.Helper()
	return termtest.Shown(t, width, func(program *os.File) error {
		c := &cobra.Command{}
		OutputFlag(c)
		c.Flags().String("color", "never", "")
		c.SetOut(program)
		c.SetErr(program)
		return write(c)
	})
}

type listedRun struct {
	id, title, state, detail string
	at                       time.Time
	size                     int64
}

// TestTableWidths: a list is never wider than the terminal, also with wide characters. Ids,
// states, times and numbers are whole. The golden files are written anew with -update.
func TestTableWidths(t *testing.T) {
	now := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	t.Cleanup(func() { Now = time.Now })
	Now = func() time.Time { return now }
	runs := []listedRun{
		{"run_0123456789abc", "Fix the login page, which shows nothing to people who come back", "SUCCEEDED", "", now.Add(-90 * time.Second), 7},
		{"run_0123456789abd", "修复登录页面，返回的用户什么也看不到", "FAILED", "the agent ended with exit code 1: 👩‍💻 said no\nand went", now.Add(-30 * time.Hour), 1234567890},
		{"run_0123456789abe", "é̂ combining", "QUEUED", "waits", now.Add(time.Hour), 0},
	}
	list := func(c *cobra.Command) error {
		return EmitList(c, runs, func(r listedRun) string { return r.id }, []string{"WHO", "ID", "CREATED", "TITLE", "STATE", "SIZE", "DETAIL"}, func(r listedRun) Cells {
			return Cells{"ada", r.id, r.at, Prose(r.title), r.state, r.size, Prose(r.detail)}
		})
	}
	for _, width := range []uint16{20, 40, 60, 80, 120} {
		shown := onTerminal(t, width, list)
		for line := range strings.Lines(shown) {
			if n := columns(strings.TrimRight(line, "\n")); n > int(width) {
				t.Errorf("%d columns of %d: %q", n, width, line)
			}
		}
		path := filepath.Join("testdata", "tables", fmt.Sprintf("%d.txt", width))
		if *update {
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(shown), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if shown != string(want) {
			t.Errorf("%s holds\n%s\nand the table is\n%s", path, want, shown)
		}
	}
	var file bytes.Buffer
	c := &cobra.Command{}
	OutputFlag(c)
	c.SetOut(&file)
	if err := list(c); err != nil {
		t.Fatal(err)
	}
	for _, whole := range []string{runs[0].title, runs[1].title, "2026-03-04T11:58:30Z"} {
		if !strings.Contains(file.String(), whole) {
			t.Errorf("a file lacks %q:\n%s", whole, &file)
		}
	}
}

// TestTimesForPeople: a list on a terminal tells how long ago something was, and all else
// tells the time in the zone of the reader.
func TestTimesForPeople(t *testing.T) {
	zone := time.Local
	t.Cleanup(func() { time.Local = zone })
	time.Local = time.FixedZone("CET", 3600)
	now := time.Date(2026, 3, 4, 23, 30, 0, 0, time.UTC)
	for passed, want := range map[time.Duration]string{
		0: "now", 59 * time.Second: "59 s ago", time.Minute: "1 min ago", 3599 * time.Second: "59 min ago", 47 * time.Hour: "47 h ago",
		48 * time.Hour: "2 d ago", 60 * 24 * time.Hour: "2026-01-04", -2 * time.Hour: "in 2 h",
	} {
		if got := ago(now.Add(-passed), now); got != want {
			t.Errorf("%s after: %q, want %q", passed, got, want)
		}
	}
	if got := onTerminal(t, 80, func(c *cobra.Command) error {
		_, err := fmt.Fprintln(c.OutOrStdout(), When(c.OutOrStdout(), now))
		return err
	}); got != "2026-03-05 00:30:00 CET\n" {
		t.Errorf("on a terminal: %q", got)
	}
	if got := When(io.Discard, now); got != "2026-03-04T23:30:00Z" {
		t.Errorf("elsewhere: %q", got)
	}
}

// TestOutputAtOnce: what programs read is written at once. A reader that takes the first line and
// ends would otherwise stop a list at its second line, and with it a script with pipefail.
func TestOutputAtOnce(t *testing.T) {
	for _, format := range []string{"json", FormatJSONL, "yaml", "name"} {
		c, out := &cobra.Command{}, &writes{}
		OutputFlag(c)
		c.SetOut(out)
		if err := c.Flags().Set("output", format); err != nil {
			t.Fatal(err)
		}
		rows := []map[string]string{{"id": "first"}, {"id": "second"}}
		name := func(row map[string]string) string { return row["id"] }
		if err := EmitList(c, rows, name, []string{"ID"}, func(row map[string]string) Cells { return Cells{row["id"]} }); err != nil {
			t.Fatal(err)
		}
		if len(*out) != 1 || !strings.Contains((*out)[0], "second") {
			t.Errorf("%s: %q", format, *out)
		}
	}
}

// writes are what was written, each time.
type writes []string

func (w *writes) Write(p []byte) (int, error) {
	*w = append(*w, string(p))
	return len(p), nil
}
