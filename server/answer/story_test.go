package answer

import (
	"context"
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"triphammer/server/lookup"
	"triphammer/server/secret"
	"triphammer/server/store"
)

// told is what the agent says last in a story, and stage is what people see then of ours in the thread.
const told = "The capture runs twice. It stops after the first success now."

type stage struct {
	signs int
	texts []string
}

// tell makes a run at a sender's service that starts, says something and ends. The server that makes the
// request with the number dies: before the sender gets the request, or after it did what was asked. 0: none dies.
func tell(t *testing.T, s *Sender, p Place, dies int, after bool) (all []stage, a store.Answer, requests int) {
	forge, server := newForge(t, s.Provider)
	to, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	ctx, kill := context.WithCancel(t.Context())
	defer kill()
	service := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }}
	between := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if requests++; requests != dies {
			service.ServeHTTP(w, r)
			return
		}
		if after {
			service.ServeHTTP(httptest.NewRecorder(), r.WithContext(context.WithoutCancel(r.Context())))
		}
		kill()
		panic(http.ErrAbortHandler)
	}))
	defer between.Close()
	if s.Provider == "teams" {
		login(t, between.URL)
	}
	f := newFixture(t)
	f.row = s
	again := func() {
		f.again()
		f.API = func(context.Context, string) (lookup.API, error) {
			return lookup.API{URL: between.URL, Secret: secret.New(forge.secret)}, nil
		}
	}
	again()
	p.Asker = askers[s.Provider]
	place, _ := json.Marshal(p) // texts always encode
	given := store.NewAnswer{Place: string(place), PlaceKey: p.Thread, Next: store.AnswerStart}
	if s.Sign != nil && p.Item != "" {
		given.Next = store.AnswerSign
	}
	look := func() {
		t.Helper()
		for range 3 {
			f.pass(2 * time.Second) // senders take no more at once
			if f.turns(ctx); ctx.Err() != nil {
				ctx = t.Context()
				again() // another server goes on
				f.turns(ctx)
				f.pass(lease)
			}
		}
		forge.mu.Lock()
		defer forge.mu.Unlock()
		now := stage{signs: len(forge.signs)}
		for _, text := range forge.texts {
			if text.author == ownAccount {
				now.texts = append(now.texts, text.body)
			}
		}
		all = append(all, now)
	}
	id := f.deliver("1", given)
	f.check(f.signRun(ctx, id))
	look()
	l, began := f.start(), f.now()
	look()
	f.pass(192*time.Second - f.now().Sub(began))
	f.say(l, told)
	f.end(l)
	look()
	return all, f.answer(id), requests
}

// TestStory: at each kind of thread of each sender, an event gets a sign where there is one, one text that
// says that the run started and then how it ended, and one mention of whoever asked. That is so whatever a
// server does when it is killed; where a sender cannot be searched, a person is asked instead of telling
// twice (SPEC 22.2, 22.3).
func TestStory(t *testing.T) {
	for _, s := range Senders() {
		for i, p := range append([]Place{testPlaces[s.Provider]}, further[s.Provider]...) {
			t.Run(s.Provider+" "+p.Kind, func(t *testing.T) {
				all, a, requests := tell(t, s, p, 0, false)
				once, start, end := all[0], all[1], all[2]
				if a.Status != store.AnswerDelivered || (s.Sign != nil && p.Item != "") != (once.signs > 0) || len(once.texts) > 0 && p.Kind != "session" {
					t.Errorf("at once: %+v; %+v", once, a)
				}
				if n := len(start.texts) - len(once.texts); n != 1 || !strings.Contains(start.texts[len(start.texts)-1], "started") {
					t.Errorf("it started: %q", start.texts)
				}
				if counted(end.texts, told) != 1 || counted(end.texts, "started") > 0 && p.Kind != "session" {
					t.Errorf("it ended: %q", end.texts)
				}
				if i == 0 {
					picture(t, s, all)
				}
				for dies := 1; dies <= requests; dies++ {
					for _, after := range []bool{false, true} {
						all, a, _ := tell(t, s, p, dies, after)
						end, known := all[2].texts, a.Status == store.AnswerDelivered
						n, twice := counted(end, told), s.Find != nil && (len(end) > 2 || counted(end, "started") > 0)
						if n > 1 || n < 1 && (known || s.Find != nil) || !known && (s.Find != nil || a.Status != store.AnswerFailed) || twice && p.Kind != "session" {
							t.Errorf("killed at request %d of %d, after %v: %+v\n%q", dies, requests, after, a, end)
						}
					}
				}
			})
		}
	}
}

func counted(texts []string, words string) (n int) {
	for _, text := range texts {
		if strings.Contains(text, words) {
			n++
		}
	}
	return n
}

// picture checks the pictures of a thread, or writes them with -update: what people see of ours, on a page
// that is nobody's.
func picture(t *testing.T, s *Sender, all []stage) {
	t.Helper()
	name := map[string]string{"github": "grace", "gitlab": "grace"}[s.Provider]
	runs := regexp.MustCompile(`run_\w{10,}`)
	if name == "" {
		name = "Ada"
	}
	d := drawing{}
	d.caption("Somebody asks")
	d.card(name, []string{"Captures fail for split shipments. @hammer, please look."})
	if all[0].signs > 0 {
		d.sign()
	}
	for i, st := range all[1:] {
		for n, text := range st.texts {
			if s.Provider == "teams" {
				text = packedAny(map[string]string{"text": text, "textFormat": "xml"})
			}
			switch {
			case n > 0:
				d.caption("Then, because an edited text notifies nobody")
			case i > 0:
				d.caption("When it ends, the same text")
			default:
				d.caption("When the run starts")
			}
			d.card("hammer", strings.Split(runs.ReplaceAllString(seen(t, text), "run_8fk2"), "\n"))
		}
	}
	for theme, colours := range map[string]string{
		"light": "#fff,#1f2328,#59636e,#d1d9e0,#0b5cad",
		"dark":  "#15181c,#e6e9ec,#9aa4af,#3a424b,#7ab8ff",
	} {
		file := filepath.Join("..", "..", "docs", "screenshots", "answer-"+s.Provider+"-"+theme+"-640.svg")
		got := d.svg(strings.Split(colours, ","))
		if *update {
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if want, err := os.ReadFile(file); err != nil || string(want) != got {
			t.Errorf("%s (go test -update writes it): %v", file, err)
		}
	}
}

// drawing is a thread as an SVG, from top to bottom.
type drawing struct {
	b strings.Builder
	y int
}

func (d *drawing) text(class string, x int, text string) {
	fmt.Fprintf(&d.b, "<text class=%q x=\"%d\" y=\"%d\">%s</text>\n", class, x, d.y, html.EscapeString(text))
}

func (d *drawing) caption(text string) {
	d.y += 26
	d.text("c", 16, text)
	d.y += 8
}

// card is a text and who wrote it. A line that begins with > is a quotation.
func (d *drawing) card(who string, lines []string) {
	top := d.y
	d.y += 22
	d.text("n", 30, who)
	for _, line := range lines {
		if line == "" {
			d.y += 6
			continue
		}
		d.y += 21
		if quoted, is := strings.CutPrefix(line, "> "); is {
			fmt.Fprintf(&d.b, "<path class=\"q\" d=\"M32 %dv18\"/>\n", d.y-14)
			d.text("c", 42, quoted)
		} else {
			d.text(map[bool]string{true: "l", false: "t"}[strings.HasPrefix(line, "Run ")], 30, line)
		}
	}
	d.y += 14
	fmt.Fprintf(&d.b, "<rect x=\"16\" y=\"%d\" width=\"608\" height=\"%d\" rx=\"6\"/>\n", top, d.y-top)
}

// sign is a reaction below the last card.
func (d *drawing) sign() {
	fmt.Fprintf(&d.b, "<rect x=\"30\" y=\"%d\" width=\"48\" height=\"24\" rx=\"12\" class=\"s\"/>\n", d.y-8)
	d.y += 9
	for _, x := range []int{41, 52} { // two eyes, because not every machine has the character
		fmt.Fprintf(&d.b, "<ellipse cx=\"%d\" cy=\"%d\" rx=\"4.5\" ry=\"6\" class=\"q\"/><circle cx=\"%d\" cy=\"%[2]d\" r=\"2\"/>\n", x, d.y-5, x+1)
	}
	d.text("t", 62, "1")
	d.y += 8
}

// svg is the drawing with the colours of the page, texts, quiet texts, lines and links.
func (d *drawing) svg(c []string) string {
	d.y += 16
	defer func() { d.y -= 16 }()
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 %d" width="640" height="%[1]d">
<style>svg{background:%s;font:14px system-ui,sans-serif}rect{fill:none;stroke:%s}.s{fill:%[2]s}.q{fill:none;stroke:%[3]s;stroke-width:2}text,circle{fill:%s}.c{fill:%s}.n{font-weight:600}.l{fill:%s}</style>
%s</svg>
`, d.y, c[0], c[3], c[1], c[2], c[4], d.b.String())
}
