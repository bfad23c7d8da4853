package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"triphammer/cmd/triphammer/client/exit"
	"triphammer/cmd/triphammer/client/settings"
	"triphammer/cmd/triphammer/client/term"
	"triphammer/server/api"
	"triphammer/server/terms"
)

func contextCommand() *cobra.Command {
	all := []*cobra.Command{contextAddCommand(), contextUseCommand(), contextListCommand(), contextShowCommand(), contextRenameCommand(), contextRemoveCommand()}
	c := Noun("context", "Saved servers: addresses with their keys", all...)
	c.Long = `Saved servers: addresses with their keys, so that commands need no variables. Commands mean the current context if
nothing nearer names a server. In this order, a server is named by the flags --server, --data and --context; by the
variables TRIPHAMMER_SERVER, TRIPHAMMER_DATA and TRIPHAMMER_CONTEXT; by a folder in which "triphammer dev" has run; by
the current context; by the package that is installed on this machine.

The contexts are in $XDG_CONFIG_HOME/triphammer/contexts.json (~/.config if that variable is not set), which only you
may read. No command prints a key.`
	return c
}

func contextAddCommand() *cobra.Command {
	var one savedContext
	var keyFile string
	var replace, unchecked bool
	c := &cobra.Command{
		Use: "add NAME --server URL", Short: "Save a server and the key for it", Args: Exactly("NAME"),
		Long: `Save a server and an API key for it. The key is read from standard input or from a file, or asked for on a terminal. The
server is asked whether it knows the key; if not, nothing is saved. The first context becomes the current one.`,
		Example: `  triphammer context add prod --server https://hammer.example.com
  triphammer context add prod --server https://hammer.example.com --key-file new.key --replace
  ssh hammer triphammer keys create ada --scope operate | triphammer context add ops --server https://hammer.example.com`,
		RunE: func(c *cobra.Command, args []string) (err error) {
			one.Name = args[0]
			if err := checkContextName(one.Name); err != nil {
				return err
			}
			if one.Server, err = serverAddress("--server", one.Server); err != nil {
				return err
			}
			saved, err := readContexts()
			if err == nil {
				err = saved.set(one, replace) // before a person is asked for the key
			}
			if err != nil {
				return err
			}
			if one.Key, err = readKey(c, keyFile); err != nil {
				return err
			}
			who := "not checked"
			if !unchecked {
				caller, err := checkContext(c.Context(), one)
				if err != nil {
					return notSaved(err)
				}
				who = "you are " + callerText(c.ErrOrStderr(), caller)
			}
			current := ""
			err = changeContexts(func(saved *savedContexts) error {
				defer func() { current = saved.Current }()
				return saved.set(one, replace)
			})
			if err != nil {
				return err
			}
			w := c.ErrOrStderr()
			fmt.Fprintf(w, "Saved %s: %s.\n", one.describe(), who)
			if u, _ := url.Parse(one.Server); u != nil && u.Scheme == "http" && !isLoopback(u.Hostname()) {
				fmt.Fprintf(w, "warning: %s is not encrypted: whoever is on the way reads the key\n", one.Server)
			}
			if current == one.Name {
				fmt.Fprintln(w, "It is the current context.")
				warnOfNearer(w)
			} else {
				fmt.Fprintf(w, "Make it the current one with: triphammer context use %s\n", one.Name)
			}
			return nil
		},
	}
	f := c.Flags()
	f.StringVar(&one.Server, "server", "", "address of the server, such as https://hammer.example.com")
	f.StringVar(&one.Factory, "factory", "", "the factory that commands mean, if the server has several")
	f.StringVar(&keyFile, "key-file", "", "file with the API key (default: standard input)")
	f.BoolVar(&replace, "replace", false, "replace a context of this name")
	f.BoolVar(&unchecked, "unchecked", false, "do not ask the server whether it knows the key")
	_ = c.MarkFlagRequired("server")
	return c
}

// readKey reads an API key. It is no argument, because command lines are seen by others.
func readKey(c *cobra.Command, file string) (string, error) {
	var key string
	if file == "" {
		text, err := readSecret(c.Context(), c.InOrStdin(), c.ErrOrStderr(), "the API key")
		if err != nil {
			return "", err
		}
		key = text
	} else {
		text, err := os.ReadFile(file)
		if err != nil {
			return "", exit.With(exit.Usage, "--key-file: %w", err)
		}
		key = string(text)
	}
	key = strings.TrimSpace(key)
	switch {
	case key == "":
		return "", exit.With(exit.Usage, "the key is empty; give it on standard input or with --key-file")
	case strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "", exit.With(exit.Usage, "what was read is no API key: a key is one word of letters and digits")
	}
	return key, nil
}

func notSaved(err error) error {
	code := exit.Bad
	if e := (*exit.Error)(nil); errors.As(err, &e) {
		code = e.Code
	}
	hint := ""
	if code == exit.Unreachable {
		hint = "; with --unchecked it is saved all the same"
	}
	return exit.With(code, "%w. Nothing is saved%s", err, hint)
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// contextPatience is how long to wait for the server of a context.
const contextPatience = 15 * time.Second

// checkContext asks a server who the holder of a key is there.
func checkContext(ctx context.Context, one savedContext) (caller api.Caller, err error) {
	t := Target{server: one.Server, key: one.Key, context: one.Name, by: "the context " + one.Name}
	cl, err := remoteClient(t)
	if err != nil {
		return caller, err
	}
	cl.Target = t
	ctx, cancel := context.WithTimeout(ctx, contextPatience)
	defer cancel()
	if err := cl.Get(ctx, "/caller", &caller); err != nil {
		switch p := (*problem)(nil); {
		case errors.Is(err, context.DeadlineExceeded):
			return caller, exit.With(exit.Unreachable, "the server %s does not answer within %s", one.Server, contextPatience)
		case errors.As(err, &p) && p.Status == http.StatusNotFound:
			return caller, exit.With(exit.NotFound, "%s answers, but it is no Triphammer server, or an old one", one.Server)
		}
		return caller, err
	}
	if caller.Name == "" {
		return caller, exit.With(exit.NotFound, "%s answers, but not as a Triphammer server does", one.Server)
	}
	switch {
	case one.Factory == "":
	case caller.Factory != "" && caller.Factory != one.Factory:
		return caller, exit.With(exit.Usage, "the key reaches only the factory %s, not %s", caller.Factory, one.Factory)
	case slices.Contains(caller.Scopes, terms.ScopeRead):
		err = cl.Get(ctx, "/factories/"+url.PathEscape(one.Factory), nil)
	}
	return caller, err
}

// callerText says in a line who somebody is.
func callerText(w io.Writer, who api.Caller) string {
	text := fmt.Sprintf("%s, who may: %s", who.Name, strings.Join(who.Scopes, ", "))
	if who.Kind == "local" {
		text = who.Name + ": you own the data directory, so you may do everything"
	}
	if who.Factory != "" {
		text += "; only in the factory " + who.Factory
	}
	if who.ExpiresAt != nil {
		text += "; until " + term.WhenOf(w, who.ExpiresAt)
	}
	return text
}

// warnOfNearer says what wins over the current context here.
func warnOfNearer(w io.Writer) {
	for _, name := range settings.TargetFlags {
		if variable := "TRIPHAMMER_" + strings.ToUpper(name); os.Getenv(variable) != "" {
			fmt.Fprintf(w, "warning: the variable %s is set here, and wins over the current context\n", variable)
			return
		}
	}
	if data := here.NearestDev(); data != "" {
		fmt.Fprintf(w, "warning: dev has run in this folder, and its data directory %s wins over the current context here\n", data)
	}
}

func contextUseCommand() *cobra.Command {
	return &cobra.Command{
		Use: "use NAME", Short: "Make a context the current one", Args: Exactly("NAME"),
		RunE: func(c *cobra.Command, args []string) error {
			err := changeContexts(func(saved *savedContexts) error {
				one, err := saved.find(args[0])
				if err == nil {
					saved.Current = one.Name
				}
				return err
			})
			if err == nil {
				warnOfNearer(c.ErrOrStderr())
			}
			return err
		},
	}
}

// shownContext is a context for people and programs: without its key.
type shownContext struct {
	Name    string `json:"name"`
	Server  string `json:"server"`
	Factory string `json:"factory,omitempty"`
	Current bool   `json:"current"`
}

func (s *savedContexts) show(one savedContext) shownContext {
	return shownContext{one.Name, one.Server, one.Factory, one.Name == s.Current}
}

func contextListCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "list", Short: "List the contexts", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			saved, err := readContexts()
			if err != nil {
				return err
			}
			all := terms.Each(saved.Contexts, saved.show)
			err = term.EmitList(c, all, func(s shownContext) string { return s.Name }, []string{"NAME", "SERVER", "FACTORY", "CURRENT"}, func(s shownContext) term.Cells {
				return term.Cells{s.Name, term.Prose(s.Server), s.Factory, term.YesNo(s.Current)}
			})
			if err == nil {
				warnOfNearer(c.ErrOrStderr())
			}
			return err
		},
	}
	term.OutputFlag(c)
	return c
}

func contextShowCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "show [NAME]", Short: "Show a context, and ask its server who you are there", Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			saved, err := readContexts()
			if err != nil {
				return err
			}
			name := cmp.Or(os.Getenv("TRIPHAMMER_CONTEXT"), saved.Current)
			if len(args) > 0 {
				name = args[0]
			}
			if name == "" {
				return exit.With(exit.NotFound, "there is no current context; choose one: triphammer context use NAME")
			}
			one, err := saved.find(name)
			if err != nil {
				return err
			}
			shown := struct {
				shownContext
				Caller *api.Caller `json:"caller"` // null: the server did not say
			}{shownContext: saved.show(*one)}
			caller, asked := checkContext(c.Context(), *one)
			who := ""
			if asked == nil {
				shown.Caller, who = &caller, callerText(c.OutOrStdout(), caller)
			}
			err = term.Emit(c, shown, []string{one.Name}, func(w io.Writer) error {
				return writePairs(w, "context", one.Name, "server", one.Server, "factory", one.Factory, "current", term.YesNo(shown.Current), "you", who)
			})
			return cmp.Or(err, asked)
		},
	}
	term.OutputFlag(c)
	return c
}

// writePairs writes names and values; it leaves out those without a value.
func writePairs(w io.Writer, pairs ...string) error {
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			fmt.Fprintf(tw, "%s\t%s\n", pairs[i], term.OneLine.Replace(pairs[i+1]))
		}
	}
	return tw.Flush()
}

func contextRenameCommand() *cobra.Command {
	return &cobra.Command{
		Use: "rename OLD NEW", Short: "Give a context another name", Args: Exactly("OLD", "NEW"),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := checkContextName(args[1]); err != nil {
				return err
			}
			return changeContexts(func(saved *savedContexts) error {
				one, err := saved.find(args[0])
				if err != nil {
					return err
				}
				if slices.Contains(saved.names(), args[1]) {
					return exit.With(exit.Conflict, "there is a context %s already", args[1])
				}
				if saved.Current == one.Name {
					saved.Current = args[1]
				}
				one.Name = args[1]
				return nil
			})
		},
	}
}

func contextRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use: "remove NAME", Short: "Forget a context and its key", Args: Exactly("NAME"),
		Long: `Forget a context and its key. The server still knows the key: end it there with "triphammer keys revoke".`,
		RunE: func(c *cobra.Command, args []string) error {
			return changeContexts(func(saved *savedContexts) error {
				if _, err := saved.find(args[0]); err != nil {
					return err
				}
				saved.Contexts = slices.DeleteFunc(saved.Contexts, func(one savedContext) bool { return one.Name == args[0] })
				if saved.Current == args[0] {
					saved.Current = ""
					if len(saved.Contexts) > 0 {
						fmt.Fprintln(c.ErrOrStderr(), "No context is the current one now; choose one: triphammer context use NAME")
					}
				}
				return nil
			})
		},
	}
}

// whoamiCommand says who the caller is, and where.
func whoamiCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "whoami", Short: "Say which server commands reach from here, and who you are there", Args: cobra.NoArgs,
		RunE: WithServer(false, func(c *cobra.Command, _ []string, cl *Client) error {
			shown := struct {
				api.Caller
				Server  string `json:"server,omitempty"`
				Data    string `json:"data,omitempty"`
				Context string `json:"context,omitempty"`
				NamedBy string `json:"named_by"`
			}{Server: cl.Target.server, Data: cl.Target.Data, Context: cl.Target.context, NamedBy: cl.Target.by}
			if err := cl.Get(c.Context(), "/caller", &shown.Caller); err != nil {
				return err
			}
			return term.Emit(c, shown, []string{shown.Name}, func(w io.Writer) error {
				return writePairs(w, "you", callerText(w, shown.Caller), "server", shown.Server, "data", shown.Data, "context", shown.Context, "factory", cl.factory, "named by", shown.NamedBy)
			})
		}),
	}
	ClientFlags(c)
	term.OutputFlag(c)
	return c
}
