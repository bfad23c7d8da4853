package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"triphammer/applier/gitrepo"
	"triphammer/cmd/triphammer/client/exit"
	"triphammer/cmd/triphammer/client/term"
	"triphammer/server/api"
	"triphammer/server/terms"
)

func openCommand() *cobra.Command {
	var printed bool
	c := &cobra.Command{
		Use: "open [ID|NAME|PATH]", Short: "Open the page of anything in a browser", Args: cobra.MaximumNArgs(1),
		Long: `Open the page of anything in a browser: of a run, a delivery, an apply or a schedule by its id, of a webhook, an automation,
an agent or an environment by its name, or any page by its path; without an argument, the first page. If several things
have the name, say which, such as webhooks/NAME.

Who is not signed in there ends on the same page: the browser gets a link as "auth login" makes it, if your key may make
one. $BROWSER names another browser. Without any, or with --print, the address is printed.`,
		Example: `  triphammer open
  triphammer open run_0123456789abc
  triphammer open triage
  triphammer open automations/triage/edit
  triphammer open '/deliveries?outcome=rejected_auth' --print`,
		ValidArgsFunction: completePages,
		RunE: WithServer(true, func(c *cobra.Command, args []string, cl *Client) error {
			return cl.open(c, strings.Join(args, ""), printed)
		}),
	}
	c.Flags().BoolVar(&printed, "print", false, "print the address, and open nothing")
	ClientFlags(c)
	return c
}

// open opens the page of something, or prints its address.
func (cl *Client) open(c *cobra.Command, what string, printed bool) error {
	var s api.Status
	if err := cl.Get(c.Context(), "/status", &s); err != nil {
		return err
	}
	if u, err := url.Parse(s.BaseURL); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return exit.With(exit.Unreachable, "the server does not say where its pages are; it may be older than this program")
	}
	path, err := cl.pageOf(c.Context(), strings.TrimPrefix(what, s.BaseURL), len(s.Factories) > 1 || cl.factory != "")
	if err != nil {
		return err
	}
	address := s.BaseURL + path
	if !printed {
		if err = cl.browse(c, address, path, s.BaseURL); err == nil {
			return nil
		}
		fmt.Fprintf(c.ErrOrStderr(), "Nothing is opened: %v. The address follows; triphammer auth login --to %s prints one that signs you in.\n", err, gitrepo.ShellQuote(path))
	}
	_, err = fmt.Fprintln(c.OutOrStdout(), address)
	return err
}

// browse shows a page in a browser, by a link that signs the person in if that is needed. A key
// that may make no links leaves the sign-in to the page.
func (cl *Client) browse(c *cobra.Command, address, path, base string) error {
	show, err := findBrowser()
	if err != nil {
		return err
	}
	fmt.Fprintf(c.ErrOrStderr(), "Opening %s\n", address)
	var link api.LoginLink
	if cl.Call(c.Context(), http.MethodPost, "/auth/links", api.CreateLoginLink{To: path}, &link) == nil && strings.HasPrefix(link.URL, base+"/") {
		address = link.URL
	}
	cmd := show(address)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.InOrStdin(), c.ErrOrStderr(), c.ErrOrStderr() // a browser may be one for terminals
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", cmd.Path, err)
	}
	return nil
}

// pageOf is the path of the page of something. It names the factory of the thing if there may be
// others.
func (cl *Client) pageOf(ctx context.Context, what string, several bool) (string, error) {
	if what == "" {
		return "/", nil
	}
	var nouns []string // that have it
	for _, noun := range slices.Sorted(maps.Keys(Completions)) {
		switch of := Completions[noun]; {
		case of.prefix != "" && strings.HasPrefix(what, of.prefix):
			return cl.pageOfID(ctx, noun, what)
		case of.page != "" && (of.value == "name" || of.describe == "name"):
			nouns = append(nouns, noun)
		}
	}
	if strings.ContainsAny(what, "/?#") {
		u, err := url.Parse("/" + strings.TrimLeft(what, "/"))
		if err != nil {
			return "", exit.With(exit.Usage, "%q is no path of a page: %w", what, err)
		}
		noun, name := thingOfPage(u)
		switch of := Completions[noun]; {
		case noun == "":
			return u.String(), nil // the server says if it has no such page
		case of.prefix != "":
			return cl.pageOfID(ctx, noun, name)
		}
		nouns, what = []string{noun}, name
	}
	found, names := make(map[string]bool), []string(nil)
	if len(nouns) > 1 {
		for _, s := range sections() {
			if names = append(names, wordOf(s)); wordOf(s) == what || strings.EqualFold(s.Name, what) {
				found[s.Path] = true
			}
		}
	}
	for _, noun := range nouns {
		more, err := cl.pagesNamed(ctx, noun, what, several, found)
		if err != nil {
			return "", err
		}
		names = append(names, more...)
	}
	paths := slices.Sorted(maps.Keys(found))
	switch {
	case len(paths) == 1:
		return paths[0], nil
	case len(paths) > 1:
		return "", exit.With(exit.Usage, "%s is the name of several things; open one by its path: %s", what, strings.Join(paths, " or "))
	case len(nouns) == 1:
		return "", exit.With(exit.NotFound, "%s", api.NoneNamed(strings.TrimSuffix(nouns[0], "s"), what, names))
	}
	slices.Sort(names)
	return "", exit.With(exit.NotFound, "%s", api.NoneNamed("thing or page", what, slices.Compact(names)))
}

// pagesNamed adds the pages of the things of a noun that have the name, and returns the names of
// all. several tells that there are several factories.
func (cl *Client) pagesNamed(ctx context.Context, noun, what string, several bool, found map[string]bool) (names []string, err error) {
	of := Completions[noun]
	all, err := cl.entries(ctx, noun)
	if e := (*exit.Error)(nil); errors.As(err, &e) && e.Code == exit.Auth {
		return nil, nil // the pages tell no more than the API
	}
	for _, one := range all {
		if name, _ := one["name"].(string); name != "" {
			names = append(names, name)
		}
		if what != one["name"] && what != one[of.value] && what != one["uid"] {
			continue
		}
		path := of.pageOf(fmt.Sprint(one[of.value]))
		if factory, _ := one["factory"].(string); several && factory != "" && strings.HasSuffix(of.page, "/") {
			path += "?factory=" + url.QueryEscape(factory)
		}
		found[path] = true
	}
	return names, err
}

// thingOfPage is what a path shows; no noun: it is the page of no single thing.
func thingOfPage(u *url.URL) (noun, name string) {
	for noun, of := range Completions {
		part, is := strings.CutPrefix(u.Path, of.page)
		if name := terms.NameOfPage(part); is && strings.HasSuffix(of.page, "/") && name != "" && terms.PageNamed(name) == part && u.RawQuery == "" {
			return noun, name
		}
	}
	return "", ""
}

// pageOfID is the page of what an id names, if that is there.
func (cl *Client) pageOfID(ctx context.Context, noun, id string) (string, error) {
	of := Completions[noun]
	if !strings.HasSuffix(of.page, "/") {
		return of.page, nil
	}
	list, _, _ := strings.Cut(of.List, "?")
	return of.pageOf(id), cl.Get(ctx, list+"/"+url.PathEscape(id), nil)
}

// sections are the pages of the navigation.
func sections() (all []terms.Section) {
	for _, group := range terms.Sections {
		all = append(all, group.Entries...)
	}
	return all
}

// wordOf is what people call a section.
func wordOf(s terms.Section) string {
	return cmp.Or(strings.TrimPrefix(s.Path, "/"), strings.ToLower(s.Name))
}

// completePages offers what has a page: sections, names, and the ids of a kind once its prefix is
// written.
func completePages(c *cobra.Command, args []string, word string) (words []string, directive cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	for _, s := range sections() {
		words = append(words, wordOf(s)+"\t"+s.Name)
	}
	offered, directive := completeFrom(c, func(ctx context.Context, cl *Client) (all []string) {
		for _, noun := range slices.Sorted(maps.Keys(Completions)) {
			of := Completions[noun]
			if of.page == "" || of.value != "name" && (of.prefix == "" || !strings.HasPrefix(word, of.prefix)) {
				continue
			}
			entries, err := cl.entries(ctx, noun)
			if err != nil {
				continue
			}
			for _, word := range of.words(entries) {
				name, about, _ := strings.Cut(word, "\t")
				all = append(all, name+"\t"+term.Joined(": ", noun, about))
			}
		}
		return all
	})
	return append(words, offered...), directive
}
