package client

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"triphammer/cmd/triphammer/client/exit"
	"triphammer/cmd/triphammer/client/term"
	"triphammer/server/api"
	"triphammer/server/terms"

	"github.com/spf13/cobra"
)

// automations are shown with what starts them.
var automations = listing[api.Automation]{
	kind:    "automation",
	path:    "/automations",
	factory: func(a api.Automation) string { return a.Factory },
	name:    func(a api.Automation) string { return a.Name },
	header:  []string{"NAME", "STATE", "ENVIRONMENT", "STARTED BY", "FILE"},
	row: func(w io.Writer, a api.Automation) term.Cells {
		state := "enabled"
		switch {
		case !a.Enabled:
			state = "disabled"
		case a.Paused != nil:
			state = pausedText(w, a.Paused)
		case a.Dormant != "":
			state = "dormant"
		}
		if len(a.Warnings) > 0 {
			state += " (!)"
		}
		triggers := terms.Each(a.Triggers, func(t api.Trigger) string { return triggerText(t) })
		return term.Cells{a.Name, state, a.EnvironmentID, term.Prose(strings.Join(triggers, "; ")), term.Prose(a.Path)}
	},
}

func automationsCommand() *cobra.Command {
	list := &cobra.Command{
		Use: "list", Short: "List automations and what starts them", Args: cobra.NoArgs,
		RunE: WithServer(false, func(c *cobra.Command, _ []string, cl *Client) error {
			all, err := automations.all(c, cl)
			if err != nil {
				return err
			}
			if err := automations.emit(c, all); err != nil || !term.IsTable(c) {
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
	all = append(all, automations.show())
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
	printSubject(w, "  ", v.Subject, v.SubjectLacks)
	for _, text := range v.Asked {
		fmt.Fprintf(w, "  %s\n", text)
	}
	if v.Asks != "" && len(v.Asked) == 0 {
		fmt.Fprintf(w, "  --ask asks %s's API\n", v.Asks)
	}
	return nil
}

func automationRunCommand() *cobra.Command {
	var run newRun
	var payload payloadOptions
	c := &cobra.Command{
		Use: "run NAME", Short: "Start a run of an automation now, as if it had been triggered", Args: Exactly("NAME"),
		Long: `Start a run of an automation now: with its prompt, agent, environment, secrets and budget. --prompt adds to its prompt. With a
payload, the run has it as it has that of a delivery. Its filters are not asked: "webhooks test" sends a delivery that they see.`,
		Example: `  triphammer automations run nightly-audit
  triphammer automations run triage --payload-file issue.json --wait
  triphammer automations run triage --provider github --event issues --prompt "Say what you would do, and change nothing."`,
		RunE: WithServer(true, func(c *cobra.Command, args []string, cl *Client) error {
			path, err := automationsPaused.path(c, cl, args[0])
			if err != nil {
				return err
			}
			body := map[string]any{"title": run.title}
			if body["prompt"], err = textOf(c, run.prompt); err != nil {
				return err
			}
			if payload.given(c) {
				data, err := payload.body(c, http.Header{})
				if err != nil {
					return err
				}
				if !json.Valid(data) {
					return exit.With(exit.Usage, "the payload is no JSON, which that of a delivery is")
				}
				body["payload"] = json.RawMessage(data)
			}
			return run.start(c, cl, path+"/run", body)
		}),
	}
	f := c.Flags()
	f.StringVar(&run.prompt, "prompt", "", "what to add to its prompt; - reads standard input")
	f.StringVar(&run.title, "title", "", "how lists show it; default: the automation's name")
	f.BoolVar(&run.wait, "wait", false, "print its transcript, and exit with 1 unless it has SUCCEEDED")
	f.DurationVar(&run.timeout, "timeout", 2*time.Hour, "how long to wait")
	payload.flags(c)
	term.OutputFlag(c)
	return c
}
