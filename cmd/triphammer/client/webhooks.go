package client

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"triphammer/cmd/triphammer/client/exit"
	"triphammer/cmd/triphammer/client/term"
	"triphammer/factory/signature"
	"triphammer/server/api"
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
				t.Add("url", w.URL)
				t.Add("mode", strings.TrimSpace(w.AuthMode+" "+w.SignatureScheme))
				t.Add("enabled", enabledText(out, *w))
				t.Add("secret", secretText(*w))
				t.Add("delivery ID header", w.DeliveryIDHeader)
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
	if w.SecretGeneration == 0 {
		return w.SecretName + ", which is not set yet"
	}
	return fmt.Sprintf("%s generation %d", w.SecretName, w.SecretGeneration)
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

func automationsCommand() *cobra.Command {
	list := &cobra.Command{
		Use: "list", Short: "List automations and what starts them", Args: cobra.NoArgs,
		RunE: WithServer(false, func(c *cobra.Command, _ []string, cl *Client) error {
			all, err := Collect[api.Automation](c.Context(), cl, "/automations", url.Values{}, 0)
			if err != nil {
				return err
			}
			err = term.EmitOf(c, all, func(a api.Automation) string { return a.Factory }, func(a api.Automation) string { return a.Name },
				[]string{"NAME", "STATE", "ENVIRONMENT", "STARTED BY", "FILE"}, func(a api.Automation) term.Cells {
					state := "enabled"
					switch {
					case !a.Enabled:
						state = "disabled"
					case a.Paused != nil:
						state = pausedText(c.OutOrStdout(), a.Paused)
					case a.Dormant != "":
						state = "dormant"
					}
					if len(a.Warnings) > 0 {
						state += " (!)"
					}
					var triggers []string
					for _, t := range a.Triggers {
						triggers = append(triggers, triggerText(t))
					}
					return term.Cells{a.Name, state, a.EnvironmentID, term.Prose(strings.Join(triggers, "; ")), term.Prose(a.Path)}
				})
			if err != nil || !term.IsTable(c) {
				return err
			}
			if cl.Offline {
				fmt.Fprintln(c.ErrOrStderr(), OfflineNotice)
			}
			for _, a := range all {
				for _, warning := range a.Warnings {
					fmt.Fprintf(c.OutOrStdout(), "(!) %s: %s\n", a.Name, term.OneLine.Replace(warning))
				}
			}
			return nil
		}),
	}
	term.OutputFlag(list)
	test := testFilterCommand()
	all := append([]*cobra.Command{list, test, automationRunCommand()}, pauseCommands(automationsPaused)...)
	for _, c := range all {
		ClientFlags(c)
	}
	return Noun("automations", "Automations", append(all, definitionAuthorCommands("automation",
		"triage --webhook github --filter '{\"action\": [\"opened\"]}' --environment app --prompt-file triage.md")...)...)
}

// triggerText describes a trigger, with the reason if it starts nothing.
func triggerText(t api.Trigger) string {
	text := t.Provider + " " + t.Event
	if names := slices.Concat(t.Webhooks, t.WebhookIDs); len(names) > 0 {
		text = "webhook " + strings.Join(names, ", ")
	}
	switch {
	case t.Dormant != "":
		text += " (" + t.Dormant + ")"
	case len(t.Gone) > 0:
		text += " (there is no webhook " + strings.Join(t.Gone, ", ") + ")"
	}
	return text
}

func testFilterCommand() *cobra.Command {
	t := &filterTest{}
	c := &cobra.Command{
		Use: "test [NAME] (--delivery ID | --payload TEXT | --payload-file FILE | --provider NAME)", Short: "Would a delivery trigger an automation?",
		Long: `Test an automation, or the payload filter of --filter, on a stored delivery or on a payload: it prints "Would trigger",
"Would not trigger", or "Not known" if only the sender's API knows what decides, with the outcome of the webhook check and
of the payload check, and every condition. --ask asks the sender's API for it, with the secret that apiSecretName of the webhook
names: the key needs the scope operate. Nothing is started, and only what was asked is recorded, in the audit log. It exits
with 0 if it would trigger, and with 1 if it would not, or if that is not known.`,
		Example: `  triphammer automations test triage --delivery dlv_0123456789abc
  triphammer automations test triage --payload-file push.json --webhook github
  triphammer automations test --filter '{"ref": ["refs/heads/main"]}' --provider github --event push`,
		Args: cobra.MaximumNArgs(1),
		RunE: WithServer(false, t.run),
	}
	f := c.Flags()
	f.StringVar(&t.req.DeliveryID, "delivery", "", "a stored delivery")
	f.StringVar(&t.req.Webhook, "webhook", "", "the webhook that it comes from; default: that of the delivery, or any that the automation selects")
	f.StringVar(&t.pattern, "filter", "", "test this payload filter (JSON) instead of an automation")
	t.payload.flags(c)
	headerFlag(c, &t.headers)
	c.MarkFlagsMutuallyExclusive("delivery", "header")
	c.MarkFlagsMutuallyExclusive("delivery", "payload", "payload-file", "provider")
	c.MarkFlagsOneRequired("delivery", "payload", "payload-file", "provider")
	f.BoolVar(&t.ask, "ask", false, "ask the sender's API for what only it knows")
	c.MarkFlagsMutuallyExclusive("ask", "filter")
	term.OutputFlag(c)
	return c
}

// filterTest holds the flags of test.
type filterTest struct {
	ask     bool
	req     api.TestFilter
	pattern string
	payload payloadOptions
	headers []string
}

func (t *filterTest) run(c *cobra.Command, args []string, cl *Client) error {
	req, given := t.req, c.Flags().Changed("filter")
	switch {
	case len(args) == 1 && given:
		return exit.With(exit.Usage, "an automation and --filter exclude each other")
	case len(args) == 1:
		req.Automation = args[0]
	case !given:
		return exit.With(exit.Usage, "which automation? Name it, or give --filter")
	case !json.Valid([]byte(t.pattern)):
		return exit.With(exit.Usage, "--filter is no JSON: write such as '{\"ref\": [\"refs/heads/main\"]}'")
	default:
		req.Filter = json.RawMessage(t.pattern)
	}
	req.Factory = cl.factory
	if req.DeliveryID == "" {
		header := make(http.Header)
		body, err := t.payload.body(c, header)
		if err != nil {
			return err
		}
		if err := addHeaders(header, t.headers); err != nil {
			return err
		}
		req.Headers = make(map[string]string)
		for name := range header {
			req.Headers[name] = header.Get(name)
		}
		if !json.Valid(body) {
			return exit.With(exit.Usage, "the payload is no JSON: a delivery with it would be rejected")
		}
		req.Payload = body
	}
	route := "/filters/test"
	if t.ask {
		route = "/filters/ask"
	}
	var v api.FilterVerdict
	if err := cl.Call(c.Context(), http.MethodPost, route, req, &v); err != nil {
		return err
	}
	if t.ask && len(v.Asked) == 0 {
		v.Asked = []string{"nothing was asked: no condition needs a sender's API"}
	}
	if err := term.Emit(c, v, []string{v.Verdict}, func(w io.Writer) error { return printVerdict(w, v) }); err != nil {
		return err
	}
	if !v.WouldTrigger {
		return exit.Silently(exit.Bad)
	}
	return nil
}

func printVerdict(w io.Writer, v api.FilterVerdict) error {
	fmt.Fprintf(w, "%s\n\n", v.Verdict)
	fmt.Fprintf(w, "  %s webhook  %s\n", markOf(v.WebhookCheck.OK), v.WebhookCheck.Detail)
	for _, one := range v.Webhooks {
		fmt.Fprintf(w, "      %s %s: %s\n", markOf(one.WouldTrigger), one.Webhook, one.Detail)
	}
	fmt.Fprintf(w, "  %s payload  %s\n", markOf(v.PayloadCheck.OK), v.PayloadCheck.Detail)
	printConditions(w, "      ", v.Conditions)
	for _, text := range v.Asked {
		fmt.Fprintf(w, "  %s\n", text)
	}
	if v.Asks != "" && len(v.Asked) == 0 {
		fmt.Fprintf(w, "  --ask asks %s's API\n", v.Asks)
	}
	return nil
}
