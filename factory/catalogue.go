package factory

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"triphammer/schema"
)

// catalogue has the filter keys of each provider's events
// (factory/testdata/rules 4.1).
var catalogue = buildCatalogue()

func buildCatalogue() map[string]map[string][]string {
	all := make(map[string]map[string][]string)
	on := func(provider string, events []string, keys ...string) {
		if all[provider] == nil {
			all[provider] = make(map[string][]string)
		}
		for _, event := range events {
			all[provider][event] = keys
		}
	}
	on("github", []string{"push"}, "repos", "branches", "paths")
	on("github", []string{"issue_created", "issue_labeled"}, "repos", "labels", "assignees", "authors")
	on("github", []string{
		"pull_request_opened", "pull_request_ready", "pull_request_closed", "pull_request_merged", "pull_request_labeled",
		"pull_request_synchronized", "pull_request_reopened",
	}, "repos", "base_branches", "pr_numbers", "paths", "assignees", "authors", "labels")
	on("github", []string{"issue_mentioned", "pull_request_mentioned"}, "repos", "mentioned", "labels")
	on("github", []string{"issue_assigned", "pull_request_assigned"}, "repos", "assignees", "labels")
	on("github", []string{"pull_request_review_requested"}, "repos", "reviewers", "reviewer_teams")
	on("github", []string{"pull_request_review_submitted"}, "repos", "mentioned", "labels", "review_states")
	on("github", []string{"check_suite_completed"}, "repos", "conclusions", "branches", "labels", "authors")
	on("github", []string{"workflow_run_completed"}, "repos", "conclusions", "branches", "labels", "authors", "workflows")
	on("github", []string{"check_run_rerequested", "check_suite_rerequested"}, "repos")
	on("gitlab", []string{"merge_request"}, "repos", "actions", "base_branches")
	on("gitlab", []string{"bot_mentioned"}, "repos", "mentioned")
	on("gitlab", []string{"push"}, "repos", "branches", "paths")
	on("linear", []string{"issue_created", "issue_labeled", "issue_state_changed", "issue_assigned"},
		"team_ids", "project_ids", "labels", "state_ids", "assignee_ids", "mentioned_user_ids", "creator_ids")
	on("linear", []string{"comment_created"}, "team_ids", "project_ids", "labels", "state_ids", "issue_ids", "mentioned_user_ids", "creator_ids")
	on("linear", []string{"agent_session_created"}, "team_ids", "creator_ids", "keywords")
	on("jira", []string{"issue_created", "issue_labeled"}, "project_keys", "labels")
	on("jira", []string{"status_changed"}, "project_keys", "status_ids")
	on("jira", []string{"agent_session_created"}, "project_keys", "labels", "keywords")
	on("slack", []string{"app_mention", "message_posted", "message_dm", "message_im", "message_mpim"}, "channel_ids", "user_ids", "keywords")
	on("slack", []string{"reaction_added"}, "channel_ids", "user_ids", "emojis", "keywords", "item_user_ids")
	on("slack", []string{"member_joined_channel"}, "channel_ids", "user_ids")
	on("teams", []string{"app_mention", "message_posted"}, "team_ids", "channel_ids", "keywords", "user_ids")
	on("schedule", []string{"cron_fired"}, "schedule_ids")
	on("factory", []string{"work_item_stage_changed"}, "stages")
	on("webhook", []string{"received"}, "webhook_ids", "payload")
	return all
}

// aliases are other spellings of a canonical key. Those of linear and slack take
// only plain lists of names.
var aliases = map[string]map[string]string{
	"github": {"baseBranches": "base_branches", "prNumbers": "pr_numbers"},
	"linear": {"teams": "team_ids", "projects": "project_ids", "states": "state_ids", "issues": "issue_ids"},
	"slack":  {"channels": "channel_ids", "users": "user_ids", "itemUsers": "item_user_ids"},
}

func providers() []string { return slices.Sorted(maps.Keys(catalogue)) }

func eventsOf(provider string) []string { return slices.Sorted(maps.Keys(catalogue[provider])) }

// conclusions are the outcomes of a check.
var conclusions = []string{"success", "failure", "neutral", "cancelled", "timed_out", "action_required", "stale", "skipped"}

// checkFilter checks the keys of another provider's filter and its matchers.
func (l *loader) checkFilter(d *document, n *schema.Node, t *Trigger, keys []string, where string) {
	used := make(map[string]bool)
	for _, f := range n.Fields {
		key, isAlias := f.Key, false
		if canonical, ok := aliases[t.Provider][f.Key]; ok && slices.Contains(keys, canonical) {
			key, isAlias = canonical, true
		}
		switch {
		case slices.Contains(keys, key):
		case t.Provider == "gitlab" && t.Event == "push":
			// Its keys are not published. These are a guess from the pushes of other providers.
			d.Warn(f.At, schema.InvalidFilter, d.OneOf(f.Key, keys), fmt.Sprintf("%s.filter.%s: it is not known whether a push of gitlab can be filtered on it", where, f.Key))
		default:
			d.Error(f.At, schema.InvalidFilter, schema.Newer(d.OneOf(f.Key, keys)), fmt.Sprintf("%s: %s %s cannot be filtered on %q", where, t.Provider, t.Event, f.Key))
			continue
		}
		if used[key] {
			d.Error(f.At, schema.InvalidFilter, "keep one of them", fmt.Sprintf("%s.filter has %s under two names", where, key))
		}
		used[key] = true
		m := matcher{d: d, where: fmt.Sprintf("%s.filter.%s", where, f.Key), provider: t.Provider, event: t.Event, key: key}
		if !slices.Contains(keys, key) {
			m.key = "" // what the key means elsewhere says nothing here
		}
		switch {
		case m.key == "schedule_ids": // checked with the schedule
		case isAlias && t.Provider != "github":
			m.names(l, f)
		default:
			m.check(f.Value)
		}
	}
}

// matcher is the value of one filter key of another provider.
type matcher struct {
	d                           *document
	where, provider, event, key string
}

// names checks an alias that only the provider can resolve: a plain list.
func (m *matcher) names(l *loader, f schema.Field) {
	if f.Value.Kind == schema.Mapping {
		m.d.Error(f.Value.At, schema.InvalidFilter, "write [NAME], or "+m.key+" with ids", m.where+" takes a list of names, without in and not_in")
		return
	}
	m.check(f.Value)
	for _, item := range itemsOf(f.Value) {
		if name := strings.TrimSpace(textOf(item)); name != "" {
			l.later(m.d, item.At, m.where, m.provider+"_name_alias", name)
		} else if item.Kind == schema.String {
			m.d.Error(item.At, schema.InvalidFilter, "take it out", m.where+" holds an empty name")
		}
	}
}

// check checks a list, or {in, not_in}.
func (m *matcher) check(n *schema.Node) {
	switch n.Kind {
	case schema.Null:
		return
	case schema.Mapping:
	default:
		m.values(n)
		return
	}
	for _, f := range n.Fields {
		if f.Key != "in" && f.Key != "not_in" {
			m.d.Error(f.At, schema.InvalidFilter, m.d.OneOf(f.Key, []string{"in", "not_in"}), fmt.Sprintf("%s takes a list, in or not_in, not %q", m.where, f.Key))
			continue
		}
		m.values(f.Value)
	}
	wanted := make(map[string]bool)
	for _, item := range itemsOf(n.Get("in")) {
		wanted[m.canonical(item.Text)] = true
	}
	for _, item := range itemsOf(n.Get("not_in")) {
		if wanted[m.canonical(item.Text)] {
			m.d.Error(item.At, schema.InvalidFilter, "take it out of one of them", fmt.Sprintf("%s: both in and not_in hold %q", m.where, item.Text))
		}
	}
}

func (m *matcher) values(list *schema.Node) {
	if list.Kind != schema.List {
		hint := "write [VALUE]"
		if list.Text != "" && list.Kind != schema.Null {
			hint = "write [" + list.Text + "]"
		}
		m.d.Error(list.At, schema.InvalidFilter, hint, m.where+" takes a list, not "+list.Kind.String())
		return
	}
	kind := schema.String
	if m.key == "pr_numbers" {
		kind = schema.Int
	}
	for _, item := range list.Items {
		if item.Kind != kind {
			hint := "take it out"
			switch {
			case kind == schema.Int:
				hint = "write a whole number, without quotes"
			case kind == schema.String && item.Text != "" && item.Kind != schema.Null:
				hint = fmt.Sprintf("quote it: %q", item.Text)
			}
			m.d.Error(item.At, schema.InvalidFilter, hint, fmt.Sprintf("%s holds %s where %s is expected", m.where, item.Kind, kind))
		} else if m.key == "conclusions" && !slices.Contains(conclusions, m.canonical(item.Text)) {
			m.d.Error(item.At, schema.InvalidFilter, m.d.OneOf(item.Text, conclusions), fmt.Sprintf("%s cannot be %q", m.where, item.Text))
		}
	}
}

// caseless are the keys whose values are compared without regard to case.
var caseless = map[string][]string{
	"github": {"assignees", "authors", "mentioned", "reviewers", "reviewer_teams", "review_states", "conclusions", "workflows"},
	"gitlab": {"repos", "actions", "mentioned"},
	"linear": {"labels", "mentioned_user_ids"},
	"slack":  {"emojis"},
}

// canonical is the form in which two values of the key are compared
// (factory/testdata/rules 4.2).
func (m *matcher) canonical(value string) string {
	switch {
	case m.key == "keywords":
		return strings.ToLower(strings.TrimSpace(value))
	case m.key == "emojis":
		value, _, _ = strings.Cut(strings.Trim(strings.TrimSpace(value), ":"), "::skin-tone-")
	case m.key == "branches" && m.provider == "github" && m.event == "push":
		return strings.TrimPrefix(value, "refs/heads/")
	}
	if slices.Contains(caseless[m.provider], m.key) {
		return strings.ToLower(value)
	}
	return value
}
