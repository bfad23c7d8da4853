//go:build full

package main

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"triphammer/server/dashboard"
)

// picturesDir is where TestPages writes a picture of every page: make screenshots.
var picturesDir = flag.String("pictures", "", "write pictures of the pages into this folder")

// storyPages are the addresses of each page in the story, by its route and a name for its picture.
func storyPages(s *story) map[string]map[string]string {
	return map[string]map[string]string{
		"/":                        {"overview": "/"},
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
		"/webhooks":                {"webhooks": "/webhooks"},
		"/webhooks/:name":          {"webhook": "/webhooks/github", "webhook-disabled": "/webhooks/old-ci"},
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
		"/schedules":               {"schedules": "/schedules"},
		"/schedules/new":           {"schedule-new": "/schedules/new"},
		"/schedules/:id":           {"schedule": "/schedules/" + s.schedule},
	}
}

// notPages are routes of the dashboard that answer with no page, and why.
var notPages = map[string]string{
	"/artifacts/:id":               "a file to keep",
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

// TestPages: every page can be read in both themes, on a desk and on a phone, by everybody,
// and nothing in it breaks its own policy.
func TestPages(t *testing.T) {
	s := newDay(t)
	pages := storyPages(s)
	routes := pageRoutes()
	for _, route := range routes {
		if pages[route] == nil && notPages[route] == "" {
			t.Errorf("no row of storyPages shows %s", route)
		}
	}
	b := s.newTab()
	for route, named := range pages {
		if !slices.Contains(routes, route) {
			t.Errorf("there is no page %s", route)
		}
		for name, path := range named {
			b.check(path)
			if *picturesDir != "" {
				b.pictures(s, name)
			}
		}
	}
	if strings.Contains(s.logs.String(), "level=ERROR") {
		t.Errorf("the server's log has errors")
	}
}

// neutral is the script that takes this machine out of a page: its address, its folders, its
// name and the room on its disks.
const neutral = `(address, folder) => {
	const all = [[address, 'https://hammer.example.com'], [folder + '/data', '/var/lib/triphammer'],
		[/[\d.]+ [GT]B of [\d.]+ [GT]B are free(, and [\d,]+ inodes)?/g, '212.4 GB of 256 GB are free']];
	for (const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT); walk.nextNode();) {
		const node = walk.currentNode;
		let text = node.data;
		for (const [from, to] of all) text = text.replaceAll(from, to);
		text = text.replace(/^(isolation \S+, worker )?[\w.-]+\/\d{2,7}$/, '$1hammer-1/412');
		if (text !== node.data) node.data = text;
	}
	return true;
}`

// pictures writes what the tab shows into files, in each theme and width.
func (b *tab) pictures(s *story, name string) {
	b.t.Helper()
	for _, theme := range themes {
		for _, width := range widths {
			b.view(theme, width)
			if _, ok := js[bool](b, call(neutral, b.base, s.dir)); !ok {
				b.t.Fatal("the machine cannot be hidden")
			}
			small, err := reduced(b.picture())
			if err == nil {
				err = os.WriteFile(filepath.Join(*picturesDir, fmt.Sprintf("%s-%s-%d.png", name, theme, width)), small, 0o644)
			}
			if err != nil {
				b.t.Fatal(err)
			}
		}
	}
}

// maxPicture is how many pixels of a page's height a picture shows.
const maxPicture = 1600

// reduced is a PNG with a palette of its most frequent colours: a third of the size, for
// pages with few colours.
func reduced(text []byte) ([]byte, error) {
	full, err := png.Decode(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	size := full.Bounds()
	size.Max.Y = min(size.Max.Y, maxPicture)
	plain := image.NewRGBA(size)
	draw.Draw(plain, size, full, image.Point{}, draw.Src)
	count := make(map[color.RGBA]int)
	for y := range size.Max.Y {
		for x := range size.Max.X {
			count[plain.RGBAAt(x, y)]++
		}
	}
	frequent := slices.SortedFunc(maps.Keys(count), func(a, b color.RGBA) int {
		return cmp.Or(count[b]-count[a], int(a.R)-int(b.R), int(a.G)-int(b.G), int(a.B)-int(b.B))
	})
	palette := make(color.Palette, 0, 256)
	for _, c := range frequent[:min(len(frequent), cap(palette))] {
		palette = append(palette, c)
	}
	index := make(map[color.RGBA]uint8)
	small := image.NewPaletted(size, palette)
	for y := range size.Max.Y {
		for x := range size.Max.X {
			c := plain.RGBAAt(x, y)
			i, known := index[c]
			if !known {
				i = uint8(palette.Index(c))
				index[c] = i
			}
			small.SetColorIndex(x, y, i)
		}
	}
	var b bytes.Buffer
	err = (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&b, small)
	return b.Bytes(), err
}
