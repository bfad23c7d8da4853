package host

import (
	"os"

	"github.com/spf13/cobra"

	"triphammer/cmd/triphammer/client/exit"
	"triphammer/server/inside"
	"triphammer/server/inside/acp"
	"triphammer/server/run"
	"triphammer/server/worker/executor"
)

// ofRun runs what this program is inside a run: the supervisor, or the agent of a protocol.
func ofRun(args []string) (status int, is bool) {
	if len(args) == 0 {
		return 0, false
	}
	switch args[0] {
	case inside.SuperviseCommand:
		return executor.Supervise(args[1:]), true
	case acp.Command:
		return acp.Main(args[1:]), true
	}
	return 0, false
}

func demoAgentCommand() *cobra.Command {
	return &cobra.Command{
		Use: "demo-agent", Short: "The demonstration agent, as an environment's command", Hidden: true, Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := run.DemoAgent(c.InOrStdin(), c.OutOrStdout(), os.Getenv); err != nil {
				return exit.With(exit.Bad, "%w", err)
			}
			return nil
		},
	}
}
