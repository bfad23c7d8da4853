package client

import (
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"triphammer/cmd/triphammer/client/exit"
	"triphammer/cmd/triphammer/client/term"
	"triphammer/factory/signature"
	"triphammer/server/api"
	"triphammer/server/inert"
)

func webhooksCommand() *cobra.Command {
	list := &cobra.Command{
		Use: "list", Short: "List webhooks with their URLs", Args: cobra.NoArgs,
		RunE: WithServer(false, func(c *cobra.Command, _ []string, cl *Client) error {
			all, err := Collect[api.Webhook](c.Context(), cl, "/webhooks", url.Values{}, 0)
			if err != nil {
				return err
			}
			return term.EmitOf(c, all, func(w api.Webhook) string { return w.Factory }, func(w api.Webhook) string { return w.Name },
				[]string{"NAME", "MODE", "ENABLED", "SECRET", "URL"}, func(w api.Webhook) term.Cells {
					return term.Cells{w.Name, strings.TrimSpace(w.AuthMode + " " + w.SignatureScheme), enabledText(c.OutOrStdout(), w), term.Prose(secretText(w)), term.Prose(w.URL)}
				})
		}),
	}
	show := &cobra.Command{
		Use: "show NAME|UID", Short: "Show a webhook", Args: Exactly("NAME|UID"),
		RunE: func(c *cobra.Command, args []string) error {
			w, cl, err := findWebhook(c, args[0], false)
			if err != nil {
				return err
			}
			defer cl.Close()
			return term.Emit(c, w, []string{w.Name}, func(out io.Writer) error {
				t := term.Table{Header: []string{"name", w.Name}}
				t.Add("uid", w.UID)
				if w.SecretName != "" {
					t.Add("url", w.URL)
				}
				if w.Connect != "" {
					t.Add("connection", ConnectionText(out, w))
					t.Add("app token", w.AppTokenName)
				}
				t.Add("mode", strings.TrimSpace(w.AuthMode+" "+w.SignatureScheme))
				t.Add("enabled", enabledText(out, *w))
				if w.SecretName != "" {
					t.Add("secret", secretText(*w))
				}
				t.Add("delivery ID header", w.DeliveryIDHeader)
				if w.ReplayWindow != "" {
					t.Add("replay window", w.ReplayWindow)
				}
				return t.Write(out)
			})
		},
	}
	term.OutputFlag(list)
	term.OutputFlag(show)
	var fromStdin bool
	address := &cobra.Command{
		Use:   "url NAME|UID",
		Short: "Print a webhook's URL, for its sender",
		Long: `Print a webhook's URL. That of a url_token webhook has {token} where the secret stands; with --token-stdin the secret is
read from standard input and the complete URL is printed: that URL is a credential.`,
		Args: Exactly("NAME|UID"),
		RunE: func(c *cobra.Command, args []string) error {
			w, cl, err := findWebhook(c, args[0], false)
			if err != nil {
				return err
			}
			defer cl.Close()
			if fromStdin {
				token, err := readSecret(c.Context(), c.InOrStdin(), c.ErrOrStderr(), "the token")
				if err != nil {
					return err
				}
				if w.AuthMode != "url_token" {
					return exit.With(exit.Usage, "webhook %s has authMode %s: its URL holds no token", w.Name, w.AuthMode)
				}
				if _, err := signature.PathToken(token); err != nil {
					return exit.With(exit.Usage, "%w", err)
				}
				w.URL = strings.ReplaceAll(w.URL, "{token}", token)
			}
			_, err = fmt.Fprintln(c.OutOrStdout(), w.URL)
			return err
		},
	}
	address.Flags().BoolVar(&fromStdin, "token-stdin", false, "read the token from standard input and print the complete URL")
	all := append([]*cobra.Command{list, show, address, webhookSetupCommand(), webhookTestCommand()}, pauseCommands(webhooksPaused)...)
	for _, c := range all {
		ClientFlags(c)
	}
	return Noun("webhooks", "Webhooks and their URLs", append(all, webhookAuthorCommands()...)...)
}

// secretText names the secret of a webhook, and its generation. A disabled one may have none yet.
func secretText(w api.Webhook) string {
	if w.SecretName == "" {
		return w.AppTokenName + ", for its connection"
	}
	if w.SecretGeneration == 0 {
		return w.SecretName + ", which is not set yet"
	}
	return fmt.Sprintf("%s generation %d", w.SecretName, w.SecretGeneration)
}

// ConnectionText says how the connection of a webhook is.
func ConnectionText(out io.Writer, w *api.Webhook) string {
	c := w.Connection
	if c == nil {
		if !w.Enabled || w.Paused != nil {
			return "none, as the webhook takes nothing"
		}
		return "no server has it"
	}
	text := "not open"
	if c.Since != nil {
		text = "open since " + term.When(out, *c.Since)
	}
	if c.LastEnvelope != nil {
		text += ", last envelope " + term.When(out, *c.LastEnvelope)
	}
	if c.Error != "" && c.ErrorAt != nil {
		text += ", last error " + term.When(out, *c.ErrorAt) + ": " + c.Error
	}
	return inert.Text(text)
}

// enabledText tells whether a webhook takes deliveries.
func enabledText(out io.Writer, w api.Webhook) string {
	if w.Enabled && w.Paused != nil {
		return pausedText(out, w.Paused)
	}
	return term.YesNo(w.Enabled)
}

func findWebhook(c *cobra.Command, name string, needsServer bool) (*api.Webhook, *Client, error) {
	cl, err := Connect(c, needsServer)
	if err != nil {
		return nil, nil, err
	}
	w := &api.Webhook{}
	if err := cl.Get(c.Context(), "/webhooks/"+url.PathEscape(name), w); err != nil {
		cl.Close()
		return nil, nil, err
	}
	return w, cl, nil
}
