package dashboard

import (
	"cmp"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"triphammer/server/dashboard/markdown"
	"triphammer/server/run/event"
	"triphammer/server/terms"
)

// Now is the clock of the pages.
var Now = time.Now

func common() template.FuncMap {
	return template.FuncMap{
		"asset": assetURL, "icon": icon, "pill": pill, "time": timeTag, "clock": clockTag, "day": day, "ago": ago, "took": tookOf, "bytes": event.Bytes, "number": number, "cost": event.USD,
		"short": short, "path": breakable, "words": words, "lower": strings.ToLower, "json": indented, "runState": runState, "heading": headingOf, "outputState": outputState, "answerState": answerState, "deliveryState": deliveryState,
		"deliveryBelt": deliveryBelt, "runBelt": runBelt, "gauge": gauge, "web": markdown.Web, "plural": plural, "list": func(items ...string) []string { return items },
		"dict": dict, "rich": rich, "emptyBelt": emptyBelt, "escapedPath": escapedPath, "int64": func(n int) int64 { return int64(n) }, "line": func(i int) int { return i + 1 }, "named": named, "join": strings.Join,
	}
}

// dict makes the data of a part of a template from names and values.
func dict(pairs ...any) (map[string]any, error) {
	made := make(map[string]any)
	for i := 0; i+1 < len(pairs); i += 2 {
		name, ok := pairs[i].(string)
		if !ok {
			return nil, fmt.Errorf("%v is no name", pairs[i])
		}
		made[name] = pairs[i+1]
	}
	return made, nil
}

// icon is a drawing of the sprite of the layout.
func icon(name string, class ...string) template.HTML {
	return template.HTML(`<svg class="` + template.HTMLEscapeString(strings.Join(append([]string{"i"}, class...), " ")) +
		`" aria-hidden="true"><use href="#i-` + template.HTMLEscapeString(name) + `"/></svg>`)
}

// pill is a state: its mark, its word and its colour.
func pill(s state) template.HTML {
	kind := s.Kind
	switch kind {
	case "stop":
		kind = "none"
	case "warn":
		kind = "wait"
	}
	return template.HTML(`<span class="state `+kind+` pill">`) + icon(s.Kind) + template.HTML(template.HTMLEscapeString(s.Word)+`</span>`)
}

// rich shows the marks of an api.Guide: **name** and `text`.
func rich(text string) template.HTML {
	var b strings.Builder
	for i, part := range strings.Split(text, "`") {
		if i%2 == 1 {
			b.WriteString("<code>" + string(breakable(part)) + "</code>")
			continue
		}
		for i, part := range strings.Split(part, "**") {
			if i%2 == 1 {
				b.WriteString("<b>" + template.HTMLEscapeString(part) + "</b>")
			} else {
				b.WriteString(template.HTMLEscapeString(part))
			}
		}
	}
	return template.HTML(b.String()) //nolint:gosec // each part is escaped
}

// timeTag is a time in UTC: only the clock time for a time of today, else with the date.
func timeTag(at any) template.HTML {
	t := timeIn(at)
	if t.IsZero() {
		return "–"
	}
	shown := t.Format("2 Jan 15:04")
	switch now := Now().UTC(); {
	case t.Format(time.DateOnly) == now.Format(time.DateOnly):
		shown = t.Format(time.TimeOnly)
	case t.Year() != now.Year():
		shown = t.Format("2 Jan 2006")
	}
	return template.HTML(`<time datetime="` + t.Format(time.RFC3339) + `" title="` + t.Format("2006-01-02 15:04:05.000") + ` UTC">` + shown + `</time>`)
}

// clockTag is the clock time of a time. The page shows the day elsewhere.
func clockTag(at any) template.HTML {
	t := timeIn(at)
	return template.HTML(`<time datetime="` + t.Format(time.RFC3339) + `" title="` + t.Format("2006-01-02 15:04:05.000") + ` UTC">` + t.Format(time.TimeOnly) + `</time>`)
}

func timeIn(at any) (t time.Time) {
	switch at := at.(type) {
	case time.Time:
		t = at
	case *time.Time:
		if at != nil {
			t = *at
		}
	}
	return t.UTC()
}

func day(at any) string {
	switch t, now := timeIn(at), Now().UTC(); t.Format(time.DateOnly) {
	case now.Format(time.DateOnly):
		return "Today"
	case now.AddDate(0, 0, -1).Format(time.DateOnly):
		return "Yesterday"
	default:
		return t.Format("Monday 2 January 2006")
	}
}

// ago is the time that has passed since a time, in the largest unit.
func ago(at any) string {
	t := timeIn(at)
	if t.IsZero() {
		return "never"
	}
	d := Now().Sub(t)
	for _, unit := range []struct {
		of   time.Duration
		name string
	}{{24 * time.Hour, "day"}, {time.Hour, "hour"}, {time.Minute, "minute"}} {
		if n := int64(d / unit.of); n > 0 {
			return plural(n, unit.name) + " ago"
		}
	}
	return "just now"
}

// tookOf is how long something took between two times.
func tookOf(from, to any) string {
	begin, end := timeIn(from), timeIn(to)
	if begin.IsZero() {
		return ""
	}
	if end.IsZero() {
		end = Now()
	}
	return event.Took(max(end.Sub(begin), 0).Milliseconds())
}

// number is a number with separated thousands.
func number(n any) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// plural is a number of things, with separated thousands.
func plural(n any, thing string) string {
	text := number(n)
	if text != "1" {
		thing = terms.Many(thing)
	}
	return text + " " + thing
}

func short(hash string) string {
	if len(hash) > 7 {
		return hash[:7]
	}
	return hash
}

func words(s string) string { return strings.ReplaceAll(s, "_", " ") }

func indented(value any) string {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return ""
	}
	return string(text)
}

// SaidCookie is the cookie that carries the result of an action to the next page.
const SaidCookie = "triphammer_said"

const themeCookie = "triphammer_theme"

var themes = []string{"light", "dark"}

// themeRoute sets the theme that a person wants.
var themeRoute = post("/theme", "", func(v *Visit) (SetCookie, error) {
	theme := v.Form.Get("theme")
	if !slices.Contains(themes, theme) {
		theme = ""
	}
	return v.remember(themeCookie, theme), nil
})

// remember keeps a choice of a person in a cookie for a year, and goes back to the page of the form. An
// empty choice is forgotten.
func (v *Visit) remember(name, choice string) SetCookie {
	c := &http.Cookie{Name: name, Value: choice, Path: cmp.Or(v.Base, "/"), MaxAge: 365 * 24 * 3600, HttpOnly: true, SameSite: http.SameSiteLaxMode}
	if choice == "" {
		c.MaxAge = -1
	}
	return SetCookie{SeeOther{To: cmp.Or(LocalPath(strings.TrimPrefix(v.Form.Get("from"), v.Base)), "/")}, c}
}

// LocalPath is the address if it is a path of this server, so that a browser that follows it never
// comes to another site; else empty.
func LocalPath(to string) string {
	u, err := url.Parse(to)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || !strings.HasPrefix(to, "/") || strings.HasPrefix(to, "//") ||
		strings.ContainsAny(to, "\\\t\r\n") || strings.HasPrefix(u.Path, "//") {
		return ""
	}
	return to
}

// SetCookie is a SeeOther that sets a cookie.
type SetCookie struct {
	SeeOther
	Cookie *http.Cookie
}

const (
	// mostBreaks is the largest number of slashes of a path for which breakable prefers anything, so that
	// the text of a stranger does not make a page large.
	mostBreaks = 40
	// shortWord is how many bytes a word has at most that goes to the next line as a whole.
	shortWord = 20
)

// breakable is a text whose long words, such as paths, prefer line breaks after slashes to line breaks
// within names.
func breakable(text string) template.HTML {
	words := strings.Split(template.HTMLEscapeString(text), " ")
	for i, w := range words {
		if len(w) > shortWord && strings.Count(text, "/") <= mostBreaks {
			words[i] = strings.NewReplacer("//", "//", "/", "/<wbr>").Replace(w)
		}
	}
	return template.HTML(strings.Join(words, " ")) //nolint:gosec // each word is escaped
}
