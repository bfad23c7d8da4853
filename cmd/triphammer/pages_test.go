package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	answers "triphammer/server/answer"
	"triphammer/server/dashboard"
)

// scenes are the identifiers of what the pictures of the pages show.
type scenes struct {
	wanted, unmatched, done, failed, live, apply, schedule, subject string
}

// storyPages are the addresses of each page in the story, by its route and a name for its picture.
func storyPages(s scenes) map[string]map[string]string {
	return map[string]map[string]string{
		"/":                        {"overview": "/"},
		"/inbox":                   {"inbox": "/inbox"},
		"/deliveries":              {"deliveries": "/deliveries"},
		"/deliveries/:id":          {"delivery": "/deliveries/" + s.wanted, "delivery-unmatched": "/deliveries/" + s.unmatched},
		"/automations":             {"automations": "/automations"},
		"/automations/:name":       {"automation": "/automations/fix-labeled-bug"},
		"/automations/:name/edit":  {"automation-edit": "/automations/fix-labeled-bug/edit"},
		"/automations/new":         {"automation-new": "/automations/new"},
		"/environments":            {"environments": "/environments"},
		"/environments/:name":      {"environment": "/environments/app"},
		"/environments/:name/edit": {"environment-edit": "/environments/app/edit"},
		"/environments/new":        {"environment-new": "/environments/new"},
		"/agents":                  {"agents": "/agents"},
		"/agents/:name":            {"agent": "/agents/foreman"},
		"/agents/:name/edit":       {"agent-edit": "/agents/foreman/edit"},
		"/agents/new":              {"agent-new": "/agents/new"},
		"/people":                  {"people": "/people"},
		"/audit":                   {"audit": "/audit"},
		"/automations/test":        {"filter-test": "/automations/test?delivery=" + s.wanted},
		"/runs":                    {"runs": "/runs"},
		"/search":                  {"search": "/search?q=fix"},
		"/subjects":                {"subjects": "/subjects"},
		"/subjects/story":          {"subject": "/subjects/story?subject=" + url.QueryEscape(s.subject)},
		"/webhooks":                {"webhooks": "/webhooks"},
		"/webhooks/:name":          {"webhook": "/webhooks/github"},
		"/webhooks/new":            {"webhook-new": "/webhooks/new"},
		"/definition":              {"definition": "/definition"},
		"/definition/applies/:id":  {"apply": "/definition/applies/" + s.apply},
		"/definition/files":        {"files": "/definition/files"},
		"/definition/files/*path":  {"file": "/definition/files/automations/deploy-failed/automation.md"},
		"/definition/new":          {"file-new": "/definition/new"},
		"/definition/edit/*path":   {"editor": "/definition/edit/automations/deploy-failed/automation.md"},
		"/start":                   {"start": "/start"},
		"/secrets":                 {"secrets": "/secrets"},
		"/system":                  {"system": "/system"},
		"/runs/:id":                {"run": "/runs/" + s.done, "run-failed": "/runs/" + s.failed, "run-live": "/runs/" + s.live},
		"/runs/new":                {"run-new": "/runs/new"},
		"/costs":                   {"costs": "/costs"},
		"/schedules":               {"schedules": "/schedules"},
		"/schedules/new":           {"schedule-new": "/schedules/new"},
		"/schedules/:id":           {"schedule": "/schedules/" + s.schedule},
		"/docs":                    {"guides": "/docs"},
		"/docs/:page":              {"guide": "/docs/filters"},
	}
}

// notPages are routes of the dashboard that answer with no page, or with one that needs no picture, and why.
var notPages = map[string]string{
	"/artifacts/:id":               "a file to keep",
	"/costs/table.csv":             "a file to keep",
	"/deliveries/:id/payload":      "a file to keep",
	"/runs/:id/events.json":        "a file to keep",
	"/runs/:id/event-payload.json": "a file to keep",
}

// pageRoutes are the routes of the dashboard that are read.
func pageRoutes() (routes []string) {
	for _, r := range dashboard.Routes {
		if r.Method == http.MethodGet {
			routes = append(routes, r.Path)
		}
	}
	return routes
}

var (
	themes = []string{"light", "dark"}
	widths = []int64{1280, 375}
)

// pictures is where make screenshots writes a picture of each page.
const pictures = "../../docs/screenshots"

// filmFile is the film of the README in that folder: an issue that is labelled, answered and merged.
const filmFile = "film.svg"

// maxPictures is how large all pictures are together, in bytes.
const maxPictures = 6_500_000

// TestPictures: each page and each sender's answers have their pictures, and each picture shows one of them.
func TestPictures(t *testing.T) {
	wanted := make(map[string]bool)
	for _, route := range pageRoutes() {
		for name := range storyPages(scenes{})[route] {
			for _, theme := range themes {
				for _, width := range widths {
					wanted[fmt.Sprintf("%s-%s-%d.png", name, theme, width)] = true
				}
			}
		}
	}
	for _, s := range answers.Senders() {
		for _, theme := range themes {
			wanted[fmt.Sprintf("answer-%s-%s-640.svg", s.Provider, theme)] = true
		}
	}
	wanted[filmFile] = true
	files, err := os.ReadDir(pictures)
	if err != nil {
		t.Fatal(err)
	}
	size := int64(0)
	for _, f := range files {
		info, err := f.Info()
		if err != nil {
			t.Fatal(err)
		}
		if size += info.Size(); !wanted[f.Name()] {
			t.Errorf("%s is the picture of nothing: remove it", f.Name())
		}
		delete(wanted, f.Name())
	}
	for name := range wanted {
		t.Errorf("%s is missing: make screenshots", name)
	}
	if size > maxPictures {
		t.Errorf("the pictures have %d bytes, more than %d", size, maxPictures)
	}
}

// TestPicturesInDocs: each picture that a document shows is there, in both themes, and says
// what is on it.
func TestPicturesInDocs(t *testing.T) {
	picture := regexp.MustCompile(`(?s)<picture>(.*?)</picture>`)
	whole := regexp.MustCompile(`^\n  <source media="\(prefers-color-scheme: dark\)" srcset="(\S+)-dark-(\d+\.(?:png|svg))">\n  <img src="(\S+)-light-(\d+\.(?:png|svg))" alt="[^"]{20,}">\n$`)
	shown := 0
	for name, text := range pages(t) {
		for _, found := range picture.FindAllStringSubmatch(text, -1) {
			m := whole.FindStringSubmatch(found[1])
			if m == nil || m[1] != m[3] || m[2] != m[4] {
				t.Errorf("%s: not a picture in both themes with a text that says what it shows: %s", name, found[0])
				continue
			}
			for _, file := range []string{m[1] + "-dark-" + m[2], m[1] + "-light-" + m[2]} {
				if path := filepath.Join(filepath.Dir(name), file); missing(path) {
					t.Errorf("%s shows %s, which is not there", name, path)
				}
			}
			shown++
		}
	}
	if shown < 10 {
		t.Errorf("the documents show %d pictures", shown)
	}
}

// TestFilmFile: the README shows the film. It is small, it is well-formed, people who want no motion see its end, and
// it has only parts that can neither run anything nor ask for an address.
func TestFilmFile(t *testing.T) {
	film, err := os.ReadFile(filepath.Join(pictures, filmFile))
	if err != nil {
		t.Fatal(err)
	}
	if len(film) > 1_000_000 || !strings.Contains(string(film), "@media(prefers-reduced-motion:no-preference){.m{animation:") {
		t.Errorf("%d bytes, or motion for everybody", len(film))
	}
	if readme := pages(t)["../../README.md"]; !regexp.MustCompile(`<img src="docs/screenshots/` + filmFile + `" alt="[^"]{80,}">`).MatchString(readme) {
		t.Error("README.md does not show the film, or not in words")
	}
	elements := strings.Fields("svg title style g path rect circle ellipse text")
	attributes := strings.Fields("xmlns viewBox width height role aria-labelledby id class x y d rx ry cx cy r transform")
	d := xml.NewDecoder(bytes.NewReader(film))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			if !slices.Contains(elements, token.Name.Local) {
				t.Errorf("an element %s", token.Name.Local)
			}
			for _, a := range token.Attr {
				if !slices.Contains(attributes, a.Name.Local) || a.Name.Space != "" {
					t.Errorf("%s has the attribute %s", token.Name.Local, a.Name.Local)
				}
			}
		case xml.CharData:
			if regexp.MustCompile(`(?i)url\(|@import|src:`).Match(token) {
				t.Errorf("asks for an address: %.200s", token)
			}
		case xml.ProcInst, xml.Directive:
			t.Errorf("%v", token)
		}
	}
}
