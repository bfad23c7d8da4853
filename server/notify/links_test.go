package notify

import (
	"strings"
	"testing"
)

// TestLinks: the pages about a repository are derived from its address; no credential and no
// port of ssh gets into them.
func TestLinks(t *testing.T) {
	for _, c := range []struct{ service, repository, folder, commit, file string }{
		{"", "https://github.com/team/factory", ".", "https://github.com/team/factory/commit/c0ffee", "https://github.com/team/factory/blob/c0ffee/webhooks/a%20b.yaml#L7"},
		{"", "https://github.com/team/factory.git", "ops/x", "https://github.com/team/factory/commit/c0ffee", "https://github.com/team/factory/blob/c0ffee/ops/x/webhooks/a%20b.yaml#L7"},
		{"", "git@github.com:team/factory.git", "", "https://github.com/team/factory/commit/c0ffee", "https://github.com/team/factory/blob/c0ffee/webhooks/a%20b.yaml#L7"},
		{
			"", "ssh://git@gitlab.example.com:2222/a/b/factory.git", ".", "https://gitlab.example.com/a/b/factory/-/commit/c0ffee",
			"https://gitlab.example.com/a/b/factory/-/blob/c0ffee/webhooks/a%20b.yaml#L7",
		},
		{
			"gitea", "http://code.example.com:3000/team/factory.git", ".", "http://code.example.com:3000/team/factory/commit/c0ffee",
			"http://code.example.com:3000/team/factory/src/commit/c0ffee/webhooks/a%20b.yaml#L7",
		},
		{"", "https://codeberg.org/team/factory", ".", "https://codeberg.org/team/factory/commit/c0ffee", "https://codeberg.org/team/factory/src/commit/c0ffee/webhooks/a%20b.yaml#L7"},
		{"", "https://bitbucket.org/team/factory", ".", "https://bitbucket.org/team/factory/commits/c0ffee", "https://bitbucket.org/team/factory/src/c0ffee/webhooks/a%20b.yaml#lines-7"},
		{"gitlab", "https://user:secret@[2001:db8::1]:8443/f.git", ".", "https://[2001:db8::1]:8443/f/-/commit/c0ffee", "https://[2001:db8::1]:8443/f/-/blob/c0ffee/webhooks/a%20b.yaml#L7"},
		{"gitlab", "ssh://git@[2001:db8::1]:22/f.git", ".", "https://[2001:db8::1]/f/-/commit/c0ffee", "https://[2001:db8::1]/f/-/blob/c0ffee/webhooks/a%20b.yaml#L7"},
		{"", "https://code.example.com/team/factory", ".", "", ""},
		{"", "https://notgithub.com/team/factory", ".", "", ""},
		{"github", "/srv/factory.git", ".", "", ""},
		{"github", "file:///srv/factory.git", ".", "", ""},
		{"github", "javascript://github.com/%0aalert(1)", ".", "", ""},
		{"", "", "", "", ""},
	} {
		links := LinksOf(c.service, c.repository, c.folder)
		if (links == nil) != (c.commit == "") {
			t.Errorf("%s: %+v", c.repository, links)
			continue
		}
		if links == nil {
			continue
		}
		if got := strings.ReplaceAll(links.Commit, "{commit}", "c0ffee"); got != c.commit {
			t.Errorf("%s: %s", c.repository, got)
		}
		if got := links.FileAt("c0ffee", "webhooks/a b.yaml", 7); got != c.file {
			t.Errorf("%s: %s", c.repository, got)
		}
	}
	links := LinksOf("", "https://github.com/team/factory", ".")
	if got := links.FileAt("c0ffee", "a#b", 0); got != "https://github.com/team/factory/blob/c0ffee/a%23b" {
		t.Error(got)
	}
}
