package jsonscan

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

var checkCases = []string{
	"", " ", "{}", "[]", "null", "nul", "nulll", "tru", "true ", "-", "-1", "01", "1.", ".5", "1e", "1e+", "1E-7", "--1", "+1", "0x1",
	`"a`, `"a"`, `"\`, `"\u12`, `"\u12g4"`, `"\ud800"`, `"\x"`, "\"\x01\"", "\"\xff\"", "\"é\"", "\"\xc3\"", "\xef\xbb\xbf{}", "\x00",
	`{"a"}`, `{"a":}`, `{"a":1,}`, `{"a":1 "b":2}`, `{,}`, `[1,]`, `[1 2]`, `[`, `{`, `]`, `{"a":1}}`, `{a:1}`, `{'a':1}`, `[1]x`, "1 2",
	"\v1", "\u00a01", `{"a":[1,{"b":[]}],"c":{}}`, `"12345678\"12345678"`, "\"1234567\x7f\"", "\"12345678\xed\xa0\x80\"",
}

// TestCheck holds Check to encoding/json, which agrees with RFC 8259 except
// that it lets invalid UTF-8 pass.
func TestCheck(t *testing.T) {
	for _, c := range checkCases {
		err := Check([]byte(c))
		if want := json.Valid([]byte(c)) && utf8.ValidString(c); (err == nil) != want {
			t.Errorf("%q: %v, want valid %t", c, err, want)
		}
		if syntax := (*SyntaxError)(nil); err != nil && (!errors.As(err, &syntax) || syntax.Offset > int64(len(c))) {
			t.Errorf("%q: %v", c, err)
		}
	}
	for body, offset := range map[string]int64{
		"":                   0,
		"\xef\xbb\xbf{}":     0,
		"{}x":                2,
		`{"a" 1}`:            5,
		"\"12345678\xff\"":   9,
		"\"\xff23456789\x01": 1, // the first fault counts
		"\"é\xc3\\x\"":       3,
		"\"\xe6\x97":         1,
	} {
		var syntax *SyntaxError
		if err := Check([]byte(body)); !errors.As(err, &syntax) || syntax.Offset != offset {
			t.Errorf("SPEC 7.2: %q: %v, want offset %d", body, err, offset)
		}
	}
	deep := bytes.Repeat([]byte("["), 131072)
	if err := Check(append(deep, bytes.Repeat([]byte("]"), 131072)...)); err != nil {
		t.Errorf("SPEC 5.3: no limit of depth: %v", err)
	}
	// The stack of open containers changes hands at each 64th level.
	for depth := 60; depth < 200; depth++ {
		var opening, closing []byte
		for n := range depth {
			if n%3 == 0 {
				opening, closing = append(opening, '['), append(closing, ']')
			} else {
				opening, closing = append(opening, `{"a":`...), append(closing, '}')
			}
		}
		slices.Reverse(closing)
		body := slices.Concat(opening, []byte("1"), closing)
		if err := Check(body); err != nil {
			t.Errorf("depth %d: %v", depth, err)
		}
		for n := len(opening) + 1; n < len(body); n++ {
			wrong := slices.Clone(body)
			wrong[n] ^= '}' ^ ']' // the other kind of container
			if Check(wrong) == nil {
				t.Errorf("depth %d: %q closes what it did not open", depth, wrong)
			}
		}
	}
}

func FuzzCheck(f *testing.F) {
	for _, c := range checkCases {
		f.Add([]byte(c))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if bytes.Count(body, []byte("["))+bytes.Count(body, []byte("{")) > 9000 { // encoding/json stops at 10,000
			return
		}
		err := Check(body)
		if want := json.Valid(body) && utf8.Valid(body); (err == nil) != want {
			t.Errorf("%q: %v, want valid %t", body, err, want)
		}
		if err != nil {
			return
		}
		var want any
		if json.Unmarshal(body, &want) != nil {
			return // a number that float64 cannot hold
		}
		s := Scanner{Data: body}
		if s.Space(); !reflect.DeepEqual(decode(&s), want) {
			t.Errorf("%q is not walked as %v", body, want)
		}
	})
}

// decode walks a value to what encoding/json makes of it.
func decode(s *Scanner) any {
	start := s.Pos
	switch s.Peek() {
	case '{':
		object := make(map[string]any)
		for s.Enter(); s.More(); {
			name := string(s.Name())
			object[name] = decode(s)
		}
		return object
	case '[':
		list := []any{}
		for s.Enter(); s.More(); {
			list = append(list, decode(s))
		}
		return list
	case '"':
		return string(s.Unquote())
	}
	_ = s.Skip()
	var value any
	_ = json.Unmarshal(s.Data[start:s.Pos], &value)
	return value
}

// TestDepth: strings have no brackets, and what holds nothing has no depth.
func TestDepth(t *testing.T) {
	for body, want := range map[string]int{`1`: 0, `{}`: 0, `[[]]`: 1, `{"a":[{"b":1}],"c":"[[[[["}`: 3, `[` + strings.Repeat(`[1],`, 9) + `{"\"[":2}]`: 2} {
		if got, err := Depth([]byte(body)); err != nil || got != want {
			t.Errorf("%s: %d, %v, want %d", body, got, err, want)
		}
	}
	if _, err := Depth([]byte("[[1]")); err == nil {
		t.Error("no error")
	}
}

// TestCheckAllocates nothing at a usual depth.
func TestCheckAllocates(t *testing.T) {
	body := pullRequest()
	if n := testing.AllocsPerRun(100, func() { _ = Check(body) }); n > 0 {
		t.Errorf("Check: %v allocations", n)
	}
}

// pullRequest is a body of 7.5 KB in the shape of a forge's pull-request event.
func pullRequest() []byte {
	var b strings.Builder
	b.WriteString(`{"action":"opened","number":42,"repository":{"id":1,"full_name":"acme/app-7","private":false,"owner":{"login":"acme"}},"pull_request":{"state":"open","labels":[{"name":"bug"},{"name":"urgent"}],"user":{"login":"kim"},"links":[`)
	for i := 0; b.Len() < 7300; i++ {
		fmt.Fprintf(&b, `{"rel":"item-%d","href":"https://forge.example/acme/app/pulls/42/items/%d","count":%d,"open":true},`, i, i, i*17)
	}
	b.WriteString(`null]},"sender":{"login":"kim","type":"User"}}`)
	return []byte(b.String())
}

func BenchmarkCheck(b *testing.B) {
	event := pullRequest()
	var indented bytes.Buffer
	if err := json.Indent(&indented, event, "", "    "); err != nil {
		b.Fatal(err)
	}
	for _, body := range []struct {
		name string
		data []byte
	}{
		{"event", event},
		{"indented", indented.Bytes()},
		{"multibyte", []byte(`{"a":"` + strings.Repeat("日本語のテキスト、", 300) + `"}`)},
		{"escapes", []byte(`{"a":"` + strings.Repeat(`one\n\"two\" \u00e9 `, 400) + `"}`)},
	} {
		b.Run(body.name+"/ours", func(b *testing.B) {
			b.SetBytes(int64(len(body.data)))
			b.ReportAllocs()
			for b.Loop() {
				if Check(body.data) != nil {
					b.Fatal("invalid")
				}
			}
		})
		b.Run(body.name+"/encoding/json", func(b *testing.B) {
			b.SetBytes(int64(len(body.data)))
			for b.Loop() {
				if !json.Valid(body.data) {
					b.Fatal("invalid")
				}
			}
		})
	}
}
