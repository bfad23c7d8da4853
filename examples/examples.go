// Package examples holds factories to begin with, each in a folder of its own.
package examples

import (
	"embed"
	"strings"
)

// Files are the examples: a folder of each at the root.
//
//go:embed *
var Files embed.FS

// Example is a factory to begin with.
type Example struct{ Name, Description string }

// All are the examples, by name. What is a folder here is an example, and its factory.yaml
// describes it, so that no list can be stale.
func All() []Example {
	folders, _ := Files.ReadDir(".") // an embedded folder can be read
	var all []Example
	for _, folder := range folders {
		if !folder.IsDir() {
			continue
		}
		e := Example{Name: folder.Name()}
		text, _ := Files.ReadFile(e.Name + "/factory.yaml") // a test reads each
		for line := range strings.Lines(string(text)) {
			if description, is := strings.CutPrefix(line, "description: "); is {
				e.Description = strings.TrimSpace(description)
			}
		}
		all = append(all, e)
	}
	return all
}
