package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"triphammer/cmd/triphammer/client/exit"
	"triphammer/cmd/triphammer/client/term"
	"triphammer/server/api"
	"triphammer/server/run/event"
)

func artifactsCommand() *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use: "artifacts ID", Short: "List or download what a run left: files and links", Args: Exactly("ID"),
		Long: `List what a run left: files, links such as a pull request, and the patch of what it changed. With --download, its files
are saved to a folder, which is made if it is missing. No file that is there is written over.`,
		RunE: WithServer(false, func(c *cobra.Command, args []string, cl *Client) error {
			var r api.Run
			if err := cl.Get(c.Context(), "/agent/runs/"+url.PathEscape(args[0]), &r); err != nil {
				return err
			}
			if dir != "" {
				if err := downloadArtifacts(c.Context(), cl, r.Artifacts, dir, term.ForPeople(c, c.ErrOrStderr())); err != nil {
					return err
				}
			}
			return term.EmitList(c, r.Artifacts, func(a api.Artifact) string { return a.UID },
				[]string{"ID", "TYPE", "SIZE", "NAME", "LINK"}, func(a api.Artifact) term.Cells {
					size := ""
					if a.Data.Size != nil {
						size = event.Bytes(*a.Data.Size)
					}
					return term.Cells{a.UID, a.Type, size, term.Prose(cmp.Or(a.Data.FilePath, a.Data.Title)), term.Prose(a.Data.URL)}
				})
		}),
	}
	c.Flags().StringVar(&dir, "download", "", "folder to save the files to")
	term.OutputFlag(c)
	return c
}

// downloadArtifacts saves files to a folder. An agent has chosen their names: none leads
// out of the folder, also not over a symbolic link.
func downloadArtifacts(ctx context.Context, cl *Client, all []api.Artifact, dir string, log io.Writer) (err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return exit.With(exit.Usage, "--download: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return exit.With(exit.Usage, "--download: %w", err)
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	for _, a := range all {
		if a.Data.UID == "" {
			continue // a link
		}
		if err := downloadArtifact(ctx, cl, a, root); err != nil {
			return err
		}
		fmt.Fprintf(log, "%s (%s)\n", filepath.Join(dir, a.Data.FilePath), event.Bytes(*a.Data.Size))
	}
	return nil
}

func downloadArtifact(ctx context.Context, cl *Client, a api.Artifact, root *os.Root) (err error) {
	name, err := filepath.Localize(a.Data.FilePath)
	if err != nil || a.Data.Size == nil {
		return exit.With(exit.Bad, "the artifact %s has the name %q, which is no name of a file here", a.UID, a.Data.FilePath)
	}
	if err := root.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return exit.With(exit.Usage, "--download: %w", err)
	}
	f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	switch {
	case errors.Is(err, fs.ErrExist):
		return exit.With(exit.Conflict, "%s exists already, and is not overwritten", filepath.Join(root.Name(), name))
	case err != nil:
		return exit.With(exit.Usage, "--download: %w", err)
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			_ = root.Remove(name)
		}
	}()
	resp, err := cl.Answer(ctx, http.MethodGet, "/agent/artifacts/"+url.PathEscape(a.UID)+"/download", nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	n, err := io.Copy(f, resp.Body)
	if err == nil && n != *a.Data.Size {
		err = fmt.Errorf("%d of %d bytes came", n, *a.Data.Size)
	}
	if err != nil {
		return exit.With(exit.Unreachable, "%s: %w", name, err)
	}
	return nil
}
