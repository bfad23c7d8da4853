package client

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"triphammer/cmd/triphammer/client/exit"
	"triphammer/cmd/triphammer/client/settings"
)

// Target is the server that a command means, and what named it.
type Target struct {
	server  string // address; or
	Data    string // data directory on this machine
	key     string // of a context
	context string // name
	factory string // of the context
	by      string // what named it, for people
}

// None tells whether nothing names a server.
func (t Target) None() bool { return t.server == "" && t.Data == "" }

// namedTarget is the server that flags or variables name: what was asked for in so many words.
// A flag wins over all variables.
func namedTarget(c *cobra.Command) (Target, error) {
	var given []*pflag.Flag
	for _, name := range settings.TargetFlags {
		if f := c.Flags().Lookup(name); f.Changed {
			given = append(given, f)
		}
	}
	switch {
	case len(given) > 1:
		return Target{}, exit.With(exit.Usage, "--server, --data and --context exclude each other")
	case len(given) == 1 && given[0].Value.String() == "":
		return Target{}, exit.With(exit.Usage, "--%s is empty", given[0].Name)
	case len(given) == 1:
		return makeTarget(given[0].Name, given[0].Value.String(), "--"+given[0].Name)
	}
	for _, name := range settings.TargetFlags {
		variable := settings.VariableOf(c.Flags().Lookup(name))
		if value := os.Getenv(variable); value != "" {
			return makeTarget(name, value, "the variable "+variable)
		}
	}
	return Target{}, nil
}

func makeTarget(flag, value, by string) (Target, error) {
	switch flag {
	case "server":
		return Target{server: value, by: by}, nil
	case "data":
		return Target{Data: value, by: by}, nil
	default:
		return savedTarget(value, by)
	}
}

// TargetOf is the server that a command means: the named one, or else the nearest. That is the
// one of `dev` in this folder, then the current context, then the one that packages installed.
func TargetOf(c *cobra.Command) (Target, error) {
	t, err := namedTarget(c)
	if err != nil || !t.None() {
		return t, err
	}
	if data := here.NearestDev(); data != "" {
		return Target{Data: data, by: "the folder in which dev has run"}, nil
	}
	saved, err := readContexts()
	if err != nil {
		return Target{}, err
	}
	if saved.Current != "" {
		return savedTarget(saved.Current, "the current context")
	}
	if data := here.Installed(); data != "" {
		return Target{Data: data, by: "the package that is installed here"}, nil
	}
	return Target{}, nil
}

// isDev tells whether it is the data directory of dev in this folder.
func (t Target) isDev() bool {
	data, err := filepath.Abs(t.Data)
	return err == nil && t.Data != "" && data == here.NearestDev()
}

// whichServer is the error of a command that needs a server if nothing names one.
func whichServer() error {
	return exit.With(exit.Usage, `which server? These are asked in this order, and none names one:
  --server URL, --data DIR or --context NAME
  the variables TRIPHAMMER_SERVER, TRIPHAMMER_DATA and TRIPHAMMER_CONTEXT
  a folder in which "triphammer dev" has run
  the current context (save one: triphammer context add NAME --server URL)
  the server that a package installed on this machine, for its own user`)
}

func savedTarget(name, by string) (Target, error) {
	saved, err := readContexts()
	if err != nil {
		return Target{}, err
	}
	one, err := saved.find(name)
	if err != nil {
		return Target{}, err
	}
	return Target{server: one.Server, key: one.Key, context: one.Name, factory: one.Factory, by: by}, nil
}

// serverAddress checks the address of a server.
func serverAddress(what, address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return "", exit.With(exit.Usage, "%s %q is not an address such as https://hammer.example.com", what, address)
	}
	if u.User != nil {
		return "", exit.With(exit.Usage, "%s holds a user name or a password; a key is given apart from the address", what)
	}
	return strings.TrimSuffix(address, "/"), nil
}

// keyOf is the key for a server. A key goes only to the server that it was given for: that of a
// context to its server, that of the variable to --server and TRIPHAMMER_SERVER.
func (t Target) keyOf() (key, from string, err error) {
	if t.context != "" {
		return t.key, "the context " + t.context, nil
	}
	key, err = secretVariable("TRIPHAMMER_API_KEY")
	return key, "TRIPHAMMER_API_KEY", err
}

// keyHelp is what to do when a server does not know a key.
func (t Target) keyHelp() string {
	if t.context != "" {
		return fmt.Sprintf("the server %s does not know the key of the context %s. Make one there with: triphammer keys create NAME; then: triphammer context add %s --server %s --replace",
			t.server, t.context, t.context, t.server)
	}
	return "TRIPHAMMER_API_KEY has no key of this server; make one there with: triphammer keys create NAME"
}
