// Package docs has the guides, for the pages of the server.
package docs

import (
	"embed"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

//go:embed *.md
var guides embed.FS

// Pictures are the ones that the guides show.
//
//go:embed screenshots/audit-light-1280.png screenshots/audit-dark-1280.png screenshots/automation-edit-light-1280.png screenshots/automation-edit-dark-1280.png screenshots/definition-light-1280.png screenshots/definition-dark-1280.png
//go:embed screenshots/delivery-light-1280.png screenshots/delivery-dark-1280.png screenshots/delivery-unmatched-light-1280.png screenshots/delivery-unmatched-dark-1280.png screenshots/overview-light-1280.png screenshots/overview-dark-1280.png
//go:embed screenshots/run-light-1280.png screenshots/run-dark-1280.png screenshots/run-failed-light-1280.png screenshots/run-failed-dark-1280.png screenshots/run-live-light-1280.png screenshots/run-live-dark-1280.png
//go:embed screenshots/webhook-light-1280.png screenshots/webhook-dark-1280.png screenshots/webhook-new-light-1280.png screenshots/webhook-new-dark-1280.png
//go:embed screenshots/answer-*.svg
//go:embed screenshots/deliveries-light-375.png screenshots/deliveries-dark-375.png
var Pictures embed.FS

// Index is the name of the page that lists the others.
const Index = "README"

// Names are the names of all guides, without the ending of their files.
func Names() []string {
	entries, err := guides.ReadDir(".")
	if err != nil {
		panic(err) // the program was built without them
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = strings.TrimSuffix(e.Name(), ".md")
	}
	return names
}

// Text is the Markdown of a guide.
func Text(name string) (text string, ok bool) {
	data, err := guides.ReadFile(name + ".md")
	return string(data), err == nil
}

// Title is the first heading of a guide as plain text, and the rest is what follows it.
func Title(text string) (title, rest string) {
	title, rest, _ = strings.Cut(text, "\n")
	return strings.ReplaceAll(strings.TrimPrefix(title, "# "), "`", ""), rest
}

var unnamed = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[^\p{L}\p{N}_ -]`) })

// Anchor is the name of the section with a heading, which is as code forges make it. taken
// are the names of the sections before it, and gets this one.
func Anchor(heading string, taken map[string]bool) string {
	name := strings.ReplaceAll(unnamed().ReplaceAllString(strings.ToLower(heading), ""), " ", "-")
	unique := name
	for n := 1; taken[unique]; n++ {
		unique = name + "-" + strconv.Itoa(n)
	}
	taken[unique] = true
	return unique
}
