package client

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"triphammer/cmd/triphammer/client/exit"
	"triphammer/cmd/triphammer/client/term"
	"triphammer/server/api"
	"triphammer/server/terms"
)

func webhookTestCommand() *cobra.Command {
	var payload payloadOptions
	var headers []string
	c := &cobra.Command{
		Use: "test NAME|UID", Short: "Make the server send a test to a webhook, as its sender would", Args: Exactly("NAME|UID"),
		Long: `Make the server send a test delivery to one of its webhooks. The server signs it with the stored secret, so nobody needs to know
that, and takes it as any other delivery: it is verified and matched, and the runs that it starts are real. The log says
that it was a test, and by whom. Without a payload it is a sample of the webhook's sender, if there is one.

Only "triphammer send" goes over the network, as a sender does; it needs the secret. It exits with 0 if the test is accepted.`,
		Example: `  triphammer webhooks test github-main
  triphammer webhooks test github-main --event push --set ref=refs/heads/wip
  triphammer webhooks test ci --payload '{"status": "failed"}'`,
		RunE: func(c *cobra.Command, args []string) error {
			w, cl, err := findWebhook(c, args[0], true)
			if err != nil {
				return err
			}
			defer cl.Close()
			req, err := testRequest(c, w, payload, headers)
			if err != nil {
				return err
			}
			var sent api.TestSent
			if err := cl.Call(c.Context(), http.MethodPost, definitionPath(w.Factory, "webhook", w.Name)+"/test", req, &sent); err != nil {
				return err
			}
			id := ""
			if sent.Delivery != nil {
				id = sent.Delivery.ID
			}
			if err := term.Emit(c, sent, []string{id}, func(out io.Writer) error { return showTest(out, sent) }); err != nil {
				return err
			}
			if sent.Delivery == nil || sent.Delivery.Outcome != string(terms.Accepted) {
				return exit.Silently(exit.Bad)
			}
			return nil
		},
	}
	payload.flags(c)
	headerFlag(c, &headers)
	term.OutputFlag(c)
	return c
}

// testRequest is what the flags ask for. A sample that the flags name is that of the webhook's
// sender, unless they name another provider.
func testRequest(c *cobra.Command, w *api.Webhook, payload payloadOptions, given []string) (req api.SendTest, err error) {
	header := http.Header{}
	payload.ofSender(c, w)
	own := !c.Flags().Changed("payload") && payload.file == "" && payload.provider == ""
	if !own || payload.event != "" || len(payload.set) > 0 {
		if req.Payload, err = payload.body(c, header); err != nil {
			return req, err
		}
		if !json.Valid(req.Payload) {
			return req, exit.With(exit.Usage, "the payload is no JSON: no webhook takes it. To see it refused: triphammer send %s", w.Name)
		}
	}
	if err := addHeaders(header, given); err != nil {
		return req, err
	}
	req.Headers = make(map[string]string, len(header))
	for name := range header {
		req.Headers[name] = header.Get(name)
	}
	return req, nil
}

func showTest(out io.Writer, sent api.TestSent) error {
	d := sent.Delivery
	if d == nil {
		_, err := fmt.Fprintf(out, "answered with %d: it was a question of the sender, and no delivery\n", sent.Status)
		return err
	}
	_, err := fmt.Fprintf(out, "%s  %s\n", d.ID, strings.TrimRight(OutcomeText(*d)+": "+strings.Join(d.Runs, " ")+d.Reason, ": "))
	return err
}
