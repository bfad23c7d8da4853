package hosted

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Names are the factories that have a repository in the folder dir, sorted by name.
func Names(dir string) (names []string, err error) {
	all, err := filepath.Glob(filepath.Join(dir, "*.git"))
	for _, path := range all {
		names = append(names, strings.TrimSuffix(filepath.Base(path), ".git"))
	}
	return names, err
}

// Bundle writes the branches and tags of a repository, as they are at one moment, to a new file in
// the format of git bundle. If the repository is empty, so is the file. branch is the production
// branch.
func Bundle(ctx context.Context, dir, to string) (branch string, err error) {
	r := &Repository{cfg: Config{Dir: dir}, env: environment(dir)}
	if branch, err = r.git(ctx, nil, "symbolic-ref", "--short", "HEAD"); err != nil {
		return "", fmt.Errorf("copying the repository %s: %w", dir, err)
	}
	found, err := r.git(ctx, nil, "for-each-ref", "--count=1", "refs/heads", "refs/tags")
	switch {
	case err == nil && found == "":
		err = os.WriteFile(to, nil, 0o600)
	case err == nil:
		_, err = r.git(ctx, nil, "bundle", "create", "--quiet", to, "--branches", "--tags")
	}
	if err != nil {
		return "", fmt.Errorf("copying the repository %s: %w", dir, err)
	}
	return branch, nil
}

// Unbundle makes a repository from a file of Bundle. Kept lists the factory, so that a server serves
// it without configuration. why is for people who look into the folder.
func Unbundle(ctx context.Context, bundle, branch, dir, why string) error {
	dir, err := filepath.Abs(dir)
	if err == nil {
		bundle, err = filepath.Abs(bundle)
	}
	if err != nil {
		return err
	}
	r := &Repository{cfg: Config{Dir: dir}, env: environment(dir)}
	info, err := os.Stat(bundle)
	if err == nil {
		_, err = r.run(ctx, nil, filepath.Dir(dir), "init", "--quiet", "--bare", "--template=", "--initial-branch="+branch, "--", dir)
	}
	if err == nil && info.Size() > 0 {
		_, err = r.git(ctx, nil, "-c", "fetch.fsckObjects=true", "-c", "core.fsync=all", "fetch", "--quiet", bundle, "refs/heads/*:refs/heads/*", "refs/tags/*:refs/tags/*")
	}
	if err != nil {
		return fmt.Errorf("making the repository %s: %w", dir, err)
	}
	return r.Keep(why)
}
