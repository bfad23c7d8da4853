// Package schema reads definition files: it says what a definition file looks like, and
// reports what is wrong with a file. It is the only package that reads YAML.
//
// A file is read in steps, and each step reports everything it finds:
//
//   - The size is checked, and YAML becomes a tree of nodes with positions ([Parse]).
//   - The structure is checked: one document; no anchors, aliases, tags or repeated keys.
//   - The shape is checked against the table of its kind ([Check]).
//
// No input causes a panic, and the work per file is limited. Package factory checks the
// rules between files.
package schema

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Severity of a Diagnostic.
type Severity string

// The severities. Only errors make a tree invalid.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
)

// The format's own codes (docs/diagnostics.md).
const (
	MissingFactory       = "FF_MISSING_FACTORY"
	UnsupportedVersion   = "FF_UNSUPPORTED_VERSION"
	UnsupportedPath      = "FF_UNSUPPORTED_PATH"
	DuplicatePath        = "FF_DUPLICATE_PATH"
	InvalidDocument      = "FF_INVALID_DOCUMENT"
	MalformedFrontmatter = "FF_MALFORMED_FRONTMATTER"
	InvalidYAML          = "FF_INVALID_YAML"
	DuplicateKey         = "FF_DUPLICATE_KEY"
	Anchor               = "FF_ANCHOR"
	Alias                = "FF_ALIAS"
	Tag                  = "FF_TAG"
	UnknownField         = "FF_UNKNOWN_FIELD"
	MissingRequired      = "FF_MISSING_REQUIRED"
	TypeMismatch         = "FF_TYPE_MISMATCH"
	InvalidValue         = "FF_INVALID_VALUE"
	InvalidReference     = "FF_INVALID_REFERENCE"
	InvalidMCP           = "FF_INVALID_MCP"
	InvalidTrigger       = "FF_INVALID_TRIGGER"
	InvalidEvent         = "FF_INVALID_EVENT"
	InvalidFilter        = "FF_INVALID_FILTER"
)

// Our own codes, for limits, extensions and state.
const (
	TooLarge      = "TH_TOO_LARGE"
	TooDeep       = "TH_TOO_DEEP"
	NotRegular    = "TH_NOT_A_REGULAR_FILE"
	TooMany       = "TH_TOO_MANY"
	UnknownTarget = "TH_UNKNOWN_TARGET"
	StrayFile     = "TH_STRAY_FILE"
	NoEffect      = "TH_NO_EFFECT"
	NoSender      = "TH_NO_SENDER"
	AnybodyStarts = "TH_ANYBODY_STARTS"
	HeldPush      = "TH_HELD_PUSH"
	NotHere       = "TH_NOT_HERE"
	Deprecated    = "TH_DEPRECATED"
	LikelyScheme  = "TH_LIKELY_SCHEME"
	OddSchedule   = "TH_ODD_SCHEDULE"
	MissingSecret = "TH_MISSING_SECRET"
	BadSecret     = "TH_UNSUITABLE_SECRET"

	UnverifiedCommit = "TH_UNVERIFIED_COMMIT"
	ExpiredSigner    = "TH_EXPIRED_SIGNER"
)

// Diagnostic is one finding (SPEC 3.1).
type Diagnostic struct {
	Code     string   `json:"code"`
	Severity Severity `json:"severity"`
	Path     string   `json:"path"`
	Line     int      `json:"line"`   // 1-based; 0 if it concerns the whole file
	Column   int      `json:"column"` // 1-based, in characters
	Message  string   `json:"message"`
	Hint     string   `json:"hint,omitempty"`
}

// Diagnostics are the findings of a tree.
type Diagnostics []Diagnostic

// Sort orders by path and position.
func (d Diagnostics) Sort() {
	slices.SortStableFunc(d, func(a, b Diagnostic) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), cmp.Compare(a.Code, b.Code))
	})
}

// Counts are the numbers of errors and of warnings.
func (d Diagnostics) Counts() (errors, warnings int) {
	for _, one := range d {
		if one.Severity == Error {
			errors++
		} else {
			warnings++
		}
	}
	return errors, warnings
}

// HasErrors tells whether there is an error among them.
func (d Diagnostics) HasErrors() bool {
	errors, _ := d.Counts()
	return errors > 0
}

// Deferred is a name that only a server can check (SPEC 3.3).
type Deferred struct {
	Path  string `json:"path"`
	Field string `json:"field"`
	Kind  string `json:"kind"` // secret, webhook_uid, environment, runner, linear_name_alias or slack_name_alias
	Name  string `json:"name"`
}

// Report is the outcome of checking a tree.
type Report struct {
	SchemaVersion string // the version that factory.yaml declares, or Version
	Diagnostics   Diagnostics
	Deferred      []Deferred
	Files         []string // paths of the definition files that were read, sorted
	Partial       bool     // the rules between files were not checked
	Checked       bool     // a server compared names with its own
}

// Collector gathers the findings of one file, up to maxFindings. A file with more was
// not written by a person who would read them.
type Collector struct {
	Path  string
	Found Diagnostics
	Total int // of findings, including those that were left out
	// Lenient turns errors into warnings, for a file that cannot make a tree invalid.
	Lenient bool
	// Strict refuses the keys that only this program knows, not the format.
	Strict bool
	// Budget is shared by the collectors of a tree; nil: no bounds.
	Budget *Budget
}

// Budget limits the number of findings of one tree, and the work for their hints.
type Budget struct {
	findings, pairs int // how many are left; a pair is two characters to compare
	omitted         int
	worst           Severity // of the omitted findings
}

// maxPairs comparisons take about a tenth of a second.
const maxPairs = 20_000_000

// NewBudget makes a budget of a number of findings.
func NewBudget(findings int) *Budget { return &Budget{findings: findings, pairs: maxPairs} }

// Rest is the finding that says how many findings the budget left out.
func (b *Budget) Rest(path string) (Diagnostic, bool) {
	return Diagnostic{
		Code: TooMany, Severity: b.worst, Path: path, Hint: "mend the others first",
		Message: fmt.Sprintf("%d more of the factory's findings are left out", b.omitted),
	}, b.omitted > 0
}

const (
	maxFindings = 1000
	maxMessage  = 1000 // bytes
)

// clip shortens a text that quotes something very long.
func clip(s string) string {
	if len(s) <= maxMessage {
		return s
	}
	return strings.ToValidUTF8(s[:maxMessage], "") + "…"
}

// At is a position in a file.
type At struct{ Line, Column int }

// Error adds an error.
func (c *Collector) Error(at At, code, hint, message string) { c.add(Error, at, code, hint, message) }

// Warn adds a warning.
func (c *Collector) Warn(at At, code, hint, message string) { c.add(Warning, at, code, hint, message) }

// Full tells whether a finding would be left out, so that its text need not be made.
func (c *Collector) Full() bool {
	return len(c.Found) > maxFindings || c.Budget != nil && c.Budget.findings == 0
}

func (c *Collector) add(s Severity, at At, code, hint, message string) {
	if c.Lenient {
		s = Warning
	}
	c.Total++
	switch {
	case len(c.Found) > maxFindings:
		if s == Error {
			c.Found[maxFindings].Severity = Error // the severity of the worst finding left out
		}
		return
	case c.Budget == nil:
	case c.Budget.findings == 0:
		if c.Budget.omitted++; c.Budget.worst != Error {
			c.Budget.worst = s
		}
		return
	default:
		c.Budget.findings--
	}
	d := Diagnostic{Code: code, Severity: s, Path: c.Path, Line: at.Line, Column: at.Column, Message: clip(message), Hint: clip(hint)}
	if len(c.Found) == maxFindings {
		d = Diagnostic{Code: TooMany, Severity: s, Path: c.Path, Message: fmt.Sprintf("more than %d findings in this file; the others are left out", maxFindings)}
	}
	c.Found = append(c.Found, d)
}

// OneOf is like the function OneOf, but empty if the hint would not be shown or its budget
// is used up.
func (c *Collector) OneOf(word string, allowed []string) string {
	switch {
	case c.Full():
		return ""
	case c.Budget == nil:
		return OneOf(word, allowed)
	}
	return oneOf(word, allowed, &c.Budget.pairs)
}
