package schema

import "slices"

// Answer is a Report in the form of the validate endpoint (docs/checking.md). The
// format's clients count each of Diagnostics as an error.
type Answer struct {
	Valid         bool        `json:"valid"`
	SchemaVersion string      `json:"schema_version"`
	Diagnostics   Diagnostics `json:"diagnostics"` // the errors
	Warnings      Diagnostics `json:"warnings"`
	Deferred      []Deferred  `json:"deferred_resolutions"`
	Scope         Scope       `json:"validation_scope"`
	NotRun        []string    `json:"state_dependent_checks_not_run"`
}

// Scope is what was checked: "checked", "not_run" or "not_checked".
type Scope struct {
	Parser           string `json:"parser"`
	StateIndependent string `json:"state_independent"`
	StateDependent   string `json:"state_dependent"`
}

// notRun are the checks that need more than the files. A server makes some of them.
var (
	notRun = []string{
		"model_ids", "mcp_server_ids", "integration_providers", "harness_models", "worker_hosts", "linear_name_aliases", "slack_name_aliases",
	}
	byServer = []string{"environment_ids", "runner_names", "secret_names", "webhook_uids"}
)

// NewAnswer makes the answer for a report. checked tells whether a server has compared
// the names with its own.
func NewAnswer(r *Report, checked bool) Answer {
	a := Answer{
		Valid: !r.Diagnostics.HasErrors(), SchemaVersion: r.SchemaVersion,
		Diagnostics: Diagnostics{}, Warnings: Diagnostics{}, Deferred: r.Deferred,
		Scope:  Scope{Parser: "checked", StateIndependent: "checked", StateDependent: "not_checked"},
		NotRun: slices.Concat(notRun, byServer),
	}
	for _, d := range r.Diagnostics {
		if d.Severity == Error {
			a.Diagnostics = append(a.Diagnostics, d)
		} else {
			a.Warnings = append(a.Warnings, d)
		}
	}
	if r.Partial {
		a.Scope.StateIndependent = "not_run"
	}
	if checked {
		a.Scope.StateDependent, a.NotRun = "checked", notRun
	}
	if a.Deferred == nil {
		a.Deferred = []Deferred{}
	}
	return a
}

// Placed gives findings about a whole file a position, its first character, as the
// format does.
func (a Answer) Placed() Answer {
	for _, all := range []Diagnostics{a.Diagnostics, a.Warnings} {
		for i := range all {
			all[i].Line, all[i].Column = max(all[i].Line, 1), max(all[i].Column, 1)
		}
	}
	return a
}

// Findings are the errors and warnings, in order.
func (a *Answer) Findings() Diagnostics {
	all := slices.Concat(a.Diagnostics, a.Warnings)
	all.Sort()
	return all
}
