package tree

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"triphammer/applier"
	"triphammer/cmd/triphammer/client/exit"
	"triphammer/factory"
	"triphammer/factory/edit"
	"triphammer/schema"
)

// File is a file that has changed.
type File struct {
	Path   string `json:"path"`
	Action string `json:"action"` // created, changed, deleted
}

// Change changes the files of a folder: make makes them from those that are there. Nothing is
// written if the definitions would not be valid; findings gets why.
func Change(ctx context.Context, dir string, findings io.Writer, make func(tree fs.FS) (edit.Files, error)) ([]File, error) {
	done := []File{}
	r, err := Open(ctx, dir, "")
	if err != nil {
		return done, err
	}
	defer r.Release()
	if _, err := fs.Stat(r.FS, "factory.yaml"); err != nil {
		return done, exit.With(exit.Usage, "%s holds no factory.yaml: name the folder that does with --dir", dir)
	}
	files, err := make(r.FS)
	if err != nil {
		return done, treeError(dir, err)
	}
	if err := checkTree(ctx, findings, r, files); err != nil {
		return done, err
	}
	for _, name := range files.Paths() {
		action := "changed"
		if _, err := fs.Stat(r.FS, name); err != nil {
			action = "created"
		} else if files[name] == nil {
			action = "deleted"
		}
		if err := writeIn(dir, name, files[name]); err != nil {
			return done, exit.With(exit.Usage, "%w", err)
		}
		done = append(done, File{filepath.ToSlash(filepath.Join(dir, name)), action})
	}
	return done, nil
}

// treeError is the error of a command for one of package edit.
func treeError(dir string, err error) error {
	code := exit.Usage
	switch said := (*exit.Error)(nil); {
	case errors.As(err, &said):
		return err
	case errors.Is(err, edit.ErrNotFound):
		code = exit.NotFound
	case errors.Is(err, edit.ErrExists):
		code = exit.Conflict
	case errors.Is(err, edit.ErrUsed):
		code = exit.Bad
	}
	return exit.With(code, "%s: %w", dir, err)
}

// checkTree refuses files with which the tree would have errors that it does not have now.
func checkTree(ctx context.Context, findings io.Writer, r Folder, files edit.Files) error {
	read := applier.NewRecorder(r.FS)
	_, before, err := factory.Load(ctx, read, factory.Options{})
	if err != nil {
		return exit.With(exit.Usage, "%w", err)
	}
	all := make(map[string]applier.File)
	for _, f := range read.Snapshot().Files {
		all[f.Path] = f
	}
	for name, data := range files {
		if delete(all, name); data != nil {
			all[name] = applier.File{Path: name, Data: data}
		}
	}
	after := applier.Snapshot{Files: slices.Collect(maps.Values(all))}
	_, report, err := factory.Load(ctx, after.FS(), factory.Options{})
	if err != nil {
		return exit.With(exit.Usage, "%w", err)
	}
	known := make(map[[3]string]bool)
	for _, d := range before.Diagnostics {
		known[[3]string{d.Code, d.Path, d.Message}] = true
	}
	report.Diagnostics = slices.DeleteFunc(report.Diagnostics, func(d schema.Diagnostic) bool {
		return known[[3]string{d.Code, d.Path, d.Message}]
	})
	if len(report.Diagnostics) == 0 {
		return nil
	}
	source := func(name string) []byte { return all[name].Data }
	if err := schema.Print(findings, "text", report, schema.PrintOptions{Prefix: r.Prefix, Source: source}); err != nil {
		return err
	}
	if report.Diagnostics.HasErrors() {
		return exit.With(exit.Bad, "nothing has changed: the definitions would not be valid")
	}
	return nil
}

// writeIn writes a file of a folder, or removes it with the folders that are empty then. It
// follows no link out of the folder.
func writeIn(dir, name string, data []byte) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	if data == nil {
		if err := root.Remove(name); err != nil {
			return err
		}
		for at := path.Dir(name); strings.Contains(at, "/") && root.Remove(at) == nil; at = path.Dir(at) {
		}
		return nil
	}
	if err := root.MkdirAll(path.Dir(name), 0o777); err != nil {
		return err
	}
	mode := fs.FileMode(0o666)
	if info, err := root.Stat(name); err == nil {
		mode = info.Mode().Perm()
	}
	// A file that is replaced as a whole is never half written.
	fresh := path.Join(path.Dir(name), ".triphammer-"+path.Base(name))
	err = root.WriteFile(fresh, data, mode)
	if err == nil {
		err = root.Rename(fresh, name)
	}
	if err != nil {
		_ = root.Remove(fresh) // it may not be there
	}
	return err
}
