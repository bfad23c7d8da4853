//go:build full

package main

import (
	"encoding/json"
	"fmt"
	"html"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"triphammer/server/api"
	"triphammer/server/run/event"
)

// filmTime is how long the film takes, in seconds. Then it begins again.
const filmTime = 30

// film is a drawing whose parts come and go by the style sheet alone, so that it needs no script.
type film struct {
	b     strings.Builder
	style strings.Builder
	known map[string]bool
}

// part is something that is seen from a second of the film to another; 0: to the end, and also by those who
// want no motion.
func (f *film) part(from, to float64, draw func()) {
	class := strings.ReplaceAll(fmt.Sprintf("a%g-%g", from, to), ".", "_")
	if !f.known[class] {
		f.known[class] = true
		end, gone := "97.5%", "99%,to{opacity:0}"
		if to > 0 {
			end, gone = fmt.Sprintf("%.2f%%", 100*(to-.3)/filmTime), fmt.Sprintf("%.2f%%,to{opacity:0}", 100*to/filmTime)
		}
		fmt.Fprintf(&f.style, ".%s{animation-name:%[1]s}@keyframes %[1]s{0%%,%.2f%%{opacity:0;transform:translateY(5px)}%.2f%%,%s{opacity:1;transform:none}%s}\n",
			class, 100*from/filmTime, 100*(from+.35)/filmTime, end, gone)
	}
	if to > 0 {
		class += " gone"
	}
	fmt.Fprintf(&f.b, "<g class=\"m %s\">\n", class)
	draw()
	f.b.WriteString("</g>\n")
}

// text draws a line of text and names its classes: fonts and colours of the style sheet.
func (f *film) text(class string, x, y int, text string) {
	fmt.Fprintf(&f.b, "<text class=%q x=\"%d\" y=\"%d\">%s</text>\n", class, x, y, html.EscapeString(text))
}

// lines draws a text in lines of at most so many characters, and returns the y below the last.
func (f *film) lines(class string, x, y, step, most int, text string) int {
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > most {
			f.text(class, x, y, line)
			line, y = "", y+step
		}
		line = strings.TrimSpace(line + " " + word)
	}
	f.text(class, x, y, line)
	return y + step
}

func (f *film) rect(class string, x, y, width, height int) {
	fmt.Fprintf(&f.b, "<rect class=%q x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"5\"/>\n", class, x, y, width, height)
}

// cell is a cell of the belt, which leans the way things move.
func (f *film) cell(class string, x, y, width, height int) {
	lean := float64(height) * .34
	fmt.Fprintf(&f.b, "<path class=%q d=\"M%.4g %dh%dl-%.3g %dh-%[4]dZ\"/>\n", class, float64(x)+lean, y, width, lean, height)
}

// passed is the head of what ended well.
func (f *film) passed(x, y int) {
	f.cell("ok", x, y, 13, 14)
	fmt.Fprintf(&f.b, "<path class=\"mark\" transform=\"translate(%d %d)\" d=\"M-2.7 .2l1.9 1.9 3.4-4\"/>\n", x+9, y+7)
}

// pill is a word in a colour. It ends at x.
func (f *film) pill(kind string, end, y int, word string) {
	width := 16 + 8*len(word)
	x := end - width
	f.rect(kind+"-bg", x, y-14, width, 20)
	f.text("small bold middle "+kind, x+width/2, y, word)
}

// drawFilm is the film as an SVG: the thread on the left, the server on the right, and what happens below.
func drawFilm(t *testing.T, s footage) string {
	f := &film{known: make(map[string]bool)}
	f.rect("page", 0, 0, 880, 550)
	f.chapters("labelled", 0.9, "matched", 5.4, "at work", 7.9, "answered", 19.4, "merged", 23.0)
	f.b.WriteString("<path class=\"rule\" d=\"M0 60.5H880M376.5 60V506M0 506.5H880\"/>\n")
	f.thread(s)
	f.part(2.6, 7.9, func() { f.belt(s.delivery) })
	f.part(7.9, 23, func() { f.work(t, s) })
	f.part(23.2, 0, func() { f.ending(s) })
	for i, c := range []string{
		"A label on an issue is enough.", "The server shows how far it came, and why it ran.",
		"The agent works on a branch. The tokens stay outside.", "The answer goes back to where the event came from.", "And what became of the pull request is known, too.",
	} {
		at := []float64{0, 2.6, 7.9, 19.2, 23, 0}
		f.part(at[i], at[i+1], func() { f.text("caption", 24, 534, c) })
	}
	f.text("tiny dim end", 856, 534, "From a real server; GitHub and the model are played.")
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 880 550" width="880" height="550" role="img" aria-labelledby="t">
<title id="t">An issue is labelled, answered and merged</title>
<style>
%stext{font:13px system-ui,-apple-system,"Segoe UI",sans-serif;fill:var(--ink);white-space:pre}
.mono{font-family:ui-monospace,"SF Mono",Menlo,Consolas,monospace;font-size:12px}.title{font-size:17px;font-weight:600}.bold{font-weight:600}.small{font-size:12px}.tiny{font-size:11px}.caption{font-size:16px;font-weight:500}
.end{text-anchor:end}.middle{text-anchor:middle}.soft{fill:var(--ink-2)}.dim{fill:var(--ink-3)}.link{fill:var(--run)}
.page{fill:var(--page);stroke:var(--rule)}.card{fill:var(--surface);stroke:var(--rule)}.sunken{fill:var(--sunken)}.rule{stroke:var(--rule)}.eye{fill:none;stroke:var(--ink-2);stroke-width:1.4}.quote{stroke:var(--rule-2);stroke-width:2}
.past{fill:var(--ink-2)}.rest{stroke:var(--rule-2);stroke-width:1.5}.ok{fill:var(--ok)}.run{fill:var(--run)}.fail{fill:var(--fail)}.mark{fill:none;stroke:var(--page);stroke-width:1.8;stroke-linecap:round;stroke-linejoin:round}
.ok-bg{fill:var(--ok-bg)}.run-bg{fill:var(--run-bg)}.add-bg{fill:var(--add-bg)}.del-bg{fill:var(--del-bg)}.gone{opacity:0}
@media(prefers-reduced-motion:no-preference){.m{animation:%ds ease-out infinite}.moves{animation:moves 1.6s ease-in-out infinite}}
@keyframes moves{50%%{opacity:.35}}
%s</style>
%s</svg>
`, tokens(t), filmTime, f.style.String(), f.b.String())
}

// tokens are the colours of the pages, light and dark.
func tokens(t *testing.T) string {
	sheet, err := os.ReadFile("../../server/dashboard/static/triphammer.css")
	if err != nil {
		t.Fatal(err)
	}
	var light, dark strings.Builder
	for _, m := range regexp.MustCompile(`(--[a-z0-9-]+): light-dark\((#\w+), (#\w+)\);`).FindAllStringSubmatch(string(sheet), -1) {
		fmt.Fprintf(&light, "%s:%s;", m[1], m[2])
		fmt.Fprintf(&dark, "%s:%s;", m[1], m[3])
	}
	return fmt.Sprintf("svg{%s}\n@media(prefers-color-scheme:dark){svg{%s}}\n", light.String(), dark.String())
}

// chapters is the belt of the film: names, and the seconds at which each begins.
func (f *film) chapters(all ...any) {
	f.cell("past", 24, 25, 7, 7)
	f.cell("past", 33, 25, 7, 7)
	f.cell("ok", 42, 18, 10, 22)
	f.text("title", 70, 35, "Triphammer")
	for i := 0; i < len(all); i += 2 {
		name, at, x := all[i].(string), all[i+1].(float64), 392+47*i
		fmt.Fprintf(&f.b, "<path class=\"rest\" d=\"M%d 22.5h76\"/>\n", x+6)
		f.text("small dim", x+4, 48, name)
		switch {
		case i+2 == len(all):
			f.part(at, 0, func() {
				f.cell("ok", x, 15, 82, 14)
				fmt.Fprintf(&f.b, "<path class=\"mark\" transform=\"translate(%d 22)\" d=\"M-2.7 .2l1.9 1.9 3.4-4\"/>\n", x+44)
			})
		default:
			next := all[i+3].(float64)
			f.part(at, next, func() {
				f.b.WriteString("<g class=\"moves\">\n")
				f.cell("run", x, 15, 82, 14)
				f.b.WriteString("</g>\n")
			})
			f.part(next-.3, 0, func() { f.cell("past", x+2, 19, 82, 7) })
		}
		f.part(at, 0, func() { f.text("small", x+4, 48, name) })
	}
}

func clockOf(at time.Time) string { return at.UTC().Format("15:04:05") }

// addressed is a link in Markdown.
var addressed = regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`)

// said are the lines of a comment as people read them.
func said(comment string) []string {
	comment, _, _ = strings.Cut(comment, "<!--")
	comment = addressed.ReplaceAllString(comment, "$1")
	return strings.Split(strings.TrimSpace(strings.NewReplacer("**", "", "\\", "").Replace(comment)), "\n")
}

// card is a text in the thread, and who wrote it; it returns the y below.
func (f *film) card(y int, who string, at time.Time, lines []string) int {
	at0 := f.b.Len()
	top := y
	f.text("bold", 36, y+20, who)
	f.text("mono dim end", 348, y+20, clockOf(at))
	y += 40
	for _, line := range lines {
		quoted, is := strings.CutPrefix(line, "> ")
		switch {
		case line == "":
			y += 4
		case is:
			from := y
			y = f.lines("soft", 46, y, 18, 42, quoted)
			fmt.Fprintf(&f.b, "<path class=\"quote\" d=\"M38 %dV%d\"/>\n", from-12, y-12)
		case strings.HasPrefix(line, "Run "):
			y = f.lines("small link", 36, y, 18, 48, line)
		default:
			y = f.lines("", 36, y, 18, 42, line)
		}
	}
	drawn := f.b.String()
	f.b.Reset()
	f.b.WriteString(drawn[:at0])
	f.rect("card", 24, top, 336, y-top-6)
	f.b.WriteString(drawn[at0:])
	return y
}

// thread is what people see at GitHub.
func (f *film) thread(s footage) {
	f.text("mono dim", 24, 84, s.run.Subject)
	f.text("title", 24, 107, s.issue["title"].(string))
	y := f.card(122, "ada", s.delivery.ReceivedAt, []string{s.issue["body"].(string)}) + 12
	f.part(0.9, 0, func() {
		f.text("small soft", 24, y, "ada added the label")
		f.pill("run", 188, y, "fix")
	})
	f.part(3.4, 0, func() {
		f.rect("card", 314, y-15, 46, 22)
		for _, x := range []int{327, 338} { // two eyes, because not every machine has the character
			fmt.Fprintf(&f.b, "<ellipse class=\"eye\" cx=\"%d\" cy=\"%d\" rx=\"4\" ry=\"5.5\"/><circle class=\"past\" cx=\"%d\" cy=\"%[2]d\" r=\"1.8\"/>\n", x, y-4, x+1)
		}
		f.text("small", 348, y, "1")
	})
	y += 16
	f.part(8.3, 19.4, func() { f.card(y, "hammer", *s.run.StartedAt, said(s.told[0])) })
	f.part(19.4, 0, func() {
		y = f.card(y, "hammer", *s.run.FinishedAt, said(s.told[1])) + 6
	})
	pull := s.run.Outputs[0]
	f.part(20.4, 0, func() {
		title, branch, _ := strings.Cut(strings.TrimSuffix(pull.Text, ")"), " (")
		f.rect("card", 24, y, 336, 64)
		f.text("bold", 36, y+24, title)
		f.text("mono soft", 36, y+48, "main ← "+branch)
	})
	f.part(20.4, 22.6, func() { f.pill("run", 348, y+49, "Open") })
	f.part(22.6, 0, func() { f.pill("ok", 348, y+49, "Merged") })
}

// belt is how far the delivery came, and why.
func (f *film) belt(d api.DeliveryDetail) {
	f.text("mono dim", 392, 84, d.ID)
	f.text("title", 392, 107, d.Event+", to "+d.Webhook)
	f.text("mono dim end", 856, 84, clockOf(d.ReceivedAt))
	f.pill("ok", 856, 107, d.Label)
	y := 144
	for i, stage := range d.Belt {
		f.part(2.9+.5*float64(i), 7.9, func() {
			f.passed(392, y-11)
			f.text("bold", 418, y, stage.Stage)
			y = f.lines("mono soft", 532, y, 17, 44, stage.Detail) + 14
		})
	}
	f.part(6, 7.9, func() {
		m := d.Matches[0]
		f.rect("card", 392, y, 464, 62)
		f.passed(406, y+13)
		f.text("bold", 432, y+25, m.Automation+" wanted it")
		f.text("mono soft", 432, y+46, m.Definition+" at commit "+d.Commit[:7])
	})
}

// row draws one entry of the transcript and returns the y below: what is bold, then code, then how it ended.
func (f *film) row(y int, bold, code, end, endClass string, more []string) int {
	x := 440
	if bold != "" {
		f.text("bold", x, y, bold)
		x += 8*len(bold) + 6
	}
	f.text("mono", x, y, code)
	f.text("small end "+endClass, 856, y, end)
	if len(more) > 0 {
		f.rect("sunken", 440, y+8, 416, 18*len(more)+8)
	}
	y += 26
	for _, line := range more {
		switch {
		case strings.HasPrefix(line, "+"):
			f.rect("add-bg", 440, y-12, 416, 18)
		case strings.HasPrefix(line, "-\t"):
			f.rect("del-bg", 440, y-12, 416, 18)
		}
		f.text("mono soft", 448, y+1, strings.ReplaceAll(line, "\t", "  "))
		y += 18
	}
	if len(more) > 0 {
		y += 8
	}
	return y
}

// work is the transcript of the run.
func (f *film) work(t *testing.T, s footage) {
	f.text("mono dim", 392, 84, s.run.RunID)
	f.text("title", 392, 107, s.run.Automation+": "+s.issue["title"].(string))
	f.part(7.9, 18.9, func() { f.pill("run", 856, 107, "Running") })
	f.part(18.7, 23, func() { f.pill("ok", 856, 107, "Succeeded") })
	diff, inputs := filmDiff(t, s.events), make(map[string]string)
	y, at := 140, 8.6
	for _, e := range s.events {
		decoded, err := event.Decode(e.Kind, e.Data)
		if err != nil {
			t.Fatal(err)
		}
		entry := func(wait float64, draw func()) {
			f.part(at, 23, func() {
				took := int(e.At.Sub(*s.run.StartedAt).Seconds())
				f.text("mono dim", 392, y, fmt.Sprintf("%d:%02d", took/60, took%60))
				draw()
			})
			at += wait
		}
		switch e := decoded.(type) {
		case event.Message:
			if e.Role == "assistant" && at < 9 { // the last is in the thread
				entry(1.6, func() { y = f.lines("", 440, y, 19, 56, e.Text) + 7 })
			}
		case event.Tool:
			if e.Input != "" {
				inputs[e.ID] = e.Input
			}
			if e.Started {
				continue
			}
			var input struct {
				Path string `json:"file_path"`
			}
			if err := json.Unmarshal([]byte(inputs[e.ID]), &input); err != nil {
				t.Fatal(err)
			}
			var more []string
			if e.Name == "Edit" {
				more = diff
			}
			entry(1.3, func() { y = f.row(y, e.Name, input.Path, "", "", more) })
		case event.Command:
			if e.Phase != event.PhaseAgent || e.Started {
				continue
			}
			end, class, more := fmt.Sprintf("ended, %d s", e.DurationMS/1000), "dim", []string(nil)
			if e.Failed {
				end, class = fmt.Sprintf("failed, %d s", e.DurationMS/1000), "fail"
			}
			if strings.Contains(e.Command, " test") {
				all := strings.Split(strings.TrimSpace(e.Output), "\n")
				more = all[:min(2, len(all))]
			}
			entry(1.7, func() { y = f.row(y, "", "$ "+e.Command, end, class, more) })
		case event.Request:
			if e.Refused != "" {
				t.Fatal(e.Refused)
			}
			entry(1, func() { y = f.row(y, "Asks the server", e.Name, "within its bounds", "ok", nil) })
		}
	}
}

// filmDiff are the changed lines of the code.
func filmDiff(t *testing.T, events []api.Event) (all []string) {
	for _, e := range events {
		decoded, err := event.Decode(e.Kind, e.Data)
		if err != nil {
			t.Fatal(err)
		}
		file, ok := decoded.(event.File)
		if !ok || !strings.HasSuffix(file.Path, "login.go") {
			continue
		}
		for _, line := range strings.Split(file.Diff, "\n") {
			if regexp.MustCompile(`^[+-]\t`).MatchString(line) {
				all = append(all, line)
			}
		}
	}
	return all
}

// ending is the story of the subject.
func (f *film) ending(s footage) {
	in := s.story.Factories[0]
	f.text("mono dim", 392, 84, s.story.Subject)
	f.text("title", 392, 107, s.issue["title"].(string))
	f.pill("ok", 856, 107, "Merged")
	y, at := 144, 23.6
	row := func(when time.Time, what, detail string) {
		f.part(at, 0, func() {
			f.text("mono dim", 392, y, clockOf(when))
			f.text("bold", 472, y, what)
			y = f.lines("soft", 572, y, 19, 38, detail) + 13
		})
		at += .4
	}
	for _, c := range s.story.Story {
		switch {
		case c.Delivery != nil:
			row(c.At, "delivery", c.Delivery.Label+" from "+c.Delivery.Webhook)
		case c.Run != nil:
			row(c.At, "run", fmt.Sprintf("%s %s after %d s, $%.2f", c.Run.Automation, strings.ToLower(c.Run.State), int(c.Run.FinishedAt.Sub(*c.Run.StartedAt).Seconds()), c.Run.Usage.InferenceCostUSD))
		case c.Answer != nil:
			row(c.At, "answer", c.Answer.Status+" in the thread")
		case c.Output != nil:
			row(c.At, "pull request", c.Output.Text)
		}
	}
	row(s.merged.ReceivedAt, s.run.About.Outcome, "by ada, as the run left it")
	f.part(at+.2, 0, func() {
		f.rect("ok-bg", 392, y, 464, 46)
		f.passed(408, y+16)
		f.text("bold ok", 434, y+28, fmt.Sprintf("%d label, %d run, $%.2f: merged", in.Deliveries, in.Runs, in.CostUSD))
	})
}
