package client

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"triphammer/cmd/triphammer/client/exit"
	"triphammer/cmd/triphammer/client/term"
	"triphammer/server/api"
)

// pausable is a kind of what can be paused.
type pausable struct {
	kind, does, resumed string
	pauseHelp           string
	resumeHelp          string
	// named are the names of all, each with the factories that have one.
	named func(ctx context.Context, cl *Client) (map[string][]string, error)
}

var automationsPaused = pausable{
	kind: "automation", does: "Stop an automation from starting runs until it is resumed", resumed: "Resume an automation: it starts runs again",
	pauseHelp: `Stop an automation from starting runs until it is resumed, or for a time, also across restarts and applies. Its deliveries are
still received and matched. The server itself pauses an automation that is in a loop. "automations list" says why.`,
	resumeHelp: `Resume an automation that is paused: it starts runs again. What came meanwhile starts nothing: "deliveries replay" does. Earlier
runs do not count towards its limit any more.`,
	named: func(ctx context.Context, cl *Client) (map[string][]string, error) {
		return namesOf(ctx, cl, "/automations", func(a api.Automation) (string, string) { return a.Name, a.Factory })
	},
}

var webhooksPaused = pausable{
	kind: "webhook", does: "Stop accepting deliveries of a webhook until it is resumed", resumed: "Resume a webhook: it accepts deliveries again",
	pauseHelp: `Stop accepting deliveries of a webhook until it is resumed, or for a time, also across restarts and applies. It answers 404, as a
disabled one does, and its deliveries are not recorded. Its file stays as it is. When the command has ended, no delivery
is accepted any more. "webhooks list" says why.`,
	resumeHelp: `Resume a webhook that is paused: it accepts deliveries again. What was sent meanwhile is not known to the server: many senders can
send it again.`,
	named: func(ctx context.Context, cl *Client) (map[string][]string, error) {
		return namesOf(ctx, cl, "/webhooks", func(w api.Webhook) (string, string) { return w.Name, w.Factory })
	},
}

func namesOf[T api.Listed](ctx context.Context, cl *Client, path string, of func(T) (name, factory string)) (map[string][]string, error) {
	factories := make(map[string][]string)
	all, err := Collect[T](ctx, cl, path, url.Values{}, 0)
	for _, one := range all {
		name, factory := of(one)
		factories[name] = append(factories[name], factory)
	}
	return factories, err
}

// pauseCommands are the commands that pause and resume.
func pauseCommands(p pausable) []*cobra.Command {
	var req api.PauseRequest
	var until string
	var lasts time.Duration
	pause := &cobra.Command{
		Use: "pause NAME", Short: p.does, Long: p.pauseHelp, Args: Exactly("NAME"),
		RunE: WithServer(false, func(c *cobra.Command, args []string, cl *Client) error {
			if c.Flags().Changed("for") {
				if lasts < time.Second {
					return exit.With(exit.Usage, "--for %s: a pause lasts at least a second", lasts)
				}
				req.Seconds = int64(lasts.Seconds())
			}
			if until != "" {
				at, err := parseUntil(until, time.Now())
				if err != nil {
					return err
				}
				req.Until = &at
			}
			path, err := p.path(c, cl, args[0])
			if err != nil {
				return err
			}
			var done api.Pause
			if err := cl.Call(c.Context(), http.MethodPost, path+"/pause", req, &done); err != nil {
				return err
			}
			fmt.Fprintf(c.ErrOrStderr(), "%s is %s\n", args[0], pausedText(c.ErrOrStderr(), &done))
			return nil
		}),
	}
	pause.Flags().StringVar(&req.Reason, "reason", "", "why, for others")
	pause.Flags().DurationVar(&lasts, "for", 0, "how long, such as 2h or 3d (default: until it is resumed)")
	pause.Flags().StringVar(&until, "until", "", "when the pause ends by itself: a time such as 2026-01-31T18:00:00Z")
	pause.MarkFlagsMutuallyExclusive("for", "until")
	resume := &cobra.Command{
		Use: "resume NAME", Short: p.resumed, Long: p.resumeHelp, Args: Exactly("NAME"),
		RunE: WithServer(false, func(c *cobra.Command, args []string, cl *Client) error {
			path, err := p.path(c, cl, args[0])
			if err != nil {
				return err
			}
			return cl.Call(c.Context(), http.MethodPost, path+"/resume", nil, nil)
		}),
	}
	return []*cobra.Command{pause, resume}
}

// path is the path of the API of what a name means. Without --factory, it is the one of that
// name.
func (p pausable) path(c *cobra.Command, cl *Client, name string) (string, error) {
	factory := cl.factory
	if factory == "" {
		all, err := p.named(c.Context(), cl)
		if err != nil {
			return "", err
		}
		switch found := slices.Compact(slices.Sorted(slices.Values(all[name]))); len(found) {
		case 0:
			return "", exit.With(exit.NotFound, "%s", api.NoneNamed(p.kind, name, slices.Collect(maps.Keys(all))))
		case 1:
			factory = found[0]
		default:
			return "", exit.With(exit.Usage, "several factories have the %s %s: say which with --factory", p.kind, name)
		}
	}
	return "/factories/" + url.PathEscape(factory) + "/" + p.kind + "s/" + url.PathEscape(name), nil
}

// pausedText describes a pause, to be written to w.
func pausedText(w io.Writer, p *api.Pause) string {
	until := ""
	if p.Until != nil {
		until = " until " + term.WhenOf(w, p.Until)
	}
	return fmt.Sprintf("paused since %s%s by %s: %s", term.When(w, p.Since), until, p.By, term.OneLine.Replace(p.Reason))
}
