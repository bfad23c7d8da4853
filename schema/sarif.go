package schema

import (
	"io"
	"net/url"
	"slices"
	"strings"
)

// printSARIF writes a SARIF 2.1.0 log (OASIS; GitHub code scanning and most
// editors read it). Columns count characters, as SARIF's unicodeCodePoints do.
func printSARIF(w io.Writer, r *Report, opt PrintOptions) error {
	type (
		text   map[string]string
		region map[string]int
		artLoc struct {
			URI  string `json:"uri"`
			Base string `json:"uriBaseId"`
		}
		physical struct {
			Artifact artLoc `json:"artifactLocation"`
			Region   region `json:"region"`
		}
		location struct {
			Physical physical `json:"physicalLocation"`
		}
		result struct {
			RuleID       string            `json:"ruleId"`
			RuleIndex    int               `json:"ruleIndex"`
			Level        Severity          `json:"level"`
			Message      text              `json:"message"`
			Locations    []location        `json:"locations"`
			Fingerprints map[string]string `json:"partialFingerprints"`
		}
		rule struct {
			ID    string `json:"id"`
			Short text   `json:"shortDescription"`
			Help  text   `json:"help"`
		}
		driver struct {
			Name    string `json:"name"`
			Version string `json:"version,omitempty"`
			Rules   []rule `json:"rules"`
		}
		run struct {
			Tool       map[string]driver `json:"tool"`
			ColumnKind string            `json:"columnKind"`
			Results    []result          `json:"results"`
		}
		log struct {
			Schema  string `json:"$schema"`
			Version string `json:"version"`
			Runs    []run  `json:"runs"`
		}
	)
	one := run{ColumnKind: "unicodeCodePoints", Results: []result{}}
	tool := driver{Name: "triphammer", Version: opt.Version}
	for _, c := range Codes {
		tool.Rules = append(tool.Rules, rule{c.ID, text{"text": c.What}, text{"text": c.Fix}})
	}
	one.Tool = map[string]driver{"driver": tool}
	for i, print := range fingerprints(r, opt) {
		d := r.Diagnostics[i]
		at := physical{Artifact: artLoc{(&url.URL{Path: opt.Prefix + d.Path}).EscapedPath(), "%SRCROOT%"}}
		if strings.Contains(strings.SplitN(at.Artifact.URI, "/", 2)[0], ":") {
			at.Artifact.URI = "./" + at.Artifact.URI // RFC 3986 4.2: otherwise the part before the colon would be a scheme
		}
		// GitHub's code scanning requires a line, even for a finding about a whole file.
		at.Region = region{"startLine": max(d.Line, 1), "startColumn": max(d.Column, 1)}
		one.Results = append(one.Results, result{
			RuleID: d.Code, RuleIndex: slices.IndexFunc(Codes, func(c Code) bool { return c.ID == d.Code }), Level: d.Severity,
			Message: text{"text": d.full()}, Locations: []location{{at}}, Fingerprints: map[string]string{"finding/v1": print},
		})
	}
	return encode(w, log{
		Schema:  "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json",
		Version: "2.1.0", Runs: []run{one},
	})
}
