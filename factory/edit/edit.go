// Package edit changes definitions: it takes a tree of files and a requested [Change], and
// returns the changed files. It reads the tree and writes nothing, so that a server and a
// command line use it alike.
//
// Every other byte stays: comments, order, blank lines, quotes, line ends ([schema.Edit]).
// The package does not validate the whole tree, because a change may need a second change
// to be valid. Package factory does.
package edit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing/fstest"

	"triphammer/factory"
	"triphammer/schema"
)

// Files are the changed files, by path. nil means that the file is deleted.
type Files map[string][]byte

// Paths are the paths of the files, sorted.
func (f Files) Paths() []string {
	paths := make([]string, 0, len(f))
	for name := range f {
		paths = append(paths, name)
	}
	slices.Sort(paths)
	return paths
}

// Change is a requested change of a definition. Keys and text that it leaves out stay.
type Change struct {
	// Keys is a merge patch (RFC 7396) of the keys of the definition: a mapping is merged, null takes
	// a key out, and anything else replaces what is there.
	Keys *schema.Node
	Text *string // the text of a Markdown file, such as the prompt; nil: it stays
}

// Verb names in one word what the change does.
func Verb(c Change) string {
	if c.Text == nil && c.Keys != nil && len(c.Keys.Fields) == 1 && c.Keys.Fields[0].Key == "enabled" {
		switch c.Keys.Fields[0].Value.Text {
		case "true":
			return "Enable"
		case "false":
			return "Disable"
		}
	}
	return "Edit"
}

// Definition is a definition of a tree.
type Definition struct {
	Path string
	Keys *schema.Node
	Text string // the text of a Markdown file
	Data []byte // the whole file
}

// The kinds of an Error.
var (
	ErrNotFound = errors.New("there is no such definition")
	ErrExists   = errors.New("there is such a definition")
	ErrName     = errors.New("no definition can have the name")
	ErrInvalid  = errors.New("the definition would not be valid")
	ErrBroken   = errors.New("the file cannot be changed as it is")
	ErrUsed     = errors.New("other definitions need the definition")
)

// Error says why a definition cannot be changed, and what to do. It wraps one of the kinds above.
type Error struct {
	Kind    error
	Path    string // of the file; empty: the error concerns no file
	Line    int    // in the file; 0: no line
	Message string
	Found   schema.Diagnostics // only for ErrUsed: where other definitions name this definition
}

func (e *Error) Error() string { return e.Message }

func (e *Error) Unwrap() error { return e.Kind }

// names matches the names of definitions that Create makes. A tree may have other names.
var names = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9]([a-z0-9_-]{0,62}[a-z0-9])?$`) })

var notInName = regexp.MustCompile(`[^a-z0-9_-]+`)

// Create makes a definition that does not exist. An error is an *Error, or says why the tree
// cannot be read.
func Create(tree fs.FS, kind, name string, c Change) (Files, error) {
	p := factory.PlaceOf(kind)
	path := p.Path(name)
	if !names().MatchString(name) || path == "" {
		message := fmt.Sprintf("%s %s cannot be named %q: a name has up to 64 small letters, digits, dashes and underscores",
			article(kind), kind, name)
		if like := strings.Trim(notInName.ReplaceAllString(strings.ToLower(name), "-"), "-_"); names().MatchString(like) {
			message += ", such as " + like
		}
		return nil, &Error{Kind: ErrName, Message: message}
	}
	if at := p.Find(tree, name); at != "" {
		return nil, &Error{Kind: ErrExists, Path: at, Message: fmt.Sprintf("there is %s %s %s already, in %s", article(kind), kind, name, at)}
	}
	if _, err := fs.Stat(tree, path); !errors.Is(err, fs.ErrNotExist) {
		return nil, &Error{Kind: ErrExists, Path: path, Message: fmt.Sprintf("something else is in the place of %s", path)}
	}
	keys := &schema.Node{Kind: schema.Mapping}
	if c.Keys != nil {
		keys = merged(keys, ordered(c.Keys, p.Shape()))
	}
	if p.Text() == "" {
		files := Files{path: schema.Encode(keys)}
		return files, check(kind, name, files)
	}
	text := ""
	if c.Text != nil {
		text = *c.Text
	}
	return Files{path: schema.EncodeMarkdown(keys, text)}, nil
}

// Update changes a definition. It returns no files if the definition already is as requested.
func Update(tree fs.FS, kind, name string, c Change) (Files, error) {
	d, err := Read(tree, kind, name)
	if err != nil {
		return nil, err
	}
	p, keys := factory.PlaceOf(kind), d.Keys
	if c.Keys != nil {
		keys = merged(keys, ordered(withoutDefaults(c.Keys, keys, p.Shape()), p.Shape()))
	}
	var out []byte
	if p.Text() == "" {
		out, err = schema.Edit(d.Data, keys)
	} else {
		out, err = schema.EditMarkdown(d.Data, keys, c.Text)
	}
	switch {
	case err != nil:
		return nil, &Error{Kind: ErrBroken, Path: d.Path, Message: fmt.Sprintf("%s: %v", d.Path, err)}
	case bytes.Equal(out, d.Data):
		return Files{}, nil
	}
	files := Files{d.Path: out}
	return files, check(kind, name, files)
}

// check refuses an environment that is not valid. In a tree, an invalid environment is
// ignored as long as no definition names it (SPEC 2.1), so the change would do nothing.
func check(kind, name string, files Files) error {
	if kind != "environment" {
		return nil
	}
	_, found := Alone(name, files)
	for _, d := range found {
		if d.Severity == schema.Error {
			message := strings.TrimSuffix(fmt.Sprintf("%s:%d: %s; %s", d.Path, d.Line, d.Message, d.Hint), "; ")
			return &Error{Kind: ErrInvalid, Path: d.Path, Line: d.Line, Message: message}
		}
	}
	return nil
}

// Alone reads the files of one definition as if the tree held nothing else.
func Alone(name string, files Files) (*factory.Factory, schema.Diagnostics) {
	text := func(key, value string) schema.Field {
		return schema.Field{Key: key, Value: &schema.Node{Kind: schema.String, Text: value}}
	}
	named := &schema.Node{Kind: schema.Mapping, Fields: []schema.Field{text("environmentId", name)}}
	root := &schema.Node{Kind: schema.Mapping, Fields: []schema.Field{
		text("schemaVersion", schema.Version), text("name", "alone"), {Key: "agentDefaults", Value: named},
	}}
	tree := fstest.MapFS{"factory.yaml": {Data: schema.Encode(root)}}
	for path, data := range files {
		tree[path] = &fstest.MapFile{Data: data}
	}
	f, report, err := factory.Load(context.Background(), tree, factory.Options{})
	if err != nil { // only of a tree that cannot be read
		return nil, schema.Diagnostics{{Severity: schema.Error, Message: err.Error()}}
	}
	return f, report.Diagnostics
}

// Delete removes a definition, and the skills of an agent with the agent. It refuses with
// ErrUsed to remove an environment that other definitions name, because their runs would fail.
func Delete(tree fs.FS, kind, name string) (Files, error) {
	p := factory.PlaceOf(kind)
	path := p.Find(tree, name)
	if path == "" {
		return nil, notFound(tree, p, name)
	}
	files := Files{path: nil}
	switch kind {
	case "environment":
		return files, needed(tree, path, name)
	case "agent":
	default:
		return files, nil
	}
	err := fs.WalkDir(tree, strings.TrimSuffix(path, "agent.md")+"skills", func(name string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && !d.IsDir() {
			files[name] = nil
		}
		return err
	})
	return files, err
}

// needed refuses to remove an environment that other definitions name.
func needed(tree fs.FS, path, name string) error {
	var missing [2]schema.Diagnostics // with the file, and without it
	for i, tree := range []fs.FS{tree, hiding{tree, path}} {
		f, _, err := factory.Load(context.Background(), tree, factory.Options{})
		if err != nil {
			return err
		}
		missing[i] = f.Unresolved(nil)
	}
	found := slices.DeleteFunc(missing[1], func(d schema.Diagnostic) bool {
		return slices.ContainsFunc(missing[0], func(was schema.Diagnostic) bool { return was.Path == d.Path && was.Message == d.Message })
	})
	found.Sort()
	if len(found) == 0 {
		return nil
	}
	for i := range found {
		found[i].Severity = schema.Error // in a commit it is a warning
	}
	message := fmt.Sprintf("%s:%d names the environment %s", found[0].Path, found[0].Line, name)
	if more := len(found) - 1; more > 0 {
		message += fmt.Sprintf(" (and %d more)", more)
	}
	return &Error{Kind: ErrUsed, Path: path, Found: found, Message: message + ": without it, runs would fail; name another there first"}
}

// hiding is a tree without one of its files.
type hiding struct {
	fs.FS
	path string
}

func (h hiding) Open(name string) (fs.File, error) {
	if name == h.path {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return h.FS.Open(name)
}

// ReadDir implements fs.ReadDirFS.
func (h hiding) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(h.FS, name)
	return slices.DeleteFunc(slices.Clone(entries), func(e fs.DirEntry) bool { return path.Join(name, e.Name()) == h.path }), err
}

// Read reads a definition.
func Read(tree fs.FS, kind, name string) (*Definition, error) {
	p := factory.PlaceOf(kind)
	path := p.Find(tree, name)
	if path == "" {
		return nil, notFound(tree, p, name)
	}
	data, err := fs.ReadFile(tree, path)
	if err != nil {
		return nil, err
	}
	c := &schema.Collector{Path: path}
	if len(data) > schema.MaxFile {
		return nil, &Error{Kind: ErrBroken, Path: path, Message: fmt.Sprintf("%s has more than %d bytes", path, schema.MaxFile)}
	}
	var doc *schema.Document
	if p.Text() == "" {
		doc = schema.Parse(c, data, schema.Mapping)
	} else {
		doc = schema.ParseMarkdown(c, data)
	}
	if len(c.Found) > 0 {
		first := c.Found[0]
		return nil, &Error{
			Kind: ErrBroken, Path: path, Line: first.Line,
			Message: fmt.Sprintf("%s:%d: %s; mend that first", path, first.Line, first.Message),
		}
	}
	return &Definition{Path: path, Keys: doc.Root, Text: doc.Body, Data: data}, nil
}

// Line is the line of the first key of a change in the definition; 1 if the definition lacks
// the key.
func (d *Definition) Line(c Change) int {
	if c.Keys != nil {
		for _, f := range c.Keys.Fields {
			if d.Keys.Get(f.Key) != nil {
				return d.Keys.KeyAt(f.Key).Line
			}
		}
	}
	return 1
}

func notFound(tree fs.FS, p factory.Place, name string) error {
	message := fmt.Sprintf("the factory has no %s %s", p.Kind(), name)
	if hint := schema.OneOf(name, p.Names(tree)); hint != "" {
		message += "; " + hint
	}
	return &Error{Kind: ErrNotFound, Message: message}
}

func article(noun string) string {
	if strings.ContainsRune("aeiou", rune(noun[0])) {
		return "an"
	}
	return "a"
}

// ordered is a value with its keys in the order of the documentation.
func ordered(n *schema.Node, shape *schema.Shape) *schema.Node {
	if n == nil || shape == nil {
		return n
	}
	out := *n
	out.Fields, out.Items = slices.Clone(n.Fields), slices.Clone(n.Items)
	position := func(f schema.Field) int {
		i := slices.IndexFunc(shape.Keys, func(k schema.Key) bool { return k.Name == f.Key })
		if i < 0 {
			i = len(shape.Keys)
		}
		return i
	}
	slices.SortStableFunc(out.Fields, func(a, b schema.Field) int { return position(a) - position(b) })
	for i, f := range out.Fields {
		out.Fields[i].Value = ordered(f.Value, shape.Below(f.Key))
	}
	for i, item := range out.Items {
		out.Items[i] = ordered(item, shape.Elem)
	}
	return &out
}

func merged(n, patch *schema.Node) *schema.Node {
	if patch.Kind != schema.Mapping {
		return patch
	}
	out := &schema.Node{Kind: schema.Mapping}
	if n != nil && n.Kind == schema.Mapping {
		out.Fields = slices.Clone(n.Fields)
	}
	for _, f := range patch.Fields {
		i := slices.IndexFunc(out.Fields, func(has schema.Field) bool { return has.Key == f.Key })
		switch {
		case f.Value.Kind == schema.Null && i >= 0:
			out.Fields = slices.Delete(out.Fields, i, i+1)
		case f.Value.Kind == schema.Null:
		case i >= 0:
			out.Fields[i].Value = merged(out.Fields[i].Value, f.Value)
		default:
			out.Fields = append(out.Fields, schema.Field{Key: f.Key, Value: merged(nil, f.Value)})
		}
	}
	return out
}

// withoutDefaults leaves out of a patch each key whose value is the default and which the
// definition lacks.
func withoutDefaults(patch, keys *schema.Node, shape *schema.Shape) *schema.Node {
	out := &schema.Node{Kind: patch.Kind}
	for _, f := range patch.Fields {
		i := slices.IndexFunc(shape.Keys, func(k schema.Key) bool { return k.Name == f.Key && k.Default != "" })
		if keys.Get(f.Key) == nil && i >= 0 && shape.Keys[i].Default == string(f.Value.AppendJSON(nil)) {
			continue
		}
		out.Fields = append(out.Fields, f)
	}
	return out
}

var notInSecret = regexp.MustCompile(`[^A-Z0-9]+`)

// SecretName suggests a name for the managed secret of a webhook.
func SecretName(webhook string) string {
	name := strings.Trim(notInSecret.ReplaceAllString(strings.ToUpper(webhook), "_"), "_")
	if name == "" || name[0] < 'A' {
		name = strings.TrimSuffix("HOOK_"+name, "_")
	}
	return name + "_WEBHOOK_SECRET"
}
