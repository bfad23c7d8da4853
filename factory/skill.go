package factory

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"triphammer/schema"
	"triphammer/schema/frontmatter"
)

// Skill is a folder with a SKILL.md, below skills/ or agents/<name>/skills/. An agent can
// read its files when it needs them.
type Skill struct {
	Name  string `json:"name"`
	Agent string `json:"-"` // the agent that has the skill; empty: every agent has it
	Path  string `json:"-"` // of the folder

	// Sums are the SHA-256 of the files, in hexadecimal, by path below the folder. The
	// store keeps the files with the apply that brought them, not with each run.
	Sums map[string]string `json:"files"`
	// Executable are the paths of the files that Git marks as programs, sorted.
	Executable []string `json:"executable,omitempty"`
	// Files are the contents, by path below the folder. They are set when a run starts.
	Files map[string][]byte `json:"-"`
}

// Limits of skills. A skill beyond them is left out with a warning, because the format
// has no limits.
const (
	maxSkills     = 200 // of a tree
	maxSkillFiles = 200
	maxSkillBytes = 1 << 20
	maxSkillPath  = 200 // bytes of a path below the folder of a skill
)

const skillsFolder = "skills"

// SkillsOf are the skills of an agent, sorted by name: the skills of all agents, and the
// agent's own. An own skill replaces a skill of all agents that has the same name. The
// agent may be empty.
func (f *Factory) SkillsOf(agent string) []*Skill {
	byName := make(map[string]*Skill)
	for _, s := range f.Skills { // the skills of all agents come first
		if s.Agent == "" || s.Agent == agent {
			byName[s.Name] = s
		}
	}
	all := make([]*Skill, 0, len(byName))
	for _, s := range byName {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b *Skill) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// skills reads all skills. No finding about a skill is an error
// (factory/testdata/rules 1.1).
func (l *loader) skills() error {
	if err := l.skillsIn(skillsFolder, ""); err != nil {
		return err
	}
	for _, d := range l.of("agent") {
		if err := l.skillsIn("agents/"+d.name+"/"+skillsFolder, d.name); err != nil {
			return err
		}
	}
	slices.SortStableFunc(l.factory.Skills, func(a, b *Skill) int {
		return cmp.Or(strings.Compare(a.Agent, b.Agent), strings.Compare(a.Name, b.Name))
	})
	return nil
}

func (l *loader) skillsIn(folder, agent string) error {
	info, err := l.lstat(folder)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("reading %s: %w", folder, err)
	case !info.IsDir():
		l.skipSkill(folder, schema.NotRegular, "put the folder itself there", "it is no folder of skills")
		return nil
	}
	found := make(map[string]string) // the folder of each name
	return fs.WalkDir(l.tree, folder, func(name string, d fs.DirEntry, err error) error {
		if err := cmp.Or(err, l.ctx.Err()); err != nil {
			return fmt.Errorf("reading %s: %w", name, err)
		}
		if l.entries++; l.entries > maxEntries {
			l.skipSkill(folder, schema.TooMany, "move what is no skill elsewhere", fmt.Sprintf("there are more than %d files and folders where definitions are", maxEntries))
			return fs.SkipAll
		}
		if !d.IsDir() {
			return nil // no part of a skill
		}
		entries, err := fs.ReadDir(l.tree, name)
		if err != nil {
			return fmt.Errorf("reading %s: %w", name, err)
		}
		is := func(base string) bool {
			return slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == base && (e.Type().IsRegular() || base == ".git") })
		}
		switch {
		case is(".git"): // a submodule, which is nothing in a commit
			return fs.SkipDir
		case strings.Count(name, "/") >= maxFolders:
			l.skipSkill(name, schema.TooDeep, "move what is no skill elsewhere", fmt.Sprintf("it is within %d other folders", maxFolders))
			return fs.SkipDir
		case !is(frontmatter.SkillFile):
			return nil
		}
		base := path.Base(name)
		if first := found[base]; first != "" {
			l.skipSkill(name, schema.DuplicatePath, "give one of them another name", first+" has the same name")
			return fs.SkipDir
		}
		found[base] = name
		s, err := l.skill(name)
		if err != nil {
			return err
		}
		if s != nil {
			s.Name, s.Agent, s.Path = base, agent, name
			l.factory.Skills = append(l.factory.Skills, s)
		}
		return fs.SkipDir
	})
}

// skill reads one skill; nil, with a warning, if it is too large.
func (l *loader) skill(folder string) (*Skill, error) {
	if len(l.factory.Skills) >= maxSkills {
		l.skipSkill(folder, schema.TooMany, "take some out", fmt.Sprintf("the tree has more than %d skills", maxSkills))
		return nil, nil
	}
	contents := make(map[string][]byte)
	var executable []string
	total := int64(0)
	err := fs.WalkDir(l.tree, folder, func(name string, d fs.DirEntry, err error) error {
		if err := cmp.Or(err, l.ctx.Err()); err != nil {
			return fmt.Errorf("reading %s: %w", name, err)
		}
		l.entries++
		rest := strings.TrimPrefix(strings.TrimPrefix(name, folder), "/")
		switch {
		case d.IsDir() && path.Base(name) == ".git":
			return fs.SkipDir
		case d.IsDir():
			return nil
		case !d.Type().IsRegular():
			c := l.collector(name)
			c.Warn(schema.At{}, schema.NotRegular, "put the file itself there", "this file of a skill is left out: it is a symbolic link, submodule or special file")
			l.report.Diagnostics = append(l.report.Diagnostics, c.Found...)
			return nil
		case !utf8.ValidString(rest) || len(rest) > maxSkillPath:
			return tooMuch{schema.UnsupportedPath, fmt.Sprintf("it has a file whose name is not UTF-8, or longer than %d bytes", maxSkillPath)}
		case len(contents) >= maxSkillFiles:
			return tooMuch{schema.TooMany, fmt.Sprintf("it has more than %d files", maxSkillFiles)}
		}
		info, err := d.Info()
		if err != nil {
			return fmt.Errorf("reading %s: %w", name, err)
		}
		if info.Size() > schema.MaxFile {
			return tooMuch{schema.TooLarge, fmt.Sprintf("%s has %d bytes; a file has at most %d", rest, info.Size(), schema.MaxFile)}
		}
		if total += info.Size(); total > maxSkillBytes {
			return tooMuch{schema.TooLarge, fmt.Sprintf("it has more than %d bytes", maxSkillBytes)}
		}
		data, err := fs.ReadFile(l.tree, name)
		if err != nil {
			return fmt.Errorf("reading %s: %w", name, err)
		}
		if int64(len(data)) > info.Size() { // it grew meanwhile
			return tooMuch{schema.TooLarge, rest + " is being written"}
		}
		contents[rest] = data
		if info.Mode()&0o100 != 0 {
			executable = append(executable, rest)
		}
		return nil
	})
	var much tooMuch
	switch {
	case errors.As(err, &much):
		l.skipSkill(folder, much.code, "make it smaller, or move what the agent does not need elsewhere", much.why)
		return nil, nil
	case err != nil:
		return nil, err
	case l.bytes+total > l.opt.MaxBytes || len(l.factory.Files)+len(contents) > l.opt.MaxFiles:
		l.skipSkill(folder, schema.TooMany, splitHint, fmt.Sprintf("with it, the tree has more than %d bytes or %d files", l.opt.MaxBytes, l.opt.MaxFiles))
		return nil, nil
	}
	l.bytes += total
	slices.Sort(executable)
	s := &Skill{Sums: make(map[string]string, len(contents)), Executable: executable}
	for rest, data := range contents {
		sum := sha256.Sum256(data)
		s.Sums[rest] = hex.EncodeToString(sum[:])
		name := folder + "/" + rest
		l.factory.Files = append(l.factory.Files, name)
		l.factory.blobs[name] = blobName(data)
		l.skillTexts[name] = data
	}
	return s, nil
}

// tooMuch says why a skill is left out.
type tooMuch struct{ code, why string }

func (t tooMuch) Error() string { return t.why }

func (l *loader) skipSkill(name, code, hint, why string) {
	c := l.collector(strings.ToValidUTF8(name, "\ufffd"))
	c.Warn(schema.At{}, code, hint, "agents are not given this skill: "+why)
	l.report.Diagnostics = append(l.report.Diagnostics, c.Found...)
}

// maxShownText is the largest file of a skill that a plan compares as text, in bytes.
const maxShownText = 64 << 10

// skillDefinitions are the skills as they are compared: each file is a key.
func (l *loader) skillDefinitions() {
	for _, s := range l.factory.Skills {
		d := Definition{Kind: "skill", Name: path.Join(s.Agent, s.Name), Path: s.Path + "/" + frontmatter.SkillFile}
		for rest, sum := range s.Sums {
			text := "sha256 " + sum
			if data := l.skillTexts[s.Path+"/"+rest]; len(data) <= maxShownText && utf8.Valid(data) {
				text = string(data)
			}
			d.Values = append(d.Values, schema.Value{Key: rest, JSON: string(schema.AppendText(nil, text))})
		}
		for _, rest := range s.Executable {
			d.Values = append(d.Values, schema.Value{Key: rest + " (executable)", JSON: "true"})
		}
		slices.SortFunc(d.Values, func(a, b schema.Value) int { return strings.Compare(a.Key, b.Key) })
		l.factory.Definitions = append(l.factory.Definitions, d)
	}
}
