package schema

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
)

// printGitLab writes a GitLab Code Quality report
// (https://docs.gitlab.com/ci/testing/code_quality/#code-quality-report-format).
func printGitLab(w io.Writer, r *Report, opt PrintOptions) error {
	type issue struct {
		Description string `json:"description"`
		CheckName   string `json:"check_name"`
		Fingerprint string `json:"fingerprint"`
		Severity    string `json:"severity"` // info, minor, major, critical or blocker
		Location    struct {
			Path  string `json:"path"`
			Lines struct {
				Begin int `json:"begin"`
			} `json:"lines"`
		} `json:"location"`
	}
	all := make([]issue, len(r.Diagnostics))
	for i, print := range fingerprints(r, opt) {
		d := r.Diagnostics[i]
		all[i] = issue{Description: d.full(), CheckName: d.Code, Fingerprint: print, Severity: "major"}
		if d.Severity == Warning {
			all[i].Severity = "minor"
		}
		all[i].Location.Path = opt.Prefix + d.Path
		all[i].Location.Lines.Begin = max(d.Line, 1)
	}
	return encode(w, all)
}

// fingerprints distinguish the findings of a report, and stay the same when lines
// above them are added or removed. They are made from path, code and message, and from the
// order among findings that have these in common.
func fingerprints(r *Report, opt PrintOptions) []string {
	all, seen := make([]string, len(r.Diagnostics)), make(map[string]int)
	for i, d := range r.Diagnostics {
		key := fmt.Sprintf("%q %q %q", opt.Prefix+d.Path, d.Code, d.Message)
		seen[key]++
		sum := sha256.Sum256(fmt.Appendf(nil, "%s %d", key, seen[key]))
		all[i] = hex.EncodeToString(sum[:16])
	}
	return all
}

func (d *Diagnostic) full() string {
	if d.Hint == "" {
		return d.Message
	}
	return d.Message + "\n" + d.Hint
}
