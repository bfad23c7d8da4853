package help

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"triphammer/cmd/triphammer/client/settings"
)

// otherVariables are those that no flag of serve has.
var otherVariables = [][2]string{
	{"TRIPHAMMER_SERVER, TRIPHAMMER_DATA, TRIPHAMMER_CONTEXT", "which server commands reach, as --server, --data and --context"},
	{"TRIPHAMMER_API_KEY", "the key for TRIPHAMMER_SERVER and --server; TRIPHAMMER_API_KEY_FILE names a file with it"},
	{"TRIPHAMMER_WEBHOOK_SECRET", "the secret with which send signs; TRIPHAMMER_WEBHOOK_SECRET_FILE names a file with it"},
	{"TRIPHAMMER_KEY_FILE", "where the key is that seals the secrets (default: key in the data directory)"},
	{"XDG_CONFIG_HOME", "where the contexts are (default: ~/.config)"},
	{"VISUAL, EDITOR", "the editor of commands that change a definition"},
	{"BROWSER, DISPLAY, WAYLAND_DISPLAY", "the browser of open, and whether there is a screen"},
	{"NO_COLOR, CLICOLOR, CLICOLOR_FORCE, TERM", "whether there are colours"},
	{"COLUMNS", "how wide tables are"},
	{"GITHUB_STEP_SUMMARY", "where validate writes its summary in GitHub Actions, which sets it"},
	{"NOTIFY_SOCKET", "where a server tells systemd that it serves, which sets it"},
}

// VariablesCommand is the help of the variables. Those of a server are made from its flags.
func VariablesCommand(flags *pflag.FlagSet) *cobra.Command {
	var b strings.Builder
	b.WriteString("A flag wins over its variable, and a variable over the configuration file (--config).\n\n")
	writeTable(&b, otherVariables)
	b.WriteString("\nEach setting of serve has a variable, and workers and dev take those of their flags.\n")
	for _, group := range settings.Groups {
		var all [][2]string
		for _, f := range settings.Among(flags) {
			if settings.GroupOf(f) == group.Name && !f.Hidden && !slices.Contains(settings.TargetFlags, f.Name) {
				_, usage := pflag.UnquoteUsage(f)
				all = append(all, [2]string{settings.VariableOf(f), usage})
			}
		}
		if len(all) > 0 {
			fmt.Fprintf(&b, "\n%s:\n", group.Name)
			writeTable(&b, all)
		}
	}
	return &cobra.Command{Use: "variables", Short: "The variables that set something", Long: strings.TrimSpace(b.String())}
}

func writeTable(b *strings.Builder, rows [][2]string) {
	width := 0
	for _, row := range rows {
		width = max(width, len(row[0]))
	}
	for _, row := range rows {
		fmt.Fprintf(b, "  %-*s  %s\n", width, row[0], row[1])
	}
}
