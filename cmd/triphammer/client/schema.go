package client

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"triphammer/cmd/triphammer/client/exit"
	"triphammer/schema"
)

// schemaFolder is the folder for the JSON Schemas that init writes. The first line of each
// YAML file names it for editors.
const schemaFolder = ".schema"

func schemaCommand() *cobra.Command {
	show := &cobra.Command{
		Use:   "print NAME",
		Short: "Print the JSON Schema of a kind of file",
		Long:  "Print a JSON Schema: " + strings.Join(schema.JSONSchemaNames(), ", ") + ".",
		Args:  Exactly("NAME"),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return schema.JSONSchemaNames(), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(c *cobra.Command, args []string) error {
			one, found := schema.LookupJSONSchema(args[0])
			if !found {
				return exit.With(exit.NotFound, "there is no schema %q; there are %s", args[0], strings.Join(schema.JSONSchemaNames(), ", "))
			}
			_, err := c.OutOrStdout().Write(one.Text)
			return err
		},
	}
	write := &cobra.Command{
		Use:   "write [DIR]",
		Short: "Write all JSON Schemas into a folder, for editors",
		Long: `Write all JSON Schemas into DIR (default: ` + schemaFolder + `). Editors find them by the first line of a YAML file:

  # yaml-language-server: $schema=../` + schemaFolder + `/webhook.schema.json

Files that are there are replaced: do this again after an upgrade.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			dir := schemaFolder
			if len(args) > 0 {
				dir = args[0]
			}
			if err := writeSchemas(dir); err != nil {
				return exit.With(exit.Usage, "%w", err)
			}
			_, err := fmt.Fprintf(c.OutOrStdout(), "Wrote %d JSON Schemas to %s.\n", len(schema.JSONSchemaNames()), dir)
			return err
		},
	}
	return Noun("schema", "JSON Schemas of the definition files, for editors", show, write)
}

func writeSchemas(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, name := range schema.JSONSchemaNames() {
		one, _ := schema.LookupJSONSchema(name)
		if err := os.WriteFile(filepath.Join(dir, name+".schema.json"), one.Text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
