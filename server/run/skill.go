package run

import (
	"context"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"triphammer/schema/frontmatter"
	"triphammer/server/run/task"
	"triphammer/server/store"
)

// WantedSkill is a skill as a request names it: NAME for a skill of the definitions, or
// REPOSITORY:NAME or REPOSITORY:PATH for a skill in a repository of the workspace, where
// REPOSITORY is OWNER/NAME or NAME.
type WantedSkill struct {
	Field string // of the request
	Text  string
}

// ask finds the skills that the run must work by, and puts the skills of the definitions
// before the prompt.
func (s *Spec) ask(ctx context.Context, st *store.Store, all []WantedSkill) error {
	var texts []string
	for _, wanted := range all {
		repository, name, elsewhere := strings.Cut(wanted.Text, ":")
		if !elsewhere {
			text, err := s.skillText(ctx, st, wanted)
			if err != nil {
				return err
			}
			texts = append(texts, task.SkillPrompt(wanted.Text, text))
			s.Asked = append(s.Asked, task.AskedSkill{Name: wanted.Text, Path: wanted.Text + "/" + frontmatter.SkillFile})
			continue
		}
		if !filepath.IsLocal(name) || filepath.Clean(name) == "." || len(name) > 200 || strings.ContainsRune(name, 0) || !utf8.ValidString(name) {
			return refuse(wanted.Field, "%q is not REPOSITORY:PATH, with the path of a skill within the repository", wanted.Text)
		}
		at, owned, err := s.clone(wanted, repository)
		if err != nil {
			return err
		}
		name = filepath.Clean(name)
		shown := strings.TrimSuffix(strings.TrimSuffix(name, frontmatter.SkillFile), "/")
		if shown = filepath.Base(shown); shown == "." {
			shown = owned
		}
		s.Asked = append(s.Asked, task.AskedSkill{Name: shown, Path: name, Repository: owned, Clone: at})
	}
	s.AgentPrompt = strings.TrimSpace(strings.Join(append(texts, s.AgentPrompt), "\n\n"))
	return nil
}

// skillText is the SKILL.md of a skill of the definitions.
func (s *Spec) skillText(ctx context.Context, st *store.Store, wanted WantedSkill) ([]byte, error) {
	var known []string
	for _, skill := range s.Skills {
		if skill.Name == wanted.Text {
			sum, err := hex.DecodeString(skill.Sums[frontmatter.SkillFile])
			if err != nil {
				return nil, fmt.Errorf("the skill %s: %w", skill.Name, err)
			}
			return st.Applies.File(ctx, sum)
		}
		known = append(known, skill.Name)
	}
	return nil, unsupported(wanted.Field, "%q is no skill of the definitions, which have %s for this run; write REPOSITORY:PATH for one in a repository of the run, which has %s",
		wanted.Text, orNone(known), orNone(s.repositoryNames()))
}

// clone finds the repository of the run that is called by that name.
func (s *Spec) clone(wanted WantedSkill, name string) (at int, owned string, err error) {
	at = -1
	for i, has := range s.repositoryNames() {
		if name == "" || !strings.EqualFold(has, name) && !(len(has) > len(name) && strings.EqualFold(has[len(has)-len(name)-1:], "/"+name)) {
			continue
		}
		if at >= 0 {
			return 0, "", refuse(wanted.Field, "%q: the run has several repositories of that name: write OWNER/%s:…", wanted.Text, name)
		}
		at, owned = i, has
	}
	if at < 0 {
		err = unsupported(wanted.Field, "%q: the run has no repository %s; it has %s", wanted.Text, name, orNone(s.repositoryNames()))
	}
	return at, owned, err
}

// repositoryNames are the names of the repositories, as OWNER/NAME if their addresses have an
// owner.
func (s *Spec) repositoryNames() []string {
	var all []string
	for _, r := range s.repositories() {
		parts := strings.FieldsFunc(strings.TrimSuffix(strings.TrimRight(r.URL, "/"), ".git"), func(r rune) bool { return r == '/' || r == ':' })
		all = append(all, strings.Join(parts[max(0, len(parts)-2):], "/"))
	}
	return all
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// AskedElsewhere are the asked skills in repositories, which are read after the clones.
func (s *Spec) AskedElsewhere() (all []task.AskedSkill) {
	for _, skill := range s.Asked {
		if skill.Repository != "" {
			all = append(all, skill)
		}
	}
	return all
}
