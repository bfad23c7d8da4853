package schema

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestJSON(t *testing.T) {
	c := &Collector{Path: "t.yaml"}
	doc := Parse(c, []byte("- [1, 1.50, 0x1F, +2, .5, 1., 1_000, -.5e3, 007, 0_, -0b1, 0o17, +1__0, 99999999999999999999]\n- {a: true, b: null, \"c\": \"x\\ny\", d: 2026-01-02}\n"), List)
	if doc == nil || len(c.Found) > 0 {
		t.Fatal(c.Found)
	}
	got := string(doc.Root.AppendJSON(nil))
	want := `[[1,1.50,31,2,0.5,1,1000,-0.5e3,7,0,-1,15,10,99999999999999999999],{"a":true,"b":null,"c":"x\ny","d":"2026-01-02"}]`
	if got != want || !json.Valid([]byte(got)) {
		t.Errorf("got %s, want %s", got, want)
	}
	Parse(c, []byte("[.inf, .nan]"), List)
	if len(c.Found) != 2 || c.Found[0].Code != InvalidValue {
		t.Errorf("non-finite numbers: %+v", c.Found)
	}
}

// TestTooDeepToRead: what the YAML library gives up on is too deep, not "no YAML".
func TestTooDeepToRead(t *testing.T) {
	for _, unit := range []string{"[", "- "} {
		c := &Collector{}
		if Parse(c, []byte(strings.Repeat(unit, 100_000)), Mapping) != nil || len(c.Found) != 1 || c.Found[0].Code != TooDeep {
			t.Errorf("%q: %+v", unit, c.Found)
		}
	}
}

// TestFrontMatter: positions are those of the file, the body has LF line ends
// (SPEC 3.1).
func TestFrontMatter(t *testing.T) {
	for _, eol := range []string{"\n", "\r\n"} {
		c := &Collector{Path: "a.md"}
		doc := ParseMarkdown(c, []byte("\xef\xbb\xbf"+strings.ReplaceAll("---\nméta: {x: 1, y: 2}\n---\nOne\n---\nTwo\n", "\n", eol)))
		if doc == nil || doc.Body != "One\n---\nTwo" {
			t.Fatalf("%q: %+v %+v", eol, doc, c.Found)
		}
		if at := doc.Root.Get("méta").KeyAt("y"); at != (At{2, 14}) {
			t.Errorf("%q: y is at %v", eol, at)
		}
	}
	for text, body := range map[string]string{"---\n---\n": "", "---\n# none\n---\nx": "x"} {
		if doc := ParseMarkdown(&Collector{}, []byte(text)); doc == nil || doc.Body != body {
			t.Errorf("%q: %+v", text, doc)
		}
	}
	for _, text := range []string{"", "x: 1", "---\nx: 1\n", " ---\n---\n"} {
		c := &Collector{}
		if doc := ParseMarkdown(c, []byte(text)); doc != nil || c.Found[0].Code != MalformedFrontmatter {
			t.Errorf("%q: %+v", text, c.Found)
		}
	}
}

// TestLargeFile: a file that Git LFS took away is called that, and not broken YAML.
func TestLargeFile(t *testing.T) {
	const pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n"
	yaml, markdown := &Collector{}, &Collector{}
	if Parse(yaml, []byte(pointer), Mapping) != nil || ParseMarkdown(markdown, []byte(pointer)) != nil {
		t.Error("a pointer was read as a document")
	}
	for _, c := range []*Collector{yaml, markdown} {
		if len(c.Found) != 1 || c.Found[0].Severity != Error || !strings.Contains(c.Found[0].Message, "Git LFS") || c.Found[0].Hint == "" {
			t.Errorf("%+v", c.Found)
		}
	}
}

func TestNearest(t *testing.T) {
	words := []string{"enabled", "secretName", "authMode", "webhook_ids"}
	for word, want := range map[string]string{
		"enabeld": "enabled", "secret_name": "secretName", "Secretname": "secretName", "authmod": "authMode",
		"webhookIds": "webhook_ids", "webhook_id": "webhook_ids", "colour": "", "x": "",
	} {
		if got := Nearest(word, words); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
}

func TestOneOf(t *testing.T) {
	words := []string{"hubspot_v1", "hubspot_v3", "slack", "zoom"}
	for word, want := range map[string]string{
		"slakc": `did you mean "slack"?`, "HubSpot": "it can be hubspot_v1, hubspot_v3", "gitlab": "it can be hubspot_v1, hubspot_v3, slack, zoom",
	} {
		if got := OneOf(word, words); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("---\na: [1, {b: c}]\n---\nbody"))
	f.Add([]byte("{D: 0_}"))
	f.Add([]byte("a: &x 1\nb: *x\n<<: {c: 1}\n? [k]\n: v\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, kind := range []Kind{Mapping, List} {
			c := &Collector{}
			if doc := Parse(c, data, kind); doc == nil && len(c.Found) == 0 {
				t.Error("nothing read and nothing said")
			} else if doc != nil && len(c.Found) == 0 && !json.Valid(doc.Root.AppendJSON(nil)) {
				t.Errorf("not JSON: %s", doc.Root.AppendJSON(nil))
			}
		}
		ParseMarkdown(&Collector{}, data)
	})
}
