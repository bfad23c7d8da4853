//go:build full

package native

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// exampleSubjects has what each example of GitHub's package is about, one a line.
const exampleSubjects = "testdata/example_subjects.txt"

var numberedPage = regexp.MustCompile(`^https://github\.com/([^/]+/[^/]+)/(?:issues|pull)/(\d+)`)

// pageSubject is what an example is about by the address of its page, or by its commit: another way
// than that of the table.
func pageSubject(event string, body []byte) string {
	var b struct {
		Ref                 string
		Repository          struct{ Full_Name string }
		Issue, Pull_Request struct{ HTML_URL string }
		Check_Run           check
		Check_Suite         check
		Workflow_Run        check
	}
	if json.Unmarshal(body, &b) != nil {
		return ""
	}
	of := map[string]check{"check_run": b.Check_Run, "check_suite": b.Check_Suite, "workflow_run": b.Workflow_Run}
	for _, page := range []string{b.Issue.HTML_URL, b.Pull_Request.HTML_URL} {
		if m := numberedPage.FindStringSubmatch(page); m != nil {
			return "github:" + m[1] + "#" + m[2]
		}
	}
	if c, is := of[event]; is {
		// One example names a pull request of the repository that its own was made from.
		if len(c.Pull_Requests) == 1 && strings.HasSuffix(c.Pull_Requests[0].Base.Repo.URL, "/repos/"+b.Repository.Full_Name) {
			return fmt.Sprintf("github:%s#%d", b.Repository.Full_Name, c.Pull_Requests[0].Number)
		}
		return "github:" + b.Repository.Full_Name + "@" + c.Head_SHA
	}
	return "github:" + b.Repository.Full_Name + "/" + strings.TrimPrefix(b.Ref, "refs/")
}

// check is what the deliveries about checks say.
type check struct {
	Head_SHA      string
	Pull_Requests []struct {
		Number int
		Base   struct{ Repo struct{ URL string } }
	}
}

// TestExampleSubjects: each example of GitHub's package that has an event is about what its page says
// (SPEC 21.1). Run with UPDATE_SUBJECTS=1 to write the list.
func TestExampleSubjects(t *testing.T) {
	text, err := os.ReadFile("../../testdata/npm/senders/node_modules/@octokit/webhooks-examples/api.github.com/index.json")
	if err != nil {
		t.Fatalf("the examples are not installed (npm ci --prefix testdata/npm/senders): %v", err)
	}
	var all []struct {
		Name     string
		Examples []json.RawMessage
	}
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	sender := ByProvider("github")
	var lines []string
	for _, group := range all {
		for _, body := range group.Examples {
			p := sender.Read(Delivery{Header: map[string]string{"X-Github-Event": group.Name}, Body: body})
			for _, e := range p.Events() {
				got, want := e.SubjectOf(p), pageSubject(group.Name, body)
				if got != want {
					t.Errorf("%s is about %q, not %q", e.Name, got, want)
				}
				lines = append(lines, e.Name+" "+got)
			}
		}
	}
	slices.Sort(lines)
	listed := strings.Join(slices.Compact(lines), "\n") + "\n"
	if os.Getenv("UPDATE_SUBJECTS") != "" {
		if err := os.WriteFile(exampleSubjects, []byte(listed), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	golden, err := os.ReadFile(exampleSubjects)
	if err != nil || string(golden) != listed {
		t.Errorf("%s is not what the examples are about: %v\n%s", exampleSubjects, err, listed)
	}
}
