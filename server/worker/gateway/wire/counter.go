package wire

import (
	"encoding/json"
	"strconv"

	"triphammer/server/run/task"
)

// told is how a format tells the usage in an answer.
type told struct {
	// fields are the numbers of tokens, by their paths in an answer. An item of an array has the
	// path of the array with "[]".
	fields map[string]field
	said   map[string]bool // the texts that the model says
	ends   map[string]bool // texts that stand there when the model has ended
	atEnd  bool            // instead of ends: the usage is told when the model has ended, and not before
	error  map[string]bool // texts of an error
	// tokens makes the usage of the numbers. whole: they are all that a whole answer has.
	tokens func(n *numbers) (t task.Tokens, whole bool)
}

// field is a number that a provider tells.
type field int

const (
	input field = iota
	cacheRead
	cacheWrite
	cacheHour
	output
	reasoning
	toolInput
	total
	partInput // those of parts are summed in an event
	partCacheRead
	partCacheWrite
	partOutput
	fields
)

// numbers are what a provider has told by now, each at its highest. A number is told again when
// it has grown. -1: not told.
type numbers [fields]int64

func (n *numbers) of(f field) int64 { return max(0, n[f]) }

// maxTokens bounds a number that a provider tells, so that sums stay numbers.
const maxTokens = 1 << 40

// Counter is an io.Writer that is given the bytes of an answer as they pass, and counts.
// Its methods must not be called at the same time.
type Counter struct {
	told told
	long bool // all that is written to the cache is kept for longer
	scan scanner

	known, stream bool // whether the answer is a stream of events, once it is known
	line          line
	cr            bool    // the last byte was a carriage return
	name          [5]byte // the begin of the line
	length        int     // of name
	numbers       numbers
	parts         numbers // of this event
	said          int64   // bytes that the model has said
	ended         bool    // the model has ended its answer
	whole         bool    // when the last event ended, everything was told
	error         string
}

// line is where a Counter is in a stream of events
// (https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream).
type line int

const (
	lineBegins line = iota
	lineNamed
	lineData    // behind "data:"
	lineIgnored // another field, or a comment
)

// Counter makes the counter for an answer to the request with a status below 300. The answer
// must not be compressed: send Accept-Encoding: identity.
func (r *Request) Counter() *Counter {
	c := &Counter{told: r.told, long: r.long}
	for f := range fields {
		c.numbers[f] = -1
	}
	c.scan.emit = c.take
	return c
}

// Write never fails, and keeps nothing of p.
func (c *Counter) Write(p []byte) (int, error) {
	n := len(p)
	for !c.known && len(p) > 0 {
		switch p[0] {
		case ' ', '\t', '\r', '\n', 0xEF, 0xBB, 0xBF: // blanks and the byte order mark
			p = p[1:]
		default:
			c.known, c.stream = true, p[0] != '{' && p[0] != '['
		}
	}
	if !c.stream {
		c.scan.write(p)
		return n, nil
	}
	for len(p) > 0 {
		p = c.events(p)
	}
	return n, nil
}

// events takes the begin of p, up to the end of a line at most, and returns the rest.
func (c *Counter) events(p []byte) []byte {
	if c.cr && p[0] == '\n' { // one end of a line
		c.cr = false
		return p[1:]
	}
	c.cr = false
	if c.line <= lineNamed {
		for i, b := range p {
			if b == '\n' || b == '\r' {
				if c.length == 0 { // an empty line ends an event
					c.scan.reset()
					c.parts = numbers{}
					_, whole := c.told.tokens(&c.numbers)
					c.whole = whole && (c.ended || c.told.atEnd)
				}
				c.line, c.length, c.cr = lineBegins, 0, b == '\r'
				return p[i+1:]
			}
			c.name[c.length] = b
			if c.length++; c.length == len(c.name) {
				c.line = lineIgnored
				if string(c.name[:]) == "data:" {
					c.line = lineData
				}
				return p[i+1:]
			}
		}
		return nil
	}
	end := 0
	for end < len(p) && p[end] != '\n' && p[end] != '\r' {
		end++
	}
	if c.line == lineData {
		c.scan.write(p[:end])
	}
	if end == len(p) {
		return nil
	}
	if c.line == lineData {
		c.scan.write(p[end : end+1])
	}
	c.line, c.length, c.cr = lineBegins, 0, p[end] == '\r'
	return p[end+1:]
}

// take takes a value of the answer.
func (c *Counter) take(path, text []byte, size int, quoted bool) {
	switch f, number := c.told.fields[string(path)]; {
	case number && !quoted:
		n, err := strconv.ParseInt(string(text), 10, 64)
		if err != nil || n < 0 {
			return
		}
		n = min(n, maxTokens)
		if f >= partInput {
			c.parts[f] = min(c.parts[f]+n, maxTokens)
			n = c.parts[f]
		}
		c.numbers[f] = max(c.numbers[f], n)
	case quoted && c.told.said[string(path)]:
		c.said += int64(size)
	case c.told.ends[string(path)]:
		c.ended = c.ended || quoted && size > 0 || string(text) == "DONE"
	case quoted && c.told.error[string(path)]:
		var said string
		if json.Unmarshal([]byte(`"`+string(text)+`"`), &said) != nil { // cut in an escape
			said = string(text)
		}
		if c.error != "" {
			said = c.error + ": " + said
		}
		if said = clip(said); said != c.error {
			c.error = said
		}
	}
}

// Usage is what the provider has told by now. Output is at least a token for every four bytes
// that the model has said.
func (c *Counter) Usage() task.Tokens {
	t, _ := c.told.tokens(&c.numbers)
	t.Output = max(t.Output, c.said/4)
	if c.long {
		t.CacheHour = t.CacheWrite
	}
	return t
}

// Complete tells whether the provider has told the usage of the whole answer. An answer that
// was cut off is not complete, and may have used more than Usage says.
func (c *Counter) Complete() bool {
	whole := c.whole
	if c.known && !c.stream && c.scan.closed {
		_, whole = c.told.tokens(&c.numbers)
	}
	return whole && c.error == ""
}

// Began tells whether the model has begun to answer: for the time to the first token.
func (c *Counter) Began() bool {
	return c.said > 0 || c.ended || c.numbers[output] > 0 || c.known && !c.stream
}

// Trouble is the provider's error in an answer that began well; empty: there is none. It is
// a stranger's text, of at most 100 characters.
func (c *Counter) Trouble() string { return c.error }
