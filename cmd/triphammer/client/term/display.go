package term

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"golang.org/x/text/width"
)

// ForPeople is where a command writes text for people.
func ForPeople(c *cobra.Command, w io.Writer) io.Writer {
	choice, _ := c.Flags().GetString("color") // commands of tests may have none
	return Printable{w, choice}
}

// ColourFlag adds --color to all commands.
func ColourFlag(root *cobra.Command) {
	choice := &choiceValue{value: "auto", allowed: []string{"auto", "always", "never"}}
	root.PersistentFlags().Var(choice, "color", "colours: "+strings.Join(choice.allowed, ", ")+"; auto: on a terminal, unless NO_COLOR is set or TERM is dumb")
	_ = root.RegisterFlagCompletionFunc("color", cobra.FixedCompletions(choice.allowed, cobra.ShellCompDirectiveNoFileComp))
}

// choiceValue is a flag with one of a few words.
type choiceValue struct {
	value   string
	allowed []string
}

func (v *choiceValue) String() string { return v.value }
func (v *choiceValue) Type() string   { return "string" }

func (v *choiceValue) Set(text string) error {
	if !slices.Contains(v.allowed, text) {
		return fmt.Errorf("it can be %s", strings.Join(v.allowed, ", "))
	}
	v.value = text
	return nil
}

// usualColumns is the width of a terminal that does not say how wide it is.
const usualColumns = 80

// terminalColumns is the width of the terminal to which w writes; 0: it is none, and nothing is cut.
func terminalColumns(w io.Writer) int {
	f := TerminalOf(w)
	if f == nil {
		return 0
	}
	if columns, _, err := term.GetSize(int(f.Fd())); err == nil && columns > 0 {
		return columns
	}
	if columns, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && columns > 0 {
		return columns
	}
	return usualColumns
}

// columns is how many columns of a terminal a text takes.
func columns(text string) int {
	total := 0
	joined := false
	for _, r := range text {
		if !joined {
			total += runeColumns(r)
		}
		joined = r == '\u200d' // the next character is a part of this one
	}
	return total
}

func runeColumns(r rune) int {
	switch {
	case r < 0x300:
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf), r >= 0x1f3fb && r <= 0x1f3ff: // marks, and tones of skin
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// shorten shortens a text to at most so many columns. It ends with … if something is left out.
func shorten(text string, most int) string {
	if columns(text) <= most {
		return text
	}
	used, end, joined := 0, 0, false
	for i, r := range text {
		n := runeColumns(r)
		if joined {
			n = 0
		}
		if used+n > most-1 {
			break
		}
		used += n
		end = i + len(string(r))
		joined = r == '\u200d'
	}
	return text[:end] + "…"
}

// When is a time for people: on a terminal in its zone (TZ), elsewhere in RFC 3339 and UTC.
func When(w io.Writer, t time.Time) string {
	switch {
	case t.IsZero():
		return ""
	case TerminalOf(w) == nil:
		return t.UTC().Format(time.RFC3339)
	}
	return t.Local().Format("2006-01-02 15:04:05 MST")
}

// WhenOf is When for a time that may be missing.
func WhenOf(w io.Writer, t *time.Time) string {
	if t == nil {
		return ""
	}
	return When(w, *t)
}

// Hour is When for what happens now: on a terminal without the day.
func Hour(w io.Writer, t time.Time) string {
	if TerminalOf(w) == nil {
		return When(w, t)
	}
	return t.Local().Format(time.TimeOnly)
}

// ago is a time in a list on a terminal: how long ago it was, or the day.
func ago(t, now time.Time) string {
	form := "%s ago"
	passed := now.Sub(t)
	if passed < 0 {
		form, passed = "in %s", -passed
	}
	switch {
	case passed < time.Second:
		return "now"
	case passed < time.Minute:
		return fmt.Sprintf(form, fmt.Sprintf("%d s", passed/time.Second))
	case passed < time.Hour:
		return fmt.Sprintf(form, fmt.Sprintf("%d min", passed/time.Minute))
	case passed < 48*time.Hour:
		return fmt.Sprintf(form, fmt.Sprintf("%d h", passed/time.Hour))
	case passed < 60*24*time.Hour:
		return fmt.Sprintf(form, fmt.Sprintf("%d d", passed/(24*time.Hour)))
	}
	return t.Local().Format("2006-01-02")
}
