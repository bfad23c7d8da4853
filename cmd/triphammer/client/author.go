package client

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"triphammer/applier"
	"triphammer/cmd/triphammer/client/exit"
	"triphammer/cmd/triphammer/client/term"
	"triphammer/factory"
	"triphammer/factory/edit"
	"triphammer/schema"
	"triphammer/server/api"
)

// author are the flags of commands that make and change definitions.
type author struct {
	dir    string
	commit api.Commit
}

const authorHelp = `

Of a factory whose repository lives on the server, this is a commit in your name, which is checked and applied at once. Of
any other, the files in --dir (or in this folder) change: commit and push them.`

func (a *author) flags(c *cobra.Command) {
	c.Flags().StringVar(&a.dir, "dir", "", "change the files in this folder, which holds factory.yaml, and ask no server")
	c.Flags().StringVarP(&a.commit.Message, "message", "m", "", "why; the message of the commit")
	c.Flags().StringVar(&a.commit.Base, "base", "", "commit that you have seen: refuse the change if others changed the file since")
	term.OutputFlag(c)
	ClientFlags(c)
	for _, flag := range []string{"message", "base", "server", "data", "context", "factory"} {
		c.MarkFlagsMutuallyExclusive("dir", flag)
	}
}

// server is a client of the server that the flags and variables name. It is nil if the files
// in a folder are to change instead: with --dir, and if no server is named in a folder of
// definitions.
func (a *author) server(c *cobra.Command) (cl *Client, factory string, err error) {
	if a.dir != "" {
		return nil, "", nil
	}
	named, err := namedTarget(c)
	if err != nil {
		return nil, "", err
	}
	if named.None() {
		if _, err := os.Lstat("factory.yaml"); err == nil {
			return nil, "", nil
		}
		if nearest, err := TargetOf(c); err != nil || nearest.None() {
			return nil, "", cmp.Or(err, exit.With(exit.Usage,
				"which factory? Give --server URL, --data DIR or --context NAME of a server that hosts it, or --dir with the folder that holds factory.yaml"))
		}
	}
	if cl, err = Connect(c, true); err != nil {
		return nil, "", err
	}
	if factory, err = cl.only(c.Context()); err != nil {
		cl.Close()
		return nil, "", err
	}
	return cl, factory, nil
}

// isElsewhere tells whether a server refused a change because the repository of the factory
// is elsewhere. Then the files here are to change, if this is a folder of definitions.
func isElsewhere(err error) bool {
	p, ok := errors.AsType[*problem](err)
	if !ok || p.Status != http.StatusConflict || !slices.ContainsFunc(p.Errors, func(f api.FieldProblem) bool { return f.Field == "path" }) {
		return false
	}
	_, missing := os.Lstat("factory.yaml")
	return missing == nil
}

// definitionPath is the path of a definition of a factory; of all of a kind if name is empty.
func definitionPath(factory, kind, name string) string {
	at := "/factories/" + url.PathEscape(factory) + "/" + kind + "s"
	if name != "" {
		at += "/" + url.PathEscape(name)
	}
	return at
}

// deletePath is definitionPath of a request without a body.
func (a *author) deletePath(factory, kind, name string) string {
	query := url.Values{}
	for key, value := range map[string]string{"base": a.commit.Base, "message": a.commit.Message} {
		if value != "" {
			query.Set(key, value)
		}
	}
	at := definitionPath(factory, kind, name)
	if len(query) > 0 {
		at += "?" + query.Encode()
	}
	return at
}

// treeChange is what a command did to the files of a folder, as JSON.
type treeChange struct {
	Kind  string     `json:"kind"`
	Name  string     `json:"name"`
	Files []treeFile `json:"files"`
	Next  string     `json:"next"`

	SecretName string `json:"secret_name,omitempty"` // of a new webhook
	Secret     string `json:"secret,omitempty"`      // a generated one, which is not shown again
}

type treeFile struct {
	Path   string `json:"path"`
	Action string `json:"action"` // created, changed, deleted
}

// inTree changes the files of a folder: make makes them from those that are there. Nothing is
// written if the definitions would not be valid.
func (a *author) inTree(c *cobra.Command, kind, name string, make func(tree fs.FS) (edit.Files, error)) (treeChange, error) {
	done := treeChange{Kind: kind, Name: name, Files: []treeFile{}, Next: "commit and push"}
	dir := cmp.Or(a.dir, ".")
	r, err := openTree(c, dir, "")
	if err != nil {
		return done, err
	}
	defer r.release()
	if _, err := fs.Stat(r.Tree, "factory.yaml"); err != nil {
		return done, exit.With(exit.Usage, "%s holds no factory.yaml: name the folder that does with --dir", dir)
	}
	files, err := make(r.Tree)
	if err != nil {
		return done, treeError(dir, err)
	}
	if err := checkTree(c, r, files); err != nil {
		return done, err
	}
	for _, name := range files.Paths() {
		action := "changed"
		if _, err := fs.Stat(r.Tree, name); err != nil {
			action = "created"
		} else if files[name] == nil {
			action = "deleted"
		}
		if err := writeIn(dir, name, files[name]); err != nil {
			return done, exit.With(exit.Usage, "%w", err)
		}
		done.Files = append(done.Files, treeFile{filepath.ToSlash(filepath.Join(dir, name)), action})
	}
	return done, nil
}

// byServerOrTree makes a change by the server, and shows it. If the repository of the factory is
// elsewhere, it makes the change in the files of a folder.
func byServerOrTree[T any](
	c *cobra.Command, a *author, kind, name string,
	send func(*Client, string) (T, error), show func(T) error, make func(fs.FS) (edit.Files, error),
) error {
	cl, factory, err := a.server(c)
	if err != nil {
		return err
	}
	if cl != nil {
		defer cl.Close()
		made, err := send(cl, factory)
		if err == nil {
			return show(made)
		}
		if !isElsewhere(err) {
			return explained(c, err)
		}
	}
	done, err := a.inTree(c, kind, name, make)
	if err != nil {
		return err
	}
	return done.show(c)
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
func checkTree(c *cobra.Command, r Folder, files edit.Files) error {
	read := applier.NewRecorder(r.Tree)
	_, before, err := factory.Load(c.Context(), read, factory.Options{})
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
	_, report, err := factory.Load(c.Context(), after.FS(), factory.Options{})
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
	if err := schema.Print(term.ForPeople(c, c.ErrOrStderr()), "text", report, schema.PrintOptions{Prefix: r.prefix, Source: source}); err != nil {
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

// show prints what changed in a folder.
func (done treeChange) show(c *cobra.Command) error {
	names := make([]string, len(done.Files))
	for i, f := range done.Files {
		names[i] = f.Path
	}
	return term.Emit(c, done, names, func(w io.Writer) error {
		for _, f := range done.Files {
			fmt.Fprintf(w, "%s %s\n", f.Action, f.Path)
		}
		if len(done.Files) == 0 {
			fmt.Fprintf(w, "nothing to change: %s %s says so already\n", done.Kind, done.Name)
			return nil
		}
		fmt.Fprintln(w, "Commit and push it; the server applies the push.")
		return nil
	})
}

// confirmed refuses to delete without --yes.
func confirmed(yes bool, does string) error {
	if yes {
		return nil
	}
	return exit.With(exit.Usage, "this %s: say --yes if you mean it", does)
}
