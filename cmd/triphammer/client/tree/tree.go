// Package tree opens folders of definitions on this machine, and changes their files.
package tree

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"triphammer/applier/gitrepo"
	"triphammer/cmd/triphammer/client/exit"
)

// Folder is a folder of definitions, in the working tree or in a commit.
type Folder struct {
	FS      fs.FS
	Prefix  string // the folder within its repository, or the given one; ends in a slash
	Release func()
}

// Source reads a file of the folder; nil if the file cannot be read.
func (r Folder) Source(name string) []byte {
	text, err := fs.ReadFile(r.FS, name)
	if err != nil {
		return nil
	}
	return text
}

// Open opens the definitions in a folder. With rev, the folder need not exist any more.
func Open(ctx context.Context, dir, rev string) (Folder, error) {
	if rev != "" {
		repo, folder, err := repositoryOf(dir)
		if err != nil {
			return Folder{}, exit.With(exit.Usage, "%w", err)
		}
		commit, err := repo.Commit(ctx, rev)
		if err != nil {
			return Folder{}, exit.With(exit.Usage, "%w", err)
		}
		tree, err := repo.Tree(ctx, commit.Hash, folder)
		if err != nil {
			return Folder{}, exit.With(exit.Usage, "%w", err)
		}
		return Folder{tree, slashed(folder), func() {}}, nil
	}
	info, err := os.Stat(dir)
	if err != nil {
		return Folder{}, exit.With(exit.Usage, "%w", err)
	}
	if !info.IsDir() {
		return Folder{}, exit.With(exit.Usage, "%s is not a folder: name the one that holds factory.yaml", dir)
	}
	w, err := gitrepo.OpenWorkTree(dir)
	if err != nil {
		return Folder{}, exit.With(exit.Usage, "%w", err)
	}
	return Folder{w.FS(), slashed(filepath.Clean(dir)), func() { _ = w.Close() }}, nil
}

// repositoryOf finds the repository of a folder, and the path of the folder in it. It
// follows links in the part of the path that exists. The rest may exist only in a commit,
// or in a bare repository.
func repositoryOf(dir string) (repo *gitrepo.Repo, folder string, err error) {
	there, err := filepath.Abs(dir)
	if err != nil {
		return nil, "", err
	}
	for rest := ""; ; there = filepath.Dir(there) {
		target, err := filepath.EvalSymlinks(there)
		if err == nil {
			there = filepath.Join(target, rest)
			break
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, "", err
		}
		rest = filepath.Join(filepath.Base(there), rest)
	}
	if repo, err = gitrepo.Open(there, "main"); err != nil {
		return nil, "", err
	}
	folder, err = filepath.Rel(repo.Root(), there)
	return repo, filepath.ToSlash(folder), err
}

// InRepository is the path of a folder in its repository. Services name files by that
// path, wherever the job ran. Outside of a repository, it is the given path.
func InRepository(dir, asked string) string {
	_, folder, err := repositoryOf(dir)
	if err != nil {
		return asked
	}
	return slashed(folder)
}

func slashed(dir string) string {
	if dir == "." {
		return ""
	}
	return path.Clean(filepath.ToSlash(dir)) + "/"
}

// Below finds the factories in a folder, including the folder itself and those inside
// another factory. It does not look into hidden folders and node_modules.
func Below(r Folder) ([]Folder, error) {
	var found []Folder
	err := fs.WalkDir(r.FS, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if base := path.Base(name); name != "." && (strings.HasPrefix(base, ".") || base == "node_modules") {
			return fs.SkipDir
		}
		entries, err := fs.ReadDir(r.FS, name)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if e.Name() == "factory.yaml" {
				sub, err := fs.Sub(r.FS, name)
				if err != nil {
					return err
				}
				found = append(found, Folder{sub, r.Prefix + slashed(name), func() {}})
				break
			}
		}
		return nil
	})
	if len(found) > 0 {
		found[0].Release = r.Release
	}
	return found, err
}
