package host

import (
	"cmp"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/pflag"

	"triphammer/cmd/triphammer/client/exit"
	"triphammer/cmd/triphammer/client/settings"
	"triphammer/schema"
	"triphammer/server/terms"
)

// configuration is the content of a --config file.
type configuration struct {
	path      string
	values    map[string]string // by the names of flags
	factories []factoryValues
}

// factoryValues are the values in the file for one factory, by the names of flags.
type factoryValues struct {
	name   string
	values map[string]string
}

var factoryNames = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`) })

// configFile reads the file of --config. An unknown key is an error.
func configFile(flags *pflag.FlagSet, path string) (config configuration, err error) {
	config.path = cmp.Or(path, os.Getenv("TRIPHAMMER_CONFIG"))
	if config.path == "" {
		return config, nil
	}
	text, err := os.ReadFile(config.path)
	if err != nil {
		return config, exit.With(exit.Usage, "--config: %w", err)
	}
	c := &schema.Collector{Path: config.path}
	if doc := schema.Parse(c, text, schema.Mapping); doc != nil {
		all := flagValues(c, doc.Root, flags, "factories")
		config.values = all
		if n := doc.Root.Get("factories"); n != nil {
			config.factories = factoriesOf(c, n)
		}
	}
	if len(c.Found) > 0 {
		d := c.Found[0]
		return config, exit.With(exit.Usage, "%s:%d:%d: %s %s", d.Path, d.Line, d.Column, d.Message, d.Hint)
	}
	return config, nil
}

// flagValues reads a mapping whose keys are the names of flags. The extra keys are read
// elsewhere.
func flagValues(c *schema.Collector, n *schema.Node, flags *pflag.FlagSet, extra ...string) map[string]string {
	known := slices.Clone(extra)
	for _, f := range settings.Among(flags) {
		known = append(known, f.Name)
	}
	values := make(map[string]string)
	for _, field := range n.Fields {
		switch {
		case slices.Contains(extra, field.Key):
		case !slices.Contains(known, field.Key) || field.Key == "config":
			hint := ""
			if near := schema.Nearest(field.Key, known); near != "" {
				hint = fmt.Sprintf("did you mean %q?", near)
			}
			c.Error(field.At, schema.UnknownField, hint, fmt.Sprintf("unknown key %q", field.Key))
		case field.Value.Kind == schema.List:
			items := terms.Each(field.Value.Items, func(item *schema.Node) string { return item.Text })
			values[field.Key] = strings.Join(items, ",")
		default:
			values[field.Key] = field.Value.Text
		}
	}
	return values
}

// factoriesOf reads the key factories: a mapping from names to the values of flags.
func factoriesOf(c *schema.Collector, n *schema.Node) []factoryValues {
	if n.Kind != schema.Mapping || len(n.Fields) == 0 {
		c.Error(n.At, schema.TypeMismatch, "write factories: {NAME: {repo: PATH}}", "factories is a mapping of names")
		return nil
	}
	var all []factoryValues
	for _, field := range n.Fields {
		switch {
		case !factoryNames().MatchString(field.Key):
			c.Error(field.At, schema.InvalidValue, "such as payments", fmt.Sprintf("%q cannot name a factory: lower-case letters, digits, - and _", field.Key))
		case field.Value.Kind != schema.Mapping || (field.Value.Get("repo") == nil) == (field.Value.Get("hosted") == nil):
			c.Error(field.At, schema.MissingRequired, "", fmt.Sprintf("factory %s needs either repo or hosted: true", field.Key))
		default:
			all = append(all, factoryValues{field.Key, flagValues(c, field.Value, new(factoryOptions).flagSet())})
		}
	}
	return all
}
