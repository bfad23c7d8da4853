package factory

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"triphammer/schema"
)

const foreman = "FOREMAN"

// build makes the factory of the documents and applies the rules between them.
func (l *loader) build(root *document) {
	f := l.factory
	for _, d := range l.of("runner") {
		f.Runners = append(f.Runners, runner(d))
	}
	if !l.opt.Strict {
		for _, d := range l.of("environment") {
			e := l.environment(d)
			if d.Total > 0 && !l.wanted(d.name) {
				l.ignored(d.Collector)
				l.docs = slices.DeleteFunc(l.docs, func(other *document) bool { return other == d })
				continue
			}
			d.Budget = l.budget
			warnOfOldNames(d)
			l.deferSecrets(d, d.Root.KeyAt("secrets"), "secrets", e.Secrets)
			l.outsideSecrets(d)
			f.Environments = append(f.Environments, e)
			l.environments[e.Name] = e
		}
	}
	if root != nil {
		l.root(root)
	}
	for _, d := range l.of("webhook") {
		f.Webhooks = append(f.Webhooks, l.webhook(d))
		if n := len(f.Webhooks); n > MaxWebhooks {
			d.Error(schema.At{}, schema.TooMany, "delete it, or make another factory", fmt.Sprintf("a factory has at most %d webhooks; this is number %d by name", MaxWebhooks, n))
		}
	}
	if root != nil {
		l.integrate(root)
	}
	for _, d := range l.of("agent") {
		a := l.agent(d)
		f.Agents = append(f.Agents, a)
		l.agents[a.Name] = a
	}
	l.foremanRule()
	for _, d := range l.of("automation") {
		f.Automations = append(f.Automations, l.automation(d))
	}
	if root != nil {
		l.attachedTo(root)
	}
	l.scorers()
	l.benchmarks()
	if !l.opt.Strict {
		l.automations = make(map[string]bool, len(f.Automations))
		for _, a := range f.Automations {
			l.automations[a.Name] = true
		}
		for _, d := range l.of("filter test") {
			f.Tests = append(f.Tests, l.tests(d)...)
		}
		slices.SortStableFunc(f.Tests, func(a, b *Test) int { return cmp.Compare(a.Path, b.Path) })
		l.warnOfNoEffect()
	}
}

func (l *loader) root(d *document) {
	f, n := l.factory, d.Root
	f.Name = strings.TrimSpace(textOf(n.Get("name")))
	f.Description = textOf(n.Get("description"))
	f.Secrets = textsOf(n.Get("secrets"))
	l.deferSecrets(d, n.KeyAt("secrets"), "secrets", f.Secrets)
	if alias := n.Get("alias"); alias != nil && alias.Kind == schema.String {
		f.Alias = strings.TrimSpace(alias.Text)
		checkAlias(d, alias, f.Alias)
	}
	if n.Get("providers") != nil && !l.opt.Strict {
		hint := "write cloudProviders"
		if n.Get("cloudProviders") != nil {
			hint = "take it out: cloudProviders counts"
		}
		d.Warn(n.KeyAt("providers"), schema.Deprecated, hint, "providers is the old name of cloudProviders")
	}
	l.checkRepositories(d)
	f.Repositories = l.repositories(d)
	f.MCPServers = l.mcpServers(d, n.Get("mcpServers"), "mcpServers")
	defaults := n.Get("agentDefaults")
	if l.opt.Strict {
		checkForges(d)
		for _, key := range []string{"repositories", "agentDefaults"} {
			if n.Get(key) == nil && !(key == "repositories" && forgeless(n)) {
				hint := "add repositories: [{owner: TEXT, name: TEXT}]"
				if key == "agentDefaults" {
					hint = "add agentDefaults: {model: TEXT}"
				}
				d.Error(n.At, schema.MissingRequired, hint, fmt.Sprintf("key %q is missing", key))
			}
		}
	}
	if defaults == nil || defaults.Kind != schema.Mapping {
		return
	}
	if model := defaults.Get("model"); l.opt.Strict && isNull(model) && defaults.Get("harness") == nil {
		d.Error(defaults.At, schema.MissingRequired, "add model: NAME, or harness: {type: NAME, model: NAME}", "agentDefaults has neither model nor harness")
	}
	if h := defaults.Get("harness"); l.opt.Strict && h != nil && h.Kind == schema.Mapping {
		for _, key := range []string{"type", "model"} {
			if isNull(h.Get(key)) {
				d.Error(h.At, schema.MissingRequired, "add "+key+": TEXT", fmt.Sprintf("key %q is missing: in agentDefaults a harness needs type and model", "agentDefaults.harness."+key))
			}
		}
	}
	f.Defaults = l.settings(d, defaults, Settings{}, "agentDefaults.")
}

func checkAlias(d *document, n *schema.Node, alias string) {
	switch bad := strings.IndexFunc(alias, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsNumber(r) && !strings.ContainsRune(" ._-", r)
	}); {
	case utf8.RuneCountInString(alias) > 60:
		d.Error(n.At, schema.InvalidValue, "shorten it", fmt.Sprintf("alias has %d characters; it can have 60", utf8.RuneCountInString(alias)))
	case bad >= 0:
		r, _ := utf8.DecodeRuneInString(alias[bad:])
		d.Error(n.At, schema.InvalidValue, "letters, digits, space, . _ and - are allowed", fmt.Sprintf("alias cannot hold %q", r))
	}
}

// forgeless tells whether a factory states that it uses no code forge.
func forgeless(root *schema.Node) bool {
	return slices.Contains(forges(root), noForges)
}

// publishedForges are the words of codeForges that the format publishes. A server may know others.
var publishedForges = []string{"AZURE_DEVOPS", github, "GITLAB", noForges}

func checkForges(d *document) {
	for _, n := range itemsOf(d.Root.Get("codeForges")) {
		if n.Kind == schema.String && !slices.Contains(publishedForges, n.Text) {
			d.Error(n.At, schema.InvalidValue, schema.Newer(d.OneOf(n.Text, publishedForges)), fmt.Sprintf("codeForges cannot hold %q", n.Text))
		}
	}
}

func (l *loader) checkRepositories(d *document) {
	if n := d.Root.Get("repositories"); n != nil && n.Kind == schema.List && len(n.Items) == 0 && !forgeless(d.Root) {
		d.Error(n.At, schema.MissingRequired, "write [{owner: TEXT, name: TEXT}], or codeForges: [NONE]", "repositories is empty")
	}
	seen := make(map[string]bool)
	for _, r := range itemsOf(d.Root.Get("repositories")) {
		id := strings.TrimSpace(textOf(r.Get("owner"))) + "/" + strings.TrimSpace(textOf(r.Get("name")))
		if seen[id] {
			d.Error(r.At, schema.DuplicateKey, "take one of them out", fmt.Sprintf("repository %s is listed twice", id))
		}
		seen[id] = true
	}
}

// foremanRule: if there are agents, exactly one is the foreman (SPEC 2.2e).
func (l *loader) foremanRule() {
	docs := l.of("agent")
	complete := !slices.ContainsFunc(l.factory.Agents, func(a *Agent) bool { return !slices.Contains(schema.AgentTypes, a.Type) })
	for id := range l.unread {
		complete = complete && !strings.HasPrefix(id, "agent ")
	}
	if len(docs) == 0 {
		if l.opt.Strict && complete {
			l.fault("factory.yaml", schema.MissingRequired, "add agents/NAME/agent.md with agentType: FOREMAN", "there is no agent")
		}
		return
	}
	var first string
	for i, a := range l.factory.Agents {
		if a.Type != foreman {
			continue
		}
		if first != "" {
			d := docs[i]
			d.Error(d.Root.KeyAt("agentType"), schema.DuplicateKey, "give one of them another agentType", fmt.Sprintf("a second foreman: %s is one already", first))
			continue
		}
		first, l.foreman = a.Name, a
	}
	if first == "" && complete {
		l.fault("factory.yaml", schema.MissingRequired, "set agentType: FOREMAN in one agent", "none of the agents is the foreman")
	}
}

// Kinds of names that refer to something outside the tree (SPEC 2.2a, 3.3).
const (
	kindSecret      = "secret"
	kindUID         = "webhook_uid"
	kindEnvironment = "environment"
	kindRunner      = "runner"
)

// deferSecrets notes names of secrets, which only a server can check.
func (l *loader) deferSecrets(d *document, at schema.At, field string, names []string) {
	for _, name := range names {
		l.later(d, at, field, kindSecret, name)
	}
}

// later notes a name that cannot be resolved here.
func (l *loader) later(d *document, at schema.At, field, kind, name string) {
	l.report.Deferred = append(l.report.Deferred, schema.Deferred{Path: d.Path, Field: field, Kind: kind, Name: name})
	l.factory.unresolved = append(l.factory.unresolved, unresolved{d.Path, at, kind, name})
}

// The accessors below return zero values for nodes of another kind: the shape check
// has reported those.

func isNull(n *schema.Node) bool { return n == nil || n.Kind == schema.Null }

func textOf(n *schema.Node) string {
	if n == nil || n.Kind != schema.String {
		return ""
	}
	return n.Text
}

func itemsOf(n *schema.Node) []*schema.Node {
	if n == nil || n.Kind != schema.List {
		return nil
	}
	return n.Items
}

func textsOf(n *schema.Node) []string {
	var all []string
	for _, item := range itemsOf(n) {
		if text := strings.TrimSpace(textOf(item)); text != "" {
			all = append(all, text)
		}
	}
	return all
}

// wordsOf are the words of a command, as they are.
func wordsOf(n *schema.Node) []string {
	var all []string
	for _, item := range itemsOf(n) {
		all = append(all, textOf(item))
	}
	return all
}

func boolOf(n *schema.Node, otherwise bool) bool {
	if n == nil || n.Kind != schema.Bool {
		return otherwise
	}
	return n.Text == "true"
}

func names[T any](all []*T, name func(*T) string) []string {
	out := make([]string, len(all))
	for i, one := range all {
		out[i] = name(one)
	}
	return out
}
