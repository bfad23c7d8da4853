package main

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// target is the server that a command means, and what named it.
type target struct {
	server  string // address; or
	data    string // data directory on this machine
	key     string // of a context
	context string // name
	factory string // of the context
	by      string // what named it, for people
}

func (t target) none() bool { return t.server == "" && t.data == "" }

// namedTarget is the server that flags or variables name: what was asked for in so many words.
// A flag wins over all variables.
func namedTarget(c *cobra.Command) (target, error) {
	var given []*pflag.Flag
	for _, name := range targetFlags {
		if f := c.Flags().Lookup(name); f.Changed {
			given = append(given, f)
		}
	}
	switch {
	case len(given) > 1:
		return target{}, exitWith(exitUsage, "--server, --data and --context exclude each other")
	case len(given) == 1 && given[0].Value.String() == "":
		return target{}, exitWith(exitUsage, "--%s is empty", given[0].Name)
	case len(given) == 1:
		return makeTarget(given[0].Name, given[0].Value.String(), "--"+given[0].Name)
	}
	for _, name := range targetFlags {
		variable := variableOf(c.Flags().Lookup(name))
		if value := os.Getenv(variable); value != "" {
			return makeTarget(name, value, "the variable "+variable)
		}
	}
	return target{}, nil
}

// targetFlags are the flags that name a server. Of their variables, an earlier one wins.
var targetFlags = []string{"server", "data", "context"}

func makeTarget(flag, value, by string) (target, error) {
	switch flag {
	case "server":
		return target{server: value, by: by}, nil
	case "data":
		return target{data: value, by: by}, nil
	default:
		return savedTarget(value, by)
	}
}

// targetOf is the server that a command means: the named one, or else the nearest. That is the
// one of `dev` in this folder, then the current context, then the one that packages installed.
func targetOf(c *cobra.Command) (target, error) {
	t, err := namedTarget(c)
	if err != nil || !t.none() {
		return t, err
	}
	if data := here.NearestDev(); data != "" {
		return target{data: data, by: "the folder in which dev has run"}, nil
	}
	saved, err := readContexts()
	if err != nil {
		return target{}, err
	}
	if saved.Current != "" {
		return savedTarget(saved.Current, "the current context")
	}
	if data := here.Installed(); data != "" {
		return target{data: data, by: "the package that is installed here"}, nil
	}
	return target{}, nil
}

// isDev tells whether it is the data directory of dev in this folder.
func (t target) isDev() bool {
	data, err := filepath.Abs(t.data)
	return err == nil && t.data != "" && data == here.NearestDev()
}

// whichServer is the error of a command that needs a server if nothing names one.
func whichServer() error {
	return exitWith(exitUsage, `which server? These are asked in this order, and none names one:
  --server URL, --data DIR or --context NAME
  the variables TRIPHAMMER_SERVER, TRIPHAMMER_DATA and TRIPHAMMER_CONTEXT
  a folder in which "triphammer dev" has run
  the current context (save one: triphammer context add NAME --server URL)
  the server that a package installed on this machine, for its own user`)
}

func savedTarget(name, by string) (target, error) {
	saved, err := readContexts()
	if err != nil {
		return target{}, err
	}
	one, err := saved.find(name)
	if err != nil {
		return target{}, err
	}
	return target{server: one.Server, key: one.Key, context: one.Name, factory: one.Factory, by: by}, nil
}

// serverAddress checks the address of a server.
func serverAddress(what, address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return "", exitWith(exitUsage, "%s %q is not an address such as https://hammer.example.com", what, address)
	}
	if u.User != nil {
		return "", exitWith(exitUsage, "%s holds a user name or a password; a key is given apart from the address", what)
	}
	return strings.TrimSuffix(address, "/"), nil
}

// keyOf is the key for a server. A key goes only to the server that it was given for: that of a
// context to its server, that of the variable to --server and TRIPHAMMER_SERVER.
func (t target) keyOf() (key, from string, err error) {
	if t.context != "" {
		return t.key, "the context " + t.context, nil
	}
	key, err = secretVariable("TRIPHAMMER_API_KEY")
	return key, "TRIPHAMMER_API_KEY", err
}

// keyHelp is what to do when a server does not know a key.
func (t target) keyHelp() string {
	if t.context != "" {
		return fmt.Sprintf("the server %s does not know the key of the context %s. Make one there with: triphammer keys create NAME; then: triphammer context add %s --server %s --replace",
			t.server, t.context, t.context, t.server)
	}
	return "TRIPHAMMER_API_KEY has no key of this server; make one there with: triphammer keys create NAME"
}
