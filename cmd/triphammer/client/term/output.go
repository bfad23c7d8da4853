// Package term prints for commands: for people at a terminal, and for programs.
package term

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"triphammer/cmd/triphammer/client/exit"
	"triphammer/schema"
	"triphammer/server/inert"
)

// Formats of -o. Those of a list have a row for each of its elements.
const (
	FormatTable = "table"
	formatWide  = "wide"
	FormatJSONL = "jsonl"
)

var outputFormats = []string{FormatTable, formatWide, "json", FormatJSONL, "yaml", "name"}

// OutputFlag adds -o to a command that lists or shows. more are further formats that only
// this command has.
func OutputFlag(c *cobra.Command, more ...string) {
	OutputFlagOf(c, slices.Concat(outputFormats, more))
}

// OutputFlagOf is OutputFlag for a command that does not have all the formats.
func OutputFlagOf(c *cobra.Command, formats []string) {
	c.Flags().VarP(&outputValue{value: FormatTable, formats: formats}, "output", "o", strings.Join(formats, ", "))
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
}

// outputValue is the value of -o. A wrong one is refused before the command does anything.
type outputValue struct {
	value   string
	formats []string
}

func (v *outputValue) String() string { return v.value }
func (v *outputValue) Type() string   { return "string" }

func (v *outputValue) Set(text string) error {
	if !slices.Contains(v.formats, text) {
		return fmt.Errorf("it can be %s; jq reads single fields from json", strings.Join(v.formats, ", "))
	}
	v.value = text
	return nil
}

// OutputOf is the format of -o.
func OutputOf(c *cobra.Command) string {
	format, _ := c.Flags().GetString("output")
	return cmp.Or(format, FormatTable)
}

// IsTable tells whether a command prints for people.
func IsTable(c *cobra.Command) bool {
	format := OutputOf(c)
	return format == FormatTable || format == formatWide
}

// LimitFlag adds --limit to a list.
func LimitFlag(c *cobra.Command, limit *int, usual int) {
	c.Flags().IntVar(limit, "limit", usual, "how many; 0: all")
	c.PreRunE = func(*cobra.Command, []string) error {
		if *limit < 0 {
			return exit.With(exit.Usage, "--limit %d: it takes a number of entries, or 0 for all", *limit)
		}
		return nil
	}
}

// Cells are a row of a table: texts, numbers, and times, which are shown as the reader has them.
type Cells = []any

// Prose is a cell that people only read, and that is cut where there is no room. Commands take ids,
// names and states, and a part of a number or a time would say something else: all others are whole.
type Prose string

// Table is a list in columns, for people. On a terminal, times in a list are relative.
type Table struct {
	Header []string
	rows   []Cells
	List   bool // the header has the names of the columns
	Wide   bool // nothing is cut, times are whole
}

// Add adds a row.
func (t *Table) Add(row ...any) { t.rows = append(t.rows, row) }

// Emit prints a value in the format of -o. With JSON, standard output has nothing else.
func Emit(c *cobra.Command, value any, names []string, show func(w io.Writer) error) error {
	w := c.OutOrStdout()
	if IsTable(c) {
		return show(ForPeople(c, w))
	}
	var out bytes.Buffer
	if err := encode(&out, OutputOf(c), value, names); err != nil {
		return err
	}
	_, err := out.WriteTo(w) // at once: a reader of the first line, such as head, may not wait for more
	return err
}

// encode writes a value in a format for programs.
func encode(w io.Writer, format string, value any, names []string) error {
	switch format {
	case "json":
		return WriteJSON(w, value)
	case FormatJSONL:
		for _, row := range rowsOf(value) {
			enc := json.NewEncoder(w)
			enc.SetEscapeHTML(false)
			if err := enc.Encode(row); err != nil {
				return err
			}
		}
		return nil
	case "yaml":
		text, err := json.Marshal(value)
		if err != nil {
			return err
		}
		out, err := schema.YAML(text)
		if err != nil {
			return err
		}
		_, err = w.Write(out)
		return err
	}
	for _, name := range names {
		fmt.Fprintln(w, name)
	}
	return nil
}

// Now is the clock by which the client shows times and signs. Tests start the program with another one.
var Now = time.Now

// rowsOf are the elements of a list, or the only value.
func rowsOf(value any) []any {
	list := reflect.ValueOf(value)
	if list.Kind() != reflect.Slice {
		return []any{value}
	}
	rows := make([]any, list.Len())
	for i := range rows {
		rows[i] = list.Index(i).Interface()
	}
	return rows
}

// WriteJSON writes a value as JSON for people and programs.
func WriteJSON(w io.Writer, value any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(value)
}

// EmitList prints a list as a table, or its elements in another format.
func EmitList[T any](c *cobra.Command, all []T, name func(T) string, header []string, row func(T) Cells) error {
	names := make([]string, len(all))
	t := Table{Header: header, List: true, Wide: OutputOf(c) == formatWide}
	for i, one := range all {
		names[i] = name(one)
		t.Add(row(one)...)
	}
	return Emit(c, all, names, t.Write)
}

// EmitOf is EmitList for things that belong to factories. If there are several factories,
// each row begins with the name of its factory.
func EmitOf[T any](c *cobra.Command, all []T, factory, name func(T) string, header []string, row func(T) Cells) error {
	if !slices.ContainsFunc(all, func(one T) bool { return factory(one) != factory(all[0]) }) {
		return EmitList(c, all, name, header, row)
	}
	return EmitList(c, all, name, slices.Concat([]string{"FACTORY"}, header), func(one T) Cells {
		return slices.Concat(Cells{factory(one)}, row(one))
	})
}

// text is a cell as w shows it.
func (t *Table) text(w io.Writer, cell any) string {
	var text string
	switch cell := cell.(type) {
	case *time.Time:
		if cell != nil {
			return t.text(w, *cell)
		}
	case time.Time:
		if text = When(w, cell); t.List && !t.Wide && text != "" && TerminalOf(w) != nil {
			text = ago(cell, Now())
		}
	default:
		text = fmt.Sprint(cell)
	}
	return cmp.Or(inert.Text(OneLine.Replace(text)), "-")
}

const (
	gap       = 2 // columns between those of a table
	leastText = 8 // columns of a text that is shown in part
)

// Write prints the table.
func (t *Table) Write(w io.Writer) error {
	rows := [][]string{slices.Clone(t.Header)}
	for _, row := range t.rows {
		texts := make([]string, len(row))
		for i, cell := range row {
			texts[i] = t.text(w, cell)
		}
		rows = append(rows, texts)
	}
	if !t.List {
		for i, text := range rows[0] {
			rows[0][i] = t.text(w, text)
		}
	}
	widths := make([]int, len(t.Header))
	for _, row := range rows {
		for i, text := range row {
			widths[i] = max(widths[i], columns(text))
		}
	}
	if most := terminalColumns(w); most > 0 && t.List && !t.Wide {
		t.fit(widths, most)
	}
	colours := ScreenOf(w).colours
	var b strings.Builder
	for n, row := range rows {
		line, pad := "", 0
		for i, text := range row {
			if widths[i] == 0 { // there is no room for it
				continue
			}
			if pad > 0 {
				line += strings.Repeat(" ", pad)
			}
			shown := shorten(text, widths[i])
			if pad = widths[i] - columns(shown) + gap; colours {
				if colour := t.colour(n, i, text); colour != "" {
					shown = colour + shown + colourReset
				}
			}
			line += shown
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	_, err := io.WriteString(bare(w), b.String())
	return err
}

// After writes the table after an empty line.
func (t *Table) After(w io.Writer) error {
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	return t.Write(w)
}

// cuttable tells whether a column is shown in part where there is no room.
func (t *Table) cuttable(column int) bool {
	return !slices.ContainsFunc(t.rows, func(row Cells) bool {
		_, is := row[column].(Prose)
		return !is
	})
}

// fit makes the widest prose narrower, again and again, until the table is not wider than the
// terminal. If the least is too much, it leaves columns out, the last first: prose, and then
// what is never cut. Only the first column stays whatever comes.
func (t *Table) fit(widths []int, most int) {
	cut := make([]bool, len(widths))
	for i := range cut {
		cut[i] = t.cuttable(i)
	}
	for {
		total, widest, text, last := -gap, -1, -1, -1
		for i, n := range widths {
			if n == 0 {
				continue
			}
			total += n + gap
			if i == 0 {
				continue
			}
			if last = i; !cut[i] {
				continue
			}
			text = i
			if n > leastText && (widest < 0 || n > widths[widest]) {
				widest = i
			}
		}
		switch {
		case total <= most || last < 0:
			return
		case widest >= 0:
			widths[widest]--
		case text >= 0:
			widths[text] = 0
		default:
			widths[last] = 0
		}
	}
}

// stateColours are the colours of words that say how something is.
var stateColours = map[string]string{
	"SUCCEEDED": ColourGood, "Accepted": ColourGood, "applied": ColourGood, "ok": ColourGood,
	"FAILED": ColourBad, "Rejected": ColourBad, "refused": ColourBad, "failed": ColourBad, "lost": ColourBad,
	"BLOCKED": colourWarn, "QUEUED": colourWarn, "INPROGRESS": colourPlace, "CANCELLED": ColourDim, "Duplicate": ColourDim, "paused": colourWarn, "disabled": ColourDim, "draining": colourWarn,
}

// colour is the colour of a cell.
func (t *Table) colour(row, column int, text string) string {
	switch {
	case t.List && row == 0:
		return colourBold
	case !t.List && column == 0:
		return ColourDim
	case t.List && !slices.Contains([]string{"STATE", "OUTCOME", "ENABLED"}, t.Header[column]):
		return ""
	case !t.List && !slices.Contains([]any{"state", "outcome", "enabled"}, t.label(row)):
		return ""
	}
	word, _, _ := strings.Cut(text, " ")
	return stateColours[strings.TrimRight(word, ",:…")]
}

// label is the first cell of a row of a table that is no list.
func (t *Table) label(row int) any {
	if row == 0 {
		return t.Header[0]
	}
	return t.rows[row-1][0]
}

// ShortHash is what people see of a hash.
func ShortHash(hash string) string { return hash[:min(len(hash), 12)] }

// YesNo is a truth in a table.
func YesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
