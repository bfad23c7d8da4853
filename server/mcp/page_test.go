package mcp

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/mcp.md anew")

const (
	page      = "../../docs/mcp.md"
	generated = "<!-- What follows is written by: go test ./server/mcp -run Page -update -->\n"
)

// TestPage: docs/mcp.md has every tool of the table, as the table says it.
func TestPage(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, after, found := strings.Cut(string(text), generated)
	if !found {
		t.Fatalf("%s has no line %s", page, generated)
	}
	want := "\n| tool | scope | effect | |\n| --- | --- | --- | --- |\n"
	for _, tool := range Tools {
		scopes := "any key"
		if len(tool.Scopes) > 0 {
			scopes = "`" + strings.Join(tool.Scopes, "` or `") + "`"
		}
		want += fmt.Sprintf("| `%s` | %s | %s | %s |\n", tool.Name, scopes, tool.Effect.Text, tool.Does)
	}
	if *update {
		if err := os.WriteFile(page, []byte(before+generated+want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if after != want {
		t.Errorf("%s is not what the table says; write it: go test ./server/mcp -run Page -update", page)
	}
}
