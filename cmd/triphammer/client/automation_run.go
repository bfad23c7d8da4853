package client

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"triphammer/cmd/triphammer/client/exit"
	"triphammer/cmd/triphammer/client/term"
)

func automationRunCommand() *cobra.Command {
	var run newRun
	var payload payloadOptions
	c := &cobra.Command{
		Use: "run NAME", Short: "Start a run of an automation now, as if it had been triggered", Args: Exactly("NAME"),
		Long: `Start a run of an automation now: with its prompt, agent, environment, secrets and budget. --prompt adds to its prompt. With a
payload, the run has it as it has that of a delivery. Its filters are not asked: "webhooks test" sends a delivery that they see.`,
		Example: `  triphammer automations run nightly-audit
  triphammer automations run triage --payload-file issue.json --wait
  triphammer automations run triage --provider github --event issues --prompt "Only say what you would do."`,
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
