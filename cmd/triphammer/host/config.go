package host

import (
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"triphammer/cmd/triphammer/client"
	"triphammer/cmd/triphammer/client/settings"
	"triphammer/cmd/triphammer/client/term"
	"triphammer/server/secret"
)

// setting is a setting of a server, with the source of its value (SPEC 12).
type setting struct {
	Name    string `json:"name"`
	Factory string `json:"factory,omitempty"` // set if the value is only for this factory
	Value   string `json:"value"`
	Source  string `json:"source"`
}

func configCommand() *cobra.Command {
	given := &serving{}
	show := &cobra.Command{
		Use:   "show",
		Short: "Show what serve would use, and where each value comes from",
		Long: `Show every setting of serve as it would be with the same flags, variables and configuration file, and where its value
comes from: a flag, a variable, the file, or the default. No secret is shown: settings name files, and of an address
whose path is a credential there is the beginning alone.`,
		Example: `  triphammer config show --config /etc/triphammer.yaml
  TRIPHAMMER_LISTEN=0.0.0.0:8787 triphammer config show -o json`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return showConfig(c, given) },
	}
	given.serveFlags(show.Flags())
	settings.Help(show)
	term.OutputFlag(show)
	return client.Noun("config", "The settings of a server", show)
}

func showConfig(c *cobra.Command, given *serving) error {
	own := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	new(serving).serveFlags(own)
	config, err := configFile(c.Flags(), given.config)
	if err != nil {
		return err
	}
	sources := make(map[string]string)
	ordered := settings.Among(own)
	for _, f := range ordered {
		_, fromVariable := os.LookupEnv(settings.VariableOf(f))
		_, fromFile := config.values[f.Name]
		switch {
		case c.Flags().Changed(f.Name):
			sources[f.Name] = "flag --" + f.Name
		case fromVariable:
			sources[f.Name] = "variable " + settings.VariableOf(f)
		case fromFile:
			sources[f.Name] = config.path
		default:
			sources[f.Name] = "default"
		}
	}
	if err := settings.FromEnvironment(c.Flags(), config.values, slices.Collect(maps.Keys(sources))...); err != nil {
		return err
	}
	var all []setting
	for _, f := range ordered {
		value := c.Flags().Lookup(f.Name).Value
		all = append(all, setting{Name: f.Name, Value: shownSetting(f.Name, shownValue(value)), Source: sources[f.Name]})
		for _, factory := range config.factories {
			if value, ok := factory.values[f.Name]; ok {
				all = append(all, setting{Name: f.Name, Factory: factory.name, Value: shownSetting(f.Name, value), Source: config.path})
			}
		}
	}
	return term.EmitList(c, all, func(s setting) string { return s.Name }, []string{"SETTING", "FACTORY", "VALUE", "FROM"}, func(s setting) term.Cells {
		return term.Cells{s.Name, s.Factory, term.Prose(s.Value), term.Prose(s.Source)}
	})
}

// shownValue is the value of a flag, in the format of the configuration file.
func shownValue(v pflag.Value) string {
	if list, ok := v.(pflag.SliceValue); ok {
		return strings.Join(list.GetSlice(), ",")
	}
	return v.String()
}

// shownSetting is the value of a setting without credentials.
func shownSetting(name, value string) string {
	if name == "notify-url" && value != "" {
		return secret.Origin(value)
	}
	const hidden = "[redacted]"
	u, err := url.Parse(value)
	if scheme, _, is := strings.Cut(value, "://"); err != nil && is {
		return scheme + "://" + hidden // whatever it was meant to be
	}
	if err != nil {
		return value
	}
	for _, option := range []string{"password", "sslpassword"} { // of an address of PostgreSQL
		if query := u.Query(); query.Has(option) {
			query.Set(option, hidden)
			u.RawQuery = query.Encode()
			value = u.String()
		}
	}
	if u.User != nil && u.Host != "" && u.Scheme != "ssh" {
		u.User = nil
		return strings.Replace(u.String(), "://", "://"+hidden+"@", 1)
	}
	return value
}
