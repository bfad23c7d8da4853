package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"

	"github.com/spf13/cobra"

	"triphammer/cmd/triphammer/client/exit"
	"triphammer/server/api"
	"triphammer/server/mcp"
)

func mcpCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "mcp",
		Short: "Give a program that uses models the tools of a server, over standard input and output",
		Long: `Speak the Model Context Protocol over standard input and output, so that a coding agent or an editor can ask why
something did or did not start, follow runs, start them and plan changes of definitions. The program starts this
command itself; what it writes into its configuration is in docs/mcp.md. A server has the same tools at /mcp.

With --server, the tools are those that the scopes of the key in TRIPHAMMER_API_KEY (or in the file that
TRIPHAMMER_API_KEY_FILE names) allow: give it a key of the smallest scope. With --data, they are all tools, because
you own the data directory; it needs no running server, and holds the data directory only during a call.`,
		Example: `  TRIPHAMMER_API_KEY_FILE=~/.triphammer-key triphammer mcp --server https://hammer.example.com
  triphammer mcp --data /var/lib/triphammer`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return serveTools(c) },
	}
	ClientFlags(c)
	return c
}

// serveTools answers messages until standard input ends. Only messages of the protocol may be
// written to standard output.
func serveTools(c *cobra.Command) error {
	var caller api.Caller
	cl, err := Connect(c, false)
	if err == nil {
		err = cl.Get(c.Context(), "/caller", &caller)
		cl.Close()
	}
	if err != nil {
		return err
	}
	if cl.factory != "" {
		caller.Factory = cl.factory
	}
	logger := slog.New(slog.NewTextHandler(c.ErrOrStderr(), nil))
	peer := mcp.Peer{Caller: caller, Version: Version, Logger: logger, API: func(ctx context.Context, method, path string, body []byte) (int, []byte, error) {
		// Each call connects, because a server can start or stop between two of them, and must
		// find the data directory free.
		cl, err := Connect(c, false)
		if err != nil {
			return 0, nil, err
		}
		defer cl.Close()
		var from io.Reader
		if body != nil {
			from = bytes.NewReader(body)
		}
		answer, err := cl.do(ctx, method, path, from)
		if refused := (*problem)(nil); errors.As(err, &refused) {
			return refused.Status, refused.body, nil
		}
		return http.StatusOK, answer, err
	}}
	in := c.InOrStdin()
	closing, ok := in.(io.ReadCloser)
	if !ok {
		closing = io.NopCloser(in)
	}
	err = peer.Serve(c.Context(), closing, stdout{c.OutOrStdout()})
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, context.Canceled) || errors.Is(err, os.ErrClosed) {
		return nil // the program has ended, or a person has ended this command
	}
	return exit.With(exit.Usage, "standard input is not messages of the Model Context Protocol, one a line: %w", err)
}

// stdout is not closed by who writes to it.
type stdout struct{ io.Writer }

func (stdout) Close() error { return nil }
