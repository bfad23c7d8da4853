package secret

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"
)

const (
	awkward = `p@ss/w"ord+<é😀> !`
	pem     = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\nBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj\n-----END KEY-----\n"
)

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// TestRedact: the forms in which a secret must not come through (SPEC 9.5). What
// surrounds it stays as it is.
func TestRedact(t *testing.T) {
	r := NewRedactor(New(awkward), New("tiny"), New("abc"), New(""), New(pem), New("with-newline\n"))
	encoded := base64.StdEncoding.EncodeToString([]byte(pem))
	for name, shown := range map[string]string{
		"exact":                awkward,
		"short":                "tiny",
		"line":                 "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC",
		"without its newline":  "with-newline",
		"its base64":           base64.StdEncoding.EncodeToString([]byte("with-newline")),
		"hex":                  hex.EncodeToString([]byte(awkward)),
		"HEX":                  strings.ToUpper(hex.EncodeToString([]byte(awkward))),
		"query":                url.QueryEscape(awkward),
		"path":                 url.PathEscape(awkward),
		"encodeURIComponent":   "p%40ss%2Fw%22ord%2B%3C%C3%A9%F0%9F%98%80%3E%20!",
		"percent, lower case":  "p%40ss%2fw%22ord%2b%3c%c3%a9%f0%9f%98%80%3e%20%21",
		"JSON of Go":           strings.Trim(mustJSON(t, awkward), `"`),
		"JSON of Python":       `p@ss/w\"ord+<\u00e9\ud83d\ude00> !`,
		"JSON of PHP":          `p@ss\/w\"ord+<é😀> !`,
		"JSON of a browser":    `p@ss/w\"ord+<é😀> !`,
		"JSON in JSON":         `p@ss/w\\\"ord+<é😀> !`,
		"JSON of a PEM":        strings.Trim(mustJSON(t, pem), `"`),
		"base64 of 76 columns": encoded[:76],
		"base64, next line":    strings.TrimRight(encoded[76:], "="),
		"base64 of 64 columns": encoded[64:128],
	} {
		got := string(r.Redact([]byte("before " + shown + " after")))
		if !strings.Contains(got, hidden) || strings.Contains(got, shown) || !strings.HasPrefix(got, "before ") || !strings.HasSuffix(got, " after") {
			t.Errorf("%s: %q became %q", name, shown, got)
		}
	}
	for _, encoding := range []*base64.Encoding{base64.StdEncoding, base64.RawURLEncoding} {
		for before := range 4 {
			for after := range 3 {
				shown := encoding.EncodeToString([]byte("abc:"[:before] + awkward + "\n\n"[:after]))
				got := string(r.Redact([]byte(shown)))
				// At most a character of each end also holds bits of a neighbour.
				if left := strings.ReplaceAll(got, hidden, ""); !strings.Contains(got, hidden) || len(strings.TrimRight(left, "=")) > (before*8+5)/6+(after*8+5)/6+1 {
					t.Errorf("base64 at %d: %q became %q", before, shown, got)
				}
			}
		}
	}
	for _, plain := range []string{"", "abc p@ss", "tin y", strings.ToUpper("tiny")} {
		if got := string(r.Redact([]byte(plain))); got != plain {
			t.Errorf("too much hidden: %q became %q", plain, got)
		}
	}
}

// TestRedactOverlaps: no tail of a secret stays because another one overlaps it.
func TestRedactOverlaps(t *testing.T) {
	r := NewRedactor(New("hunter2222"), New("2222abcd"), New("bcdefg"), New("nter"))
	for text, want := range map[string]string{
		"hunter2222abcdefg.":     hidden + ".",
		"hunter2222 abcdefg":     hidden + " a" + hidden,
		"hunter2222hunter2222":   hidden + hidden,
		"hunter222":              "hu" + hidden + "222",
		"hunter22222222abcd":     hidden + hidden,
		"x2222abcdhunter2222abc": "x" + hidden + hidden + "abc",
	} {
		if got := string(r.Redact([]byte(text))); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}

// TestRedactWriterHoldsBackLittle: what cannot become a secret is let go at once.
func TestRedactWriterHoldsBackLittle(t *testing.T) {
	r := NewRedactor(New("hunter2222"))
	var out bytes.Buffer
	w := r.Writer(&out)
	for _, step := range []struct{ write, want string }{
		{"hello ", "hello "},
		{"hunt", "hello "},
		{"er222", "hello "},
		{"!", "hello hunter222!"},
		{"hunter2222", "hello hunter222!" + hidden},
		{"h", "hello hunter222!" + hidden},
	} {
		if n, err := w.Write([]byte(step.write)); n != len(step.write) || err != nil {
			t.Fatal(n, err)
		}
		if out.String() != step.want {
			t.Errorf("after %q: %q, want %q", step.write, out.String(), step.want)
		}
	}
	for range 2 {
		if err := w.Flush(); err != nil || out.String() != "hello hunter222!"+hidden+"h" {
			t.Errorf("flushed: %q, %v", out.String(), err)
		}
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestRedactWriterReportsErrors(t *testing.T) {
	w := NewRedactor(New("hunter2222")).Writer(broken{})
	if _, err := w.Write([]byte("text")); err == nil {
		t.Error("a lost write is not reported")
	}
	if _, err := w.Write([]byte("hunt")); err != nil {
		t.Error(err)
	}
	if w.Flush() == nil {
		t.Error("a lost flush is not reported")
	}
}

// redactSimply is what Redact should do, in the simplest way: cover every
// occurrence of every needle, and replace each run of overlapping ones.
func redactSimply(needles []string, text []byte) []byte {
	ends := make([]int, len(text)) // of the longest needle that begins there
	for at := range text {
		for _, needle := range needles {
			if bytes.HasPrefix(text[at:], []byte(needle)) {
				ends[at] = max(ends[at], at+len(needle))
			}
		}
	}
	var out []byte
	for at := 0; at < len(text); {
		if ends[at] == 0 {
			out = append(out, text[at])
			at++
			continue
		}
		end := ends[at]
		for at++; at < end; at++ {
			end = max(end, ends[at])
		}
		out = append(out, hidden...)
	}
	return out
}

// FuzzRedactor: cut anywhere, a stream is redacted like the whole; the whole like
// the simple way; and no hidden form is left in any piece of the output.
func FuzzRedactor(f *testing.F) {
	f.Add([]byte("say hunter2222 and hunter2hunter2222abcd"), []byte{3, 1, 7})
	f.Add([]byte("aHVudGVyMjIyMg== hunter222"), []byte{1})
	f.Add([]byte("aaaaaaabaaaaaaaaaaaaaaa%2f"), []byte{5, 2})
	f.Add([]byte(`{"k":"q\"\/é\n hunter2222"} 68756e7465723232323200`), []byte{})
	r := NewRedactor(New("hunter2222"), New("2222abcd"), New("aaaaaaaa"), New("aaaab"), New("q\"/é\n hunter"), New("abab"))
	needles := slices.Concat(r.byFirst[:]...)
	f.Fuzz(func(t *testing.T, text, cuts []byte) {
		var out bytes.Buffer
		w := r.Writer(&out)
		for rest, i := text, 0; len(rest) > 0; i++ {
			n := 1
			if len(cuts) > 0 {
				n = min(len(rest), int(cuts[i%len(cuts)])+1)
			}
			chunk := bytes.Clone(rest[:n])
			if _, err := w.Write(chunk); err != nil {
				t.Fatal(err)
			}
			clear(chunk) // a writer must not keep what it was given
			rest = rest[n:]
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		whole := r.Redact(text)
		if !bytes.Equal(out.Bytes(), whole) {
			t.Errorf("%q: streamed %q, whole %q", text, out.Bytes(), whole)
		}
		if want := redactSimply(needles, text); !bytes.Equal(whole, want) {
			t.Errorf("%q: %q, simply %q", text, whole, want)
		}
		for _, piece := range bytes.Split(whole, []byte(hidden)) {
			for _, needle := range needles {
				if bytes.Contains(piece, []byte(needle)) {
					t.Errorf("%q: %q is left in %q", text, needle, whole)
				}
			}
		}
	})
}

func BenchmarkRedact(b *testing.B) {
	values := []Value{New(pem)}
	for range 10 {
		values = append(values, New(NewToken("th")))
	}
	r := NewRedactor(values...)
	line := `{"type":"assistant","message":{"content":[{"type":"text","text":"Running go test ./... at the root"}]}}` + "\n"
	text := []byte(strings.Repeat(line, 64*1024/len(line)))
	b.Run("whole", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		for b.Loop() {
			r.Redact(text)
		}
	})
	b.Run("lines", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		for b.Loop() {
			var out bytes.Buffer
			w := r.Writer(&out)
			for chunk := range bytes.Lines(text) {
				if _, err := w.Write(chunk); err != nil {
					b.Fatal(err)
				}
			}
			if err := w.Flush(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("new", func(b *testing.B) {
		for b.Loop() {
			NewRedactor(values...)
		}
	})
}
