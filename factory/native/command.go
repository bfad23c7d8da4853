package native

import (
	"html"
	"regexp"
	"strings"
)

// Command is a reply that decides what waits for a person (SPEC 26.2).
type Command struct {
	Approve bool
	Code    string // in upper case
	Reason  string
}

// command matches the first line of a reply that decides. Nothing stands before it, so that a quotation or code is
// none, and only ASCII, so that nothing that looks alike is one.
var command = regexp.MustCompile(`^triphammer (approve|decline) ([0-9A-Za-z]{8})(?: ([^\r\n]*))?(?:\r?\n|$)`)

// maxReason is the most characters of a reason.
const maxReason = 200

// Commanded reads a reply. ok is false if it decides nothing.
func Commanded(text string) (c Command, ok bool) {
	m := command.FindStringSubmatch(strings.TrimRight(text, " \t\r\n"))
	if m == nil {
		return c, false
	}
	reason := []rune(strings.Join(strings.Fields(m[3]), " "))
	return Command{Approve: m[1] == "approve", Code: strings.ToUpper(m[2]), Reason: string(reason[:min(len(reason), maxReason)])}, true
}

// Commanded reads what a delivery decides, and who says so. ok is false if it decides nothing.
func (s *Sender) Commanded(d Delivery) (c Command, who Person, ok bool) {
	text, who := s.Said(d)
	if s.HTML {
		text = firstLine(text)
	}
	c, ok = Commanded(text)
	return c, who, ok
}

// leads matches what stands before the first line of a text that is HTML: what editors put there, and mentions,
// without which Teams sends nothing. Quotations, code and links are no part of it.
var leads = regexp.MustCompile(`^(?:` + lead + `)(?:\s|&nbsp;|\x{a0}|` + lead + `)*`)

const lead = `<(?:div|p|span)(?: [^<>]*)?>|<at(?: [^<>]*)?>[^<>]*</at>`

// firstLine is the first line of a text, up to its next element if it is HTML.
func firstLine(text string) string {
	before := leads.FindString(text)
	if before == "" {
		return text
	}
	line, _, _ := strings.Cut(text[len(before):], "<")
	return strings.ReplaceAll(html.UnescapeString(line), "\u00a0", " ")
}

// Admits tells whether the person of a delivery that is a reply is one of a list. If only the sender's API
// knows it, open are the questions.
func (s *Sender) Admits(list *Starters, d Delivery) (ok bool, open []Question) {
	p := s.Read(d)
	if e := s.Spoken(p); e != nil {
		ok, open, _, _ = e.admits(list, p)
	}
	return ok, open
}
