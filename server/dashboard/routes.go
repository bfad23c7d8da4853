package dashboard

import "slices"

// Routes are all pages and the actions of their forms. Each file of a page has its own.
var Routes = slices.Concat(
	[]Route{themeRoute},
	overviewRoutes,
	deliveryRoutes,
	filterRoutes,
	runRoutes, scheduleRoutes,
	secretRoutes,
	startRoutes,
	systemRoutes,
	webhookRoutes,
	automationRoutes, environmentRoutes, agentRoutes,
	webhookEditRoutes, sendTestRoutes,
	definitionRoutes,
	fileRoutes,
	peopleRoutes,
)

// Entry is an entry of the navigation.
type Entry struct{ Name, Path, Icon string }

// Group is a group of entries.
type Group struct {
	Name    string
	Entries []Entry
}

var navigation = []Group{
	{"Work", []Entry{{"Overview", "/", "overview"}, {"Deliveries", "/deliveries", "deliveries"}, {"Runs", "/runs", "runs"}, {"Schedules", "/schedules", "schedules"}}},
	{"Factory", []Entry{{"Webhooks", "/webhooks", "webhooks"}, {"Automations", "/automations", "automations"}, {"Environments", "/environments", "environments"}, {"Agents", "/agents", "agents"}, {"Definition", "/definition", "definition"}}},
	{"Server", []Entry{{"Secrets", "/secrets", "secrets"}, {"Keys and people", "/people", "people"}, {"Audit", "/audit", "audit"}, {"System", "/system", "system"}}},
}

// Navigation are the entries of the rail.
func (p Page) Navigation() []Group {
	shown := make([]Group, len(navigation))
	for i, g := range navigation {
		shown[i] = Group{g.Name, slices.DeleteFunc(slices.Clone(g.Entries), func(e Entry) bool { return !p.offers(e.Path) })}
	}
	return shown
}

// offers tells whether there is a page that the person may see.
func (p Page) offers(path string) bool {
	return slices.ContainsFunc(Routes, func(r Route) bool { return r.Method == "GET" && r.Path == path && p.May(r.Needs()) })
}

// Section is the page of the navigation to which this page belongs.
func (p Page) Section() string {
	for _, g := range navigation {
		for _, e := range g.Entries {
			if e.Path != "/" && p.Current(e.Path) {
				return e.Path
			}
		}
	}
	return "/"
}
