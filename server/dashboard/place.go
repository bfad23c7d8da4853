package dashboard

import (
	"net/url"
	"path"
	"strconv"
	"strings"

	"triphammer/server/api"
)

// Place is a definition file at the commit that serves.
type Place struct {
	Factory, Path, Commit string
	Web                   string // its address on the forge; empty if none is known
}

// placeOf is the place of a definition file that serves.
func (p Page) placeOf(factory, file string) Place {
	at := Place{Factory: factory, Path: file}
	if f := p.status(factory); f != nil && f.Applied != nil {
		at.Commit = f.Applied.Commit
		at.Web = onForge(f.Repository, at.Commit, path.Join(f.Path, file), 0)
	}
	return at
}

// status is the state of a factory; nil if there is none of this name.
func (p Page) status(factory string) *api.FactoryStatus {
	for i := range p.Factories {
		if p.Factories[i].Name == factory {
			return &p.Factories[i]
		}
	}
	return nil
}

// In is like To, for what belongs to a factory. If the server has one alone, the address
// does not name it.
func (p Page) In(factory, path string, parameters ...string) string {
	if len(p.Factories) < 2 {
		factory = p.Factory
	}
	return p.To(path, append([]string{"factory", factory}, parameters...)...)
}

// forges are the addresses of a file at a commit on known forges, by the first label or the
// whole name of their host.
var forges = map[string]struct{ file, line string }{
	"github":       {"/blob/", "#L"},
	"gitlab":       {"/-/blob/", "#L"},
	"bitbucket":    {"/src/", "#lines-"},
	"codeberg.org": {"/src/commit/", "#L"},
	"gitea":        {"/src/commit/", "#L"},
	"forgejo":      {"/src/commit/", "#L"},
}

// onForge is the address of a file at a commit on the forge of a repository; empty if the
// forge is not known. line 0 is the whole file.
func onForge(repository, commit, file string, line int) string {
	if at, rest, ok := strings.Cut(repository, ":"); ok && !strings.Contains(repository, "://") {
		repository = "ssh://" + at + "/" + strings.TrimPrefix(rest, "/") // git@host:owner/name
	}
	u, err := url.Parse(repository)
	if err != nil || u.Host == "" || commit == "" || u.Scheme != "https" && u.Scheme != "http" && u.Scheme != "ssh" {
		return ""
	}
	label, _, _ := strings.Cut(u.Hostname(), ".")
	forge, ok := forges[u.Hostname()]
	if !ok {
		if forge, ok = forges[label]; !ok {
			return ""
		}
	}
	if u.Scheme == "ssh" {
		u.Scheme, u.Host = "https", u.Hostname()
	}
	found := url.URL{Scheme: u.Scheme, Host: u.Host, Path: strings.TrimSuffix(strings.TrimSuffix(u.Path, "/"), ".git") + forge.file + commit + "/" + file}
	if line > 0 {
		return found.String() + forge.line + strconv.Itoa(line)
	}
	return found.String()
}

// Names of things that are also those of pages have a mark in front, which no name has.
const reserved = "~"

// named is the last part of the address of the page of a thing.
func named(name string) string {
	if name == "new" || name == "test" {
		return reserved + name
	}
	return url.PathEscape(name)
}

// unreserved is the opposite of named.
func unreserved(param string) string { return strings.TrimPrefix(param, reserved) }
