package schema

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

func TestFormats(t *testing.T) {
	r := &Report{SchemaVersion: Version, Files: []string{"factory.yaml", "webhooks/a,b.yaml"}, Diagnostics: Diagnostics{
		{Code: UnknownField, Severity: Error, Path: "webhooks/a,b.yaml", Line: 2, Column: 3, Message: "100% wrong\nreally", Hint: "did you mean \"x\"?"},
		{Code: StrayFile, Severity: Warning, Path: "w|x.yml", Message: "not read"},
	}}
	for _, c := range []struct{ format, want string }{
		{"github", "::error file=sub/webhooks/a%2Cb.yaml,line=2,col=3,title=FF_UNKNOWN_FIELD::100%25 wrong%0Areally%0Adid you mean \"x\"?\n" +
			"::warning file=sub/w|x.yml,line=1,col=1,title=TH_STRAY_FILE::not read\nnot valid: 2 files, 1 error, 1 warning\n"},
		{"text", "sub/webhooks/a,b.yaml:2:3: error: 100% wrong\ufffdreally [FF_UNKNOWN_FIELD]\n    2 | \té: 1\n      | \t ^\n  did you mean \"x\"?\n" +
			"sub/w|x.yml: warning: not read [TH_STRAY_FILE]\nnot valid: 2 files, 1 error, 1 warning\n"},
	} {
		var b bytes.Buffer
		opt := PrintOptions{Prefix: "sub/", Source: func(string) []byte { return []byte("a: 1\r\n\té: 1\r\n") }}
		if err := Print(&b, c.format, r, opt); err != nil || b.String() != c.want {
			t.Errorf("%s: %v\ngot  %q\nwant %q", c.format, err, b.String(), c.want)
		}
	}
	var b bytes.Buffer
	if err := Print(&b, "json", &Report{SchemaVersion: Version}, PrintOptions{}); err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(b.Bytes(), &got); err != nil || got["valid"] != true || got["diagnostics"] == nil || got["deferred_resolutions"] == nil {
		t.Errorf("%s %v", b.String(), err)
	}
	b.Reset()
	if err := WriteStepSummary(&b, r, PrintOptions{}); err != nil || !strings.Contains(b.String(), `| w\|x.yml | warning | not read | TH_STRAY_FILE |`) {
		t.Errorf("%s %v", b.String(), err)
	}
	if err := Print(&b, "yaml", r, PrintOptions{}); err == nil {
		t.Error("an unknown format")
	}
}

// hostile is a report whose texts are all that a format could stumble over.
func hostile() *Report {
	r := &Report{SchemaVersion: Version, Files: []string{"factory.yaml"}}
	for _, text := range []string{
		"plain", "a,b:c%d", "line\nline\r\n::error::x", "\x00\x1b[2J\x7f", "<b a=\"1\">&amp;]]>", "\u202ezyx\u2028", "caf\u00e9 \U0001f600", "\xff\xfe", "c:d/e f?g#h%20",
	} {
		for _, severity := range []Severity{Error, Warning} {
			r.Diagnostics = append(r.Diagnostics,
				Diagnostic{Code: InvalidValue, Severity: severity, Path: text, Line: 3, Column: 7, Message: text, Hint: text},
				Diagnostic{Code: InvalidValue, Severity: severity, Path: text, Message: text})
		}
	}
	// The same finding twice in one file must keep two fingerprints.
	r.Diagnostics = append(r.Diagnostics, r.Diagnostics[0], r.Diagnostics[0])
	return r
}

func printed(t *testing.T, format string, r *Report) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := Print(&b, format, r, PrintOptions{Prefix: "sub folder/", Version: "v1"}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func compiled(t *testing.T, url string, doc any) *jsonschema.Schema {
	t.Helper()
	c := jsonschema.NewCompiler()
	c.AssertFormat() // uri-reference and the like are rules, too
	if err := c.AddResource(url, doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile(url)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func check(t *testing.T, s *jsonschema.Schema, text []byte) {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Validate(doc); err != nil {
		t.Errorf("%v\n%s", err, text)
	}
}

// TestSARIF holds SPEC 3.3's sarif to the published schema of SARIF 2.1.0.
func TestSARIF(t *testing.T) {
	text, err := os.ReadFile("../third_party/sarif/sarif-schema-2.1.0.json")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	s := compiled(t, "sarif.json", doc)
	for _, r := range []*Report{hostile(), {SchemaVersion: Version}} {
		check(t, s, printed(t, "sarif", r))
	}
	var log struct {
		Runs []struct {
			Tool struct {
				Driver struct{ Rules []struct{ ID string } }
			}
			Results []struct {
				RuleID              string
				RuleIndex           int
				PartialFingerprints map[string]string
			}
		}
	}
	if err := json.Unmarshal(printed(t, "sarif", hostile()), &log); err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	for _, result := range log.Runs[0].Results {
		if rules := log.Runs[0].Tool.Driver.Rules; result.RuleIndex < 0 || rules[result.RuleIndex].ID != result.RuleID {
			t.Errorf("rule %d is not %s (SARIF 3.52.5)", result.RuleIndex, result.RuleID)
		}
		print := result.PartialFingerprints["finding/v1"]
		if seen[print] {
			t.Errorf("two findings have the fingerprint %s", print)
		}
		seen[print] = true
	}
}

// TestGitLab holds SPEC 3.3's gitlab to the rules of a Code Quality report:
// https://docs.gitlab.com/ci/testing/code_quality/#code-quality-report-format
func TestGitLab(t *testing.T) {
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(`{
		"type": "array",
		"items": {
			"type": "object",
			"required": ["description", "check_name", "fingerprint", "severity", "location"],
			"properties": {
				"description": {"type": "string", "minLength": 1},
				"check_name": {"type": "string", "minLength": 1},
				"fingerprint": {"type": "string", "pattern": "^[0-9a-f]{32}$"},
				"severity": {"enum": ["info", "minor", "major", "critical", "blocker"]},
				"location": {
					"type": "object",
					"required": ["path", "lines"],
					"properties": {
						"path": {"type": "string", "not": {"pattern": "^\\./"}},
						"lines": {"type": "object", "required": ["begin"], "properties": {"begin": {"type": "integer", "minimum": 1}}}
					}
				}
			}
		}
	}`))
	if err != nil {
		t.Fatal(err)
	}
	s := compiled(t, "codequality.json", doc)
	for _, r := range []*Report{hostile(), {SchemaVersion: Version}} {
		check(t, s, printed(t, "gitlab", r))
	}
	// Lines that were added above a finding do not make it another one.
	moved := hostile()
	for i := range moved.Diagnostics {
		moved.Diagnostics[i].Line += 10
	}
	if !slices.Equal(fingerprints(hostile(), PrintOptions{}), fingerprints(moved, PrintOptions{})) {
		t.Error("a finding that moved has another fingerprint")
	}
}

// TestJUnit reads a report back; test-full holds it to the XML Schema.
func TestJUnit(t *testing.T) {
	text := printed(t, "junit", hostile())
	var got struct {
		XMLName xml.Name `xml:"testsuites"`
		Suite   struct {
			Tests    int `xml:"tests,attr"`
			Failures int `xml:"failures,attr"`
			Cases    []struct {
				Name    string `xml:"name,attr"`
				Failure *struct {
					Message string `xml:"message,attr"`
					Text    string `xml:",chardata"`
				} `xml:"failure"`
				Output string `xml:"system-out"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal(text, &got); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if got.Suite.Tests != 10 || got.Suite.Failures != 9 || len(got.Suite.Cases) != 10 {
		t.Errorf("%+v", got)
	}
	for _, c := range got.Suite.Cases {
		failed := c.Name != "sub folder/factory.yaml"
		if (c.Failure != nil) != failed || failed && (c.Failure.Message == "" || strings.Contains(c.Failure.Message, "\n") || c.Output == "") {
			t.Errorf("%+v", c)
		}
	}
}

// TestGitHub reads workflow commands back by the rules of the runner: a line
// that begins with :: is a command, properties end at the first ::, and four
// escapes are undone.
func TestGitHub(t *testing.T) {
	unescape := strings.NewReplacer("%0D", "\r", "%0A", "\n", "%3A", ":", "%2C", ",", "%25", "%")
	command := regexp.MustCompile(`^::(error|warning) (.*?)::(.*)$`)
	r := hostile()
	lines := strings.Split(strings.TrimSuffix(string(printed(t, "github", r)), "\n"), "\n")
	if len(lines) != len(r.Diagnostics)+1 || strings.HasPrefix(lines[len(lines)-1], "::") {
		t.Fatalf("%d lines for %d findings", len(lines), len(r.Diagnostics))
	}
	for i, d := range r.Diagnostics {
		m := command.FindStringSubmatch(lines[i])
		if m == nil {
			t.Errorf("not a command: %q", lines[i])
			continue
		}
		properties := make(map[string]string)
		for _, p := range strings.Split(m[2], ",") {
			key, value, _ := strings.Cut(p, "=")
			properties[key] = unescape.Replace(value)
		}
		if m[1] != string(d.Severity) || properties["file"] != "sub folder/"+d.Path || properties["line"] != fmt.Sprint(max(d.Line, 1)) ||
			properties["title"] != d.Code || unescape.Replace(m[3]) != d.full() {
			t.Errorf("%q reads as %q", lines[i], properties)
		}
	}
}

// TestCodesAreExplained: every code is explained, once, in the order of the constants.
func TestCodesAreExplained(t *testing.T) {
	source, err := os.ReadFile("diagnostic.go")
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for _, m := range regexp.MustCompile(`= "((?:FF|TH)_[A-Z_]+)"`).FindAllStringSubmatch(string(source), -1) {
		want = append(want, m[1])
	}
	for _, c := range Codes {
		got = append(got, c.ID)
		if !strings.HasSuffix(c.What, ".") || !strings.HasSuffix(c.Fix, ".") && !strings.HasSuffix(c.Fix, "`.") {
			t.Errorf("%s is not explained in sentences", c.ID)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("explained are\n%v, codes are\n%v", got, want)
	}
}
