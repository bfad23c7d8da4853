package event

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// The command line and the pages describe events with the texts of this file.

// Fact is a named value of a tool's input.
type Fact struct{ Name, Value string }

// mainFacts are the names of the inputs that a reader looks for first, the most telling first.
var mainFacts = []string{
	"command", "cmd", "file_path", "filePath", "absolute_path", "notebook_path", "url", "query", "pattern", "path", "dir_path",
	"description", "skill", "name", "prompt",
}

// maxSummary bounds a summary, in characters.
const maxSummary = 120

// Summary tells the input of the tool in one line: the value that a reader looks for
// first, such as the file or the command. more are the values that the line lacks or has
// shortened, in their order. The input may be any text, even JSON that was cut.
func (e Tool) Summary() (line string, more []Fact) {
	facts := factsOf(e.Input)
	if len(facts) == 0 {
		if line = Line(e.Input, maxSummary); line != e.Input {
			more = []Fact{{"input", e.Input}}
		}
		return line, more
	}
	named := func(name string) int {
		return slices.IndexFunc(facts, func(f Fact) bool { return f.Name == name && f.Value != "" })
	}
	tell := func(name string) string {
		f := facts[named(name)]
		line := Line(f.Value, maxSummary)
		more = slices.DeleteFunc(more, func(m Fact) bool { return m == f && line == f.Value })
		return line
	}
	more = slices.Clone(facts)
	for _, name := range mainFacts {
		if named(name) < 0 {
			continue
		}
		line = tell(name)
		if name == "pattern" && named("path") >= 0 {
			line += " in " + tell("path")
		}
		return line, more
	}
	all := make([]string, len(facts))
	for i, f := range facts {
		all[i] = f.Name + "=" + f.Value
	}
	text := strings.Join(all, " ")
	if line = Line(text, maxSummary); line == text {
		more = nil
	}
	return line, more
}

// factsOf are the members of a JSON object in their order. If the object was cut, they are
// the members before that place.
func factsOf(object string) (facts []Fact) {
	d := json.NewDecoder(strings.NewReader(object))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return nil
	}
	for d.More() {
		name, err := d.Token()
		var value json.RawMessage
		if err == nil {
			err = d.Decode(&value)
		}
		if err != nil {
			break
		}
		facts = append(facts, Fact{name.(string), plain(value)})
	}
	return facts
}

// plain is a JSON value for people: texts without quotes and escapes.
func plain(value json.RawMessage) string {
	var text string
	if json.Unmarshal(value, &text) == nil {
		return text
	}
	var texts []string
	if json.Unmarshal(value, &texts) == nil && len(texts) > 0 {
		return strings.Join(texts, " ")
	}
	var b bytes.Buffer
	if json.Compact(&b, value) != nil {
		return string(value)
	}
	return b.String()
}

// Line is text in one line of at most most characters. It ends with "…" if it was cut.
func Line(text string, most int) string {
	var b strings.Builder
	count, space := 0, false
	for _, r := range text {
		if unicode.IsSpace(r) {
			space = count > 0
			continue
		}
		if space {
			b.WriteByte(' ')
			count++
			space = false
		}
		if count >= most {
			return strings.TrimRight(b.String(), " ") + "…"
		}
		b.WriteRune(r)
		count++
	}
	return b.String()
}

// RoleReasoning is the role of a model's thoughts.
const RoleReasoning = "reasoning"

// roles are the roles in the messages of the known harnesses.
var roles = []string{"assistant", "model", RoleReasoning, "system", "tool", "user"}

// Speaker is the role of the message if it is known, else "message". An unknown role comes
// from the agent, and could imitate the name of another kind of event.
func (e Message) Speaker() string {
	if slices.Contains(roles, e.Role) {
		return e.Role
	}
	return KindMessage
}

// Outcome tells how the command ended, and how long it took. It is "started" while the
// command runs.
func (e Command) Outcome() string {
	if e.Started {
		return "started"
	}
	how := "ended"
	switch {
	case e.Signal != "":
		how = e.Signal
	case e.ExitCode != nil && *e.ExitCode >= 0:
		how = "exit status " + strconv.Itoa(*e.ExitCode)
	case e.Failed:
		how = "failed"
	}
	return with(how, e.DurationMS)
}

// Bad tells whether the command failed.
func (e Command) Bad() bool {
	return e.Failed || e.Signal != "" || e.ExitCode != nil && *e.ExitCode != 0
}

// Outcome tells how the use of the tool ended, and how long it took. It is "started"
// while the tool works.
func (e Tool) Outcome() string {
	switch {
	case e.Started:
		return "started"
	case e.Failed:
		return with("failed", e.DurationMS)
	}
	return with("done", e.DurationMS)
}

func with(how string, ms int64) string {
	if ms <= 0 {
		return how
	}
	return how + ", " + Took(ms)
}

// Took is a duration in milliseconds, such as "1 min 48 s".
func Took(ms int64) string {
	d := time.Duration(max(ms, 0)) * time.Millisecond
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 59950*time.Millisecond:
		return strconv.FormatFloat(d.Round(100*time.Millisecond).Seconds(), 'f', -1, 64) + " s"
	}
	d = d.Round(time.Second)
	if d < time.Hour {
		return strings.TrimSuffix(fmt.Sprintf("%d min %d s", d/time.Minute, d%time.Minute/time.Second), " 0 s")
	}
	return strings.TrimSuffix(fmt.Sprintf("%d h %d min", d/time.Hour, d%time.Hour/time.Minute), " 0 min")
}

// Bytes is a size, such as "11.2 kB".
func Bytes(n int64) string {
	switch {
	case n < 1000:
		return fmt.Sprintf("%d bytes", n)
	case n < 999_950:
		return fmt.Sprintf("%.1f kB", float64(n)/1e3)
	case n >= 999_950_000:
		return fmt.Sprintf("%.1f GB", float64(n)/1e9)
	}
	return fmt.Sprintf("%.1f MB", float64(n)/1e6)
}

// Tokens is a number of tokens.
func Tokens(n int64) string { return count(int(n), "token") }

// grouped is a number with commas between its thousands.
func grouped(n int64) string {
	if n < 0 {
		return strconv.FormatInt(n, 10)
	}
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// USD is a sum of money, such as "$12.34", "$0.42" or "$0.0035". It has whole cents, and a sum
// below a dollar has at least two significant digits.
func USD(v float64) string {
	if !(v > 0 && v < 1) {
		return fmt.Sprintf("$%.2f", v)
	}
	text := strconv.FormatFloat(v, 'f', 1-int(math.Floor(math.Log10(v))), 64)
	cents, rest := text[:4], text[4:]
	return "$" + cents + strings.TrimRight(rest, "0")
}

// String is what was used, such as "9 turns, 16,316 tokens in, 131,904 from the cache,
// 6,418 out, $0.42". It is empty if nothing is known. Some harnesses count the tokens from
// the cache among the tokens in, and others do not.
func (e Usage) String() string {
	var parts []string
	if e.Turns > 0 {
		parts = append(parts, count(int(e.Turns), "turn"))
	}
	unit := " tokens"
	tokens := func(n int64, what string) {
		if n > 0 {
			parts, unit = append(parts, grouped(n)+unit+what), ""
		}
	}
	tokens(e.InputTokens, " in")
	tokens(e.CachedTokens, " from the cache")
	tokens(e.OutputTokens, " out")
	if e.CostUSD > 0 {
		parts = append(parts, USD(e.CostUSD))
	}
	return strings.Join(parts, ", ")
}

// Where is the host and the port.
func (e Egress) Where() string { return fmt.Sprintf("%s:%d", e.Host, e.Port) }

// Verdict is what became of the push, in a word.
func (p Push) Verdict() string {
	if p.Refused != "" {
		return "refused"
	}
	if p.Waits != "" {
		return "waits for a person"
	}
	return "pushed"
}

// Place is the branch or tag, and its repository.
func (p Push) Place() string {
	return strings.TrimPrefix(strings.TrimPrefix(p.Ref, "refs/heads/"), "refs/") + " of " + p.Repository
}

// Where is Place, and the object that it was to name.
func (p Push) Where() string { return fmt.Sprintf("%s, %.12s", p.Place(), p.New) }

// Connections is the number of connections, if there were several.
func (e Egress) Connections() string {
	if e.Count <= 1 {
		return ""
	}
	return grouped(e.Count) + " connections"
}

// Lines counts the lines that the file's diff adds and removes.
func (e File) Lines() (added, removed int) {
	inHunk := false
	for line := range strings.Lines(e.Diff) {
		switch {
		case strings.HasPrefix(line, "@@"):
			inHunk = true
		case !inHunk:
		case line[0] == '+':
			added++
		case line[0] == '-':
			removed++
		}
	}
	return added, removed
}

// Totals sum up a transcript.
type Totals struct {
	Usage          Usage
	Phases         []Phase
	Files, Ignored int // Ignored: by Git
	Added, Removed int // lines
	Refused        int // connections
}

// Add counts an event.
func (t *Totals) Add(e Event) {
	switch e := e.(type) {
	case Usage:
		t.Usage.InputTokens += e.InputTokens
		t.Usage.CachedTokens += e.CachedTokens
		t.Usage.OutputTokens += e.OutputTokens
		t.Usage.CostUSD += e.CostUSD
		t.Usage.Turns += e.Turns
	case Phase:
		t.Phases = append(t.Phases, e)
	case File:
		added, removed := e.Lines()
		t.Added, t.Removed = t.Added+added, t.Removed+removed
		if n := int(max(e.Files, 1)); e.Change == FileIgnored {
			t.Ignored += n
		} else {
			t.Files += n
		}
	case Egress:
		if !e.Allowed {
			t.Refused += int(max(e.Count, 1))
		}
	}
}

// String tells the totals in one line. It is empty if there is nothing to tell.
func (t *Totals) String() string {
	var parts []string
	phases := make([]string, len(t.Phases))
	for i, p := range t.Phases {
		phases[i] = p.Name + " " + Took(p.DurationMS)
	}
	if len(phases) > 0 {
		parts = append(parts, strings.Join(phases, ", "))
	}
	if used := t.Usage.String(); used != "" {
		parts = append(parts, used)
	}
	if t.Files > 0 {
		parts = append(parts, fmt.Sprintf("%s (+%d -%d)", count(t.Files, "changed file"), t.Added, t.Removed))
	}
	if t.Ignored > 0 {
		parts = append(parts, count(t.Ignored, "changed file")+" that Git ignores")
	}
	if t.Refused > 0 {
		parts = append(parts, count(t.Refused, "refused connection"))
	}
	return strings.Join(parts, "; ")
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return grouped(int64(n)) + " " + what + "s"
}
