//go:build linux && !client

package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// onTerminal is what a command shows on a terminal of some columns.
func onTerminal(t *testing.T, width uint16, write func(c *cobra.Command) error) string {
	t.Helper()
	person, program := pseudoTerminal(t)
	if err := unix.IoctlSetWinsize(int(program.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: width}); err != nil {
		t.Fatal(err)
	}
	read := make(chan []byte)
	go func() {
		text, _ := io.ReadAll(person) // it ends with an error, because the other side was closed
		read <- text
	}()
	c := &cobra.Command{}
	outputFlag(c)
	c.Flags().String("color", "never", "")
	c.SetOut(program)
	c.SetErr(program)
	if err := write(c); err != nil {
		t.Fatal(err)
	}
	if err := program.Close(); err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(<-read), "\r\n", "\n")
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
	t.Cleanup(func() { shownClock = time.Now })
	shownClock = func() time.Time { return now }
	runs := []listedRun{
		{"run_0123456789abc", "Fix the login page, which shows nothing to people who come back", "SUCCEEDED", "", now.Add(-90 * time.Second), 7},
		{"run_0123456789abd", "修复登录页面，返回的用户什么也看不到", "FAILED", "the agent ended with exit code 1: 👩‍💻 said no\nand went", now.Add(-30 * time.Hour), 1234567890},
		{"run_0123456789abe", "é̂ combining", "QUEUED", "waits", now.Add(time.Hour), 0},
	}
	list := func(c *cobra.Command) error {
		return emitList(c, runs, func(r listedRun) string { return r.id }, []string{"WHO", "ID", "CREATED", "TITLE", "STATE", "SIZE", "DETAIL"}, func(r listedRun) cells {
			return cells{"ada", r.id, r.at, prose(r.title), r.state, r.size, prose(r.detail)}
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
		if line, was, is := firstDifference(string(want), shown); line > 0 {
			t.Errorf("%s:%d holds\n%s\nand the table has\n%s", path, line, was, is)
		}
	}
	var file bytes.Buffer
	c := &cobra.Command{}
	outputFlag(c)
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

// TestListsCutProseAlone: on terminals of any width, no list shows a part of a name, an id or a state.
func TestListsCutProseAlone(t *testing.T) {
	t.Parallel()
	long := func(name string) string { return name + strings.Repeat("-and-more", 4) }
	hook, env, automation := long("hook"), long("environment"), long("automation")
	w := newWorld(t, map[string]string{
		"factory.yaml":                                 factoryYAML,
		"webhooks/" + hook + ".yaml":                   "secretName: S\n",
		"environments/" + env + ".yaml":                "description: The application, with all that belongs to it\ncommand: ['true']\n",
		"agents/" + long("agent") + "/agent.md":        "---\nagentType: FOREMAN\n---\nRepair it.\n",
		"automations/" + automation + "/automation.md": strings.Replace(automationFile(hook, ""), "environmentId: env", "environmentId: "+env, 1),
	})
	w.start()
	w.run("", "webhooks", "test", hook, "--payload", "{}")
	w.run("", "schedules", "create", long("schedule"), "--cron", "0 6 * * *", "--prompt", "Tidy.", "--environment", env)
	w.run("", "keys", "create", long("ada"))
	w.run("a-key", "context", "add", long("prod"), "--server", "http://127.0.0.1:1", "--unchecked")
	lists := 0
	everyCommand(commandTree(), func(c *cobra.Command) {
		if c.Name() != "list" || len(argumentsOf(c)) > 0 {
			return
		}
		lists++
		for _, width := range []uint16{60, 80, 120} {
			shown := onTerminal(t, width, func(on *cobra.Command) error {
				cmd := w.command(append(strings.Fields(c.CommandPath())[1:], "--color", "never")...)
				cmd.Stdout = on.OutOrStdout()
				return cmd.Run()
			})
			lines := strings.Split(shown, "\n")
			header := []rune(lines[0])
			for at := 0; at < len(header); {
				name, _, _ := strings.Cut(string(header[at:]), "  ")
				end := at + len([]rune(name))
				for end < len(header) && header[end] == ' ' {
					end++
				}
				if at == 0 || slices.Contains([]string{"ID", "STATE", "OUTCOME", "ENABLED", "WEBHOOK", "ENVIRONMENT", "FACTORY", "RUNS"}, name) {
					for _, line := range lines[1:] {
						if text := []rune(line); at < len(text) && slices.Contains(text[at:min(end, len(text))], '…') {
							t.Errorf("%s, %d columns: %s is cut:\n%s", c.CommandPath(), width, name, shown)
						}
					}
				}
				at = end
			}
		}
	})
	if lists < 12 {
		t.Errorf("only %d lists", lists)
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
		_, err := fmt.Fprintln(c.OutOrStdout(), when(c.OutOrStdout(), now))
		return err
	}); got != "2026-03-05 00:30:00 CET\n" {
		t.Errorf("on a terminal: %q", got)
	}
	if got := when(io.Discard, now); got != "2026-03-04T23:30:00Z" {
		t.Errorf("elsewhere: %q", got)
	}
}

// TestListsTakeOutput: every command that lists or shows takes -o.
func TestListsTakeOutput(t *testing.T) {
	found := 0
	everyCommand(commandTree(), func(c *cobra.Command) {
		if name := c.Name(); name != "list" && name != "show" {
			return
		}
		found++
		if f := c.Flags().Lookup("output"); f == nil || f.Shorthand != "o" {
			t.Errorf("%s takes no -o", c.CommandPath())
		}
	})
	if found < 20 {
		t.Errorf("only %d commands list or show", found)
	}
}

// TestOutputAtOnce: what programs read is written at once. A reader that takes the first line and
// ends would otherwise stop a list at its second line, and with it a script with pipefail.
func TestOutputAtOnce(t *testing.T) {
	for _, format := range []string{"json", formatJSONL, "yaml", "name"} {
		c, out := &cobra.Command{}, &writes{}
		outputFlag(c)
		c.SetOut(out)
		if err := c.Flags().Set("output", format); err != nil {
			t.Fatal(err)
		}
		rows := []map[string]string{{"id": "first"}, {"id": "second"}}
		name := func(row map[string]string) string { return row["id"] }
		if err := emitList(c, rows, name, []string{"ID"}, func(row map[string]string) cells { return cells{row["id"]} }); err != nil {
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
