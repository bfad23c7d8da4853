package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"triphammer/schema"
)

var outputFormats = []string{"table", "json", "yaml", "name"}

// outputFlag adds -o to a command that lists or shows. more are further formats that only
// this command has.
func outputFlag(c *cobra.Command, more ...string) {
	formats := slices.Concat(outputFormats, more)
	c.Flags().StringP("output", "o", "table", strings.Join(formats, ", "))
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
}

// limitFlag adds --limit to a list.
func limitFlag(c *cobra.Command, limit *int, usual int) {
	c.Flags().IntVar(limit, "limit", usual, "how many; 0: all")
}

// table is a list in columns, for people.
type table struct {
	header []string
	rows   [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// emit prints a value in the format of -o. With JSON, standard output has nothing else.
func emit(c *cobra.Command, value any, names []string, forPeople func(w io.Writer) error) error {
	w := c.OutOrStdout()
	switch format, _ := c.Flags().GetString("output"); format {
	case "json":
		return writeJSON(w, value)
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
	case "name":
		for _, name := range names {
			fmt.Fprintln(w, name)
		}
		return nil
	case "table", "":
		return forPeople(printable{w})
	default:
		return exitWith(exitUsage, "-o %s: it can be %s", format, strings.Join(outputFormats, ", "))
	}
}

func writeJSON(w io.Writer, value any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(value)
}

// emitList prints a list as a table, or its elements in another format.
func emitList[T any](c *cobra.Command, all []T, name func(T) string, header []string, row func(T) []string) error {
	names := make([]string, len(all))
	t := table{header: header}
	for i, one := range all {
		names[i] = name(one)
		t.add(row(one)...)
	}
	return emit(c, all, names, t.write)
}

// emitOf is emitList for things that belong to factories. If there are several factories,
// each row begins with the name of its factory.
func emitOf[T any](c *cobra.Command, all []T, factory, name func(T) string, header []string, row func(T) []string) error {
	if !slices.ContainsFunc(all, func(one T) bool { return factory(one) != factory(all[0]) }) {
		return emitList(c, all, name, header, row)
	}
	return emitList(c, all, name, slices.Concat([]string{"FACTORY"}, header), func(one T) []string {
		return slices.Concat([]string{factory(one)}, row(one))
	})
}

func (t *table) write(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	for _, row := range slices.Concat([][]string{t.header}, t.rows) {
		for i, cell := range row {
			row[i] = cmp.Or(oneLine.Replace(cell), "-")
		}
		fmt.Fprintln(tw, strings.Join(row, "\t"))
	}
	return tw.Flush()
}

// stamp is a time for people. It is in UTC, as on the pages, and
// says so by its Z.
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05Z")
}

func stampOf(t *time.Time) string {
	if t == nil {
		return ""
	}
	return stamp(*t)
}

func shortHash(hash string) string { return hash[:min(len(hash), 12)] }

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
