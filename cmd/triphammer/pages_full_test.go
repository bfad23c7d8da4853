//go:build full

package main

import (
	"bytes"
	"cmp"
	"context"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// picturesDir is where TestPages writes a picture of every page: make screenshots.
var picturesDir = flag.String("pictures", "", "write pictures of the pages into this folder")

// TestPages: every page can be read in both themes, on a desk and on a phone, by everybody,
// and nothing in it breaks its own policy (SPEC 18.5).
func TestPages(t *testing.T) {
	s := newDay(t)
	pages := storyPages(s.scenes)
	routes := pageRoutes()
	for _, route := range routes {
		if pages[route] == nil && notPages[route] == "" {
			t.Errorf("no row of storyPages shows %s", route)
		}
	}
	b := s.newTab()
	b.stopClock()
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
	b.check("/webhooks/old-ci")                                      // disabled
	for _, guide := range []string{"dashboard", "schemes", "spec"} { // pictures, many sections, wide tables
		b.open("/docs/" + guide)
		for _, theme := range themes {
			for _, width := range append(slices.Clone(widths), 320) {
				b.view(theme, width)
				b.look()
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
	for (const path of document.querySelectorAll('code:has(wbr)')) if (path.textContent.includes(folder)) path.textContent += ''; // one text again
	for (const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT); walk.nextNode();) {
		const node = walk.currentNode;
		let text = node.data;
		for (const [from, to] of all) text = text.replaceAll(from, to);
		text = text.replace(/(\bworker |^)[\w.-]+\/\d{2,7}(?=,|$)/, '$1hammer-1/412');
		if (text !== node.data) node.data = text;
	}
	return true;
}`

// stopClock keeps times on the pages from going on, so that pictures differ by the pages alone.
func (b *tab) stopClock() {
	b.t.Helper()
	b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: "Date.now = () => 0"})
		return err
	}))
}

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
const maxPicture = 1400

// maxColours is how many colours a picture has.
const maxColours = 64

func alike(a, b color.RGBA, near int) bool {
	apart := func(x, y uint8) int { return max(int(x)-int(y), int(y)-int(x)) }
	return max(apart(a.R, b.R), apart(a.G, b.G), apart(a.B, b.B)) <= near
}

// reduced is a PNG with few colours, because a page has few: a third of the size. The
// frequent ones stay as they are, and the others become what they are most alike.
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
	var palette color.Palette
	surfaces := min(len(frequent), maxColours/2)
	for near := 2; ; near += 2 { // how little of a channel is seen as the same colour
		palette = palette[:0]
		for _, c := range frequent[:surfaces] {
			palette = append(palette, c)
		}
		for _, c := range frequent[surfaces:] {
			if len(palette) > maxColours {
				break
			}
			if !slices.ContainsFunc(palette, func(p color.Color) bool { return alike(c, p.(color.RGBA), near) }) {
				palette = append(palette, c)
			}
		}
		if len(palette) <= maxColours {
			break
		}
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
