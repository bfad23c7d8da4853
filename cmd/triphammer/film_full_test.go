//go:build full

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"triphammer/applier/gitrepo/gittest"
	"triphammer/server/api"
)

// footage is what the film shows: an issue that is labelled, worked on, answered and merged, as the server and
// its GitHub saw that.
type footage struct {
	issue    map[string]any
	delivery api.DeliveryDetail
	run      api.Run
	events   []api.Event
	told     []string // the text in the thread when the run began, and when it had ended
	story    api.SubjectStory
	merged   api.Delivery
}

// TestFilm: the film of the README shows what a server says today (make screenshots writes it). The server, its
// Git, its answers and what the agent does are real; GitHub and the words of the model are played.
func TestFilm(t *testing.T) {
	film := drawFilm(t, shoot(t))
	if *picturesDir != "" {
		if err := os.WriteFile(filepath.Join(*picturesDir, filmFile), []byte(film), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := os.ReadFile(filepath.Join(pictures, filmFile))
	if err != nil {
		t.Fatal(err)
	}
	changing := regexp.MustCompile(`\b(run_|dlv_|commit )\w+|\d+`) // each time
	texts := func(svg string) (all []string) {
		for _, m := range regexp.MustCompile(`<text[^>]*>(.*?)</text>`).FindAllStringSubmatch(svg, -1) {
			all = append(all, changing.ReplaceAllString(m[1], "N"))
		}
		slices.Sort(all) // what happens in one second may come in another order
		return all
	}
	if was, is := texts(string(kept)), texts(film); !slices.Equal(was, is) {
		t.Errorf("%s is not what a server says (make screenshots writes it):\n%q\n%q", filmFile, was, is)
	}
}

// shoot lets it happen.
func shoot(t *testing.T) (s footage) {
	forge := newWayForge(t)
	work := t.TempDir()
	gittest.Git(t, work, "clone", "-q", forge.bare, ".")
	for name, text := range map[string]string{
		"go.mod": "module acme/api\n\ngo 1.21\n",
		"login.go": "package api\n\nvar accounts = map[string]bool{\"ada@example.com\": true}\n\n// Known tells whether somebody has an account with the address.\n" +
			"func Known(address string) bool {\n\treturn accounts[address]\n}\n",
	} {
		if err := os.WriteFile(filepath.Join(work, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	gittest.Git(t, work, "add", ".")
	gittest.Git(t, work, "commit", "-q", "-m", "Log people in")
	gittest.Git(t, work, "push", "-q", "origin", "main")

	d := &day{story: &story{world: &world{t: t, dir: openDir(t), addr: freeAddress(t)}}}
	d.clock = filepath.Join(d.dir, clockFile)
	d.setClock(storyTime)
	bin := filepath.Join(d.dir, "bin")
	if err := os.CopyFS(bin, os.DirFS("testdata/story/day/bin")); err != nil {
		t.Fatal(err)
	}
	cache, err := exec.Command("go", "env", "GOCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	d.write(map[string]string{
		"factory.yaml":         "schemaVersion: v1alpha1\nname: acme\n",
		"webhooks/github.yaml": "secretName: GITHUB_SECRET\nauthMode: signature\nsignatureScheme: github\napiSecretName: GITHUB_TOKEN\napiURL: " + forge.URL + "/api/v3\nreport: thread\n",
		"environments/app.yaml": fmt.Sprintf("repositories: [{url: '%s/acme/api.git', secret: GITHUB_TOKEN}]\nenv: {GOCACHE: '%s', GOFLAGS: -count=1, GIT_AUTHOR_NAME: Hammer, "+
			"GIT_AUTHOR_EMAIL: hammer@example.com, GIT_COMMITTER_NAME: Hammer, GIT_COMMITTER_EMAIL: hammer@example.com}\n", forge.URL, bytes.TrimSpace(cache)),
		"automations/fix.md": "---\nenvironmentId: app\nharness: {type: claude}\ntriggers: [{provider: github, event: issue_labeled, filter: {labels: [fix]}}]\n" +
			"outputs: {createPullRequest: {}}\n---\nFix what the issue is about, with a test.\n",
	})
	d.git("init", "-q", "--initial-branch=main")
	d.push()
	d.cleanUp()
	d.run(testSecret, "secrets", "set", "GITHUB_SECRET")
	d.run(forge.token, "secrets", "set", "GITHUB_TOKEN")
	d.startWith(func(cmd *exec.Cmd) {
		cmd.Env = append(cmd.Env, "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	})

	s.issue = map[string]any{
		"id": 1, "number": 7, "title": "Login fails on iPhones", "html_url": "https://github.example.com/acme/api/issues/7", "user": map[string]any{"login": "ada"},
		"body": "Safari begins my address with a capital letter, and then I am told that nobody knows me.", "labels": []map[string]any{{"name": "fix"}},
	}
	fromGitHub(t, d.url("github"), "1", "issues", map[string]any{"action": "labeled", "label": map[string]any{"name": "fix"}, "issue": s.issue})
	told := func(call, text string) {
		d.until(call, func() bool {
			calls, bodies := forge.seen()
			for i := range calls {
				var comment struct{ Body string }
				if strings.HasPrefix(calls[i], call) && json.Unmarshal([]byte(bodies[i]), &comment) == nil && strings.Contains(comment.Body, text) {
					s.told = append(s.told, comment.Body)
					return true
				}
			}
			return false
		})
	}
	told("POST /repos/acme/api/issues/7/comments", "")
	if err := os.WriteFile(filepath.Join(bin, "told"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	told("PATCH /repos/acme/api/issues/comments/", "Pull request: ")
	var runs []api.Run
	d.list(&runs, "runs", "list")
	becomes := func(outcome string) {
		d.until(outcome, func() bool {
			d.list(&s.run, "runs", "show", runs[0].RunID)
			return s.run.About.Outcome == outcome
		})
	}
	becomes("open")

	d.setClock(d.now().Add(17 * time.Minute)) // until Ada merges it
	pull := slices.IndexFunc(s.run.Artifacts, func(a api.Artifact) bool { return a.Type == "PULL_REQUEST" })
	head := strings.TrimSpace(gittest.Git(t, forge.bare, "rev-parse", "triphammer/fix-7"))
	gittest.Git(t, forge.bare, "update-ref", "refs/heads/main", head)
	fromGitHub(t, d.url("github"), "2", "pull_request", map[string]any{"action": "closed", "pull_request": map[string]any{
		"id": 2, "number": 8, "html_url": s.run.Artifacts[pull].Data.URL, "state": "closed", "merged": true, "head": map[string]any{"sha": head},
	}})
	becomes("merged")

	var deliveries []api.Delivery
	d.list(&deliveries, "deliveries", "list")
	s.merged = deliveries[0]
	d.list(&s.delivery, "deliveries", "show", s.run.DeliveryID)
	d.until("the answer is not told", func() bool {
		d.list(&s.story, "subjects", "show", s.run.Subject)
		return slices.ContainsFunc(s.story.Story, func(c api.Chapter) bool { return c.Answer != nil && c.Answer.Status == "delivered" })
	})
	var transcript api.Transcript
	d.list(&transcript, "runs", "logs", s.run.RunID)
	s.events = transcript.Events
	return s
}
