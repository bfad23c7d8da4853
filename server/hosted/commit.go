package hosted

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
)

// Commit is a change to the production branch.
type Commit struct {
	Base    string            // the commit that the author has seen; empty: the branch has none yet
	Author  string            // name of the person
	Message string            // its first line is the subject
	Files   map[string][]byte // new contents, by path; nil removes the file
	Time    time.Time         // zero: now
}

// pending is where a commit waits for its check. It is hidden from who clones.
const pending = "refs/triphammer/pending"

// Commit makes a commit, has it checked, and moves the branch to it. Its errors are ErrMoved,
// ErrNothing and those of check; then the branch is where it was.
func (r *Repository) Commit(ctx context.Context, c Commit, check func(ctx context.Context, hash string) error) (hash string, err error) {
	r.committing.Lock()
	defer r.committing.Unlock()
	branch := "refs/heads/" + r.cfg.Branch
	tip, err := r.Tip(ctx)
	if err != nil {
		return "", err
	}
	if tip != c.Base {
		return "", ErrMoved
	}
	stream, err := c.stream()
	if err != nil {
		return "", err
	}
	if _, err := r.git(ctx, stream, "fast-import", "--quiet", "--force", "--date-format=raw"); err != nil {
		return "", fmt.Errorf("committing: %w", err)
	}
	defer func() {
		_, deleteErr := r.git(context.WithoutCancel(ctx), nil, "update-ref", "-d", pending)
		err = errors.Join(err, deleteErr)
	}()
	if hash, err = r.git(ctx, nil, "rev-parse", "--verify", pending+"^{commit}"); err != nil {
		return "", err
	}
	if tip != "" {
		was, err := r.git(ctx, nil, "rev-parse", tip+"^{tree}", hash+"^{tree}")
		if err != nil {
			return "", err
		}
		if before, after, _ := strings.Cut(was, "\n"); before == after {
			return "", ErrNothing
		}
	}
	if err := check(ctx, hash); err != nil {
		return "", err
	}
	// A push may have come meanwhile: Git compares.
	if _, err := r.git(ctx, nil, "update-ref", "-m", "commit by "+line(c.Author), branch, hash, cmp.Or(tip, strings.Repeat("0", len(hash)))); err != nil {
		if now, tipErr := r.Tip(ctx); tipErr == nil && now != tip {
			return "", ErrMoved
		}
		return "", err
	}
	return hash, nil
}

// Tip is the newest commit of the production branch; empty: there is none yet.
func (r *Repository) Tip(ctx context.Context) (string, error) {
	out, err := r.git(ctx, nil, "for-each-ref", "--format=%(objectname)", "--", "refs/heads/"+r.cfg.Branch)
	if err != nil {
		return "", fmt.Errorf("reading the branch: %w", err)
	}
	return out, nil
}

// stream is the commit as git-fast-import(1) reads it.
func (c *Commit) stream() ([]byte, error) {
	if len(c.Files) == 0 {
		return nil, ErrNothing
	}
	if c.Time.IsZero() {
		c.Time = time.Now()
	}
	var b bytes.Buffer
	data := func(text []byte) { fmt.Fprintf(&b, "data %d\n%s\n", len(text), text) }
	who := fmt.Sprintf("%s <> %d +0000", line(c.Author), c.Time.Unix())
	fmt.Fprintf(&b, "commit %s\nauthor %s\ncommitter %s\n", pending, who, who)
	data([]byte(c.Message))
	if c.Base != "" {
		fmt.Fprintf(&b, "from %s\n", c.Base)
	}
	for _, path := range slices.Sorted(maps.Keys(c.Files)) {
		if !fs.ValidPath(path) || path == "." || strings.ContainsFunc(path, unicode.IsControl) || slices.Contains(strings.Split(strings.ToLower(path), "/"), ".git") {
			return nil, fmt.Errorf("%q is not the path of a file in a repository", path)
		}
		if content := c.Files[path]; content == nil {
			fmt.Fprintf(&b, "D %s\n", quoted(path))
		} else {
			fmt.Fprintf(&b, "M 100644 inline %s\n", quoted(path))
			data(content)
		}
	}
	b.WriteString("done\n")
	return b.Bytes(), nil
}

func quoted(path string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(path) + `"`
}

// line is a name as the line of a commit can have it.
func line(name string) string {
	return cmp.Or(strings.TrimSpace(strings.Map(func(r rune) rune {
		if r < ' ' || r == '<' || r == '>' {
			return -1
		}
		return r
	}, name)), "unknown")
}
