// Package hosted keeps repositories of definitions on this server (SPEC 18.1): bare
// repositories in the data directory, which people clone and push to over the server's own
// HTTP.
//
// The package guarantees:
//
//   - A hook of Git checks each push, and the caller of [Repository.Commit] checks each
//     commit of the server. A refusal leaves the branch where it was.
//   - The branch only moves forward. Nobody deletes or rewrites it.
//
// The package knows neither definitions nor the rights of people. The applier reads a hosted
// repository like any other repository of this machine.
package hosted

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"unicode"
)

// Config is what Open needs.
type Config struct {
	Dir    string   // folder of the bare repository
	Branch string   // the production branch
	Check  []string // command that checks a push to the branch; the commit and the path of Folder in a bare repository follow
	Folder string   // the folder in the commits that is checked
	Logger *slog.Logger
}

// Repository is a hosted repository. Its methods are safe for concurrent use.
type Repository struct {
	cfg     Config
	env     []string
	backend string // the program that serves the repository

	// fetching and pushing limit the programs that serve at once. They are separate, so that
	// slow clones keep nobody from pushing.
	fetching, pushing chan struct{}
	committing        sync.Mutex // guards the ref pending
}

// maxServing bounds the programs of Git that serve clones at once, and likewise for pushes.
const maxServing = 8

// settings are the settings of every hosted repository. They are set at each start, so that the
// settings of an older version do not last.
var settings = [][2]string{
	{"http.receivepack", "true"},
	{"http.getanyfile", "false"},
	{"receive.fsckObjects", "true"},
	{"receive.denyNonFastForwards", "true"},
	{"receive.denyDeletes", "true"},
	{"receive.unpackLimit", "1"}, // keep packs, because loose objects take more room
	{"receive.advertisePushOptions", "false"},
	{"core.fsync", "all"},
	{"core.logAllRefUpdates", "true"},
	{"core.bigFileThreshold", "1m"}, // read larger files in pieces, because a small push can hold a file of any size
	{"gc.autoDetach", "false"},
	{"transfer.hideRefs", "refs/triphammer"},
}

// ErrNoGit says that the program git is missing.
var ErrNoGit = errors.New("the server finds no program git, which keeps the repositories that live here: install the package git on its machine")

// Open opens a repository, and makes it if it is missing. The error is for people.
func Open(ctx context.Context, cfg Config) (*Repository, error) {
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, err
	}
	if cfg.Dir = dir; cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	r := &Repository{
		cfg: cfg, fetching: make(chan struct{}, maxServing), pushing: make(chan struct{}, maxServing),
		env: environment(dir),
	}
	if _, err := exec.LookPath("git"); err != nil {
		return nil, ErrNoGit
	}
	if _, err := os.Stat(filepath.Join(dir, "HEAD")); errors.Is(err, fs.ErrNotExist) {
		err := os.MkdirAll(filepath.Dir(dir), 0o700)
		if err == nil {
			_, err = r.run(ctx, nil, filepath.Dir(dir), "init", "--quiet", "--bare", "--template=", "--initial-branch="+cfg.Branch, "--", dir)
		}
		if err != nil {
			return nil, fmt.Errorf("making the repository %s: %w", dir, err)
		}
	}
	if err := r.clean(ctx); err != nil {
		return nil, fmt.Errorf("cleaning the repository %s: %w", dir, err)
	}
	for _, s := range settings {
		if _, err := r.git(ctx, nil, "config", s[0], s[1]); err != nil {
			return nil, err
		}
	}
	if err := r.installHooks(); err != nil {
		return nil, fmt.Errorf("installing the check of pushes to %s: %w", dir, err)
	}
	out, err := r.git(ctx, nil, "--exec-path")
	if err != nil {
		return nil, err
	}
	r.backend = filepath.Join(out, "git-http-backend")
	if _, err := os.Stat(r.backend); err != nil {
		return nil, fmt.Errorf("git cannot serve repositories here: %w (it belongs to the package git)", err)
	}
	return r, nil
}

// environment is the environment of git for the repository in a folder.
func environment(dir string) []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "LC_ALL=C.UTF-8", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + os.DevNull, "GIT_TERMINAL_PROMPT=0",
		// Ignore replacements of objects (git-replace(1), gitglossary(7) "grafts").
		"GIT_NO_REPLACE_OBJECTS=1", "GIT_GRAFT_FILE=" + os.DevNull + "/none", // of a file that is there, git would tell everybody who pushes that grafts are deprecated
		// Offer only these refs to clones, even if an older version took other refs.
		"GIT_CONFIG_COUNT=3", "GIT_CONFIG_KEY_0=uploadpack.hideRefs", "GIT_CONFIG_VALUE_0=refs/",
		"GIT_CONFIG_KEY_1=uploadpack.hideRefs", "GIT_CONFIG_VALUE_1=!refs/heads/", "GIT_CONFIG_KEY_2=uploadpack.hideRefs", "GIT_CONFIG_VALUE_2=!refs/tags/",
	}
}

// The hooks write Git's input into files, for Serve. Each of these variables names a file.
const (
	askedFile = "TRIPHAMMER_ASKED" // the refs that the push wants to move
	movedFile = "TRIPHAMMER_MOVED" // the refs that the push has moved
)

// preReceive is the hook that checks a push. Until it agrees, git keeps the new objects in a
// separate folder (git-receive-pack, "Quarantine Environment"). The check reads a temporary
// repository, which links the new objects and borrows the others. If the hook is killed, git gc
// removes the temporary repository, because it knows names of this form.
const preReceive = `set -e
asked=$(cat)
if [ -n "$ASKED" ]; then printf '%s\n' "$asked" > "$ASKED"; fi
pushed= other= moved=
while read -r old new ref; do
	case $new in *[!0]*) ;; *) new= ;; esac # a deletion
	case $ref in
	refs/heads/BRANCH)
		if [ -n "$moved" ]; then echo "the push moves "BRANCH" twice: move it once" >&2; exit 1; fi
		moved=yes pushed=$new ;;
	refs/heads/*) if [ -n "$new" ]; then other=${ref#refs/heads/}; fi ;;
	refs/tags/*) ;;
	*) echo "$ref is neither a branch nor a tag, and only these are kept here: leave it out of the push" >&2; exit 1 ;;
	esac
done <<END
$asked
END
if [ -z "$pushed" ]; then # a deletion is refused by the settings
	if [ -n "$other" ]; then echo "$other is kept, and nothing of it is checked or applied: the branch that serves is "BRANCH >&2; fi
	exit
fi
view=$(mktemp -d "$PWD/objects/tmp_objdir-incoming-XXXXXX")
trap 'rm -rf "$view"' EXIT
cp -rl "$GIT_OBJECT_DIRECTORY" "$view/objects"
mkdir -p "$view/objects/info" "$view/refs"
echo "ref: refs/heads/none" > "$view/HEAD"
printf '%s\n' "$PWD/objects" > "$view/objects/info/alternates"
CHECK "$pushed" "$view/"FOLDER
`

// installHooks writes the hooks anew, because the program may have moved.
func (r *Repository) installHooks() error {
	quote := func(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }
	words := make([]string, len(r.cfg.Check))
	for i, w := range r.cfg.Check {
		words[i] = quote(w)
	}
	dir := filepath.Join(r.cfg.Dir, "hooks")
	err := os.MkdirAll(dir, 0o700)
	for name, script := range map[string]string{
		// The hook refuses a push whose refs it cannot write down, because the check must see all refs.
		"pre-receive":  strings.NewReplacer("ASKED", askedFile, "BRANCH", quote(r.cfg.Branch), "CHECK", strings.Join(words, " "), "FOLDER", quote(r.cfg.Folder)).Replace(preReceive),
		"post-receive": fmt.Sprintf("if [ -n \"$%[1]s\" ]; then exec cat > \"$%[1]s\"; fi\n", movedFile),
	} {
		name = filepath.Join(dir, name)
		err = errors.Join(err, os.WriteFile(name+".new", []byte("#!/bin/sh\n"+script), 0o700), os.Rename(name+".new", name))
	}
	return err
}

// Dir is the folder of the bare repository.
func (r *Repository) Dir() string { return r.cfg.Dir }

// Tip is the newest commit of the production branch; empty: there is no commit yet.
func (r *Repository) Tip(ctx context.Context) (string, error) {
	out, err := r.git(ctx, nil, "for-each-ref", "--format=%(objectname)", "--", "refs/heads/"+r.cfg.Branch)
	if err != nil {
		return "", fmt.Errorf("reading the branch: %w", err)
	}
	return out, nil
}

// line is a name in a form that a log and a commit can have.
func line(name string) string {
	return cmp.Or(strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '<' || r == '>' {
			return -1
		}
		return r
	}, name)), "unknown")
}

// git runs Git on the repository, and returns what it printed without the last line break.
func (r *Repository) git(ctx context.Context, stdin []byte, args ...string) (string, error) {
	return r.run(ctx, stdin, r.cfg.Dir, append([]string{"--git-dir=" + r.cfg.Dir}, args...)...)
}

func (r *Repository) run(ctx context.Context, stdin []byte, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	var stderr bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdin, cmd.Stderr = dir, r.env, bytes.NewReader(stdin), &stderr
	out, err := cmd.Output()
	if err != nil {
		said, _, _ := strings.Cut(strings.TrimSpace(stderr.String()), "\n")
		return "", fmt.Errorf("git: %w: %s", err, said)
	}
	return strings.TrimSuffix(string(out), "\n"), nil
}
