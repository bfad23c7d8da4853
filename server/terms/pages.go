package terms

import (
	"net/url"
	"slices"
	"strings"
)

// The prefixes of ids.
const (
	DeliveryPrefix      = "dlv_"
	RunPrefix           = "run_"
	ApplyPrefix         = "apl_"
	KeyPrefix           = "key_"
	AuditPrefix         = "aud_"
	SchedulePrefix      = "sch_"
	PendingSecretPrefix = "psc_"
	ArtifactPrefix      = "art_"
	SessionPrefix       = "ses_"
)

// Section is an entry of the navigation of the pages.
type Section struct{ Name, Path, Icon string }

// SectionGroup is a group of entries.
type SectionGroup struct {
	Name    string
	Entries []Section
}

// Sections are the entries of the navigation of the pages.
var Sections = []SectionGroup{
	{"Work", []Section{{"Overview", "/", "overview"}, {"Inbox", "/inbox", "perm"}, {"Deliveries", "/deliveries", "deliveries"}, {"Runs", "/runs", "runs"}, {"Subjects", "/subjects", "subjects"}, {"Schedules", "/schedules", "schedules"}, {"Costs", "/costs", "usage"}}},
	{"Factory", []Section{{"Webhooks", "/webhooks", "webhooks"}, {"Automations", "/automations", "automations"}, {"Environments", "/environments", "environments"}, {"Agents", "/agents", "agents"}, {"Definition", "/definition", "definition"}}},
	{"Server", []Section{{"Secrets", "/secrets", "secrets"}, {"Keys and people", "/people", "people"}, {"Audit", "/audit", "audit"}, {"System", "/system", "system"}, {"Guides", "/docs", "guides"}}},
}

// pageNames are the names of pages beside the pages of things. The address of a thing with such a
// name has mark before the name. No name begins with mark.
var pageNames = []string{"new", "test"}

const mark = "~"

// PageNamed is the last part of the address of the page of a thing.
func PageNamed(name string) string {
	if slices.Contains(pageNames, name) {
		return mark + name
	}
	return url.PathEscape(name)
}

// NameOfPage is the opposite of PageNamed.
func NameOfPage(part string) string { return strings.TrimPrefix(part, mark) }
