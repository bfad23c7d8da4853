package factory

import (
	"slices"
	"strings"

	"triphammer/factory/filter"
	"triphammer/factory/native"
)

// eventGroup is the events of a provider that are filtered on the same keys.
type eventGroup struct {
	provider string
	events   []string
	keys     []string
}

func (g eventGroup) definition() string { return g.provider + "_" + g.events[0] }

// eventGroups are the groups of the catalogue, sorted.
func eventGroups() []eventGroup {
	var groups []eventGroup
	for _, provider := range providers(false) {
		byKeys := make(map[string]int)
		for _, event := range eventsOf(provider) {
			keys := catalogue()[provider][event]
			id := strings.Join(keys, " ")
			at, known := byKeys[id]
			if !known {
				at = len(groups)
				byKeys[id] = at
				groups = append(groups, eventGroup{provider: provider, keys: keys})
			}
			groups[at].events = append(groups[at].events, event)
		}
	}
	return groups
}

// triggerRules say which events a provider has, and which filter an event takes.
func triggerRules() []any {
	filters := make(map[string][]object)
	for _, g := range eventGroups() {
		filter := object{"properties": object{"filter": object{"$ref": "#/definitions/" + g.definition()}}}
		if g.provider == "webhook" {
			filter["required"] = []any{"filter"}
		}
		filters[g.provider] = append(filters[g.provider], object{
			"if":   object{"required": []any{"event"}, "properties": object{"event": object{"enum": anys(g.events)}}},
			"then": filter,
		})
	}
	var rules []object
	for _, provider := range providers(false) {
		rules = append(rules, object{
			"if": is("provider", provider),
			"then": object{
				"properties": object{"event": object{"enum": anys(eventsOf(provider))}},
				"allOf":      anys(filters[provider]),
			},
		})
	}
	return anys(append(rules, object{
		"if": is("provider", "schedule"),
		"then": object{
			"if": object{"required": []any{"filter"}, "properties": object{"filter": object{
				"type": "object", "required": []any{"schedule_ids"}, "properties": object{"schedule_ids": object{"type": []any{"array", "object"}}},
			}}},
			"then": object{"properties": object{"schedule": object{"type": "null", "errorMessage": "keep one of schedule and filter.schedule_ids"}}},
			"else": object{"required": []any{"schedule"}, "properties": object{"schedule": object{"type": "object"}}},
		},
		"else": object{"properties": object{"schedule": object{"type": "null", "errorMessage": "only provider schedule takes a schedule"}}},
	}))
}

// keyTexts says what a filter key compares.
var keyTexts = map[string]string{
	"repos": "Repositories, as owner/name.", "branches": "Branches.", "base_branches": "Branches that the change is to go into.",
	"paths": "Paths that changed.", "labels": "Labels.", "assignees": "Login names of those assigned.", "authors": "Login names of authors.",
	"pr_numbers": "Numbers of pull requests.", "mentioned": "Names that are mentioned.", "reviewers": "Login names of reviewers.",
	"reviewer_teams": "Teams that are to review.", "review_states": "States of the review.", "conclusions": "Outcomes of the check.",
	"workflows": "Names of workflows.", "actions": "What happened to the merge request or the work item.", "team_ids": "Teams.", "project_ids": "Projects.",
	"state_ids": "States.", "assignee_ids": "Those assigned.", "mentioned_user_ids": "Users that are mentioned.", "creator_ids": "Those who created it.",
	"issue_ids": "Issues.", "keywords": "Words that the text contains, in any case.", "project_keys": "Keys of projects.", "status_ids": "New states.",
	"channel_ids": "Channels.", "user_ids": "Users.", "emojis": "Names of emojis.", "item_user_ids": "Authors of the message reacted to.",
	"source_repos": "Repositories, as name or project/name.", "projects": "Projects.", "types": "Types of work items.", "statuses": "States of the pull request.",
	"schedule_ids": "Schedules that are kept elsewhere.", "stages": "Stages.", "webhook_ids": "UIDs of webhooks.",
	"payload": "What the body must hold. A key names a field of it, a list the allowed values; {in: […]}, {not_in: […]} and {exists: true} are operators; objects nest.",
}

func filterDefinitions() object {
	definitions := payloadDefinitions()
	definitions["names"] = merged(nameList(), object{
		"type": []any{"array", "object"}, "required": []any{"in"}, "properties": object{"in": nameList()}, "additionalProperties": false,
	})
	definitions["names_or_null"] = merged(definitions["names"].(object), object{"type": []any{"array", "object", "null"}})
	definitions["matcher"] = matcherOf(object{"type": "string"})
	definitions["number_matcher"] = matcherOf(object{"type": "integer"})
	suites, _ := native.Find("github", "check_suite_completed").Key("conclusions")
	conclusions := suites.Enum
	definitions["conclusion_matcher"] = matcherOf(object{
		"type": "string", "anyOf": all(object{"enum": anys(conclusions)}, object{"pattern": "^" + anyCaseOf(conclusions) + "$"}),
	})
	definitions["plain_matcher"] = object{"type": []any{"array", "null"}, "items": merged(object{"type": "string"}, notBlank())}
	for _, g := range eventGroups() {
		if g.provider == "webhook" {
			definitions[g.definition()] = webhookFilter(g.keys)
		} else {
			definitions[g.definition()] = providerFilter(g)
		}
	}
	return definitions
}

// defined refers to a definition of the same document.
func defined(name, text string) object {
	return object{"description": text, "allOf": all(object{"$ref": "#/definitions/" + name})}
}

// matcherOf is a list of values, or operators.
func matcherOf(value object) object {
	list := object{"type": "array", "items": value}
	return object{
		"type": []any{"array", "object", "null"}, "items": value,
		"properties": object{"in": list, "not_in": list}, "additionalProperties": false,
		"x-triphammer-disjoint": []any{"in", "not_in"},
	}
}

func webhookFilter(keys []string) object {
	properties := object{
		"webhooks": defined("names", "Webhooks: names of files in webhooks/."),
		"headers":  defined("headers", "What the headers must hold. A key names one that is kept with deliveries, a list the allowed values; {in: […]}, {not_in: […]} and {exists: true} are operators."),
	}
	for _, key := range keys {
		definition := "names"
		if key == "payload" {
			definition = key
		}
		properties[key] = defined(definition, keyTexts[key])
	}
	return object{
		"description": "Which deliveries start a run. At least one of webhooks and webhook_ids is required.",
		"type":        "object", "properties": properties, "additionalProperties": false,
		"anyOf": []any{object{"required": []any{"webhooks"}}, object{"required": []any{"webhook_ids"}}},
	}
}

func providerFilter(g eventGroup) object {
	properties, exclusive := object{}, []object{}
	for _, key := range g.keys {
		definition, text := "matcher", keyTexts[key]+" A list of those that match, or {in: […], not_in: […]}."
		switch key {
		case "schedule_ids":
			definition, text = "names_or_null", keyTexts[key]
		case "pr_numbers":
			definition = "number_matcher"
		case "conclusions":
			definition = "conclusion_matcher"
		}
		properties[key] = defined(definition, text)
		for alias, canonical := range aliases[g.provider] {
			if canonical != key {
				continue
			}
			if properties[alias] = properties[key]; g.provider != "github" {
				properties[alias] = defined("plain_matcher", keyTexts[key]+" A list of names, which the provider resolves.")
			}
			exclusive = append(exclusive, object{"if": has(alias), "then": without(alias+" and "+key+" are the same: keep one", key)})
		}
	}
	s := object{
		"description": "Which events start a run; all keys must match.",
		"type":        []any{"object", "null"}, "properties": properties, "additionalProperties": false,
	}
	if g.provider == "gitlab" && slices.Contains(g.events, "push") {
		s["additionalProperties"] = object{"$ref": "#/definitions/matcher"} // its keys are not published
	}
	if len(exclusive) > 0 {
		s["allOf"] = anys(exclusive)
	}
	return s
}

// payloadDefinitions is the grammar of the payload filter (SPEC 8).
func payloadDefinitions() object {
	set := object{"$ref": "#/definitions/values"}
	texts := object{
		"type": "array", "minItems": 1, "maxItems": filter.MaxValues, "uniqueItems": true,
		"items": object{"description": "A value; compared exactly.", "type": "string", "maxLength": filter.MaxHeader, "pattern": "^[!-~]([ -~]*[!-~])?$"},
	}
	return object{
		"headers": object{
			"type": []any{"object", "null"}, "additionalProperties": object{"$ref": "#/definitions/header"}, "minProperties": 1, "maxProperties": filter.MaxLeaves,
			"examples":                 []any{object{"X-GitHub-Event": []any{"issues"}}},
			"x-triphammer-kept-header": "Names are compared without regard to case. Only headers that are kept with deliveries of the webhook can be filtered on.",
		},
		"header": merged(texts, object{
			"description":   "Allowed values, or operators.",
			"type":          []any{"array", "object"},
			"errorMessage":  "write a list of the allowed values, such as [issues], or {in: […], not_in: […], exists: true}",
			"minProperties": 1, "additionalProperties": false,
			"properties": object{"in": texts, "not_in": texts, "exists": object{"type": "boolean", "description": "Whether the header is there at all."}},
			"allOf": all(object{
				"if": is("exists", false), "then": without("a header cannot be absent and hold one of the values of in", "in"),
			}),
			"x-triphammer-disjoint": []any{"in", "not_in"},
		}),
		"payload": object{
			"type": []any{"object", "null"}, "additionalProperties": object{"$ref": "#/definitions/condition"},
			"allOf":                   all(without("an operator applies to a field, not to the whole body", "in", "not_in", "exists")),
			"examples":                []any{object{"status": []any{"failed"}, "env": object{"not_in": []any{"dev"}}}},
			"x-triphammer-max-depth":  filter.MaxDepth,
			"x-triphammer-max-leaves": filter.MaxLeaves,
		},
		"condition": object{
			"description":  "Allowed values, operators, or an object for what is nested.",
			"type":         []any{"array", "object"},
			"errorMessage": "write a list of the allowed values, such as [failed]; {in: […], not_in: […], exists: true}; or an object for nested fields",
			"minItems":     1, "maxItems": filter.MaxValues, "items": object{"$ref": "#/definitions/value"},
			"if": object{"anyOf": all(has("in"), has("not_in"), has("exists"))},
			"then": object{
				"properties":           object{"in": set, "not_in": set, "exists": object{"type": "boolean", "description": "Whether the field is there at all."}},
				"additionalProperties": false,
				"allOf": all(object{
					"if": is("exists", false), "then": without("a field cannot be absent and hold one of the values of in", "in"),
				}),
				"x-triphammer-disjoint": []any{"in", "not_in"},
			},
			"else": object{"additionalProperties": object{"$ref": "#/definitions/condition"}},
		},
		"values": object{
			"description": "Values to compare with.", "type": "array", "minItems": 1, "maxItems": filter.MaxValues,
			"items": object{"$ref": "#/definitions/value"},
		},
		"value": object{
			"description": "A value; strings are compared exactly.", "type": []any{"string", "number", "boolean", "null"},
		},
	}
}
