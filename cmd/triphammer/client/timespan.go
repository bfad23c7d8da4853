package client

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"triphammer/cmd/triphammer/client/exit"
	"triphammer/schema"
)

// timespan are the flags that limit a list to a time.
type timespan struct{ since, until string }

func (t *timespan) flags(c *cobra.Command) {
	t.sinceFlag(c)
	c.Flags().StringVar(&t.until, "until", "", "only older ones: as --since")
}

// sinceFlag adds --since alone, to a command that goes on with what comes.
func (t *timespan) sinceFlag(c *cobra.Command) {
	c.Flags().StringVar(&t.since, "since", "", "only newer ones: a duration such as 2h or 7d, or a time in RFC 3339")
}

// inHours is a duration with its days, such as 7d, in hours, as Go reads it. Other texts stay.
func inHours(text string) string {
	if days, is := strings.CutSuffix(text, "d"); is {
		if n, bad := strconv.ParseUint(days, 10, 16); bad == nil {
			return strconv.FormatUint(n*24, 10) + "h"
		}
	}
	return text
}

// duration is the value of a flag that takes days too.
type duration struct{ pflag.Value }

func (d duration) Set(text string) error { return d.Value.Set(inHours(text)) }

// word is the value of a flag that takes one of a few words, in any case, or several with commas.
type word struct {
	pflag.Value
	words []string
}

func (w word) Set(text string) error {
	given := []string{text}
	if w.Type() == "stringSlice" {
		given = strings.Split(text, ",")
	}
	for i, one := range given {
		known := slices.IndexFunc(w.words, func(word string) bool { return strings.EqualFold(word, one) })
		if known < 0 {
			small := make([]string, len(w.words)) // in which case alone is no difference
			for i, word := range w.words {
				small[i] = strings.ToLower(word)
			}
			if near := slices.Index(small, schema.Nearest(strings.ToLower(one), small)); near >= 0 {
				return fmt.Errorf("did you mean %s? It can be %s", w.words[near], strings.Join(w.words, ", "))
			}
			return fmt.Errorf("it can be %s", strings.Join(w.words, ", "))
		}
		given[i] = w.words[known]
	}
	return w.Value.Set(strings.Join(given, ","))
}

// query sets the parameters of a list.
func (t *timespan) query(query url.Values, since, until string) error {
	now := time.Now()
	for _, f := range []struct{ flag, text, parameter string }{{"--since", t.since, since}, {"--until", t.until, until}} {
		if f.text == "" {
			continue
		}
		at, err := time.Parse(time.RFC3339, f.text)
		if ago, badDuration := time.ParseDuration(inHours(f.text)); badDuration == nil {
			at, err = now.Add(-ago), nil
		}
		if err != nil {
			return exit.With(exit.Usage, "%s %q is neither a duration such as 2h or 7d nor a time such as 2026-01-31T12:00:00Z", f.flag, f.text)
		}
		query.Set(f.parameter, at.UTC().Format(time.RFC3339Nano))
	}
	return nil
}
