package inside

import (
	"cmp"
	"fmt"
	"net/url"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"triphammer/server/run/event"
	"triphammer/server/run/task"
)

// denials are git's messages about a repository over http that it may not read. They are in
// English, because gitEnv asks for that.
var denials = []struct {
	said    *regexp.Regexp
	meaning string
}{
	{regexp.MustCompile(`could not read (Username|Password) for|Authentication failed for|returned error: 401`), "wants a credential (401): it is private, or there is no such repository"},
	{regexp.MustCompile(`returned error: 403`), "may not be read by this run (403)"},
	{regexp.MustCompile(`repository '.*' not found|returned error: 404`), "is not found (404): there is no such repository, or it is private"},
}

// unread says in plain words why a repository without a secret could not be cloned in an image, or
// on this machine if image is empty, and what to do. It is empty if git's message means something
// else.
func unread(address, image, said string) string {
	if strings.Contains(said, "cannot run ssh:") {
		where := "this machine has"
		if image != "" {
			where = "the image " + image + " has"
		}
		return fmt.Sprintf("the repository %s has an ssh address, and %s no program ssh: write the https:// address, with a token as a managed secret if the repository is private, or install openssh-client there", address, where)
	}
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" {
		return ""
	}
	address = task.ShownURL(address)
	for _, d := range denials {
		if d.said.MatchString(said) {
			return fmt.Sprintf("the repository %s %s. Correct its address, or keep a token that may read it as a managed secret (`triphammer secrets set NAME`) and name that beside its url in the environment: {url: %s, secret: NAME}",
				address, d.meaning, address)
		}
	}
	return ""
}

func (j *Job) clone(s *supervising, f Folder, c *clone, env []string) error {
	for _, argv := range c.commands {
		meaning := func(said string) string { return cmp.Or(c.gone(said), unread(c.url, j.Image, said)) }
		if err := j.command(s, event.PhaseClone, argv, strings.Join(argv, " "), step{Dir: f.Workspace(), Env: gitEnv(env)}, meaning); err != nil {
			return err
		}
	}
	return nil
}

// gitEnv is the environment of a clone. It keeps git from asking questions, and from protocols
// that run a command of the URL's choice. It makes messages English, for unread.
func gitEnv(env []string) []string {
	return append(slices.Clone(env), "LC_ALL=C", "GIT_TERMINAL_PROMPT=0", "GIT_ALLOW_PROTOCOL=file:git:http:https:ssh")
}

// clone has the commands that put one repository into the workspace.
type clone struct {
	dir      string
	url      string // only for a repository without a secret
	commands [][]string

	of           task.Repository
	instructions []task.File // those of the base, below dir; only if the head is another repository's
}

// exactRef matches refs that `git clone --branch` does not accept.
var exactRef = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(refs/.*|[0-9a-f]{40}|[0-9a-f]{64})$`) })

func clonesOf(repositories []task.Repository, work string) ([]*clone, error) {
	var all []*clone
	taken := make(map[string]bool)
	for _, r := range repositories {
		name := r.Path
		name = cmp.Or(name, strings.TrimSuffix(path.Base(strings.TrimRight(strings.ReplaceAll(r.URL, ":", "/"), "/")), ".git"))
		if !filepath.IsLocal(name) || name == "." {
			return nil, Never("the repository %s has no usable folder name: give it a path", r.URL)
		}
		if taken[name] {
			return nil, Never("two repositories want the folder %s: give one of them another path", name)
		}
		taken[name] = true
		c := &clone{dir: filepath.Join(work, name), of: r}
		if r.Secret == "" { // of a private repository, the gateway says more
			c.url = r.URL
		}
		switch {
		case r.Head != nil:
			c.commands = checkoutOf(r, name)
		case r.Ref == "":
			c.commands = [][]string{{"git", "clone", "--quiet", "--no-local", "--depth=1", "--", r.URL, name}}
		case exactRef().MatchString(r.Ref):
			c.commands = [][]string{
				{"git", "init", "--quiet", "--initial-branch=main", "--", name},
				{"git", "-C", name, "remote", "add", "--", "origin", r.URL},
				{"git", "-C", name, "fetch", "--quiet", "--depth=1", "origin", r.Ref},
				{"git", "-C", name, "checkout", "--quiet", "--detach", "FETCH_HEAD"},
			}
		default:
			c.commands = [][]string{{"git", "clone", "--quiet", "--no-local", "--depth=1", "--branch=" + r.Ref, "--", r.URL, name}}
		}
		all = append(all, c)
	}
	return all, nil
}
