package gitrepo

import (
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	pollEvery = 5 * time.Second      // finds changes that notifications miss
	settle    = 5 * time.Millisecond // joins the events of one push into one kick
)

// Watch calls kick once at the start and whenever the branch may have moved, until ctx is
// done. kick must not block. Watch watches folders, because Git replaces the file of a
// ref. It also polls, because some file systems send no notifications, and because a
// repository can be replaced as a whole.
func (r *Repo) Watch(ctx context.Context, kick func()) error {
	return watch(ctx, kick, func() []string {
		common := commonDir(gitDir(r.path)) // packed-refs is here
		heads := filepath.Join(common, "refs", "heads")
		dirs := []string{common, filepath.Dir(heads), heads}
		for dir := filepath.Dir(r.branch); dir != "." && dir != "/"; dir = filepath.Dir(dir) {
			dirs = append(dirs, filepath.Join(heads, dir))
		}
		return dirs
	})
}

// watch watches the folders again before each kick. So a new folder is watched before its
// content is read.
func watch(ctx context.Context, kick func(), folders func() []string) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		// There are no inotify instances left. Polling alone still finds all changes.
		return poll(ctx, kick)
	}
	defer func() { _ = watcher.Close() }()
	arm := func() {
		for _, dir := range folders() {
			_ = watcher.Add(dir) // a later round adds folders that do not exist yet
		}
	}
	arm()
	kick() // for changes from before the folders were watched
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	pending := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			arm()
			kick()
		case <-timer.C:
			pending = false
			arm()
			kick()
		case event, ok := <-watcher.Events:
			if !ok {
				return poll(ctx, kick)
			}
			if event.Op != fsnotify.Chmod && !strings.HasSuffix(event.Name, ".lock") && !pending {
				pending = true
				timer.Reset(settle)
			}
		case <-watcher.Errors: // events were lost, so something may have changed
			if !pending {
				pending = true
				timer.Reset(settle)
			}
		}
	}
}

func poll(ctx context.Context, kick func()) error {
	kick()
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			kick()
		}
	}
}

// Watch calls kick at once and then at every poll, until ctx is done. Each poll is a little
// early or late at random, so that many servers do not ask at the same time.
func (r *Remote) Watch(ctx context.Context, kick func()) error {
	for {
		kick()
		wait := time.NewTimer(r.Poll*9/10 + rand.N(r.Poll/5+1))
		select {
		case <-ctx.Done():
			wait.Stop()
			return nil
		case <-wait.C:
		}
	}
}

// gitDir is the folder in which the repository at root keeps its HEAD.
func gitDir(root string) string {
	dotGit := filepath.Join(root, ".git")
	info, err := os.Stat(dotGit)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return root // bare
	case err == nil && info.Mode().IsRegular(): // a linked worktree
		if text, err := os.ReadFile(dotGit); err == nil {
			if dir, ok := strings.CutPrefix(strings.TrimSpace(string(text)), "gitdir: "); ok {
				if !filepath.IsAbs(dir) {
					dir = filepath.Join(root, dir)
				}
				return dir
			}
		}
	}
	return dotGit
}

// commonDir is the folder that holds the refs of a linked worktree.
func commonDir(dir string) string {
	text, err := os.ReadFile(filepath.Join(dir, "commondir"))
	if err != nil {
		return dir
	}
	common := strings.TrimSpace(string(text))
	if !filepath.IsAbs(common) {
		common = filepath.Join(dir, common)
	}
	return common
}
