package answer

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Limits of what an answer says besides the agent's text.
const (
	maxName  = 200  // characters of an automation's name and of an outcome
	maxWhy   = 1000 // characters
	maxPulls = 10   // pull requests that are named
)

// dialect is how a sender writes text.
type dialect struct {
	write func(blocks []block, m Message) string
	bytes int // that one text has at most
	chars int // that one text has at most; 0: only bytes counts
}

func (d *dialect) fits(text string) bool {
	return len(text) <= d.bytes && (d.chars == 0 || len(text) <= d.chars || utf8.RuneCountInString(text) <= d.chars)
}

// text renders a message. What is too long loses the end of the agent's text first; the link to the
// run and the marker stay.
func (d *dialect) text(m Message) string {
	said := parse(m.Text)
	write := func(runes, pulls, why int) string {
		left := runes
		return d.write(layout(m, shortened(said, &left), pulls, why), m)
	}
	most := maxRunes
	if m.State == Said {
		most = maxMarkdown
	}
	if text := write(most, maxPulls, maxWhy); d.fits(text) {
		return text
	}
	low, high := 0, most // low fits, unless it is 0
	for high-low > 1 {
		if middle := (low + high) / 2; d.fits(write(middle, maxPulls, maxWhy)) {
			low = middle
		} else {
			high = middle
		}
	}
	if text := write(low, maxPulls, maxWhy); d.fits(text) {
		return text
	}
	for pulls := maxPulls; pulls >= 0; pulls-- {
		if text := write(0, pulls, maxName); d.fits(text) {
			return text
		}
	}
	return write(0, 0, 0)
}

// oneLine is a text that is not Markdown, cut to a number of characters.
func oneLine(text string, runes int) string {
	if most := 64 * (runes + 1); len(text) > most {
		text = strings.ToValidUTF8(text[:most], "")
	}
	text = strings.Join(strings.Fields(clean(text)), " ")
	return shortText(text, &runes)
}

// layout is a message: what happened, what the agent said (as a quotation), pull requests, and the run.
func layout(m Message, agent []block, pulls, why int) (all []block) {
	if m.State == Said {
		if agent = unled(agent); m.Run != "" {
			agent = append(agent, block{spans: facts(m)})
		}
		return agent
	}
	first := []span{{text: oneLine(m.Automation, maxName), bold: true}}
	if m.Asker != "" {
		first = append([]span{{text: m.Asker, mention: true}, {text: " "}}, first...)
	}
	reason := oneLine(m.Why, why)
	state, asks, asksBelow := m.State, "asks", "asks below"
	if m.Asks != "" {
		if state = asks; m.Text == "" {
			state = asksBelow
		}
	}
	switch state {
	case Started:
		sentence := " has started."
		if m.Took >= time.Minute {
			sentence = " has been working for " + took(m.Took) + "."
		}
		first = append(first, span{text: sentence})
	case Waits:
		sentence := " waits."
		if reason != "" {
			sentence = " waits: " + reason
		}
		first = append(first, span{text: sentence})
	case asksBelow:
		first = append(first, span{text: " asks a question below."})
	case asks:
		first = append(first, span{text: " asks:"})
	default:
		outcome := oneLine(m.Outcome, maxName)
		outcome = cmp.Or(outcome, "has ended")
		sentence := " " + outcome + "."
		if reason != "" {
			sentence = " " + outcome + ": " + reason
		}
		first = append(first, span{text: sentence})
	}
	all = []block{{spans: guarded(first)}}
	if len(agent) > 0 {
		all = append(all, block{kind: quotation, items: [][]block{agent}})
	}
	all = append(all, named(m.PullRequests, pulls)...)
	if state == asks {
		all = append(all, block{spans: guarded([]span{{text: oneLine(m.Asks, maxWhy)}})})
	}
	all = append(all, decision(m)...)
	return append(all, block{spans: facts(m)})
}

// unled are blocks in which no line of code begins with a mark of a command, because bots and forges
// take commands from the beginnings of lines. A paragraph escapes it.
func unled(blocks []block) []block {
	blocks = slices.Clone(blocks)
	for i, b := range blocks {
		if b.kind == codeBlock {
			blocks[i].text = commands.ReplaceAllString(b.text, " $0")
		}
	}
	return blocks
}

var commands = regexp.MustCompile(`(?m)^[/@!]`)

// named are the links to the pull requests.
func named(addresses []string, most int) []block {
	addresses = slices.DeleteFunc(slices.Clone(addresses), func(a string) bool { return oneLine(a, maxName) == "" })
	if len(addresses) == 0 || most == 0 {
		return nil
	}
	spans := []span{{text: "Pull requests:"}}
	if len(addresses) == 1 {
		spans[0].text = "Pull request:"
	}
	for i, address := range addresses {
		if i == most {
			spans = append(spans, span{text: fmt.Sprintf(" and %d more", len(addresses)-most)})
			break
		}
		spans = append(spans, span{text: " "})
		if to := web(address); to != "" {
			spans = append(spans, span{text: to, to: to})
		} else {
			spans = append(spans, span{text: oneLine(address, maxName), code: true})
		}
	}
	return []block{{spans: guarded(spans)}}
}

// facts are the run, and what it took.
func facts(m Message) []span {
	if m.Run == "" && m.Delivery != "" {
		return []span{{text: "Delivery " + oneLine(m.Delivery, maxName)}}
	}
	run := span{text: "Run " + oneLine(m.Run, maxName), to: web(m.Link)}
	spans := []span{run}
	if m.State == Ended && m.Took > 0 {
		spans = append(spans, span{text: " · " + took(m.Took)})
	}
	if m.CostUSD > 0 {
		spans = append(spans, span{text: fmt.Sprintf(" · $%.2f", m.CostUSD)})
	}
	return spans
}

func took(d time.Duration) string {
	s := int(d.Round(time.Second) / time.Second)
	switch {
	case s < 60:
		return fmt.Sprintf("%d s", s)
	case s < 3600 && s%60 == 0:
		return fmt.Sprintf("%d min", s/60)
	case s < 3600:
		return fmt.Sprintf("%d min %d s", s/60, s%60)
	case s/60%60 == 0:
		return fmt.Sprintf("%d h", s/3600)
	}
	return fmt.Sprintf("%d h %d min", s/3600, s/60%60)
}

// runLink gives the link to the run a marker, where a sender shows every other hidden text.
func runLink(blocks []block, m Message) []block {
	if last := len(blocks) - 1; m.Marker != "" && last >= 0 {
		spans := append([]span(nil), blocks[last].spans...)
		if spans[0].to != "" {
			to, _, _ := strings.Cut(spans[0].to, "#")
			spans[0].to = to + "#" + mark(m.Marker)
		}
		blocks = append([]block(nil), blocks...)
		blocks[last].spans = spans
	}
	return blocks
}

// preview is an answer as people read it: Markdown without a marker, and without a mention.
func preview(m Message) string {
	m.Asker, m.Marker = "", ""
	return previewed.text(m)
}

var previewed = dialect{write: func(blocks []block, _ Message) string { return (&markdown{}).text(blocks) }, bytes: 60_000}
