package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"triphammer/cmd/triphammer/client/exit"
	"triphammer/cmd/triphammer/client/term"
	"triphammer/factory"
	"triphammer/factory/edit"
	"triphammer/schema"
	"triphammer/server/api"
	"triphammer/server/terms"
)

// definitionAuthor are the flags of the commands that make and change automations,
// environments and agents.
type definitionAuthor struct {
	author
	kind               string
	set, unset         []string
	prompt, promptFile string
	yes                bool

	// Of automations.
	webhooks            []string
	filter, cron        string
	agent, environments string
}

// definitionAuthorCommands are the commands that make and change definitions of a kind.
func definitionAuthorCommands(kind, example string) []*cobra.Command {
	d := &definitionAuthor{kind: kind}
	what := articleOf(kind) + " " + kind
	create := &cobra.Command{
		Use: "create NAME", Short: "Make " + what, Args: Exactly("NAME"),
		Long:    "Make " + what + ". --set takes every key of its file (docs/reference.md), those of mappings after a dot." + authorHelp,
		Example: "  triphammer " + kind + "s create " + example,
		RunE: func(c *cobra.Command, args []string) error {
			return d.write(c, args[0], http.MethodPost, func(tree fs.FS, change edit.Change) (edit.Files, error) {
				return edit.Create(tree, kind, args[0], change)
			})
		},
	}
	change := &cobra.Command{
		Use: "edit NAME", Short: "Change keys of " + what, Args: Exactly("NAME"),
		Long: "Change single keys of the file of " + what + ". What else is in it stays, comments too. A list is replaced as a whole." +
			authorHelp,
		RunE: func(c *cobra.Command, args []string) error {
			return d.write(c, args[0], http.MethodPatch, func(tree fs.FS, change edit.Change) (edit.Files, error) {
				return edit.Update(tree, kind, args[0], change)
			})
		},
	}
	change.Flags().StringArrayVar(&d.unset, "unset", nil, "key to take out")
	for _, c := range []*cobra.Command{create, change} {
		f := c.Flags()
		f.StringArrayVar(&d.set, "set", nil,
			"key=value of the file, such as harness.model=opus or 'setupCommands=[\"make\"]'; what is no text is JSON")
		if kind != "environment" {
			f.StringVar(&d.prompt, "prompt", "", "the prompt")
			f.StringVar(&d.promptFile, "prompt-file", "", "file with the prompt; - reads standard input")
			c.MarkFlagsMutuallyExclusive("prompt", "prompt-file")
		}
		if kind == "automation" {
			f.StringArrayVar(&d.webhooks, "webhook", nil, "webhook whose deliveries start it; may be repeated")
			f.StringVar(&d.filter, "filter", "", "payload filter of these deliveries, as JSON")
			f.StringVar(&d.cron, "cron", "", "schedule that starts it, in UTC, such as '0 6 * * 1-5'")
			f.StringVar(&d.agent, "agent", "", "agent that does the work")
			f.StringVar(&d.environments, "environment", "", "environment in which it works")
		}
	}
	remove := &cobra.Command{
		Use: "delete NAME --yes", Short: "Delete " + what, Args: Exactly("NAME"),
		Long: "Delete " + what + ". Its runs stay in the log." + authorHelp,
		RunE: func(c *cobra.Command, args []string) error {
			if err := confirmed(d.yes, "deletes the "+kind+" "+args[0]); err != nil {
				return err
			}
			return d.send(c, args[0], func(cl *Client, factory string) (made api.DefinitionChange, err error) {
				return made, cl.Call(c.Context(), http.MethodDelete, d.deletePath(factory, kind, args[0]), nil, &made)
			}, func(tree fs.FS) (edit.Files, error) { return edit.Delete(tree, kind, args[0]) })
		},
	}
	remove.Flags().BoolVar(&d.yes, "yes", false, "do it")
	all := []*cobra.Command{create, change, remove}
	if kind == "automation" {
		for verb, short := range map[string]string{
			"enable": "Enable an automation in its file", "disable": "Disable an automation in its file",
		} {
			all = append(all, &cobra.Command{
				Use: verb + " NAME", Short: short, Args: Exactly("NAME"), Long: short + "." + authorHelp,
				RunE: func(c *cobra.Command, args []string) error {
					d.set = []string{fmt.Sprintf("enabled=%t", verb == "enable")}
					return d.write(c, args[0], http.MethodPatch, func(tree fs.FS, change edit.Change) (edit.Files, error) {
						return edit.Update(tree, kind, args[0], change)
					})
				},
			})
		}
	}
	for _, c := range all {
		d.flags(c)
	}
	return all
}

func articleOf(noun string) string {
	if strings.ContainsRune("aeiou", rune(noun[0])) {
		return "an"
	}
	return "a"
}

// write makes or changes a definition.
func (d *definitionAuthor) write(c *cobra.Command, name, method string, make func(fs.FS, edit.Change) (edit.Files, error)) error {
	change, err := d.change(c)
	if err != nil {
		return err
	}
	if method == http.MethodPatch && change.Text == nil && len(change.Keys.Fields) == 0 {
		return exit.With(exit.Usage, "what is to change? See: %s --help", c.CommandPath())
	}
	req := api.DefinitionPatch{Commit: d.commit, Definition: json.RawMessage(change.Keys.AppendJSON(nil)), Prompt: change.Text}
	return d.send(c, name, func(cl *Client, factory string) (made api.DefinitionChange, err error) {
		at := definitionPath(factory, d.kind, name)
		if method == http.MethodPost {
			at, req.Name = definitionPath(factory, d.kind, ""), name
		}
		return made, cl.Call(c.Context(), method, at, req, &made)
	}, func(tree fs.FS) (edit.Files, error) { return make(tree, change) })
}

// change is what the flags ask for.
func (d *definitionAuthor) change(c *cobra.Command) (change edit.Change, err error) {
	change.Keys = &schema.Node{Kind: schema.Mapping}
	set := func(key, value string) error {
		node, err := valueFor(factoryShape(d.kind), strings.Split(key, "."), value)
		if err != nil {
			return exit.With(exit.Usage, "--set %s: %w", key, err)
		}
		put(change.Keys, strings.Split(key, "."), node)
		return nil
	}
	for _, one := range d.set {
		key, value, ok := strings.Cut(one, "=")
		if !ok || key == "" {
			return change, exit.With(exit.Usage, "--set %s: write key=value", one)
		}
		if err := set(key, value); err != nil {
			return change, err
		}
	}
	for _, key := range d.unset {
		put(change.Keys, strings.Split(key, "."), &schema.Node{Kind: schema.Null})
	}
	for key, value := range map[string]string{"agent": d.agent, "environmentId": d.environments} {
		if value != "" {
			put(change.Keys, []string{key}, &schema.Node{Kind: schema.String, Text: value})
		}
	}
	triggers, err := d.triggers()
	if err != nil {
		return change, err
	}
	if triggers != nil {
		put(change.Keys, []string{"triggers"}, triggers)
	}
	switch {
	case d.promptFile != "":
		text, err := readText(c, d.promptFile)
		if err != nil {
			return change, err
		}
		text = strings.TrimSuffix(text, "\n")
		change.Text = &text
	case c.Flags().Changed("prompt"):
		change.Text = &d.prompt
	}
	return change, nil
}

// readText reads a file, or standard input for -.
func readText(c *cobra.Command, name string) (string, error) {
	if name == "-" {
		text, err := io.ReadAll(io.LimitReader(c.InOrStdin(), schema.MaxFile+1))
		return string(text), err
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return "", exit.With(exit.Usage, "%w", err)
	}
	return string(text), nil
}

// triggers are those that the flags ask for; nil: none.
func (d *definitionAuthor) triggers() (*schema.Node, error) {
	var all []string // as JSON
	text := func(v any) string {
		out, _ := json.Marshal(v) // strings always encode
		return string(out)
	}
	switch {
	case len(d.webhooks) == 0 && d.filter != "":
		return nil, exit.With(exit.Usage, "--filter is for deliveries of a webhook: name it with --webhook")
	case d.filter != "" && !json.Valid([]byte(d.filter)):
		return nil, exit.With(exit.Usage, "--filter is no JSON: write such as '{\"ref\": [\"refs/heads/main\"]}'")
	case len(d.webhooks) > 0:
		filter := `"webhooks":` + text(d.webhooks)
		if d.filter != "" {
			filter += `,"payload":` + d.filter
		}
		all = append(all, `{"provider":"webhook","event":"received","filter":{`+filter+`}}`)
	}
	if d.cron != "" {
		all = append(all, `{"provider":"schedule","event":"cron_fired","schedule":{"cron":`+text(d.cron)+`}}`)
	}
	if all == nil {
		return nil, nil
	}
	n, err := schema.NodeOf([]byte("[" + strings.Join(all, ",") + "]"))
	if err != nil {
		return nil, exit.With(exit.Usage, "--filter: %w", err)
	}
	return n, nil
}

func factoryShape(kind string) *schema.Shape { return factory.PlaceOf(kind).Shape() }

// valueFor reads a value of a flag as the table of the kind wants it: a text as it is, all
// else as JSON. Where a text or a list may stand, what is no JSON is a text.
func valueFor(shape *schema.Shape, path []string, value string) (*schema.Node, error) {
	for _, key := range path {
		if shape = shape.Below(key); shape == nil {
			break
		}
	}
	if shape != nil && shape.Type == schema.TypeString {
		return &schema.Node{Kind: schema.String, Text: value}, nil
	}
	n, err := schema.NodeOf([]byte(value))
	if err != nil && (shape == nil || shape.Type == schema.Any || shape.Single != nil && shape.Single.Type == schema.TypeString) {
		return &schema.Node{Kind: schema.String, Text: value}, nil
	}
	if err != nil {
		return nil, errors.New("write JSON, such as 5, true or [\"a\", \"b\"]")
	}
	return n, nil
}

// put sets a key of a mapping, in mappings that it makes.
func put(n *schema.Node, path []string, value *schema.Node) {
	i := slices.IndexFunc(n.Fields, func(f schema.Field) bool { return f.Key == path[0] })
	if i < 0 {
		i = len(n.Fields)
		n.Fields = append(n.Fields, schema.Field{Key: path[0], Value: &schema.Node{Kind: schema.Mapping}})
	}
	if len(path) == 1 {
		n.Fields[i].Value = value
	} else {
		put(n.Fields[i].Value, path[1:], value)
	}
}

// send makes a change by the server, or in the files of a folder.
func (d *definitionAuthor) send(
	c *cobra.Command, name string, send func(*Client, string) (api.DefinitionChange, error), make func(fs.FS) (edit.Files, error),
) error {
	return byServerOrTree(c, &d.author, d.kind, name, send, func(made api.DefinitionChange) error {
		if err := term.Emit(c, made, []string{name}, func(w io.Writer) error { return printChange(w, made.Change) }); err != nil {
			return err
		}
		if !made.Live && !made.Unchanged {
			return exit.Silently(exit.Bad)
		}
		return nil
	}, make)
}

// environments are shown with where their files come from.
var environments = listing[api.AgentEnvironment]{
	kind:    "environment",
	path:    "/agent/environments",
	factory: func(e api.AgentEnvironment) string { return e.Factory },
	name:    func(e api.AgentEnvironment) string { return e.Name },
	header:  []string{"NAME", "REPOSITORIES", "DESCRIPTION"},
	row: func(_ io.Writer, e api.AgentEnvironment) term.Cells {
		from := terms.Each(e.Repositories, func(r api.AgentRepository) string { return r.URL })
		return term.Cells{e.Name, term.Prose(strings.Join(from, ", ")), term.Prose(e.Description)}
	},
}

// agents are shown with the factories that define them.
var agents = listing[api.AgentEntry]{
	kind:   "agent",
	path:   "/agent",
	name:   func(a api.AgentEntry) string { return a.Name },
	header: []string{"NAME", "OF", "DESCRIPTION"},
	row: func(_ io.Writer, a api.AgentEntry) term.Cells {
		var of, about []string
		for _, v := range a.Variants {
			factory, _, _ := strings.Cut(v.ID, "/")
			of, about = append(of, factory), append(about, v.Description)
		}
		return term.Cells{a.Name, term.Prose(strings.Join(of, ", ")), term.Prose(strings.Join(about, "; "))}
	},
}

func environmentsCommand() *cobra.Command {
	example := `app --set 'repositories=[{"url": "https://git.example.com/app.git"}]' --set timeoutMinutes=30`
	shown := environments.commands("List the environments in which runs can work")
	return Noun("environments", "Environments of runs", append(shown, definitionAuthorCommands("environment", example)...)...)
}

func agentsCommand() *cobra.Command {
	example := `reviewer --set agentType=REVIEW --set harness.type=claude --prompt-file reviewer.md`
	shown := agents.commands("List the agents of the definitions")
	return Noun("agents", "Agents: who does the work of runs", append(shown, definitionAuthorCommands("agent", example)...)...)
}
