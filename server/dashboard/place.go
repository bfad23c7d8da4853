package dashboard

import (
	"strconv"

	"triphammer/server/api"
	"triphammer/server/dashboard/markdown"
	"triphammer/server/terms"
)

// Place is a definition file in the live commit.
type Place struct {
	Factory, Path, Commit string
	Hosted                bool   // the factory is hosted, so the file can be changed here
	To                    string // address of the file; empty: not known
	Web                   string // the address, if it is on the service that has the repository
}

// placeOf is the place of a live definition file.
func (p Page) placeOf(factory, file string) Place {
	at := Place{Factory: factory, Path: file}
	f := p.status(factory)
	if f == nil || f.Applied == nil {
		return at
	}
	at.Commit, at.Hosted = f.Applied.Commit, f.Hosted
	at.To = p.fileAt(f, at.Commit, file, 0)
	if f.Links != nil && !f.Hosted {
		at.Web = at.To
	}
	return at
}

// status is the status of a factory; nil: there is no factory of this name.
func (p Page) status(factory string) *api.FactoryStatus {
	for i := range p.Factories {
		if p.Factories[i].Name == factory {
			return &p.Factories[i]
		}
	}
	return nil
}

// In is like To, for a page about a factory. If the server has only one factory, the address does
// not name it.
func (p Page) In(factory, path string, parameters ...string) string {
	if len(p.Factories) < 2 {
		factory = ""
	}
	return p.To(path, append([]string{"factory", factory}, parameters...)...)
}

// fileAt is the address of a definition file at a commit of a factory: on the service that has
// the repository, or else on this server, if it has the file.
func (p Page) fileAt(f *api.FactoryStatus, commit, file string, line int) string {
	switch {
	case file == "" || commit == "":
		return ""
	case f.Links != nil && !f.Hosted:
		return markdown.Web(f.Links.FileAt(commit, file, line))
	case f.Hosted || f.Applied != nil && f.Applied.Commit == commit || f.Head == commit:
		address := p.In(f.Name, "/definition/files/"+escapedPath(file))
		if line > 0 {
			address += "#L" + strconv.Itoa(line)
		}
		return address
	}
	return ""
}

// FileAt is the address of a definition file of a factory at a commit; empty: not known.
func (p Page) FileAt(factory, commit, file string) string {
	if f := p.status(factory); f != nil {
		return p.fileAt(f, commit, file, 0)
	}
	return ""
}

// named is the last part of the address of the page of a thing.
func named(name string) string { return terms.PageNamed(name) }

// unreserved is the opposite of named.
func unreserved(param string) string { return terms.NameOfPage(param) }
