package inside

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"mime"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"triphammer/server/run/event"
)

// collect reports the changed files, and sends the patches and the artifacts (SPEC 15.6).
func (j *Job) collect(s *supervising, f Folder, before *snapshot, git view, work string) error {
	first, err := filepath.Rel(f.Workspace(), work)
	if err != nil {
		return err
	}
	all, ignored, err := before.changes(git, first)
	var patches []*patch
	room, diffs, unlisted := maxPatches, maxDiffs, make(map[string]int)
	for i, c := range all {
		if len(patches) == 0 || patches[len(patches)-1].repository != c.repository {
			patches = append(patches, &patch{repository: c.repository, made: before.roots[c.repository], parent: before.repository(c.repository)})
		}
		p := patches[len(patches)-1]
		old, now := before.contents(c)
		size := p.body.Len()
		whole := p.add(c, old, now, before.open, size+room)
		room -= p.body.Len() - size
		if i >= maxChanges {
			unlisted[c.repository]++
			continue
		}
		file := c.describe(old, now, diffs)
		diffs -= len(file.Diff)
		if !whole {
			file.Omitted = cmp.Or(file.Omitted, "there is no room") + "; it is not in the patch either"
		}
		s.add(file)
	}
	for _, dir := range slices.Sorted(maps.Keys(unlisted)) {
		s.add(event.File{Path: dir + "/", Change: event.FileModified, Files: int64(unlisted[dir]), Omitted: fmt.Sprintf("%d changed files are listed", maxChanges)})
	}
	for i, name := range slices.Sorted(maps.Keys(ignored)) {
		if i == maxIgnored {
			rest := 0
			for _, n := range slices.Sorted(maps.Keys(ignored))[i:] {
				rest += ignored[n]
			}
			s.add(event.File{Path: "./", Change: event.FileIgnored, Files: int64(rest)})
			break
		}
		s.add(event.File{Path: strings.ToValidUTF8(name, "\uFFFD"), Change: event.FileIgnored, Files: int64(ignored[name])})
	}
	taken := make(map[string]bool)
	for _, p := range patches {
		name := patchName(p.repository, first)
		for n := 2; taken[name]; n++ {
			name = patchName(fmt.Sprint(p.repository, "-", n), first)
		}
		taken[name] = true
		text := p.text(name)
		s.keep(event.Artifact{Type: event.ArtifactFile, Name: name, Size: int64(len(text))}, strings.NewReader(text))
		if len(p.without) > 0 {
			s.add(event.Status{Message: fmt.Sprintf("%s is incomplete: it leaves out %d of %d changed files, and names them", name, len(p.without), p.files)})
		}
	}
	return errors.Join(err, j.artifacts(s, f.artifacts()))
}

// patchName is the name of the patch of a repository; first is the repository in which the agent
// works.
func patchName(repository, first string) string {
	if repository == first {
		return "changes.patch"
	}
	if repository == "." {
		repository = "workspace"
	}
	plain := regexp.MustCompile(`[^A-Za-z0-9._]+`).ReplaceAllString(repository, "-")
	return fmt.Sprintf("changes-%s.patch", plain[:min(len(plain), 100)])
}

// folders are the folders of the run's repositories in its workspace.
func (j *Job) folders() (names []string) {
	clones, _ := clonesOf(j.Repositories, "") // prepare has reported the error
	for _, c := range clones {
		names = append(names, path.Clean(c.dir))
	}
	return names
}

// Limits of asking Git what it ignores.
const (
	askTime    = 5 * time.Second // for all repositories; a stopped run has KillWait for all its steps
	maxAnswers = 16 << 20        // bytes of a list
)

// asked gives git's view of a repository, before and after the agent. git runs inside the walls
// like the agent, because the settings of a repository can name programs. Without git, no file
// is ignored. If git does not answer after the agent, the answer from before stays.
func (j *Job) asked(s *supervising, f Folder) func(after bool) view {
	type answer struct {
		asked      bool
		ignored    []string
		submodules map[string]blobID
	}
	known, until := make(map[string]*answer), time.Now().Add(askTime)
	return func(after bool) view {
		if after {
			until = time.Now().Add(askTime)
		}
		return func(dir string) ([]string, map[string]blobID) {
			a, before := known[dir]
			if !before {
				a = &answer{asked: after}
				known[dir] = a
			}
			_, plain := os.Lstat(filepath.Join(f.Workspace(), dir, ".gitmodules"))
			left := time.Until(until)
			if left <= 0 || !after && !j.Resume && len(j.Setup) == 0 && plain != nil { // a fresh clone has only files that Git tracks
				return a.ignored, a.submodules
			}
			if ignored, submodules, err := j.ask(s, f, dir, after, left); err == nil {
				a.ignored = ignored
				if !after || a.asked { // without an answer from before, there is nothing to compare with
					a.asked, a.submodules = true, submodules
				}
			}
			return a.ignored, a.submodules
		}
	}
}

// ask asks git which files it ignores in a repository, and which folders with only such files,
// and for the commits of the submodules.
func (j *Job) ask(s *supervising, f Folder, dir string, after bool, most time.Duration) (ignored []string, submodules map[string]blobID, err error) {
	temp, err := os.MkdirTemp(f.Root, ".asked-*")
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = RemoveAll(temp) }()
	const script = `exec 2>/dev/null </dev/null; git() { command git -c core.fsmonitor=false ls-files "$@"; }
git -z --others --ignored --exclude-standard --directory >"$1/ignored" && git --stage | sed -n 's/^160000 //p' >"$1/submodules"`
	st := step{
		Dir: filepath.Join(f.Workspace(), dir), Env: append(gitEnv(j.Env), "GIT_OPTIONAL_LOCKS=0"), Last: after, AfterStop: after,
		Argv: []string{"timeout", "-s", "KILL", fmt.Sprintf("%.3f", most.Seconds()), "sh", "-c", script, "sh", temp},
	}
	if st.Path, err = j.resolve(st.Argv, st.Dir, st.Env); err != nil {
		return nil, nil, err
	}
	if e, err := s.run(st); err != nil || e.Code != 0 {
		return nil, nil, errors.Join(err, fmt.Errorf("git ended with %d", e.Code))
	}
	read := func(name, end string) []string {
		file, readErr := os.Open(filepath.Join(temp, name))
		if readErr != nil {
			err = readErr
			return nil
		}
		defer func() { _ = file.Close() }()
		text, readErr := io.ReadAll(io.LimitReader(file, maxAnswers))
		err = cmp.Or(err, readErr)
		return strings.Split(strings.TrimSuffix(string(text), end), end)
	}
	ignored, submodules = read("ignored", "\x00"), make(map[string]blobID)
	for _, line := range read("submodules", "\n") {
		id, name, _ := strings.Cut(line, " ")
		_, name, _ = strings.Cut(name, "\t")
		if plain, err := strconv.Unquote(name); err == nil { // unusual characters
			name = plain
		}
		if commit, err := hex.DecodeString(id); err == nil && len(commit) == len(blobID{}) && filepath.IsLocal(name) {
			submodules[name] = blobID(commit)
		}
	}
	return ignored, submodules, err
}

// Limits of the folder of artifacts.
const (
	maxArtifacts = 100
	maxLinks     = 64 << 10 // bytes of the file of links
	linksFile    = "links"
)

// artifacts sends the files and links that the agent left in its folder of artifacts.
func (j *Job) artifacts(s *supervising, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil // the agent has removed the folder
	}
	defer func() { _ = root.Close() }()
	count := 0
	return walkDir(root, ".", func(name string, d fs.DirEntry) error {
		switch {
		case d.IsDir() && strings.Count(name, "/") >= maxDepth:
			return fs.SkipDir
		case !d.Type().IsRegular():
			return nil
		}
		info, err := root.Lstat(name)
		if err != nil {
			return nil // it is gone
		}
		if count++; count > maxArtifacts {
			return fmt.Errorf("there are more than %d artifacts", maxArtifacts)
		}
		file, err := root.OpenFile(name, os.O_RDONLY|openNonblock, 0)
		if err != nil {
			return nil // it is gone
		}
		defer func() { _ = file.Close() }()
		if name == linksFile {
			text, err := io.ReadAll(io.LimitReader(file, maxLinks))
			for line := range strings.Lines(string(text)) {
				if line = strings.TrimSpace(strings.ToValidUTF8(line, "\uFFFD")); line != "" {
					s.keep(linkOf(line), strings.NewReader(""))
				}
			}
			return err
		}
		a := event.Artifact{Type: event.ArtifactFile, Name: strings.ToValidUTF8(name, "\uFFFD"), Size: info.Size()}
		if strings.HasPrefix(mime.TypeByExtension(path.Ext(name)), "image/") {
			a.Type = event.ArtifactScreenshot
		}
		s.keep(a, io.LimitReader(file, info.Size()))
		return nil
	})
}

// linkOf reads a line of the file of links: a URL, and optionally a title after it. The server
// decides whether it is a link, and of which type.
func linkOf(line string) event.Artifact {
	address, title, _ := strings.Cut(line, " ")
	return event.Artifact{Name: strings.TrimSpace(title), URL: address}
}
