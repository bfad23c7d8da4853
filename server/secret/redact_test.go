package secret

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
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
	r := NewRedactor(New(awkward), New("tiny"), New("abc"), New(""), New(pem), New("with-newline\n"), New("it's-a-secret"))
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
		"od":                   "70 40 73 73 2f 77 22 6f 72 64 2b 3c c3 a9 f0 9f\n 98 80 3e 20 21",
		"xxd -p":               hex.EncodeToString([]byte(awkward))[:20] + "\n" + hex.EncodeToString([]byte(awkward))[20:],
		"HTML":                 `p@ss/w&#34;ord+&lt;é😀&gt; !`,
		"HTML by names":        `p@ss/w&quot;ord+&lt;é😀&gt; !`,
		"HTML text":            `p@ss/w"ord+&lt;é😀&gt; !`,
		"printf %q":            `p@ss/w\"ord+\<é😀\>\ \!`,
		"shell, double quotes": `p@ss/w\"ord+<é😀> !`,
		"shell, octal":         `p@ss/w"ord+<\303\251\360\237\230\200> !`,
		"shell, quotes":        `it'\''s-a-secret`,
		"shell, other quotes":  `it'"'"'s-a-secret`,
		"HTML, apostrophe":     "it&#39;s-a-secret",
		"repr of Python":       `it\'s-a-secret`,
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

// TestRedactWrapped: base64 and hex of a text that has a secret somewhere are broken into
// lines of any width, and no more of the secret stays than the two characters that also
// hold bits of its neighbours, and at most three before a break.
func TestRedactWrapped(t *testing.T) {
	const value = "Zq7-secret-0123456789-of-some-length"
	r := NewRedactor(New(value))
	for _, lineEnd := range []string{"\n", "\r\n", `\n`, `\r\n`, `\\n`} {
		for _, width := range []int{60, 64, 76} {
			for before := range 80 {
				text := strings.Repeat("b", before) + value + "after that"
				for name, encoded := range map[string]string{
					"base64": base64.StdEncoding.EncodeToString([]byte(text)), "hex": hex.EncodeToString([]byte(text)),
				} {
					var lines []string
					for len(encoded) > width {
						lines, encoded = append(lines, encoded[:width]), encoded[width:]
					}
					got := string(r.Redact([]byte(strings.Join(append(lines, encoded), lineEnd))))
					most := len(hidden) + base64.StdEncoding.EncodedLen(before+12) + 12 + 3*len(lineEnd)
					if !strings.Contains(got, hidden) || name == "base64" && len(got) > most {
						t.Fatalf("%s of %d columns after %d bytes, %q: %d bytes are left of at most %d: %s", name, width, before, lineEnd, len(got), most, got)
					}
				}
			}
		}
	}
}

// TestRedactTokens: credentials of well-known kinds are hidden though nobody granted them.
// The test makes them up at run time, so that no scanner takes them for real.
func TestRedactTokens(t *testing.T) {
	r := NewRedactor()
	body := strings.Repeat("aB3dE6gH9j", 12)
	key := "-----BEGIN RSA PRIVATE KEY-----\n" + strings.Repeat(strings.Repeat("MIIEpAIB", 8)+"\n", 25) + "-----END RSA PRIVATE KEY-----"
	for _, token := range []string{
		"sk-ant-" + "api03-" + body[:93] + "AA", "sk-proj-" + body, "ghp_" + body[:36], "ghs_" + body[:36], "github_pat_" + body[:22] + "_" + body[:59],
		"glpat-" + body[:20], "xoxb-" + "123456789012-123456789012-" + body[:24], "AKIA" + "QWERTYUIOPASDF12", "AIza" + body[:35], "npm_" + body[:36],
		"hf_" + strings.Repeat("abCD", 9)[:34], "sk_live_" + body[:24], "dop_v1_" + strings.Repeat("0a", 32), NewToken("thk"), NewToken("ths"),
		"eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxMjM0NTY3ODkwIn0." + body[:43], key, strings.ReplaceAll(key, "\n", `\n`),
	} {
		for _, around := range []string{" %s ", "%s", `{"a":"x\n%s","b":1}`, "TOKEN=%s\n", "https://x:%s@example.com/", "'%s'", "(%s).", "Bearer %s,"} {
			before, after, _ := strings.Cut(around, "%s")
			text := before + token + after
			want := before + hidden + after
			if got := string(r.Redact([]byte(text))); got != want {
				t.Errorf("%.60q became %.100q, want %q", text, got, want)
			}
			for _, cut := range []int{1, 2, 3, 4, 5, len(text) / 2, len(text) - 1} {
				var out bytes.Buffer
				w := r.Writer(&out)
				for _, part := range []string{text[:cut], text[cut:]} {
					if _, err := w.Write([]byte(part)); err != nil {
						t.Fatal(err)
					}
				}
				if err := w.Flush(); err != nil || out.String() != want {
					t.Errorf("%.60q, cut at %d, became %.100q", text, cut, out.String())
				}
			}
		}
	}
	for _, plain := range []string{
		"sk-ant-", "sk-ant-api03", "task-ant-" + body, "ghp_short", "xghp_" + body[:36], "ghp_" + body[:36] + strings.Repeat("_x", 3), "AKIA" + "QWERTYUIOPASDF123",
		"AKIA Q", "-----BEGIN CERTIFICATE-----\n" + body + "\n-----END CERTIFICATE-----", "-----BEGIN PUBLIC KEY-----\n" + body,
		`block.Type != "-----BEGIN PRIVATE KEY-----" || true`, "eyJhbGciOiJIUzI1NiJ9", "eyJhbGciOiJIUzI1NiJ9.x.y", "npm_config_registry_and_a_long_variable_name",
		"eyJ" + strings.Repeat("h", 5000), "-----BEGIN " + strings.Repeat("A", 5000), "hf_transformers_are_not_a_secret_at_all",
	} {
		if got := string(r.Redact([]byte(plain))); got != plain {
			t.Errorf("%.60q became %.100q", plain, got)
		}
	}
}

// TestRedactLeavesOrdinaryText: what agents print most has nothing that looks like a
// credential: source text and lock files.
func TestRedactLeavesOrdinaryText(t *testing.T) {
	r := NewRedactor()
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	src := filepath.Join(strings.TrimSpace(string(goroot)), "src")
	for _, pattern := range []string{
		filepath.Join(src, "net", "http", "*.go"), filepath.Join(src, "encoding", "*", "*.go"), "../../go.sum", "../../tools/go.sum", "../../testdata/npm/*/package-lock.json", "../../docs/*.md",
	} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(found), err)
		}
		files = append(files, found...)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		got := r.Redact(text)
		keys := bytes.Count(text, []byte("PRIVATE KEY-----\n")) / 2 // of tests
		if n := bytes.Count(got, []byte(hidden)) - bytes.Count(text, []byte(hidden)); n > keys {
			at := bytes.Index(got, []byte(hidden))
			t.Errorf("%s: %d times, first after %q", file, n, got[max(0, at-80):at])
		}
	}
}

// redactSimply is what Redact should do, in the simplest way: cover every occurrence of
// every form and every credential, and replace each run of overlapping ones.
func redactSimply(r *Redactor, text []byte) []byte {
	ends := make([]int, len(text)) // of the longest match that begins there
	for at := range text {
		for _, forms := range r.forms {
			for _, f := range forms {
				n, _ := f.match(text[at:])
				ends[at] = max(ends[at], at+n)
			}
		}
		if before := (&scan{}).last(text[:at]); follows(before) {
			for start, matchers := range tokens {
				// A token that begins with another key than those of JSON Web Tokens is none.
				if len(text)-at < indexed || binary.LittleEndian.Uint32(text[at:]) != start {
					continue
				}
				for _, match := range matchers {
					n, _ := match(text[at:])
					ends[at] = max(ends[at], at+n)
				}
			}
		}
		if ends[at] == at {
			ends[at] = 0
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
	f.Add([]byte("aHVudG\nVyMj\r\nIyMg== x AKIAABCDEFGHIJKLMNOP ghp_0123456789abcdefghijklmnopqrstuvwxyz"), []byte{1})
	f.Add([]byte("-----BEGIN PRIVATE KEY-----\n"+strings.Repeat("MIIE", 30)+"\n-----END PRIVATE KEY-----\n"), []byte{7})
	f.Add([]byte("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.SflKxwRJSMeKKF2QT4fwpMeJf36POk6yJV_adQssw5c"), []byte{2})
	f.Add([]byte("eyJxbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.SflKxwRJSMeKKF2QT4fw"), []byte("e"))
	f.Add([]byte(`{"k":"q\"\/é\n hunter2222"} 68756e7465723232323200`), []byte{})
	r := NewRedactor(New("hunter2222"), New("2222abcd"), New("aaaaaaaa"), New("aaaab"), New("q\"/é\n hunter"), New("abab"))
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
		if want := redactSimply(r, text); !bytes.Equal(whole, want) {
			t.Errorf("%q: %q, simply %q", text, whole, want)
		}
		for _, piece := range bytes.Split(whole, []byte(hidden)) {
			for _, forms := range r.forms {
				for _, f := range forms {
					if bytes.Contains(piece, []byte(f.text)) {
						t.Errorf("%q: %q is left in %q", text, f.text, whole)
					}
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
