package main

import (
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"triphammer/factory/signature"
	"triphammer/server"
)

func webhooksCommand() *cobra.Command {
	list := &cobra.Command{
		Use: "list", Short: "List webhooks with their URLs", Args: cobra.NoArgs,
		RunE: withServer(false, func(c *cobra.Command, _ []string, cl *client) error {
			all, err := collect[server.Webhook](c.Context(), cl, "/webhooks", "webhooks", url.Values{}, 0)
			if err != nil {
				return err
			}
			return emitOf(c, all, func(w server.Webhook) string { return w.Factory }, func(w server.Webhook) string { return w.Name }, []string{"NAME", "MODE", "ENABLED", "SECRET", "URL"}, func(w server.Webhook) []string {
				return []string{w.Name, strings.TrimSpace(w.AuthMode + " " + w.SignatureScheme), yesNo(w.Enabled), fmt.Sprintf("%s generation %d", w.SecretName, w.SecretGeneration), w.URL}
			})
		}),
	}
	show := &cobra.Command{
		Use: "show NAME|UID", Short: "Show a webhook", Args: exactly("NAME|UID"),
		RunE: func(c *cobra.Command, args []string) error {
			w, cl, err := findWebhook(c, args[0], false)
			if err != nil {
				return err
			}
			defer cl.close()
			return emit(c, w, []string{w.Name}, func(out io.Writer) error {
				t := table{header: []string{"name", w.Name}}
				t.add("uid", w.UID)
				t.add("url", w.URL)
				t.add("mode", strings.TrimSpace(w.AuthMode+" "+w.SignatureScheme))
				t.add("enabled", yesNo(w.Enabled))
				t.add("secret", fmt.Sprintf("%s generation %d", w.SecretName, w.SecretGeneration))
				t.add("delivery ID header", w.DeliveryIDHeader)
				return t.write(out)
			})
		},
	}
	outputFlag(list)
	outputFlag(show)
	address := &cobra.Command{
		Use:   "url NAME|UID",
		Short: "Print a webhook's URL, for its sender",
		Long: `Print a webhook's URL. That of a url_token webhook has {token} where the secret stands; with --token-stdin the secret is
read from standard input and the complete URL is printed: that URL is a credential.`,
		Args: exactly("NAME|UID"),
		RunE: func(c *cobra.Command, args []string) error {
			w, cl, err := findWebhook(c, args[0], false)
			if err != nil {
				return err
			}
			defer cl.close()
			if stdin, _ := c.Flags().GetBool("token-stdin"); stdin {
				token, err := readSecret(c.InOrStdin(), c.ErrOrStderr(), "the token")
				if err != nil {
					return err
				}
				if w.AuthMode != "url_token" {
					return exitWith(exitUsage, "webhook %s has authMode %s: its URL holds no token", w.Name, w.AuthMode)
				}
				if _, err := signature.PathToken(token); err != nil {
					return exitWith(exitUsage, "%w", err)
				}
				w.URL = strings.ReplaceAll(w.URL, "{token}", token)
			}
			_, err = fmt.Fprintln(c.OutOrStdout(), w.URL)
			return err
		},
	}
	address.Flags().Bool("token-stdin", false, "read the token from standard input and print the complete URL")
	for _, c := range []*cobra.Command{list, show, address} {
		clientFlags(c)
	}
	return noun("webhooks", "Webhooks and their URLs", list, show, address)
}

func findWebhook(c *cobra.Command, name string, needsServer bool) (*server.Webhook, *client, error) {
	cl, err := connect(c, needsServer)
	if err != nil {
		return nil, nil, err
	}
	w := &server.Webhook{}
	if err := cl.get(c.Context(), "/webhooks/"+url.PathEscape(name), w); err != nil {
		cl.close()
		return nil, nil, err
	}
	return w, cl, nil
}

func automationsCommand() *cobra.Command {
	list := &cobra.Command{
		Use: "list", Short: "List automations and what starts them", Args: cobra.NoArgs,
		RunE: withServer(false, func(c *cobra.Command, _ []string, cl *client) error {
			all, err := collect[server.Automation](c.Context(), cl, "/automations", "automations", url.Values{}, 0)
			if err != nil {
				return err
			}
			return emitOf(c, all, func(a server.Automation) string { return a.Factory }, func(a server.Automation) string { return a.Name }, []string{"NAME", "ENABLED", "ENVIRONMENT", "STARTED BY", "FILE"}, func(a server.Automation) []string {
				var triggers []string
				for _, t := range a.Triggers {
					text := t.Provider + " " + t.Event
					if names := append(t.Webhooks, t.WebhookIDs...); len(names) > 0 {
						text = "webhook " + strings.Join(names, ", ")
					}
					if !t.Fires {
						text += " (not fired by this server)"
					}
					triggers = append(triggers, text)
				}
				return []string{a.Name, yesNo(a.Enabled), a.EnvironmentID, strings.Join(triggers, "; "), a.Path}
			})
		}),
	}
	outputFlag(list)
	clientFlags(list)
	return noun("automations", "Automations", list)
}
