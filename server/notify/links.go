package notify

import (
	"net/url"
	"path"
	"slices"
	"strings"

	"triphammer/server/api"
)

// site has the addresses of a service's pages, below the page of a repository. The name also
// identifies a service in the name of a host, such as gitlab.example.com.
type site struct{ name, commit, file string }

var sites = []site{
	{"github", "/commit/{commit}", "/blob/{commit}/{path}#L{line}"},
	{"gitlab", "/-/commit/{commit}", "/-/blob/{commit}/{path}#L{line}"},
	{"gitea", "/commit/{commit}", "/src/commit/{commit}/{path}#L{line}"},
	{"forgejo", "/commit/{commit}", "/src/commit/{commit}/{path}#L{line}"},
	{"codeberg", "/commit/{commit}", "/src/commit/{commit}/{path}#L{line}"},
	{"bitbucket", "/commits/{commit}", "/src/{commit}/{path}#lines-{line}"},
}

// Sites are the names of the services whose pages LinksOf knows.
func Sites() []string {
	var names []string
	for _, s := range sites {
		names = append(names, s.name)
	}
	return names
}

// LinksOf derives the addresses of the pages about a repository from its own address. folder is
// the factory's folder in the repository. If service is empty, the name of the host tells the
// service. LinksOf returns nil if the service is not known.
func LinksOf(service, repository, folder string) *api.Links {
	if user, rest, short := strings.Cut(repository, ":"); short && !strings.Contains(repository, "://") && !strings.Contains(user, "/") {
		repository = "ssh://" + user + "/" + strings.TrimPrefix(rest, "/") // user@host:path
	}
	u, err := url.Parse(repository)
	if err != nil || u.Hostname() == "" || !slices.Contains([]string{"http", "https", "ssh"}, u.Scheme) {
		return nil
	}
	labels := strings.Split(strings.ToLower(u.Hostname()), ".")
	i := slices.IndexFunc(sites, func(s site) bool { return s.name == service || service == "" && slices.Contains(labels, s.name) })
	if i < 0 {
		return nil
	}
	page := url.URL{Scheme: "https", Host: u.Hostname(), Path: "/" + strings.TrimSuffix(strings.Trim(u.Path, "/"), ".git")}
	if strings.Contains(page.Host, ":") {
		page.Host = "[" + page.Host + "]"
	}
	if u.Scheme != "ssh" {
		page.Scheme, page.Host = u.Scheme, u.Host // with the port
	}
	file := sites[i].file
	if folder = path.Clean(folder); folder != "." {
		file = strings.Replace(file, "{path}", (&url.URL{Path: folder}).EscapedPath()+"/{path}", 1)
	}
	return &api.Links{Repository: page.String(), Commit: page.String() + sites[i].commit, File: page.String() + file}
}
