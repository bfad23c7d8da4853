package client

import (
	"fmt"
	"io"
	"net/url"

	"github.com/spf13/cobra"

	"triphammer/cmd/triphammer/client/term"
	"triphammer/server/api"
)

func webhookSetupCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "setup NAME|UID", Short: "Say how to make a webhook's sender deliver to it", Args: Exactly("NAME|UID"),
		Long: `Say, step by step, how to make a webhook's sender deliver to it: where its settings are, what to enter there, and what it
sends first. For a sender without steps of its own, they are made from what its signature scheme says.`,
		RunE: func(c *cobra.Command, args []string) error {
			w, cl, err := findWebhook(c, args[0], false)
			if err != nil {
				return err
			}
			defer cl.Close()
			var setup api.WebhookSetup
			if err := cl.Get(c.Context(), "/webhooks/"+url.PathEscape(w.UID)+"/setup", &setup); err != nil {
				return err
			}
			return term.Emit(c, setup, []string{w.Name}, func(out io.Writer) error {
				if err := printGuide(out, setup.Guide); err != nil {
					return err
				}
				if setup.Source != "" {
					fmt.Fprintf(out, "\nIts own page about this: %s\n", setup.Source)
				}
				fmt.Fprint(out, "\nTo try it:\n\n")
				if setup.CannotTest == "" {
					fmt.Fprintf(out, "triphammer webhooks test %s\n", w.Name)
				}
				if setup.CannotTest == "" && setup.Command != "" {
					fmt.Fprint(out, "\nor, as the sender does, over the network\n\n")
				}
				if setup.Command != "" {
					fmt.Fprintln(out, setup.Command)
				}
				if setup.Curl != "" {
					fmt.Fprintf(out, "\nor\n\n%s\n", setup.Curl)
				}
				return nil
			})
		},
	}
	term.OutputFlag(c)
	return c
}
