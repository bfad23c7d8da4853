package main

import (
	"os"

	"github.com/spf13/cobra"

	"triphammer/server/run"
)

func demoAgentCommand() *cobra.Command {
	return &cobra.Command{
		Use: "demo-agent", Short: "The demonstration agent, as an environment's command", Hidden: true, Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := run.DemoAgent(c.InOrStdin(), c.OutOrStdout(), os.Getenv); err != nil {
				return exitWith(exitBad, "%w", err)
			}
			return nil
		},
	}
}
