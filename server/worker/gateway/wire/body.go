package wire

import (
	"bytes"
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"triphammer/factory/jsonscan"
)

// call is a request that is being read.
type call struct {
	Request
	format *Format
	method string
	query  url.Values
	may    Options

	rules rules
	top   map[string]span // the members of the body
	media int64           // bytes of the images in it
	image int64           // number of these images
}

// span is where a value stands in the body.
type span struct{ from, to int }

// edit replaces a part of the body.
type edit struct {
	span
	text string
}

// spliced is the body with the changes.
func spliced(body []byte, edits []edit) []byte {
	if len(edits) == 0 {
		return body
	}
	edits = slices.SortedStableFunc(slices.Values(edits), func(a, b edit) int { return cmp.Compare(a.from, b.from) })
	var b bytes.Buffer
	at := 0
	for _, e := range edits {
		b.Write(body[at:e.from])
		b.WriteString(e.text)
		at = e.to
	}
	b.Write(body[at:])
	return b.Bytes()
}

// member is the change that gives the object at a span another first member. The text is its
// JSON.
func member(body []byte, at span, text string) edit {
	s := jsonscan.Scanner{Data: body, Pos: at.from + 1}
	if s.Space(); s.Peek() != '}' {
		text += ","
	}
	return edit{span{at.from + 1, at.from + 1}, text}
}

// SetLimit makes n the most tokens that the answer may have, also if the request said another
// maximum, and changes Body accordingly. A request that is Free stays as it is.
func (r *Request) SetLimit(n int64) {
	if r.limit == nil {
		return
	}
	r.Limit = n
	r.Body = spliced(r.from, append(slices.Clone(r.edits), r.limit(strconv.FormatInt(n, 10))...))
}

// rules are what the bodies of a format may hold.
type rules struct {
	names  []string                                         // the members of the body that the format knows here
	opaque []string                                         // members whose values are texts and data of the agent for a provider
	checks map[string]func(c *call, at span) (extra string) // by the name of a member anywhere else: what it asks for besides; empty: nothing
}

const (
	maxDepth = 100 // of a body

	// tokensOfImage is more than an image has at any provider, whatever its size: most have below
	// 5,000, as in https://platform.claude.com/docs/en/build-with-claude/vision.
	tokensOfImage = 10_000
	// tokensAround is more than what a provider adds to a request, mostly for tools:
	// https://platform.claude.com/docs/en/agents-and-tools/tool-use/overview, "Pricing".
	tokensAround = 1000
)

// body checks the body, and finds its members.
func (c *call) body() error {
	if depth, err := jsonscan.Depth(c.from); err != nil {
		return c.bad("the body is not JSON: " + err.Error())
	} else if depth > maxDepth {
		return c.bad(fmt.Sprintf("the body is nested deeper than %d levels", maxDepth))
	}
	s := jsonscan.Scanner{Data: c.from}
	if s.Space(); s.Peek() != '{' {
		return c.bad("the body is no object")
	}
	c.top = make(map[string]span)
	if err := c.walk(&s, false, true); err != nil {
		return err
	}
	// Servers that ignore the case of names would read a member that is not read here.
	for name := range c.top {
		for _, known := range c.rules.names {
			if name != known && strings.EqualFold(name, known) {
				return c.bad(fmt.Sprintf("the body has the member %q: write %q", clip(name), known))
			}
		}
	}
	c.Input = (int64(len(c.from))-c.media)/2 + min(c.media, c.image*tokensOfImage) + tokensAround
	return nil
}

// walk checks the value at the scanner's place. Within opaque values, only repeated keys are
// looked for.
func (c *call) walk(s *jsonscan.Scanner, opaque, top bool) error {
	switch s.Peek() {
	case '{':
		return c.members(s, opaque, top)
	case '[':
		for s.Enter(); s.More(); {
			if err := c.walk(s, opaque, false); err != nil {
				return err
			}
		}
		return nil
	}
	_ = s.Skip() // Depth has checked it
	return nil
}

func (c *call) members(s *jsonscan.Scanner, opaque, top bool) error {
	var few [8]string
	seen, many := few[:0], map[string]bool(nil)
	var data span   // of the file in the object
	var kind string // of that file
	for s.Enter(); s.More(); {
		name := string(s.Name())
		if many == nil && len(seen) == cap(few[:]) {
			many = make(map[string]bool)
			for _, n := range seen {
				many[n] = true
			}
		}
		if many[name] || slices.Contains(seen, name) {
			return c.bad(fmt.Sprintf("the body has the key %q twice in one object", clip(name)))
		}
		if many != nil {
			many[name] = true
		} else {
			seen = append(seen, name)
		}
		from := s.Pos
		if err := c.walk(s, opaque || slices.Contains(c.rules.opaque, name), false); err != nil {
			return err
		}
		at := span{from, s.Pos}
		if top {
			c.top[name] = at
		}
		switch name {
		case "data":
			data = at
		case "media_type", "mimeType", "mime_type":
			kind, _ = c.text(at)
		case "url", "image_url":
			c.weigh(at, opaque)
		}
		others := name == "models" || name == "fallbacks" // which no option allows
		if check := c.rules.checks[name]; check != nil && !opaque && (others || !c.may.Extras) && !c.null(at) {
			if extra := check(c, at); extra != "" {
				return c.refused(extra)
			}
		}
	}
	c.weigh(data, opaque || !strings.HasPrefix(kind, "image/"))
	return nil
}

// leastMedia is the size from which a text may be a file.
const leastMedia = 512

// images are how images begin in base64: PNG, JPEG, GIF, WebP.
var images = []string{"iVBORw0KGgo", "/9j/", "R0lGOD", "UklGR"}

// weigh counts a text that is an image in base64: its tokens do not depend on its size. A text that a model
// reads counts as text, also if it begins like an image.
func (c *call) weigh(at span, read bool) {
	if read || at.to-at.from <= leastMedia || c.from[at.from] != '"' {
		return
	}
	text := c.from[at.from+1 : at.to-1]
	if head, _, is := bytes.Cut(text[:min(len(text), 100)], []byte(";base64,")); is && bytes.HasPrefix(head, []byte("data:")) {
		text = text[len(head)+len(";base64,"):]
	}
	if slices.ContainsFunc(images, func(begin string) bool { return bytes.HasPrefix(text, []byte(begin)) }) && !bytes.ContainsAny(text, " \\") {
		c.image++
		c.media += int64(len(text))
	}
}

// null tells whether a value is null, which is like no value.
func (c *call) null(at span) bool { return string(c.from[at.from:at.to]) == "null" }

// has tells whether the body has a member that is not null.
func (c *call) has(name string) bool {
	at, has := c.top[name]
	return has && !c.null(at)
}

// text is the value of a member of the body, or of an object in it, that is a text.
func (c *call) text(at span) (string, bool) {
	if at.to <= at.from || c.from[at.from] != '"' {
		return "", false
	}
	s := jsonscan.Scanner{Data: c.from, Pos: at.from}
	return string(s.Unquote()), true
}

// each calls a function with each item of an array, or with the value itself if it is none.
func (c *call) each(at span, do func(span) string) string {
	s := jsonscan.Scanner{Data: c.from, Pos: at.from}
	if s.Peek() != '[' {
		return do(at)
	}
	for s.Enter(); s.More(); {
		from := s.Pos
		_ = s.Skip()
		if found := do(span{from, s.Pos}); found != "" {
			return found
		}
	}
	return ""
}

// textAlone says which kinds of answers an array of texts asks for besides text, which cost more.
func (c *call) textAlone(name string, at span) string {
	return c.each(at, func(item span) string {
		if kind, _ := c.text(item); !strings.EqualFold(kind, "text") {
			return "sound or images as answers (" + name + ")"
		}
		return ""
	})
}

// fields are the members of an object; nil if the value is no object.
func (c *call) fields(at span) map[string]span {
	s := jsonscan.Scanner{Data: c.from, Pos: at.from}
	if at.to <= at.from || s.Peek() != '{' {
		return nil
	}
	all := make(map[string]span)
	for s.Enter(); s.More(); {
		name := string(s.Name())
		from := s.Pos
		_ = s.Skip()
		all[name] = span{from, s.Pos}
	}
	return all
}

// flag is a member of the body that is true or false.
func (c *call) flag(name string) (bool, error) {
	at, has := c.top[name]
	switch text := string(c.from[at.from:at.to]); {
	case !has || text == "null" || text == "false":
		return false, nil
	case text == "true":
		return true, nil
	}
	return false, c.bad(name + " is neither true nor false")
}

// number is a value that is a whole number; NoLimit for null.
func (c *call) number(name string, at span) (int64, error) {
	text := string(c.from[at.from:at.to])
	if text == "null" {
		return NoLimit, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, c.bad(name + " is no whole number of tokens")
	}
	return n, nil
}

// maximum takes the most tokens of the answer from the members of the object at a span, of
// which a request usually has one. The first is what SetLimit writes if there is none of them.
func (c *call) maximum(object span, at map[string]span, names ...string) error {
	var given []span
	for _, name := range names {
		if place, has := at[name]; has {
			n, err := c.number(name, place)
			if err != nil {
				return err
			}
			c.Limit = max(c.Limit, min(n, maxTokens)) // so that sums stay numbers
			given = append(given, place)
		}
	}
	c.limit = func(n string) (edits []edit) {
		for _, place := range given {
			edits = append(edits, edit{place, n})
		}
		if given == nil {
			edits = append(edits, member(c.from, object, strconv.Quote(names[0])+":"+n))
		}
		return edits
	}
	return nil
}

// whole is the span of the body's object.
func (c *call) whole() span {
	s := jsonscan.Scanner{Data: c.from}
	s.Space()
	return span{s.Pos, len(c.from)}
}

// named takes the model from the body.
func (c *call) named() error {
	at, has := c.top["model"]
	model, is := c.text(at)
	if !has || !is || model == "" || len(model) > 200 || strings.ContainsFunc(model, unicode.IsControl) {
		return c.bad("the body names no model")
	}
	c.Model = model
	return nil
}

func (c *call) bad(reason string) error {
	return &Refusal{http.StatusBadRequest, "the gateway of this run does not pass the request on: " + reason}
}

func (c *call) refused(extra string) error {
	return &Refusal{http.StatusForbidden, "the gateway of this run does not pass on requests with " + extra + ": its environment does not allow them"}
}

func (c *call) unknown() error {
	return &Refusal{http.StatusNotFound, fmt.Sprintf("the gateway of this run passes on requests to models of %s, and not %s %s", c.format.Name, clip(c.method), clip(c.Path))}
}
