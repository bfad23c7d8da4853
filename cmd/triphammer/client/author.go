package client

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"triphammer/cmd/triphammer/client/exit"
	"triphammer/cmd/triphammer/client/term"
	"triphammer/cmd/triphammer/client/tree"
	"triphammer/factory/edit"
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
	Kind  string      `json:"kind"`
	Name  string      `json:"name"`
	Files []tree.File `json:"files"`
	Next  string      `json:"next"`

	SecretName string `json:"secret_name,omitempty"` // of a new webhook
	Secret     string `json:"secret,omitempty"`      // a generated one, which is not shown again
}

// inTree changes the files of a folder.
func (a *author) inTree(c *cobra.Command, kind, name string, make func(tree fs.FS) (edit.Files, error)) (treeChange, error) {
	files, err := tree.Change(c.Context(), cmp.Or(a.dir, "."), term.ForPeople(c, c.ErrOrStderr()), make)
	return treeChange{Kind: kind, Name: name, Files: files, Next: "commit and push"}, err
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
