package main

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

	"triphammer/schema"
	"triphammer/server/inert"
)

// Formats of -o. Those of a list have a row for each of its elements.
const (
	formatTable = "table"
	formatWide  = "wide"
	formatJSONL = "jsonl"
)

var outputFormats = []string{formatTable, formatWide, "json", formatJSONL, "yaml", "name"}

// outputFlag adds -o to a command that lists or shows. more are further formats that only
// this command has.
func outputFlag(c *cobra.Command, more ...string) {
	outputFlagOf(c, slices.Concat(outputFormats, more))
}

// outputFlagOf is outputFlag for a command that does not have all the formats.
func outputFlagOf(c *cobra.Command, formats []string) {
	c.Flags().VarP(&outputValue{value: formatTable, formats: formats}, "output", "o", strings.Join(formats, ", "))
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

// outputOf is the format of -o.
func outputOf(c *cobra.Command) string {
	format, _ := c.Flags().GetString("output")
	return cmp.Or(format, formatTable)
}

// isTable tells whether a command prints for people.
func isTable(c *cobra.Command) bool {
	format := outputOf(c)
	return format == formatTable || format == formatWide
}

// limitFlag adds --limit to a list.
func limitFlag(c *cobra.Command, limit *int, usual int) {
	c.Flags().IntVar(limit, "limit", usual, "how many; 0: all")
	c.PreRunE = func(*cobra.Command, []string) error {
		if *limit < 0 {
			return exitWith(exitUsage, "--limit %d: it takes a number of entries, or 0 for all", *limit)
		}
		return nil
	}
}

// cells are a row of a table: texts, numbers, and times, which are shown as the reader has them.
type cells = []any

// prose is a cell that people only read, and that is cut where there is no room. Commands take ids,
// names and states, and a part of a number or a time would say something else: all others are whole.
type prose string

// table is a list in columns, for people. On a terminal, times in a list are relative.
type table struct {
	header []string
	rows   []cells
	list   bool // the header has the names of the columns
	wide   bool // nothing is cut, times are whole
}

func (t *table) add(row ...any) { t.rows = append(t.rows, row) }

// emit prints a value in the format of -o. With JSON, standard output has nothing else.
func emit(c *cobra.Command, value any, names []string, show func(w io.Writer) error) error {
	w := c.OutOrStdout()
	if isTable(c) {
		return show(forPeople(c, w))
	}
	var out bytes.Buffer
	if err := encode(&out, outputOf(c), value, names); err != nil {
		return err
	}
	_, err := out.WriteTo(w) // at once: a reader of the first line, such as head, may not wait for more
	return err
}

// encode writes a value in a format for programs.
func encode(w io.Writer, format string, value any, names []string) error {
	switch format {
	case "json":
		return writeJSON(w, value)
	case formatJSONL:
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

// shownClock is the clock by which the client shows times and signs. Tests start the program with another one.
var shownClock = time.Now

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

func writeJSON(w io.Writer, value any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(value)
}

// emitList prints a list as a table, or its elements in another format.
func emitList[T any](c *cobra.Command, all []T, name func(T) string, header []string, row func(T) cells) error {
	names := make([]string, len(all))
	t := table{header: header, list: true, wide: outputOf(c) == formatWide}
	for i, one := range all {
		names[i] = name(one)
		t.add(row(one)...)
	}
	return emit(c, all, names, t.write)
}

// emitOf is emitList for things that belong to factories. If there are several factories,
// each row begins with the name of its factory.
func emitOf[T any](c *cobra.Command, all []T, factory, name func(T) string, header []string, row func(T) cells) error {
	if !slices.ContainsFunc(all, func(one T) bool { return factory(one) != factory(all[0]) }) {
		return emitList(c, all, name, header, row)
	}
	return emitList(c, all, name, slices.Concat([]string{"FACTORY"}, header), func(one T) cells {
		return slices.Concat(cells{factory(one)}, row(one))
	})
}

// text is a cell as w shows it.
func (t *table) text(w io.Writer, cell any) string {
	var text string
	switch cell := cell.(type) {
	case *time.Time:
		if cell != nil {
			return t.text(w, *cell)
		}
	case time.Time:
		if text = when(w, cell); t.list && !t.wide && text != "" && terminalOf(w) != nil {
			text = ago(cell, shownClock())
		}
	default:
		text = fmt.Sprint(cell)
	}
	return cmp.Or(inert.Text(oneLine.Replace(text)), "-")
}

const (
	gap       = 2 // columns between those of a table
	leastText = 8 // columns of a text that is shown in part
)

func (t *table) write(w io.Writer) error {
	rows := [][]string{slices.Clone(t.header)}
	for _, row := range t.rows {
		texts := make([]string, len(row))
		for i, cell := range row {
			texts[i] = t.text(w, cell)
		}
		rows = append(rows, texts)
	}
	if !t.list {
		for i, text := range rows[0] {
			rows[0][i] = t.text(w, text)
		}
	}
	widths := make([]int, len(t.header))
	for _, row := range rows {
		for i, text := range row {
			widths[i] = max(widths[i], columns(text))
		}
	}
	if most := terminalColumns(w); most > 0 && t.list && !t.wide {
		t.fit(widths, most)
	}
	colours := screenOf(w).colours
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

// after writes the table after an empty line.
func (t *table) after(w io.Writer) error {
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	return t.write(w)
}

// cuttable tells whether a column is shown in part where there is no room.
func (t *table) cuttable(column int) bool {
	return !slices.ContainsFunc(t.rows, func(row cells) bool {
		_, is := row[column].(prose)
		return !is
	})
}

// fit makes the widest prose narrower, again and again, until the table is not wider than the
// terminal. If the least is too much, it leaves columns out, the last first: prose, and then
// what is never cut. Only the first column stays whatever comes.
func (t *table) fit(widths []int, most int) {
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
	"SUCCEEDED": colourGood, "Accepted": colourGood, "applied": colourGood, "ok": colourGood,
	"FAILED": colourBad, "Rejected": colourBad, "refused": colourBad, "failed": colourBad, "lost": colourBad,
	"QUEUED": colourWarn, "INPROGRESS": colourPlace, "CANCELLED": colourDim, "Duplicate": colourDim, "paused": colourWarn, "disabled": colourDim, "draining": colourWarn,
}

// colour is the colour of a cell.
func (t *table) colour(row, column int, text string) string {
	switch {
	case t.list && row == 0:
		return colourBold
	case !t.list && column == 0:
		return colourDim
	case t.list && !slices.Contains([]string{"STATE", "OUTCOME", "ENABLED"}, t.header[column]):
		return ""
	case !t.list && !slices.Contains([]any{"state", "outcome", "enabled"}, t.label(row)):
		return ""
	}
	word, _, _ := strings.Cut(text, " ")
	return stateColours[strings.TrimRight(word, ",:…")]
}

// label is the first cell of a row of a table that is no list.
func (t *table) label(row int) any {
	if row == 0 {
		return t.header[0]
	}
	return t.rows[row-1][0]
}

func shortHash(hash string) string { return hash[:min(len(hash), 12)] }

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
