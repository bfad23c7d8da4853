package dashboard

import (
	"fmt"
	"html/template"
	"strings"

	"triphammer/server/api"
)

// The drawings here consist of numbers and constants: html/template need not escape them.

// chart draws deliveries by the hour: deliveries that started runs, refused deliveries, and the
// others.
func chart(times []api.StatsTime) template.HTML {
	all := make([]bar, len(times))
	for i, t := range times {
		all[i] = bar{past: t.Wanted, soft: t.Deliveries - t.Wanted - refused(t), fail: refused(t)}
	}
	return bars(all, said(all))
}

// webhookChart draws the deliveries to a webhook: accepted deliveries, duplicates, and refused
// deliveries.
func webhookChart(w api.WebhookStats) template.HTML {
	all := make([]bar, len(w.Times))
	for i, n := range w.Times {
		all[i] = bar{past: n - w.Refused[i] - w.Duplicates[i], soft: w.Duplicates[i], fail: w.Refused[i]}
	}
	return bars(all, said(all))
}

// bar counts the deliveries of a part of a time: three kinds, drawn one above the other.
type bar struct{ past, soft, fail int64 }

// said are bars of deliveries in words.
func said(all []bar) string {
	most, total, refusals := int64(0), int64(0), int64(0)
	for _, b := range all {
		n := b.past + b.soft + b.fail
		most, total, refusals = max(most, n), total+n, refusals+b.fail
	}
	return fmt.Sprintf("Deliveries over time: %d in all, at most %d in one of %d parts, %d refused", total, most, len(all), refusals)
}

// bars draws bars. say is the drawing in words.
func bars(all []bar, say string) template.HTML {
	const pitch, height = 20, 71
	most := int64(1)
	for _, b := range all {
		most = max(most, b.past+b.soft+b.fail)
	}
	var s strings.Builder
	width := pitch * max(len(all), 1)
	fmt.Fprintf(&s, `<svg viewBox="0 0 %d 72" preserveAspectRatio="none" role="img" aria-label="%s"><path class="axis" d="M0 71.5H%d"/>`, width, template.HTMLEscapeString(say), width)
	draw := func(class string, i int, from, n int64) int64 {
		if n > 0 {
			size := max(float64(n)/float64(most)*(height-3), 1)
			top := height - float64(from)/float64(most)*(height-3) - size
			fmt.Fprintf(&s, `<path class="%s" d="M%d %.1fh14v%.1fh-14Z"/>`, class, pitch*i+3, top, size)
		}
		return from + n
	}
	for i, b := range all {
		at := draw("past", i, 0, b.past)
		at = draw("soft", i, at, b.soft)
		draw("f-fail", i, at, b.fail)
	}
	s.WriteString("</svg>")
	return template.HTML(s.String())
}

// refused counts the deliveries that were neither accepted nor duplicates.
func refused(t api.StatsTime) int64 {
	return t.Stopped["received"] + t.Stopped["authenticated"] + t.Stopped["parsed"]
}

// spark draws the deliveries of a webhook as a line's height of bars.
func spark(times, refused []int64) template.HTML {
	most, total := int64(1), int64(0)
	for _, n := range times {
		most, total = max(most, n), total+n
	}
	var s strings.Builder
	fmt.Fprintf(&s, `<svg class="spark" width="%d" height="16" viewBox="0 0 %[1]d 16" role="img" aria-label="%d deliveries in %d parts of the time">`, 4*max(len(times), 1), total, len(times))
	for i, n := range times {
		if n == 0 {
			continue
		}
		size := max(float64(n)/float64(most)*16, 1)
		fmt.Fprintf(&s, `<path class="past" d="M%d %.1fh3v%.1fh-3Z"/>`, 4*i, 16-size, size)
		if i < len(refused) && refused[i] > 0 {
			fmt.Fprintf(&s, `<path class="f-fail" d="M%d %.1fh3v%.1fh-3Z"/>`, 4*i, 16-size, max(float64(refused[i])/float64(most)*16, 1))
		}
	}
	s.WriteString("</svg>")
	return template.HTML(s.String())
}

// flowCell is one station of the belt of a time: how many deliveries passed it, and how many left
// the belt there.
type flowCell struct {
	Name   string
	Count  int64
	Left   []string
	Failed bool // the deliveries that left the belt here were refused
	Shape  template.HTML
}

// flow is the belt of a time. The height of a cell is the number of deliveries that passed it.
func flow(t api.StatsTime, atWork int64) []flowCell {
	left := func(n int64, what string) []string {
		if n == 0 {
			return nil
		}
		return []string{number(n) + " " + what}
	}
	n := t.Deliveries
	cells := []flowCell{{Name: "received", Count: n, Left: left(t.Stopped["received"], "incomplete or too large"), Failed: true}}
	for _, stage := range []struct{ name, what string }{
		{"authenticated", "refused"}, {"parsed", "not JSON"}, {"new", "known already"}, {"matched", "wanted by nothing"},
	} {
		if stage.name == "authenticated" {
			n -= t.Stopped["received"]
		}
		n -= t.Stopped[stage.name]
		cells = append(cells, flowCell{Name: stage.name, Count: n, Left: left(t.Stopped[stage.name], stage.what), Failed: stage.name == "authenticated" || stage.name == "parsed"})
	}
	type part struct {
		class, what string
		runs        int64
	}
	parts := []part{
		{"f-ok", "well", t.Runs["SUCCEEDED"]}, {"f-fail", "failed", t.Runs["FAILED"]}, {"past", "cancelled", t.Runs["CANCELLED"]}, {"f-run", "at work", atWork},
	}
	var runs []string
	all := int64(0)
	for _, p := range parts {
		runs, all = append(runs, left(p.runs, p.what)...), all+p.runs
	}
	cells = append(cells, flowCell{Name: "runs started", Count: t.Started, Left: runs})
	most := float64(max(t.Deliveries, t.Started, 1))
	for i, c := range cells {
		h := max(float64(c.Count)/most*46, 3)
		top, slant := 26-h/2, h*.3
		if c.Count == 0 {
			cells[i].Shape = `<path class="rest" d="M8 26H154"/>`
			continue
		}
		draw := func(class string, from, to float64) template.HTML {
			return template.HTML(fmt.Sprintf(`<path class="%s" d="M%.1f %.1fH%.1fL%.1f %.1fH%.1fZ"/>`, class, from+slant/2, top, to+slant/2, to-slant/2, top+h, from-slant/2))
		}
		if i < len(cells)-1 || all == 0 {
			cells[i].Shape = draw("past", 7, 155)
			continue
		}
		at := 7.0
		for _, p := range parts { // the runs by their ends
			if p.runs > 0 {
				to := at + 148*float64(p.runs)/float64(all)
				cells[i].Shape += draw(p.class, at, to)
				at = to
			}
		}
	}
	return cells
}

// strip draws tests as cells, the newest first. Tests that would trigger are tall.
func strip(triggered []bool) template.HTML {
	var s strings.Builder
	n := 0
	for i, yes := range triggered {
		x := 20 * i
		if yes {
			n++
			fmt.Fprintf(&s, `<path class="past" d="M%d 2h12L%d 26h-12Z"/>`, x+12, x+16)
		} else {
			fmt.Fprintf(&s, `<path class="soft" d="M%d 8h12L%d 20h-12Z"/>`, x+10, x+18)
		}
	}
	return template.HTML(fmt.Sprintf(`<svg class="strip" viewBox="0 0 %d 28" preserveAspectRatio="none" role="img" aria-label="Of %d deliveries, newest first, %d would start it">`,
		20*backTests+16, len(triggered), n) + s.String() + `</svg>`)
}

func init() {
	functions["chart"], functions["webhookChart"], functions["spark"], functions["flow"], functions["strip"] = chart, webhookChart, spark, flow, strip
}
