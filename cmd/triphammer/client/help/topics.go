package help

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"triphammer/cmd/triphammer/client/term"
	"triphammer/docs"
)

// Topics are what triphammer help has besides the commands: the short forms of the guides, and
// what is in no guide of its own. settings are the flags of a server.
func Topics(settings *pflag.FlagSet) []docs.Topic {
	return append(slices.Clone(docs.Topics()), signaturesTopic(), VariablesTopic(settings), contextsTopic, deployTopic)
}

// Commands are the topics as commands of triphammer help.
func Commands(settings *pflag.FlagSet) (all []*cobra.Command) {
	for _, topic := range Topics(settings) {
		c := &cobra.Command{Use: topic.Name, Short: plainText(topic.Short), Long: TopicText(topic, topicWidth)}
		c.SetHelpFunc(func(c *cobra.Command, _ []string) {
			width := topicWidth
			if s := term.ScreenOf(c.OutOrStdout()); s.Width > 0 {
				width = min(s.Width, topicWidth)
			}
			_, _ = fmt.Fprint(c.OutOrStdout(), TopicText(topic, width)) // as cobra prints help
		})
		all = append(all, c)
	}
	return all
}

// topicWidth is how wide a topic is at most: longer lines are hard to read.
const topicWidth = 100

// TopicText is a topic as text for a terminal.
func TopicText(t docs.Topic, width int) string {
	return topicBody(t.Text, width) + "\n" + wrapText(fmt.Sprintf("The guide: /docs/%s on a server, /usr/share/doc/triphammer/docs/%s.md in a package.", t.Guide, t.Guide), "", width)
}

var (
	topicLink = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	topicItem = regexp.MustCompile(`^([*-]|\d+\.) `)
)

// proseText is Markdown of a line without the marks that say nothing on a terminal. Commands
// in a sentence keep their backticks.
func proseText(text string) string {
	return strings.ReplaceAll(topicLink.ReplaceAllString(text, "$1"), "**", "")
}

// plainText is proseText of what stands alone.
func plainText(text string) string { return strings.ReplaceAll(proseText(text), "`", "") }

// topicBody is the Markdown of a short form as text: paragraphs, lists, code and tables.
func topicBody(text string, width int) string {
	var b strings.Builder
	code := false
	var rows [][]string
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if !strings.HasPrefix(line, "|") {
			writeRows(&b, rows, width)
			rows = nil
		}
		switch {
		case strings.HasPrefix(line, "```"):
			code = !code
		case code:
			b.WriteString("  " + line + "\n")
		case strings.HasPrefix(line, "| ---"):
			rows = rows[:0] // the heading says nothing that the columns do not show
		case strings.HasPrefix(line, "|"):
			var row []string
			for cell := range strings.SplitSeq(strings.Trim(line, "| "), " | ") {
				row = append(row, plainText(cell))
			}
			rows = append(rows, row)
		default:
			indent := strings.Repeat(" ", len(topicItem.FindString(line)))
			b.WriteString(wrapText(proseText(line), indent, width))
		}
	}
	writeRows(&b, rows, width)
	return b.String()
}

// writeRows writes a table: the first column as wide as it has to be, and the others beside it.
func writeRows(b *strings.Builder, rows [][]string, width int) {
	first := 0
	for _, row := range rows {
		first = max(first, len([]rune(row[0])))
	}
	for _, row := range rows {
		rest := strings.Join(row[1:], "; ")
		if first > width/2 { // there is no room beside it
			b.WriteString(wrapText("  "+row[0]+": "+rest, "    ", width))
			continue
		}
		indent := strings.Repeat(" ", first+4)
		text := wrapText(indent+rest, indent, width)
		b.WriteString(fmt.Sprintf("  %-*s  ", first, row[0]) + strings.TrimPrefix(text, indent))
	}
}

// wrapText breaks a line between words. The first one keeps the spaces that it begins with,
// and the others get indent.
func wrapText(text, indent string, width int) string {
	var b strings.Builder
	words := strings.Fields(text)
	begin := text[:len(text)-len(strings.TrimLeft(text, " "))]
	b.WriteString(begin)
	column := len(begin)
	for i, word := range words {
		columns := 0
		for _, r := range word {
			columns += term.ColumnsOf(r)
		}
		switch {
		case i == 0:
		case column+1+columns > width:
			b.WriteString("\n" + indent)
			column = len(indent)
		default:
			b.WriteString(" ")
			column++
		}
		b.WriteString(word)
		column += columns
	}
	b.WriteString("\n")
	return b.String()
}
