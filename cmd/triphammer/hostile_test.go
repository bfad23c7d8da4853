package main

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"triphammer/server/worker/executor"
)

// escape is something that an agent must not get done (SPEC 14.1).
type escape struct {
	name string // as the table has it
	// try is what the agent does. What it says counts only if seen believes it.
	try func(*targets) (string, error)
	// seen tells from outside whether the agent has got through.
	seen func(t *testing.T, o *outside, said string) bool
	by   string // what stops it in the isolation kernel
	// machine marks those that the machine may refuse to everybody, without any walls.
	machine bool
}

// column is walls and users of runs: a column of the table.
type column struct {
	isolation string
	root      bool // the server is root, and its runs are not
	control   bool // there is no run: the hostile agent is started as the server's user
}

func (c column) String() string {
	switch {
	case c.control:
		return "no run"
	case c.root:
		return c.isolation + ", server is root"
	}
	return c.isolation
}

// wall is the isolation of the server.
func (c column) wall() string {
	if c.control {
		return executor.None
	}
	return c.isolation
}

// engine is the program that makes the containers of the server.
func (c column) engine() string {
	if c.isolation == executor.Container {
		return "podman"
	}
	return "none"
}

// hostileColumns are all columns. The control comes first.
var hostileColumns = []column{
	{control: true},
	{isolation: executor.None},
	{isolation: executor.None, root: true},
	{isolation: executor.Kernel},
	{isolation: executor.Kernel, root: true},
	{isolation: executor.Sandbox},
	{isolation: executor.Sandbox, root: true},
	{isolation: executor.Container, root: true},
}

// attacked are the columns that are tested: the fast ones, or all (hostile_full_test.go).
var attacked = []column{{isolation: executor.None}, {isolation: executor.Kernel}}

// The table of SPEC 14.3 is between these lines.
const (
	securityPage = "../../docs/hostile.md"
	tableBegins  = "<!-- The table is made by `go test -tags full ./cmd/triphammer -run TestHostileAgentEscapes -update`. -->\n"
	tableEnds    = "<!-- The table ends here. -->\n"
)

// What a cell of the table says.
const stopped, reached, impossible = "stopped", "**done**", "not here"

func (c column) verdict(got bool) string {
	switch {
	case got:
		return reached
	case c.control:
		return impossible
	}
	return stopped
}

// TestHostileAgentEscapes (R30): an agent tries to get out of each isolation, and docs/security.md
// says exactly what it gets done (SPEC 14.1, 14.3). The same agent without a run is the
// control: it gets everything done that the machine lets anybody do. -update writes the table,
// if all columns are tested.
func TestHostileAgentEscapes(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	got := make(map[column]map[string]bool)
	t.Run("columns", func(t *testing.T) {
		for _, c := range attacked {
			if c.root && os.Geteuid() != 0 {
				t.Logf("%s: only root can test it", c)
				continue
			}
			t.Run(strings.ReplaceAll(c.String(), ",", ""), func(t *testing.T) {
				t.Parallel()
				escaped := escapesOf(t, c)
				mu.Lock()
				defer mu.Unlock()
				got[c] = escaped
			})
		}
	})
	for _, e := range escapes {
		if control, ok := got[hostileColumns[0]]; ok && !control[e.name] && !e.machine {
			t.Errorf("%s: the attempt does not work without a run either, so it shows nothing", e.name)
		}
	}
	if t.Failed() {
		return
	}
	page, err := os.ReadFile(securityPage)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok1 := strings.Cut(string(page), tableBegins)
	table, after, ok2 := strings.Cut(rest, tableEnds)
	if !ok1 || !ok2 {
		t.Fatalf("%s has no place for the table", securityPage)
	}
	if *update && len(got) == len(hostileColumns) {
		if err := os.WriteFile(securityPage, []byte(before+tableBegins+tableOf(got)+tableEnds+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	claims := make(map[string][]string) // cells of a row, by its first
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(line, "| \n"), " | ")
		claims[cells[0]] = cells[1:]
	}
	if len(claims) != len(escapes)+2 {
		t.Errorf("the table has %d rows for %d attempts", len(claims)-2, len(escapes))
	}
	for _, e := range escapes {
		cells := claims[e.name]
		if len(cells) != len(hostileColumns)+1 || cells[len(cells)-1] != e.by {
			t.Errorf("%s: the table says %q", e.name, cells)
			continue
		}
		for i, c := range hostileColumns {
			seen, ok := got[c]
			if ok && !c.control && cells[i] != c.verdict(seen[e.name]) && (seen[e.name] || !e.machine) {
				t.Errorf("%s (%s): the table says %s, and it was %s", e.name, c, cells[i], c.verdict(seen[e.name]))
			}
		}
	}
}

// tableOf is the table in Markdown.
func tableOf(got map[column]map[string]bool) string {
	var b strings.Builder
	b.WriteString("| The agent tries to …")
	for _, c := range hostileColumns {
		fmt.Fprintf(&b, " | %s", c)
	}
	b.WriteString(" | What stops it in kernel |\n|" + strings.Repeat(" --- |", len(hostileColumns)+2) + "\n")
	for _, e := range escapes {
		fmt.Fprintf(&b, "| %s", e.name)
		for _, c := range hostileColumns {
			fmt.Fprintf(&b, " | %s", c.verdict(got[c][e.name]))
		}
		fmt.Fprintf(&b, " | %s |\n", e.by)
	}
	return b.String()
}
