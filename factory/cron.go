package factory

import (
	"errors"
	"regexp"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// Cron tells when a schedule fires, in UTC: five fields, or a descriptor such as
// @daily or @every 90m (factory/testdata/rules 4.3).
type Cron struct {
	fields cron.Schedule
	every  time.Duration // the interval of @every; 0: the expression has fields
}

var cronParser = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)

// ParseCron reads an expression. The error tells users what is wrong with it.
func ParseCron(text string) (Cron, error) {
	if strings.Contains(text, "TZ=") {
		return Cron{}, errors.New("schedules are in UTC")
	}
	parsed, err := cronParser.Parse(strings.TrimSpace(text))
	if err != nil {
		return Cron{}, errors.New(cronProblem(err))
	}
	if constant, ok := parsed.(cron.ConstantDelaySchedule); ok {
		return Cron{every: constant.Delay}, nil
	}
	return Cron{fields: parsed}, nil
}

// odd says why a valid expression is likely a mistake; empty: it is not.
func (c Cron) odd(text string) string {
	if c.every > 0 {
		written, err := time.ParseDuration(strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(text), "@every")))
		if err == nil && written < time.Second {
			return "fires every second, the shortest interval"
		}
		return ""
	}
	if start := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC); c.Next(start, start).IsZero() {
		return "never fires: there is no such day"
	}
	return ""
}

var cronProblems = []struct {
	form *regexp.Regexp
	text string
}{
	{regexp.MustCompile(`^expected exactly 5 fields, found (\d+).*`), "$1 fields where 5 are expected"},
	{regexp.MustCompile(`^failed to parse int from (.*?): .*`), "$1 is not a number, nor a name that is known here"},
	{regexp.MustCompile(`^failed to parse duration @every (.*?): .*`), "$1 is not a duration"},
	{regexp.MustCompile(`^(?:end|beginning) of range \((\d+)\) (above|below) (?:max|min)imum \((\d+)\).*`), "$1 is $2 $3, the limit of its field"},
	{regexp.MustCompile(`^beginning of range \((\d+)\) beyond end of range \((\d+)\).*`), "the range from $1 to $2 runs backwards"},
	{regexp.MustCompile(`^step of range should be a positive number: (.*)`), "the step of $1 is not positive"},
	{regexp.MustCompile(`^unrecognized descriptor: (.*)`), "$1 is not a descriptor"},
}

// cronProblem puts the library's error into words for users.
func cronProblem(err error) string {
	for _, p := range cronProblems {
		if p.form.MatchString(err.Error()) {
			return p.form.ReplaceAllString(err.Error(), p.text)
		}
	}
	return err.Error()
}

// Next is the first tick after a time, or zero if the schedule has no further tick (30
// February). The ticks of @every are counted from the anchor, so that they do not depend
// on the time of the call.
func (c Cron) Next(after, anchor time.Time) time.Time {
	after = after.UTC()
	if c.every > 0 {
		anchor = anchor.UTC().Truncate(time.Second)
		if after.Before(anchor) {
			return anchor.Add(c.every)
		}
		return anchor.Add((after.Sub(anchor)/c.every + 1) * c.every)
	}
	// The parser looks five years ahead; between two leap days there can be eight.
	for range 3 {
		if next := c.fields.Next(after); !next.IsZero() {
			return next
		}
		after = after.AddDate(4, 0, 0)
	}
	return time.Time{}
}

// Newest is the last tick that is after one time and not after until, or zero if there is
// no such tick. Its cost does not depend on the time between the two.
func (c Cron) Newest(after, until, anchor time.Time) time.Time {
	if c.every > 0 {
		anchor = anchor.UTC().Truncate(time.Second)
		if tick := anchor.Add(until.Sub(anchor) / c.every * c.every); until.After(anchor) && tick.After(anchor) && tick.After(after) {
			return tick
		}
		return time.Time{}
	}
	for back := time.Minute; ; back *= 60 {
		from := until.Add(-back)
		last := !from.After(after)
		if last {
			from = after
		}
		var newest time.Time
		for tick := c.Next(from, anchor); !tick.IsZero() && !tick.After(until); tick = c.Next(tick, anchor) {
			newest = tick
		}
		if last || !newest.IsZero() {
			return newest
		}
	}
}
