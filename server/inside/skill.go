package inside

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
	"unicode/utf8"

	"triphammer/schema/frontmatter"
	"triphammer/server/run/task"
)

// skillFolders are where repositories keep skills for agents.
var skillFolders = []string{".agents/skills", ".claude/skills", ".warp/skills", ".codex/skills", ".gemini/skills", ".opencode/skills", ".github/skills", "skills", "."}

// maxSkillText is the largest file of a skill that is put into a prompt, in bytes.
const maxSkillText = 256 << 10

// readSkills puts the asked skills of the repositories before the agent's prompt.
func (j *Job) readSkills(clones []*clone, f Folder) error {
	if len(j.Skills) == 0 {
		return nil
	}
	var parts []string
	for _, skill := range j.Skills {
		if skill.Clone >= len(clones) {
			return Never("the skill %s: the run has no repository %s", skill.Path, skill.Repository)
		}
		text, err := readSkill(clones[skill.Clone].dir, skill.Path)
		if err != nil {
			return Never("the skill %s of the repository %s: %v", skill.Path, skill.Repository, err)
		}
		parts = append(parts, task.SkillPrompt(skill.Name, text))
	}
	return os.WriteFile(f.prompt(), []byte(strings.Join(append(parts, j.Prompt), "\n\n")), 0o600)
}

// readSkill finds a skill by the path of its file or of its folder, or by its name.
func readSkill(repository, name string) ([]byte, error) {
	root, err := os.OpenRoot(repository)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	candidates := []string{name, path.Join(name, frontmatter.SkillFile)}
	if !strings.Contains(name, "/") {
		for _, dir := range skillFolders {
			candidates = append(candidates, path.Join(dir, name, frontmatter.SkillFile))
		}
	}
	for _, candidate := range candidates {
		info, err := root.Stat(candidate)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || err == nil && !info.Mode().IsRegular() {
			continue
		}
		if err != nil {
			return nil, err
		}
		file, err := root.OpenFile(candidate, os.O_RDONLY|openNonblock, 0)
		if err != nil {
			return nil, err
		}
		text, err := io.ReadAll(io.LimitReader(file, maxSkillText+1))
		_ = file.Close()
		switch {
		case err != nil:
			return nil, err
		case len(text) > maxSkillText:
			return nil, errors.New(candidate + " is larger than 256 KiB")
		case !utf8.Valid(text):
			return nil, errors.New(candidate + " is not UTF-8")
		}
		return text, nil
	}
	return nil, errors.New("there is none: looked for " + strings.Join(candidates, ", "))
}
