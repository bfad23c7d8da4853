package factory

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"triphammer/schema"
)

// Code forges, by the words of codeForges.
const (
	github   = "GITHUB"
	noForges = "NONE"
)

// CodeForges are the addresses of the code forges that every server knows. An operator can
// add forges, and replace addresses.
var CodeForges = map[string]string{
	github:      "https://github.com",
	"GITLAB":    "https://gitlab.com",
	"BITBUCKET": "https://bitbucket.org",
}

// forgeURL is the address of a repository that is named by owner and name. The name of an
// owner has slashes if it is a group within another.
func forgeURL(forge, owner, name string) string {
	parts := strings.Split(owner, "/")
	for i, part := range parts {
		parts[i] = url.PathEscape(part)
	}
	return CodeForges[forge] + "/" + strings.Join(parts, "/") + "/" + url.PathEscape(name) + ".git"
}

// At is the repository with its address on a server, whose own addresses of forges are
// forges, by name. The URL is empty if neither forges nor CodeForges has the forge.
func (r Repository) At(forges map[string]string) Repository {
	known := CodeForges[r.Forge]
	if base := cmp.Or(forges[r.Forge], known); base != known {
		r.URL = strings.TrimSuffix(base, "/") + strings.TrimPrefix(r.URL, known)
	} else if r.Forge != "" && base == "" {
		r.URL = ""
	}
	return r
}

// forges are the code forges that a factory says it uses, in capitals.
func forges(root *schema.Node) []string {
	all := textsOf(root.Get("codeForges"))
	for i, name := range all {
		all[i] = strings.ToUpper(name)
	}
	return all
}

// repositories are the repositories of the factory, on the first forge of codeForges, or
// else on GitHub.
func (l *loader) repositories(d *document) []Repository {
	named := slices.DeleteFunc(forges(d.Root), func(name string) bool { return name == noForges })
	forge := github
	if len(named) > 0 {
		forge = named[0]
	}
	var all []Repository
	for _, item := range itemsOf(d.Root.Get("repositories")) {
		owner, name := strings.TrimSpace(textOf(item.Get("owner"))), strings.TrimSpace(textOf(item.Get("name")))
		if owner != "" && name != "" {
			all = append(all, Repository{URL: forgeURL(forge, owner, name), Forge: forge})
		}
	}
	if len(named) > 1 && len(all) > 0 && !l.opt.Strict {
		d.Warn(d.Root.KeyAt("codeForges"), schema.NoEffect, "name repositories of other forges by url, in an environment",
			fmt.Sprintf("codeForges has several: the repositories are taken to be on the first, %s", forge))
	}
	return all
}
