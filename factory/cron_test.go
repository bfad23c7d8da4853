package factory_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"triphammer/factory"
)

// plainCron is the meaning of an expression by its simplest reading: a set of
// allowed values per field. Where both day fields are restricted, either suffices.
type plainCron struct {
	minute, hour, day, month, weekday [60]bool
	anyDay, anyWeekday                bool
}

func plain(t testing.TB, text string) plainCron {
	t.Helper()
	text = map[string]string{
		"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0", "@daily": "0 0 * * *",
		"@midnight": "0 0 * * *", "@hourly": "0 * * * *",
	}[text] + func() string {
		if strings.HasPrefix(text, "@") {
			return ""
		}
		return text
	}()
	f := strings.Fields(text)
	if len(f) != 5 {
		t.Fatalf("%q", text)
	}
	var p plainCron
	for i, set := range []struct {
		into     *[60]bool
		min, max int
		names    string
	}{
		{&p.minute, 0, 59, ""},
		{&p.hour, 0, 23, ""},
		{&p.day, 1, 31, ""},
		{&p.month, 1, 12, "janfebmaraprmayjunjulaugsepoctnovdec"},
		{&p.weekday, 0, 6, "sunmontuewedthufrisat"},
	} {
		number := func(word string) int {
			if at := strings.Index(set.names, strings.ToLower(word)); len(word) == 3 && at >= 0 {
				return at/3 + set.min
			}
			n, err := strconv.Atoi(word)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		for part := range strings.SplitSeq(f[i], ",") {
			span, step, stepped := strings.Cut(part, "/")
			from, to := set.min, set.max
			if span != "*" && span != "?" {
				low, high, ranged := strings.Cut(span, "-")
				from = number(low)
				switch {
				case ranged:
					to = number(high)
				case !stepped:
					to = from
				}
			}
			by := 1
			if stepped {
				by = number(step)
			}
			for n := from; n <= to; n += by {
				set.into[n] = true
			}
		}
	}
	// For the rule of the two days, a star with a step restricts.
	star := func(field string) bool {
		return slices.ContainsFunc(strings.Split(field, ","), func(part string) bool { return slices.Contains([]string{"*", "?", "*/1", "?/1"}, part) })
	}
	p.anyDay, p.anyWeekday = star(f[2]), star(f[4])
	return p
}

// minute is one minute of a year, taken apart.
type minute struct {
	at                                time.Time
	minute, hour, day, month, weekday int
}

func (p *plainCron) fires(m *minute) bool {
	if !p.minute[m.minute] || !p.hour[m.hour] || !p.month[m.month] {
		return false
	}
	day, weekday := p.day[m.day], p.weekday[m.weekday]
	if !p.anyDay && !p.anyWeekday {
		return day || weekday
	}
	return day && weekday
}

var descriptors = []string{"@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"}

func randomCron(r *rand.Rand) string {
	names := [][]string{nil, nil, nil, {"jan", "FEB", "Mar", "dec"}, {"sun", "MON", "Sat"}}
	var fields []string
	for i, bounds := range [][2]int{{0, 59}, {0, 23}, {1, 31}, {1, 12}, {0, 6}} {
		pick := func(from int) int { return from + r.IntN(bounds[1]-from+1) }
		var parts []string
		for range 1 + r.IntN(3) {
			low := pick(bounds[0])
			switch r.IntN(8) {
			case 0:
				parts = append(parts, fmt.Sprint(low))
			case 1:
				parts = append(parts, fmt.Sprintf("%d-%d", low, pick(low)))
			case 2:
				parts = append(parts, fmt.Sprintf("%d-%d/%d", low, pick(low), 1+r.IntN(10)))
			case 3:
				parts = append(parts, fmt.Sprintf("*/%d", 1+r.IntN(20)))
			case 4:
				parts = append(parts, fmt.Sprintf("%d/%d", low, 1+r.IntN(10)))
			case 5:
				if of := names[i]; of != nil {
					parts = append(parts, of[r.IntN(len(of))])
				} else {
					parts = append(parts, fmt.Sprint(low))
				}
			default:
				parts = []string{"*"}
			}
		}
		if slices.Contains(parts, "*") {
			parts = []string{[]string{"*", "?"}[r.IntN(2)]}
		}
		fields = append(fields, strings.Join(parts, ","))
	}
	return strings.Join(fields, " ")
}

// TestCronYear: over a year, minute by minute, each descriptor and 200 random
// expressions fire exactly when a plain reading of them says
// (factory/testdata/rules 4.3); a leap year, so that 29 February is in it.
func TestCronYear(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	all := slices.Clone(descriptors)
	for len(all) < len(descriptors)+200 {
		all = append(all, randomCron(r))
	}
	start := time.Date(2027, 12, 31, 23, 59, 59, 1e8, time.UTC)
	end := start.AddDate(1, 0, 1)
	var year []minute
	for at := start.Truncate(time.Minute).Add(time.Minute); at.Before(end); at = at.Add(time.Minute) {
		year = append(year, minute{at, at.Minute(), at.Hour(), at.Day(), int(at.Month()), int(at.Weekday())})
	}
	fired := 0
	for _, text := range all {
		c, err := factory.ParseCron(text)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		p := plain(t, text)
		next := c.Next(start, start)
		for i := range year {
			want := p.fires(&year[i])
			if want != next.Equal(year[i].at) {
				t.Fatalf("%q: at %v a plain reading says %t; the next tick is %v", text, year[i].at, want, next)
			}
			if want {
				fired++
				next = c.Next(year[i].at, start)
			}
		}
	}
	if fired < 100_000 {
		t.Errorf("only %d ticks in all", fired)
	}
}

// TestCronNewest: the newest tick of any span is the one that counting up finds.
func TestCronNewest(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	anchor := time.Date(2026, 3, 1, 10, 20, 30, 0, time.UTC)
	all := append(slices.Clone(descriptors), "@every 90s", "@every 36h", "0 0 29 2 *", "0 0 30 2 *", "*/5 * * * *")
	for range 100 {
		all = append(all, randomCron(r))
	}
	for _, text := range all {
		c, err := factory.ParseCron(text)
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			after := anchor.Add(time.Duration(r.Int64N(int64(400 * 24 * time.Hour))))
			until := after.Add(time.Duration(r.Int64N(int64(3 * 24 * time.Hour))))
			var want time.Time
			for tick := c.Next(after, anchor); !tick.IsZero() && !tick.After(until); tick = c.Next(tick, anchor) {
				want = tick
			}
			if got := c.Newest(after, until, anchor); !got.Equal(want) {
				t.Fatalf("%q between %v and %v: %v, not %v", text, after, until, got, want)
			}
		}
	}
}

func TestCron(t *testing.T) {
	anchor := time.Date(2026, 11, 21, 8, 0, 30, 5e8, time.UTC)
	at := func(text string) time.Time {
		parsed, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		return parsed
	}
	for _, c := range []struct{ cron, after, next string }{
		{"@every 1h", "2026-11-21T08:00:31Z", "2026-11-21T09:00:30Z"},
		{"@every 1h", "2026-11-21T09:00:30Z", "2026-11-21T10:00:30Z"},
		{"@every 1h", "2026-11-20T00:00:00Z", "2026-11-21T09:00:30Z"},
		{"@every 1ms", "2026-11-21T08:00:31Z", "2026-11-21T08:00:32Z"},
		{"0 0 29 2 *", "2096-03-01T00:00:00Z", "2104-02-29T00:00:00Z"}, // 2100 is no leap year
		{"59 23 31 12 *", "2026-12-31T23:59:00Z", "2027-12-31T23:59:00Z"},
		{"0 9 * * MON-FRI", "2026-11-20T09:00:00Z", "2026-11-23T09:00:00Z"},
		{"30 2 * * *", "2026-03-29T01:00:00Z", "2026-03-29T02:30:00Z"}, // no summer time
		{"0 12 * * *", "2026-11-21T13:00:00+02:00", "2026-11-21T12:00:00Z"},
	} {
		parsed, err := factory.ParseCron(c.cron)
		if err != nil {
			t.Fatal(err)
		}
		if got := parsed.Next(at(c.after), anchor); !got.Equal(at(c.next)) {
			t.Errorf("%s after %s: %v, not %s", c.cron, c.after, got, c.next)
		}
	}
	never, err := factory.ParseCron("0 0 30 2 *")
	if err != nil || !never.Next(anchor, anchor).IsZero() || !never.Newest(anchor, anchor.AddDate(20, 0, 0), anchor).IsZero() {
		t.Errorf("30 February comes: %v", err)
	}
	for _, bad := range []string{
		"", "* * * *", "* * * * * *", "60 * * * *", "* * * * 7", "TZ=UTC * * * * *", "CRON_TZ=Europe/Zurich 0 0 * * *", "TZ=", "@often", "@every", "@every x",
		"5-1 * * * *", "*/0 * * * *", "a * * * *",
	} {
		if _, err := factory.ParseCron(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// FuzzCron: no text makes the parser or the schedule do anything but answer.
func FuzzCron(f *testing.F) {
	for _, text := range append(descriptors, "@every 1h", "*/5 1-3 ? jan,DEC 0", "TZ=", "0 0 30 2 *") {
		f.Add(text)
	}
	at := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, text string) {
		c, err := factory.ParseCron(text)
		if err != nil {
			return
		}
		if next := c.Next(at, at); !next.IsZero() && !next.After(at) {
			t.Errorf("%q: the tick after %v is %v", text, at, next)
		}
		c.Newest(at.AddDate(-1, 0, 0), at, at.AddDate(-1, 0, 0))
	})
}
