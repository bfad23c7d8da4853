package run

import (
	"errors"
	"strings"
	"testing"

	"triphammer/factory"
)

// TestRepositoriesOfSkills: a repository is meant by its name, with or without its owner, and
// only if one is meant.
func TestRepositoriesOfSkills(t *testing.T) {
	s := Spec{Repositories: []factory.Repository{
		{URL: "https://github.com/acme/app.git"}, {URL: "https://gitlab.com/group/within/tools"}, {URL: "git@example.com:acme/shared.git"}, {URL: "https://github.com/other/shared"},
	}}
	for asked, want := range map[string]string{
		"acme/app:x": "acme/app", "APP:x": "acme/app", "app:a/b/SKILL.md": "acme/app", "within/tools:x": "within/tools", "acme/shared:x": "acme/shared", "other/shared:x": "other/shared",
		"shared:x": "several repositories of that name", "p:x": "no repository p; it has acme/app, within/tools", "pp:x": "no repository pp", ":x": "no repository", "/app:x": "no repository",
		"app:/x": "is not REPOSITORY:PATH", "app:a/../../x": "is not REPOSITORY:PATH", "app:.": "is not REPOSITORY:PATH", "app:\xff": "is not REPOSITORY:PATH",
	} {
		of := s
		err := of.ask(t.Context(), nil, []WantedSkill{{"skill", asked}})
		if err == nil && (len(of.Asked) != 1 || of.Asked[0].Repository != want || of.repositoryNames()[of.Asked[0].Clone] != want) {
			t.Errorf("%q: %+v, want %s", asked, of.Asked, want)
		}
		if refused := (*RefusedError)(nil); err != nil && (!errors.As(err, &refused) || refused.Field != "skill" || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %s", asked, err, want)
		}
	}
}

// TestPlans: only an agent that something keeps from changing files makes a plan.
func TestPlans(t *testing.T) {
	n := newNursery(t)
	for _, c := range []struct {
		req  Request
		says string // empty: it is taken
	}{
		{Request{Agent: "one/fixer"}, ""},
		{Request{Agent: "one/fixer", Environment: "only"}, "the command of environments/only.yaml has no mode plan"},
		{Request{Environment: "one/bare"}, ""}, // whichever is the default: the server knows
	} {
		c.req.Prompt, c.req.Mode = "x", ModePlan
		if _, err := n.from(c.req); (c.says == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v, want %q", c.req, err, c.says)
		}
	}
	for _, h := range []string{"codex", "gemini", "opencode"} {
		_, err := n.from(Request{Agent: "one/fixer", Prompt: "x", Mode: ModePlan, Harness: factory.Harness{Type: h}})
		if err == nil || !strings.Contains(err.Error(), `the harness "`+h+`" has no mode plan; these harnesses have it: claude`) {
			t.Errorf("%s: %v", h, err)
		}
	}
}
