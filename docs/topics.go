package docs

import (
	"strings"
	"sync"
)

// Topic is the short form of a guide, for triphammer help: its section "In short".
type Topic struct {
	Name  string
	Guide string // that has more
	Short string // what the index says of the guide
	Text  string // Markdown
}

// shortForm is the heading of the section that makes a guide a topic.
const shortForm = "## In short\n"

// Topics are the guides that have a short form, by name.
var Topics = sync.OnceValue(func() (topics []Topic) {
	index, _ := Text(Index)
	for _, name := range Names() {
		text, _ := Text(name)
		_, section, is := strings.Cut(text, "\n"+shortForm)
		if !is {
			continue
		}
		section, _, _ = strings.Cut(section, "\n## ")
		_, row, _ := strings.Cut(index, "| ["+name+".md]("+name+".md) | ")
		says, _, _ := strings.Cut(row, " |\n")
		topics = append(topics, Topic{Name: name, Guide: name, Short: says, Text: strings.TrimSpace(section)})
	}
	return topics
})
