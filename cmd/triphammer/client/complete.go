package client

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"triphammer/cmd/triphammer/client/term"
	"triphammer/server/inert"
	"triphammer/server/terms"
)

// completion tells what the names of a kind are: the list of the API, the field that commands
// take, and a field that describes it.
type completion struct {
	List, value, describe string
	page                  string // with a / or = at its end, to which the value is added, if each has its own
	prefix                string // of ids
}

// Completions are those of arguments, by the name of the command or of one above it.
var Completions = map[string]completion{
	"runs":         {"/agent/runs?limit=50", "run_id", "title", "/runs/", terms.RunPrefix},
	"deliveries":   {"/deliveries?limit=50", "id", "label", "/deliveries/", terms.DeliveryPrefix},
	"inbox":        {"/inbox", "run_id", "title", "", ""},
	"subjects":     {"/subjects?limit=50", "subject", "factory", "/subjects/story?subject=", ""},
	"webhooks":     {"/webhooks?limit=200", "name", "auth_mode", "/webhooks/", ""},
	"automations":  {"/automations?limit=200", "name", "path", "/automations/", ""},
	"agents":       {"/agent", "name", "", "/agents/", ""},
	"environments": {"/agent/environments", "name", "description", "/environments/", ""},
	"schedules":    {"/agent/schedules?limit=200", "id", "name", "/schedules/", terms.SchedulePrefix},
	"applies":      {"/applies?limit=50", "id", "outcome", "/definition/applies/", terms.ApplyPrefix},
	"definition":   {"/applies?limit=50", "commit", "outcome", "", ""},
	"secrets":      {"/secrets?limit=200", "name", "source", "/secrets", ""},
	"confirm":      {"/pending-secrets", "id", "name", "/secrets", terms.PendingSecretPrefix},
	"dismiss":      {"/pending-secrets", "id", "name", "", ""},
	"keys":         {"/keys?limit=200", "name", "kind", "/people", terms.KeyPrefix},
	"factories":    {"/factories?limit=200", "name", "state", "/definition?factory=", ""},
	"sessions":     {"/auth/sessions?limit=200", "id", "name", "/people", terms.SessionPrefix},
	"workers":      {"/workers", "name", "state", "/system", ""},
	"send":         {"/webhooks?limit=200", "name", "auth_mode", "", ""},
}

// pageOf is the path of the page of one.
func (of completion) pageOf(value string) string {
	switch {
	case strings.HasSuffix(of.page, "/"):
		return of.page + terms.PageNamed(value)
	case strings.HasSuffix(of.page, "="):
		return of.page + url.QueryEscape(value)
	}
	return of.page
}

// CompletionFlags are the flags whose value is a name of a noun.
var CompletionFlags = map[string]string{
	"webhook": "webhooks", "automation": "automations", "delivery": "deliveries", "factory": "factories",
	"subject": "subjects", "agent": "agents", "environment": "environments", "context": "context",
}

// CompletionWords are the flags whose value is one of a few words, in any case.
var CompletionWords = map[string][]string{
	"state":   texts(terms.RunStates),
	"outcome": append(texts(terms.Outcomes), "refused"),
	"stopped": append(slices.Clone(terms.Stages), terms.Went),
	"role":    {"viewer", "operator", "manager"},
	"mode":    {"normal", "plan"},
	"scope":   {"runs", "read", "operate", "manage"},
}

func texts[T ~string](all []T) (words []string) {
	for _, one := range all {
		words = append(words, string(one))
	}
	return words
}

// Words of a usage line that name what there is, and that are files, which the shell itself
// completes.
var (
	namesOne  = regexp.MustCompile(`^\[?(ID|NAME|OLD|WEBHOOK|SUBJECT|COMMIT|FROM|TO)(\||\.\.\.|\]|$)`)
	NamesFile = regexp.MustCompile(`^\[?(PATH|DIR|FILE|REPO)`)
)

const completionPatience = time.Second

// plainWord is what a shell takes without quotes: # begins a comment only at the beginning of a word. Nothing else is offered: names come from
// repositories, and a shell must not run them.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_./@+:#-]*$`)

type completer = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective)

// addCompletion gives every command below c the completion of its arguments and flags.
func addCompletion(c *cobra.Command) {
	for _, below := range c.Commands() {
		addCompletion(below)
	}
	if c.ValidArgsFunction == nil && len(c.ValidArgs) == 0 {
		c.ValidArgsFunction = completeArguments(c)
	}
	c.Flags().VisitAll(func(f *pflag.Flag) {
		_, has := c.GetFlagCompletionFunc(f.Name)
		if f.Value.Type() == "duration" {
			f.Value = duration{f.Value}
			f.DefValue = cmp.Or(strings.TrimPrefix(f.DefValue, "0s"), "0") // help leaves out a default of 0
		}
		switch noun, words := CompletionFlags[f.Name], CompletionWords[f.Name]; {
		case has:
		case noun != "":
			_ = c.RegisterFlagCompletionFunc(f.Name, completeNoun(noun))
		case words != nil:
			_ = c.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
			f.Value, f.DefValue = word{f.Value, words}, strings.TrimPrefix(f.DefValue, "[]")
		}
	})
}

// ArgumentsOf are the words of a usage line that stand for arguments.
func ArgumentsOf(c *cobra.Command) (all []string) {
	for _, word := range strings.Fields(c.Use)[1:] {
		if strings.HasPrefix(word, "(") || strings.HasPrefix(strings.TrimPrefix(word, "["), "-") || word == "|" {
			break
		}
		all = append(all, word)
	}
	return all
}

// completeArguments makes the completion of the arguments in the usage line of a command. It is
// nil if they are files.
func completeArguments(c *cobra.Command) completer {
	noun := ""
	for at := c; at != nil && noun == ""; at = at.Parent() {
		if at.Name() == "context" || Completions[at.Name()].List != "" {
			noun = at.Name()
		}
	}
	makes := c.Name() == "create" || c.Name() == "add"
	words := ArgumentsOf(c)
	if slices.ContainsFunc(words, NamesFile.MatchString) {
		return nil
	}
	return func(c *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		at := len(args)
		if len(words) > 0 && strings.HasSuffix(words[len(words)-1], "...") {
			at = min(at, len(words)-1)
		}
		if at >= len(words) || makes || noun == "" || !namesOne.MatchString(words[at]) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return completeNoun(noun)(c, args, word)
	}
}

// ReachesServer tells whether a command has the flags that name a server. Those that have only
// one of them, such as dev, make a server or a context.
func ReachesServer(c *cobra.Command) bool {
	return c.Flags().Lookup("server") != nil && c.Flags().Lookup("data") != nil
}

// completeNoun offers the names of a noun. It says nothing if it cannot, and asks a running
// server alone.
func completeNoun(noun string) completer {
	return func(c *cobra.Command, _ []string, _ string) (words []string, directive cobra.ShellCompDirective) {
		directive = cobra.ShellCompDirectiveNoFileComp
		if noun == "context" {
			if saved, err := readContexts(); err == nil {
				for _, one := range saved.Contexts {
					words = append(words, one.Name+"\t"+one.Server)
				}
			}
			return words, directive
		}
		return completeFrom(c, func(ctx context.Context, cl *Client) []string {
			entries, _ := cl.entries(ctx, noun) // it offers nothing then
			return Completions[noun].words(entries)
		})
	}
}

// completeFrom offers words of a running server, in their order.
func completeFrom(c *cobra.Command, ask func(ctx context.Context, cl *Client) []string) ([]string, cobra.ShellCompDirective) {
	if !ReachesServer(c) {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(context.Background(), completionPatience)
	defer cancel()
	c.SetContext(ctx) // which also ends the look whether a server runs on a data directory
	cl, err := Connect(c, true)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer cl.Close()
	return ask(ctx, cl), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}

// entries are what the list of a noun has.
func (cl *Client) entries(ctx context.Context, noun string) (all []map[string]any, err error) {
	var page map[string]json.RawMessage
	if err := cl.Get(ctx, Completions[noun].List, &page); err != nil {
		return nil, err
	}
	for _, field := range page {
		var entries []map[string]any
		if json.Unmarshal(field, &entries) == nil {
			all = append(all, entries...)
		}
	}
	return all, nil
}

// words are the values of entries, each with its description.
func (of completion) words(entries []map[string]any) (words []string) {
	for _, one := range entries {
		value, about := fmt.Sprint(one[of.value]), one[of.describe]
		if !plainWord.MatchString(value) {
			continue
		}
		if about != nil && about != "" {
			value += "\t" + term.OneLine.Replace(inert.Text(fmt.Sprint(about)))
		}
		if !slices.Contains(words, value) { // a commit can have been applied several times
			words = append(words, value)
		}
	}
	return words
}
