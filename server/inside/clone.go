package inside

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"

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
