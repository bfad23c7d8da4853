package factory

import (
	"fmt"
	"maps"
	"slices"

	"triphammer/schema"
)

// catalogue has the filter keys of each provider's events
// (research/definition-format.md 4.1).
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
	on("schedule", []string{"cron_fired"}, "schedule_ids")
	on("factory", []string{"work_item_stage_changed"}, "stages")
	on("webhook", []string{"received"}, "webhook_ids", "payload")
	return all
}

// aliases are authoring names that stand for a canonical key; those of linear
// and slack take plain lists of names only.
var aliases = map[string]map[string]string{
	"github": {"baseBranches": "base_branches", "prNumbers": "pr_numbers"},
	"linear": {"teams": "team_ids", "projects": "project_ids", "states": "state_ids", "issues": "issue_ids"},
	"slack":  {"channels": "channel_ids", "users": "user_ids", "itemUsers": "item_user_ids"},
}

func providers() []string { return slices.Sorted(maps.Keys(catalogue)) }

func eventsOf(provider string) []string { return slices.Sorted(maps.Keys(catalogue[provider])) }

// checkFilter checks the keys of another provider's filter and the form of its
// matchers: a list, or {in, not_in}.
func checkFilter(d *document, n *schema.Node, provider string, keys []string, where string) {
	used := make(map[string]bool)
	for _, f := range n.Fields {
		key, isAlias := f.Key, false
		if canonical, ok := aliases[provider][f.Key]; ok && slices.Contains(keys, canonical) {
			key, isAlias = canonical, true
		}
		if !slices.Contains(keys, key) {
			d.Error(f.At, schema.InvalidFilter, meant(f.Key, keys), fmt.Sprintf("%s: this event cannot be filtered on %q", where, f.Key))
			continue
		}
		if used[key] {
			d.Error(f.At, schema.InvalidFilter, "keep one of them", fmt.Sprintf("%s.filter has %s under two names", where, key))
		}
		used[key] = true
		checkMatcher(d, f.Value, fmt.Sprintf("%s.filter.%s", where, f.Key), key == "pr_numbers", isAlias && provider != "github")
	}
}

func checkMatcher(d *document, n *schema.Node, where string, numbers, listOnly bool) {
	values := func(list *schema.Node) {
		if list.Kind != schema.List {
			d.Error(list.At, schema.InvalidFilter, "", where+" takes a list, not "+list.Kind.String())
			return
		}
		for _, item := range list.Items {
			if numbers && item.Kind != schema.Int || !numbers && item.Kind != schema.String {
				d.Error(item.At, schema.InvalidFilter, "", where+" holds "+item.Kind.String())
			}
		}
	}
	switch {
	case n.Kind == schema.Null:
	case n.Kind != schema.Mapping:
		values(n)
	case listOnly:
		d.Error(n.At, schema.InvalidFilter, "", where+" takes a list of names, without in and not_in")
	default:
		for _, f := range n.Fields {
			if f.Key != "in" && f.Key != "not_in" {
				d.Error(f.At, schema.InvalidFilter, meant(f.Key, []string{"in", "not_in"}), fmt.Sprintf("%s takes a list, in or not_in, not %q", where, f.Key))
				continue
			}
			values(f.Value)
		}
		for _, item := range itemsOf(n.Get("in")) {
			for _, other := range itemsOf(n.Get("not_in")) {
				if item.Kind == other.Kind && item.Text == other.Text {
					d.Error(other.At, schema.InvalidFilter, "", fmt.Sprintf("%s has %q both in in and in not_in", where, item.Text))
				}
			}
		}
	}
}
