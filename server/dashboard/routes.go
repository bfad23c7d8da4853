package dashboard

import (
	"slices"

	"triphammer/server/terms"
)

// Routes are all pages and the actions of their forms. The file of each page has its routes.
var Routes = slices.Concat(
	[]Route{themeRoute, columnsRoute},
	overviewRoutes, inboxRoutes, searchRoutes,
	deliveryRoutes,
	filterRoutes,
	runRoutes, subjectRoutes, scheduleRoutes, costRoutes,
	secretRoutes,
	startRoutes,
	systemRoutes,
	webhookRoutes,
	automationRoutes, environmentRoutes, agentRoutes,
	webhookEditRoutes, sendTestRoutes,
	definitionRoutes,
	fileRoutes,
	peopleRoutes,
	guideRoutes,
)

// Navigation are the entries of the rail.
func (p Page) Navigation() []terms.SectionGroup {
	shown := make([]terms.SectionGroup, len(terms.Sections))
	for i, g := range terms.Sections {
		shown[i] = terms.SectionGroup{Name: g.Name, Entries: slices.DeleteFunc(slices.Clone(g.Entries), func(e terms.Section) bool { return !p.offers(e.Path) })}
	}
	return shown
}

// offers tells whether the path has a page that the person may see.
func (p Page) offers(path string) bool {
	return slices.ContainsFunc(Routes, func(r Route) bool { return r.Method == "GET" && r.Path == path && p.May(r.Needs()) })
}

// Section is the page of the navigation that this page belongs to.
func (p Page) Section() string {
	for _, g := range terms.Sections {
		for _, e := range g.Entries {
			if e.Path != "/" && p.Current(e.Path) {
				return e.Path
			}
		}
	}
	return "/"
}
