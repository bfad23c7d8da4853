package hosted

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
)

// Change is what a person wants to change on the production branch.
type Change struct {
	Base    string            // the commit that the person has seen; empty: the newest
	Author  string            // name of the person
	Message string            // its first line is the subject
	Files   map[string][]byte // new contents, by path; nil removes the file
	Time    time.Time         // zero: now
}

// Committed is a change that is on the branch.
type Committed struct {
	Hash   string
	Parent string // empty: it is the first commit
	Since  []Edit // what others changed since Base, in other files
}

// Edit is the newest commit to a file.
type Edit struct {
	Path                    string
	Commit, Author, Subject string // empty: too many commits came since
	Time                    time.Time
}

// ErrNothing says that the files already are as the change wants them.
var ErrNothing = errors.New("the change changes nothing")

// MovedError says that others have changed files of the change since its base.
type MovedError struct {
	Tip   string
	Since []Edit   // all files that changed
	Both  []string // paths of the change that others changed too
}

func (e *MovedError) Error() string {
	return fmt.Sprintf("the branch has moved to %.12s, and others changed %s", e.Tip, strings.Join(e.Both, ", "))
}

// BadError says what is wrong with a change.
type BadError struct{ Path, Why string }

func (e *BadError) Error() string { return strings.TrimSpace(fmt.Sprintf("%q %s", e.Path, e.Why)) }

// pending is the ref at which a commit waits for its check. It is hidden from clones.
const pending = "refs/triphammer/pending"

// attempts is how often a commit is tried, because a push may come meanwhile.
const attempts = 5

// Commit makes a commit on top of the branch, calls check for it, and moves the branch to it.
// If others have changed other files since the base, the commit includes their changes. The
// errors are ErrNothing, a BadError, a MovedError and the errors of check. After an error, the
// branch is where it was. parent is empty for the first commit.
func (r *Repository) Commit(ctx context.Context, c Change, check func(ctx context.Context, hash, parent string) error) (Committed, error) {
	r.committing.Lock()
	defer r.committing.Unlock()
	if c.Time.IsZero() {
		c.Time = time.Now()
	}
	for attempt := 1; ; attempt++ {
		done, err := r.commit(ctx, c, check)
		if err == nil {
			r.tidy(ctx)
		}
		if !errors.Is(err, errRaced) || attempt == attempts {
			return done, err
		}
	}
}

// tidy packs the objects of many commits. After a push, git does that by itself.
func (r *Repository) tidy(ctx context.Context) {
	if _, err := r.git(context.WithoutCancel(ctx), nil, "gc", "--auto", "--quiet"); err != nil {
		r.cfg.Logger.Warn("git cannot tidy a hosted repository", "repository", r.cfg.Dir, "error", err)
	}
}

// errRaced says that a push moved the branch between the reading of its tip and its update.
var errRaced = errors.New("the branch keeps moving; try again")

func (r *Repository) commit(ctx context.Context, c Change, check func(ctx context.Context, hash, parent string) error) (done Committed, err error) {
	tip, err := r.Tip(ctx)
	if err != nil {
		return done, err
	}
	if done.Since, err = r.since(ctx, c, tip); err != nil {
		return done, err
	}
	there, err := r.entries(ctx, tip)
	if err != nil {
		return done, err
	}
	stream, err := c.stream(tip, there)
	if err != nil {
		return done, err
	}
	if _, err := r.git(ctx, stream, "fast-import", "--quiet", "--force", "--date-format=raw"); err != nil {
		return done, fmt.Errorf("committing: %w", err)
	}
	defer func() {
		_, deleteErr := r.git(context.WithoutCancel(ctx), nil, "update-ref", "-d", pending)
		err = errors.Join(err, deleteErr)
	}()
	made, err := r.git(ctx, nil, "rev-parse", pending+"^{commit}", pending+"^{tree}")
	if err != nil {
		return done, err
	}
	hash, tree, _ := strings.Cut(made, "\n")
	if tip != "" {
		if before, err := r.git(ctx, nil, "rev-parse", tip+"^{tree}"); err != nil || before == tree {
			return done, cmp.Or(err, ErrNothing)
		}
	}
	if err := check(ctx, hash, tip); err != nil {
		return done, err
	}
	// Git compares the old value, because a push may have come meanwhile.
	_, err = r.git(ctx, nil, "update-ref", "-m", "commit by "+line(c.Author), "refs/heads/"+r.cfg.Branch, hash, cmp.Or(tip, strings.Repeat("0", len(hash))))
	if err != nil {
		if now, tipErr := r.Tip(ctx); tipErr == nil && now != tip {
			return done, errRaced
		}
		return done, err
	}
	done.Hash, done.Parent = hash, tip
	return done, nil
}

var hashes = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9a-f]{4,64}$`) })

// maxSince is how many commits since a base are searched for the authors of changes.
const maxSince = 1000

// OnBranch is the whole hash of a commit that the branch has or had as its newest one. The error is
// a BadError if it has none like that.
func (r *Repository) OnBranch(ctx context.Context, commit string) (string, error) {
	tip, err := r.Tip(ctx)
	if err != nil {
		return "", err
	}
	return r.before(ctx, commit, tip)
}

// before is the whole hash of a commit from which tip descends, or which it is.
func (r *Repository) before(ctx context.Context, commit, tip string) (string, error) {
	foreign := &BadError{commit, "is no commit of the branch " + r.cfg.Branch}
	if !hashes().MatchString(commit) || tip == "" {
		return "", foreign
	}
	base, err := r.git(ctx, nil, "rev-parse", "--verify", "--quiet", commit+"^{commit}")
	if err != nil {
		return "", errors.Join(ctx.Err(), foreign)
	}
	if common, err := r.git(ctx, nil, "merge-base", base, tip); err != nil || common != base {
		return "", errors.Join(ctx.Err(), foreign)
	}
	return base, nil
}

// since lists the files that changed between the base of a change and the tip.
func (r *Repository) since(ctx context.Context, c Change, tip string) ([]Edit, error) {
	if c.Base == "" || c.Base == tip {
		return nil, nil
	}
	base, err := r.before(ctx, c.Base, tip)
	if err != nil {
		return nil, err
	}
	changed, err := r.git(ctx, nil, "diff-tree", "-r", "-z", "--no-renames", "--name-only", base, tip)
	if err != nil {
		return nil, err
	}
	log, err := r.git(ctx, nil, "log", "-z", "--raw", "--no-abbrev", "--no-renames", "--first-parent", "-m", "--max-count="+strconv.Itoa(maxSince),
		"--format="+logFormat, base+".."+tip)
	if err != nil {
		return nil, err
	}
	edits := parseLog(log)
	var all []Edit
	moved := MovedError{Tip: tip}
	for name := range strings.SplitSeq(strings.TrimSuffix(changed, "\x00"), "\x00") {
		if name == "" {
			continue
		}
		edit := edits[name]
		edit.Path = name
		all = append(all, edit)
		for own := range c.Files {
			if own == name || within(own, name) || within(name, own) {
				moved.Both = append(moved.Both, own)
			}
		}
	}
	if moved.Since = all; len(moved.Both) > 0 {
		slices.Sort(moved.Both)
		moved.Both = slices.Compact(moved.Both)
		return nil, &moved
	}
	return all, nil
}

func within(name, folder string) bool { return strings.HasPrefix(name, folder+"/") }

// logFormat is the format of a commit for parseLog. Neither a name nor a subject has line breaks.
const logFormat = "%H %at%n%an%n%s"

// Log lists up to limit commits of the branch, the newest first. Their Path is empty.
func (r *Repository) Log(ctx context.Context, limit int) (all []Edit, err error) {
	tip, err := r.Tip(ctx)
	if err != nil || tip == "" {
		return nil, err
	}
	log, err := r.git(ctx, nil, "log", "-z", "--max-count="+strconv.Itoa(limit), "--format="+logFormat, tip)
	for text := range strings.SplitSeq(strings.TrimSuffix(log, "\x00"), "\x00") {
		all = append(all, parseCommit(text))
	}
	return all, err
}

// parseLog reads the output of git log --raw -z, and returns the newest commit to each file.
func parseLog(text string) map[string]Edit {
	edits := make(map[string]Edit)
	var at Edit
	for text != "" {
		var token string
		token, text, _ = strings.Cut(text, "\x00")
		token = strings.TrimPrefix(token, "\n")
		if !strings.HasPrefix(token, ":") {
			at = parseCommit(token)
			continue
		}
		var name string // its place marks it, because it may hold any bytes
		name, text, _ = strings.Cut(text, "\x00")
		if _, newer := edits[name]; !newer {
			at.Path = name
			edits[name] = at
		}
	}
	return edits
}

func parseCommit(text string) (e Edit) {
	head, rest, _ := strings.Cut(text, "\n")
	hash, seconds, _ := strings.Cut(head, " ")
	author, subject, _ := strings.Cut(rest, "\n")
	e.Commit, e.Author, e.Subject = hash, strings.ToValidUTF8(author, "\uFFFD"), strings.ToValidUTF8(subject, "\uFFFD")
	if n, err := strconv.ParseInt(seconds, 10, 64); err == nil {
		e.Time = time.Unix(n, 0).UTC()
	}
	return e
}

// entries are the modes of the files of a commit, by path. The commit may be empty.
func (r *Repository) entries(ctx context.Context, commit string) (map[string]string, error) {
	modes := make(map[string]string)
	if commit == "" {
		return modes, nil
	}
	out, err := r.git(ctx, nil, "ls-tree", "-r", "-z", "--full-tree", commit)
	if err != nil {
		return nil, err
	}
	for entry := range strings.SplitSeq(strings.TrimSuffix(out, "\x00"), "\x00") {
		about, name, _ := strings.Cut(entry, "\t")
		mode, _, _ := strings.Cut(about, " ")
		modes[name] = mode
	}
	return modes, nil
}

// stream is the commit in the format of git-fast-import(1). there are the files of the tip.
func (c *Change) stream(tip string, there map[string]string) ([]byte, error) {
	if len(c.Files) == 0 {
		return nil, ErrNothing
	}
	if err := c.check(there); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	data := func(text []byte) { fmt.Fprintf(&b, "data %d\n%s\n", len(text), text) }
	who := fmt.Sprintf("%s <> %d +0000", line(c.Author), c.Time.Unix())
	fmt.Fprintf(&b, "commit %s\nauthor %s\ncommitter %s\n", pending, who, who)
	data([]byte(message(c.Message)))
	if tip != "" {
		fmt.Fprintf(&b, "from %s\n", tip)
	}
	paths := slices.Sorted(maps.Keys(c.Files))
	for _, name := range paths { // deletions come first, because a file may become a folder
		if c.Files[name] == nil {
			fmt.Fprintf(&b, "D %s\n", quoted(name))
		}
	}
	for _, name := range paths {
		if content := c.Files[name]; content != nil {
			mode := "100644"
			if there[name] == "100755" {
				mode = there[name]
			}
			fmt.Fprintf(&b, "M %s inline %s\n", mode, quoted(name))
			data(content)
		}
	}
	b.WriteString("done\n")
	return b.Bytes(), nil
}

// check finds what is wrong with the paths of a change.
func (c *Change) check(there map[string]string) error {
	stays := func(name string) bool { // the file is there after the change
		content, named := c.Files[name]
		return named && content != nil || !named && there[name] != ""
	}
	folders := make(map[string]bool) // the folders after the change
	for name := range there {
		if stays(name) {
			for dir := path.Dir(name); dir != "." && !folders[dir]; dir = path.Dir(dir) {
				folders[dir] = true
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Files)) {
		why := badPath(name)
		if why == "" && c.Files[name] != nil && there[name] == "" { // only for new files: a file that came by a push can be changed
			why = notOnWindows(name)
		}
		if why != "" {
			return &BadError{name, why}
		}
		if c.Files[name] == nil {
			if there[name] == "" {
				return &BadError{name, "cannot be removed: the branch has no such file"}
			}
			continue
		}
		if mode := there[name]; mode != "" && !strings.HasPrefix(mode, "100") {
			return &BadError{name, "is a link in the repository: change it with git"}
		}
		if folders[name] {
			return &BadError{name, "is a folder"}
		}
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if stays(dir) {
				return &BadError{name, "cannot be made: " + dir + " is a file"}
			}
			folders[dir] = true
		}
	}
	return nil
}

// Limits of a path, in bytes. The file systems of people who clone have these limits.
const (
	maxPath = 1024
	maxName = 255
)

// badPath says why people cannot clone a file with the path to every system; empty: they can.
func badPath(name string) string {
	switch {
	case !fs.ValidPath(name) || name == ".":
		return "is not the path of a file in the repository, such as webhooks/ci.yaml"
	case len(name) > maxPath:
		return fmt.Sprintf("is longer than %d bytes", maxPath)
	case strings.ContainsFunc(name, func(r rune) bool {
		return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == unicode.ReplacementChar
	}):
		return "has characters that nobody sees"
	case strings.Contains(name, `\`):
		return `has a \: write / between folders`
	}
	for part := range strings.SplitSeq(name, "/") {
		if len(part) > maxName {
			return fmt.Sprintf("has a name that is longer than %d bytes", maxName)
		}
		// Some systems ignore everything after a colon, and dots and spaces at the end of a name.
		part, _, _ = strings.Cut(strings.ToLower(part), ":")
		switch strings.TrimRight(part, ". ") {
		case ".git", "git~1", ".gitmodules":
			return "has a name that Git keeps for itself"
		}
	}
	return ""
}

// windowsDevices are names that no file has on Windows, with any extension.
var windowsDevices = regexp.MustCompile(`^(?i:con|prn|aux|nul|com[1-9¹²³]|lpt[1-9¹²³]|conin\$|conout\$) *(\.|$)`)

// notOnWindows says why Git cannot check out a path on Windows; empty: it can.
func notOnWindows(name string) string {
	for part := range strings.SplitSeq(name, "/") {
		switch {
		case strings.ContainsAny(part, `<>:"|?*`):
			return `has a character that names on Windows cannot have (< > : " | ? *): leave it out`
		case strings.TrimRight(part, ". ") != part:
			return "has a name that ends with a dot or a space, which Windows leaves out: choose another"
		case windowsDevices.MatchString(part):
			return "has a name that Windows keeps for a device: choose another"
		}
	}
	return ""
}

func quoted(name string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(name) + `"`
}

// message is the text of a commit. Git takes no zero bytes, and a line break ends the last
// line.
func message(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, text)
	return strings.TrimSpace(text) + "\n"
}
