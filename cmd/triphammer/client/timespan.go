package client

import (
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"triphammer/cmd/triphammer/client/exit"
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

// query sets the parameters of a list.
func (t *timespan) query(query url.Values, since, until string) error {
	now := time.Now()
	for _, f := range []struct{ flag, text, parameter string }{{"--since", t.since, since}, {"--until", t.until, until}} {
		if f.text == "" {
			continue
		}
		at, err := time.Parse(time.RFC3339, f.text)
		if ago, badDuration := time.ParseDuration(f.text); badDuration == nil {
			at, err = now.Add(-ago), nil
		} else if days, isDays := strings.CutSuffix(f.text, "d"); isDays {
			if n, bad := strconv.ParseUint(days, 10, 16); bad == nil {
				at, err = now.AddDate(0, 0, -int(n)), nil
			}
		}
		if err != nil {
			return exit.With(exit.Usage, "%s %q is neither a duration such as 2h or 7d nor a time such as 2026-01-31T12:00:00Z", f.flag, f.text)
		}
		query.Set(f.parameter, at.UTC().Format(time.RFC3339Nano))
	}
	return nil
}
