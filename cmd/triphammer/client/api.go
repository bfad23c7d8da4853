package client

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"triphammer/cmd/triphammer/client/exit"
	"triphammer/server/api"
)

// apiMethods are those that the API knows.
var apiMethods = []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}

func apiCommand() *cobra.Command {
	var body string
	var headers []string
	var include bool
	c := &cobra.Command{
		Use: "api METHOD PATH", Short: "Make a request to the API, and print the answer", Args: Exactly("METHOD", "PATH"),
		Long: `Make a request to the API of the server that commands reach, with its key, and print the body of the answer as it
comes. A PATH is below /api/v1 unless it begins with that or names another route, such as /openapi.yaml or /healthz. An
answer that is no success is printed too, and sets the exit status: see "triphammer help exit-codes".`,
		Example: `  triphammer api GET /status
  triphammer api GET '/agent/runs?limit=5'
  triphammer api POST /agent/runs -d '{"prompt": "Say hello.", "config": {"environment_id": "demo"}}'
  triphammer api POST /filters/test -d @test.json -i`,
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return apiMethods, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: WithServer(false, func(c *cobra.Command, args []string, cl *Client) error {
			return cl.raw(c, strings.ToUpper(args[0]), args[1], body, headers, include)
		}),
	}
	f := c.Flags()
	f.StringVarP(&body, "body", "d", "", "body of the request: a text, @FILE, or - for standard input")
	f.StringArrayVarP(&headers, "header", "H", nil, "a header, such as 'Idempotency-Key: 7'")
	f.BoolVarP(&include, "include", "i", false, "print the status and the headers of the answer first")
	ClientFlags(c)
	return c
}

// apiPath is the path of a request. It stays on the server, because the key goes with it.
func apiPath(path string) (string, error) {
	u, err := url.Parse(path)
	if err != nil || u.Scheme != "" || u.Host != "" || u.Opaque != "" || strings.HasPrefix(path, "//") || strings.Contains(path, `\`) {
		return "", exit.With(exit.Usage, "%q is no path such as /status. The server is named by a context, by --server or by --data", path)
	}
	if u.Fragment != "" {
		return "", exit.With(exit.Usage, "%q has a #, and what follows it is never sent", path)
	}
	path = "/" + strings.TrimPrefix(path, "/")
	for _, other := range []string{api.Base + "/", "/openapi.yaml", "/healthz", "/readyz", "/metrics"} {
		if strings.HasPrefix(path, other) {
			return path, nil
		}
	}
	return api.Base + path, nil
}

// raw makes a request and prints the answer while it comes.
func (cl *Client) raw(c *cobra.Command, method, path, body string, headers []string, include bool) error {
	path, err := apiPath(path)
	if err != nil {
		return err
	}
	var from io.Reader
	switch file, isFile := strings.CutPrefix(body, "@"); {
	case body == "-":
		from = c.InOrStdin()
	case isFile:
		f, err := os.Open(file)
		if err != nil {
			return exit.With(exit.Usage, "--body: %w", err)
		}
		defer func() { _ = f.Close() }() // only read
		from = f
	case body != "":
		from = strings.NewReader(body)
	}
	if rest, ok := strings.CutPrefix(path, api.Base); ok {
		path = api.Base + cl.inFactory(method, rest)
	}
	req, err := http.NewRequestWithContext(c.Context(), method, cl.Base+path, from)
	if err != nil {
		return exit.With(exit.Usage, "%w", err)
	}
	if from != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, line := range headers {
		name, value, ok := strings.Cut(line, ":")
		switch {
		case !ok || strings.TrimSpace(name) != name || name == "":
			return exit.With(exit.Usage, "--header %q: write 'Name: value'", line)
		case slices.Contains([]string{"Host", "Authorization"}, http.CanonicalHeaderKey(name)):
			return exit.With(exit.Usage, "--header %s: the server and its key are those of the context or of --server", name)
		}
		req.Header.Set(name, strings.TrimSpace(value))
	}
	if cl.Key != "" {
		req.Header.Set("Authorization", "Bearer "+cl.Key)
	}
	resp, err := cl.HTTP.Do(req)
	if err != nil {
		if c.Context().Err() != nil {
			return c.Context().Err()
		}
		return exit.With(exit.Unreachable, "the server cannot be reached: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	out := c.OutOrStdout()
	if include {
		fmt.Fprintf(out, "%d %s\n", resp.StatusCode, http.StatusText(resp.StatusCode))
		if err := resp.Header.Write(out); err != nil {
			return err
		}
		fmt.Fprintln(out)
	}
	if _, err := io.Copy(out, resp.Body); err != nil {
		return exit.With(exit.Unreachable, "reading the answer: %w", err)
	}
	switch {
	case resp.StatusCode < 300:
		return nil
	case resp.StatusCode < 400:
		return exit.With(exit.Bad, "the answer leads elsewhere, to %s, and was not followed", resp.Header.Get("Location"))
	}
	return cl.problemError(resp.StatusCode, nil)
}
