package server

import (
	"cmp"
	"errors"
	"io/fs"
	"slices"
	"strings"
)

// overlay is a tree with some files changed.
type overlay struct {
	base, top fs.FS
	gone      map[string]bool // files of base that are not there any more
}

// Open implements fs.FS.
func (o overlay) Open(name string) (fs.File, error) {
	if o.gone[name] {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	f, err := o.top.Open(name)
	if err == nil {
		if info, err := f.Stat(); err != nil || !info.IsDir() {
			return f, err
		}
		if folder, err := o.base.Open(name); err == nil {
			_ = f.Close()
			return folder, nil
		}
		return f, nil
	}
	return o.base.Open(name)
}

// ReadDir implements fs.ReadDirFS.
func (o overlay) ReadDir(name string) ([]fs.DirEntry, error) {
	above, err := fs.ReadDir(o.top, name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	below, missing := fs.ReadDir(o.base, name)
	if missing != nil && (err != nil || !errors.Is(missing, fs.ErrNotExist)) {
		return nil, missing
	}
	all := above
	for _, e := range below {
		path := strings.TrimPrefix(name+"/"+e.Name(), "./")
		if !o.gone[path] && !slices.ContainsFunc(above, func(a fs.DirEntry) bool { return a.Name() == e.Name() }) {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b fs.DirEntry) int { return cmp.Compare(a.Name(), b.Name()) })
	return all, nil
}
