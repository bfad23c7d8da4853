package factory

import (
	"io/fs"
	"path"
	"slices"
	"strings"

	"triphammer/schema"
)

// Place is where the definitions of one kind live, and what they hold.
type Place struct{ kind *kind }

// PlaceOf is the place of a kind: agent, automation, environment, webhook and so on.
func PlaceOf(id string) Place {
	return Place{find(kinds, func(k *kind) bool { return k.id == id })}
}

// Kind is the name of the kind.
func (p Place) Kind() string { return p.kind.id }

// Shape is the shape of the definitions.
func (p Place) Shape() *schema.Shape { return p.kind.shape }

// Text says what the text of a Markdown file of the kind is, such as prompt. It is empty if
// the files are YAML.
func (p Place) Text() string { return p.kind.text }

// Path is the path of a new definition; empty if no definition can have the name.
func (p Place) Path(name string) string {
	return p.named(strings.Replace(p.kind.pattern, "NAME", name, 1), name)
}

// Find is the path of the definition in a tree; empty if there is none. It follows no link.
func (p Place) Find(tree fs.FS, name string) string {
	for _, at := range []string{p.Path(name), p.named(p.kind.folder+"/"+name+path.Ext(p.kind.pattern), name)} {
		if at == "" {
			continue
		}
		for dir, is := at, fs.FileMode(0); ; dir, is = path.Dir(dir), fs.ModeDir {
			entries, err := fs.ReadDir(tree, path.Dir(dir))
			if err != nil || !slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == path.Base(dir) && e.Type() == is }) {
				break
			}
			if path.Dir(dir) == "." {
				return at
			}
		}
	}
	return ""
}

// Names are the names of the definitions in a tree.
func (p Place) Names(tree fs.FS) (names []string) {
	entries, err := fs.ReadDir(tree, p.kind.folder)
	if err != nil {
		return nil // there is none
	}
	for _, e := range entries {
		name := strings.TrimSuffix(e.Name(), path.Ext(p.kind.pattern))
		if p.Find(tree, name) != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// named is the path at if a definition there has the name, or else empty.
func (p Place) named(at, name string) string {
	rest, ok := strings.CutPrefix(at, p.kind.folder+"/")
	if k, is := place(p.kind.folder, rest); !ok || !fs.ValidPath(at) || k != p.kind || is != name {
		return ""
	}
	return at
}
