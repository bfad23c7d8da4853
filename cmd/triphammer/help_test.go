package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"triphammer/cmd/triphammer/client"
)

// commandTree is the tree of commands with those that cobra adds when it runs.
func commandTree() *cobra.Command {
	root := client.NewRoot(thisHost)
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	return root
}

// everyCommand calls visit for a command and all below it.
func everyCommand(c *cobra.Command, visit func(c *cobra.Command)) {
	visit(c)
	for _, below := range c.Commands() {
		everyCommand(below, visit)
	}
}

// TestHelp compares the help of every command with a golden file, one for each command of the
// first level: a change of what people read is then seen in review.
func TestHelp(t *testing.T) {
	const again = "go test ./cmd/triphammer -run 'TestHelp$' -update"
	golden := make(map[string]*bytes.Buffer)
	everyCommand(commandTree(), func(c *cobra.Command) {
		words := append(strings.Fields(c.CommandPath()), "")
		name := words[min(1, len(words)-2)] // the root has a file of its own
		if golden[name] == nil {
			golden[name] = new(bytes.Buffer)
		}
		if golden[name].Len() > 0 {
			golden[name].WriteString("\n")
		}
		golden[name].WriteString("$ " + c.CommandPath() + " --help\n")
		golden[name].WriteString(helpOf(t, c))
	})
	dir := filepath.Join("testdata", "help")
	for name, help := range golden {
		path := filepath.Join(dir, name+".txt")
		if *update {
			if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(path, help.Bytes(), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is missing; write it: %s", path, again)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if line, was, is := firstDifference(string(want), help.String()); line > 0 {
			t.Errorf("%s:%d holds\n%s\nand the command prints\n%s\nIf that is meant, write it anew: %s", path, line, was, is, again)
		}
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		name, _ := strings.CutSuffix(file.Name(), ".txt")
		if golden[name] != nil {
			continue
		}
		path := filepath.Join(dir, file.Name())
		if !*update {
			t.Errorf("%s is of no command; remove it: %s", path, again)
		} else if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// TestHelpTable: docs/commands.md has each command, what it prints and which exit statuses it can have.
func TestHelpTable(t *testing.T) {
	const begins, ends = "<!-- The table is made by `go test ./cmd/triphammer -run TestHelpTable -update`. -->\n", "<!-- The table ends here. -->\n"
	var table strings.Builder
	table.WriteString("\n| command | | `-o` | exit statuses |\n| --- | --- | --- | --- |\n")
	everyCommand(commandTree(), func(c *cobra.Command) {
		if c.HasSubCommands() || !c.Runnable() || !c.IsAvailableCommand() || !c.HasParent() {
			return
		}
		has := func(name string) bool {
			return flagOf(c, func(set *pflag.FlagSet) *pflag.Flag { return set.Lookup(name) }) != nil
		}
		output, statuses := "", "0–2"
		if f := flagOf(c, func(set *pflag.FlagSet) *pflag.Flag { return set.ShorthandLookup("o") }); f != nil {
			output = strings.ReplaceAll(f.Usage, "table, wide, json, jsonl, yaml, name", "all")
		}
		if has("exit-code") {
			statuses += ", 3"
		}
		if has("server") || c.CommandPath() == "triphammer context show" {
			statuses += ", 4–7"
		}
		if has("timeout") {
			statuses += ", 8"
		}
		use := strings.ReplaceAll(strings.TrimPrefix(c.UseLine(), "triphammer "), "|", `\|`)
		fmt.Fprintf(&table, "| `%s` | %s | %s | %s |\n", strings.TrimSuffix(use, " [flags]"), c.Short, output, statuses)
	})
	table.WriteString("\n")
	const page = "../../docs/commands.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok1 := strings.Cut(string(text), begins)
	was, after, ok2 := strings.Cut(rest, ends)
	if !ok1 || !ok2 {
		t.Fatalf("%s has no place for the table", page)
	}
	if *update {
		if err := os.WriteFile(page, []byte(before+begins+table.String()+ends+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if line, was, is := firstDifference(was, table.String()); line > 0 {
		t.Errorf("%s has\n%s\nand the commands are\n%s\nIf that is meant, write it anew: go test ./cmd/triphammer -run TestHelpTable -update", page, was, is)
	}
}

// helpOf is what --help prints. A tree runs once alone: flags keep what they were given.
func helpOf(t *testing.T, c *cobra.Command) string {
	t.Helper()
	var out, errs bytes.Buffer
	root := client.NewRoot(thisHost)
	root.SetOut(&out)
	root.SetErr(&errs)
	root.SetArgs(append(strings.Fields(c.CommandPath())[1:], "--help"))
	if err := root.Execute(); err != nil || errs.Len() > 0 || out.Len() == 0 {
		t.Errorf("%s --help: %v, with %d bytes and the error output %q", c.CommandPath(), err, out.Len(), &errs)
	}
	return out.String()
}

// firstDifference is the first line, counted from 1, in which two texts differ; 0 if none does.
func firstDifference(was, is string) (number int, old, now string) {
	if was == is {
		return 0, "", ""
	}
	before, after := strings.Split(was, "\n"), strings.Split(is, "\n")
	for i := 0; ; i++ {
		if i >= len(before) {
			return i + 1, "(its end)", after[i]
		}
		if i >= len(after) {
			return i + 1, before[i], "(its end)"
		}
		if before[i] != after[i] {
			return i + 1, before[i], after[i]
		}
	}
}

var (
	quotedText  = regexp.MustCompile(`'[^']*'|"[^"]*"`)
	commandEnds = regexp.MustCompile(`&&|\|\||[|;>#]`)
)

// TestExamplesInHelp checks that the commands which help shows are there, and have the flags
// that they are shown with.
func TestExamplesInHelp(t *testing.T) {
	checked := 0
	everyCommand(commandTree(), func(c *cobra.Command) {
		for _, line := range strings.Split(strings.ReplaceAll(c.Example, "\\\n", " "), "\n") {
			for _, part := range commandEnds.Split(quotedText.ReplaceAllString(line, "X"), -1) {
				_, call, is := strings.Cut(" "+part, " triphammer ")
				if !is {
					continue
				}
				checked++
				if wrong := wrongCall(strings.Fields(call)); wrong != "" {
					t.Errorf("the example of %q shows %q: %s", c.CommandPath(), strings.TrimSpace(line), wrong)
				}
			}
		}
		if c.Example != "" && !strings.Contains(c.Example, c.CommandPath()) {
			t.Errorf("the example of %q does not show that command", c.CommandPath())
		}
	})
	if checked == 0 {
		t.Error("no example is checked")
	}
	for call, want := range map[string]string{
		"runs list --nothing":          "it has no flag --nothing",
		"runs list -z":                 "it has no flag -z",
		"runs nothing":                 `there is no command "nothing"`,
		"runs list -o json --limit 5":  "",
		"webhooks show ci --server=ht": "",
	} {
		if got := wrongCall(strings.Fields(call)); got != want {
			t.Errorf("%s: found %q, not %q", call, got, want)
		}
	}
}

// wrongCall is what is wrong with the words after the name of the program; empty if nothing is.
func wrongCall(words []string) string {
	c, rest, err := commandTree().Find(words)
	if err != nil {
		return err.Error()
	}
	c.InitDefaultHelpFlag()
	c.InitDefaultVersionFlag()
	if c.HasSubCommands() && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
		return `there is no command "` + rest[0] + `"`
	}
	for _, word := range rest {
		name, _, _ := strings.Cut(word, "=")
		long, isLong := strings.CutPrefix(name, "--")
		switch {
		case word == "--":
			return ""
		case isLong && flagOf(c, func(set *pflag.FlagSet) *pflag.Flag { return set.Lookup(long) }) == nil,
			!isLong && len(word) > 1 && word[0] == '-' && flagOf(c, func(set *pflag.FlagSet) *pflag.Flag { return set.ShorthandLookup(word[1:2]) }) == nil:
			return "it has no flag " + name
		}
	}
	return ""
}

// flagOf looks for a flag among those of a command, and those that it has of the ones above.
func flagOf(c *cobra.Command, look func(*pflag.FlagSet) *pflag.Flag) *pflag.Flag {
	if f := look(c.Flags()); f != nil {
		return f
	}
	return look(c.InheritedFlags())
}
