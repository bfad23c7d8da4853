package factory

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"unicode"

	"triphammer/factory/hosts"
	"triphammer/factory/native"
	"triphammer/factory/signature"
	"triphammer/schema"
	"triphammer/schema/output"
)

// What the parser says in code about the keys of one file, in the words of JSON Schema.

func anys[T any](values []T) []any {
	out := make([]any, len(values))
	for i, v := range values {
		out[i] = v
	}
	return out
}

func all(schemas ...object) []any { return anys(schemas) }

// blanks are the characters that strings.TrimSpace takes off, as themselves: the
// classes of regular expressions differ from engine to engine.
var blanks = func() string {
	var b strings.Builder
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if unicode.IsSpace(r) {
			b.WriteRune(r)
		}
	}
	return b.String()
}()

func notBlank() object { return pattern("[^"+blanks+"]", "must not be blank") }

func pattern(expression, message string) object {
	return object{"pattern": expression, "patternErrorMessage": message}
}

// lowered are the characters by what they are when lowered.
var lowered = sync.OnceValue(func() map[rune]string {
	all := make(map[rune]string)
	for r := rune(0); r <= unicode.MaxRune; r++ {
		all[unicode.ToLower(r)] += string(r)
	}
	return all
})

// anyCase is an expression for all spellings that are the word when lowered.
func anyCase(word string) string {
	var b strings.Builder
	for _, r := range word {
		if same := lowered()[r]; same == string(r) {
			b.WriteRune(r)
		} else {
			b.WriteString("[" + same + "]")
		}
	}
	return b.String()
}

func anyCaseOf(words []string) string {
	out := make([]string, len(words))
	for i, word := range words {
		out[i] = anyCase(word)
	}
	return "(" + strings.Join(out, "|") + ")"
}

// without refuses keys. Of the ways to say so, this is the one for which editors
// show the message, and show it at the key.
func without(message string, keys ...string) object {
	properties := object{}
	for _, key := range keys {
		properties[key] = false
	}
	return object{"properties": properties, "errorMessage": message}
}

// has accepts objects that have the key.
func has(key string) object { return object{"type": "object", "required": []any{key}} }

// is accepts objects that have the key with that very value.
func is(key string, value any) object {
	return object{"required": []any{key}, "properties": object{key: object{"const": value}}}
}

// nameList is a list of at least one name.
func nameList() object {
	return object{"type": "array", "minItems": 1, "items": merged(object{"type": "string"}, notBlank())}
}

func merged(parts ...object) object {
	out := object{}
	for _, part := range parts {
		maps.Copy(out, part)
	}
	return out
}

var oneModel = object{
	"if":   object{"required": []any{"model"}, "properties": object{"model": object{"type": "string"}}},
	"then": without("model is short for a harness: keep one of the two", "harness"),
}

// oz takes less than other harnesses.
var oz = object{
	"if": is("type", "oz"),
	"then": object{"properties": object{
		"auth":           object{"type": "null", "errorMessage": "type oz takes no auth"},
		"reasoningLevel": object{"enum": []any{nil, ""}, "errorMessage": "type oz takes no reasoningLevel"},
	}},
}

// acp is the one type that takes a command, and needs one.
var acp = object{
	"if":   is("type", "acp"),
	"then": object{"required": []any{"command"}},
	"else": without("only type acp takes a command", "command"),
}

var auth = object{
	"if":   is("source", "managedSecret"),
	"then": object{"required": []any{"secretName"}},
	"else": without("only source managedSecret takes a secretName", "secretName"),
}

// onWorker accepts settings whose credential is a worker's.
var onWorker = object{"required": []any{"harness"}, "properties": object{"harness": object{
	"type": "object", "required": []any{"auth"}, "properties": object{"auth": merged(object{"type": "object"}, is("source", "workerEnvironment"))},
}}}

// keptHost refuses to clear the host that such settings need.
var keptHost = object{"if": onWorker, "then": object{"properties": object{"workerHost": object{"type": "string", "minLength": 1}}}}

var (
	reportURL    = merged(pattern(apiURL.String(), "an https address without a query"), object{"examples": []any{"https://ci.example.com/hooks/runs"}})
	reportSecret = object{"x-triphammer-reference": "secrets", "examples": []any{"REPORT_SECRET"}}
)

// schemaRules is what the parser's code says about the keys of one file, by path.
// An annotation x-triphammer-… stands where JSON Schema has no words for it.
func schemaRules() map[string]object {
	rules := map[string]object{
		"common.harness": {
			"examples": []any{object{"type": "claude", "model": "sonnet"}},
			"allOf": all(oz, acp, object{
				"anyOf": []any{
					object{"required": []any{"type"}, "properties": object{"type": object{"type": "string"}}},
					object{"required": []any{"model"}, "properties": object{"model": object{"type": "string"}}},
					has("reasoningLevel"), has("auth"),
				},
				"errorMessage": "set type, model, reasoningLevel or auth",
			}),
			"x-triphammer-inherited": "With the inherited settings too: type oz takes neither auth nor reasoningLevel, and auth.source workerEnvironment needs workerHost.",
		},
		"common.harness.auth": {"allOf": all(auth)},
		"common.mcpServers.*": {
			"allOf": all(
				object{"if": has("warpId"), "then": without("keep one of warpId, command and url", "command", "url", "args", "env", "headers")},
				object{"if": has("command"), "then": without("keep one of warpId, command and url", "warpId", "url", "headers")},
				object{"if": has("url"), "then": without("keep one of warpId, command and url", "warpId", "command", "args", "env")},
				object{"anyOf": []any{has("warpId"), has("command"), has("url")}, "errorMessage": "write warpId, command or url"},
			),
			"examples": []any{object{"command": "npx", "args": []any{"-y", "@example/mcp"}}, object{"url": "https://mcp.example.com/"}},
		},
		"common.mcpServers.*.url":                                {"allOf": all(pattern("^https?://[^/]", "an address that begins with https://"))},
		"benchmark_suite.configurations[].agents[].harness":      {"allOf": all(oz, acp)},
		"benchmark_suite.configurations[].agents[].harness.auth": {"allOf": all(auth)},
		"common.runner":        {"x-triphammer-reference": "runners"},
		"common.environmentId": {"x-triphammer-reference": "environments"},

		"factory": {"allOf": all(object{
			"if":   object{"properties": object{"codeForges": object{"type": "array", "contains": object{"const": "NONE"}}}, "required": []any{"codeForges"}},
			"else": object{"properties": object{"repositories": object{"minItems": 1}}},
		}), "x-triphammer-tree": "At most 20 webhooks, 10000 files and 16 MiB; if there are agents, exactly one is the foreman."},
		"factory.alias": merged(
			pattern("^["+blanks+"]*([\\p{L}\\p{N}._-]([\\p{L}\\p{N} ._-]{0,58}[\\p{L}\\p{N}._-])?)?["+blanks+"]*$", "at most 60 letters, digits, spaces and . _ -")),
		"factory.repositories": {"uniqueItems": true, "x-triphammer-unique-by": []any{"owner", "name"}},
		"factory.providers":    {"deprecated": true, "deprecationMessage": "Old name of cloudProviders"},
		"factory.integrations": {
			"uniqueItems": true, "x-triphammer-unique-by": []any{"type"},
			"allOf": all(object{
				"if": object{"contains": object{"type": "object", "required": []any{"type"}, "properties": object{
					"type": object{"type": "string", "pattern": padded("linear")},
				}}},
				"then": object{"items": object{"properties": object{"type": pattern(padded("slack", "linear", "microsoft-teams"), "linear and jira exclude each other")}}},
			}),
		},
		"factory.integrations[].slack":  {"properties": object{"autoRespondToThreadReplies": object{"type": "boolean", "description": "true: a reply in a thread that an automation has answered goes on with its conversation."}}},
		"factory.integrations[].linear": {"properties": object{"teamIds": object{"type": "array", "items": object{"type": "string"}, "description": "Identifiers of teams."}}},
		"factory.integrations[].jira":   {"properties": object{"projectKeys": object{"type": "array", "items": object{"type": "string"}, "description": "Keys of projects."}}},
		"factory.integrations[].type": merged(
			pattern(padded("slack", "linear", "jira", "microsoft-teams"), "slack, linear, jira or microsoft-teams"),
			object{"examples": []any{"slack", "linear", "jira", "microsoft-teams"}}),
		"factory.agentDefaults": {"allOf": all(oneModel, keptHost, object{"if": onWorker, "then": object{"required": []any{"workerHost"}}})},
		"agent":                 {"allOf": all(oneModel, keptHost)},

		"automation": {
			"allOf": all(oneModel, keptHost, object{
				"if":   object{"required": []any{"approval"}, "properties": object{"approval": object{"type": "array", "contains": object{"const": "outsiders"}}}},
				"then": object{"required": []any{"startedBy"}},
			}),
			"definitions": filterDefinitions(),
		},
		"automation.agent":           {"x-triphammer-reference": "agents"},
		"automation.approvalTimeout": merged(pattern(approvalTimes.String(), "minutes or hours are expected, from 5m to 720h"), object{"examples": []any{"24h"}}),
		"automation.settle":          merged(pattern(settles.String(), "seconds, minutes or 1h is expected, from 1s to 1h"), object{"examples": []any{"30s"}}),
		"automation.subject": merged(
			pattern(`^[^{}]*(\{[^ \t\n\f\r.{}\[\]]+(\.[^ \t\n\f\r.{}\[\]]+)*\}[^{}]*)+$`, "{a.b} stands for the value at a.b of the payload, and there is at least one"),
			object{"examples": []any{"{service.name}/{alert.id}"}}),
		"automation.startedBy":               {"x-triphammer-person": "The events of all triggers name a person, who can be what the list says.", "examples": []any{[]any{"write"}}},
		"automation.maxRunsPerPersonPerHour": {"x-triphammer-person": "The events of a trigger name a person."},
		"automation.triggers": {
			"x-triphammer-unique-by": []any{"schedule.name"},
			"examples":               []any{[]any{object{"provider": "webhook", "event": "received", "filter": object{"webhooks": []any{"deploys"}}}}},
		},
		"automation.triggers[]":          {"allOf": triggerRules()},
		"automation.triggers[].provider": {"enum": anys(providers(false))},
		"automation.triggers[].schedule.cron": merged(object{
			"x-triphammer-cron": "Each field within its range: lists, ranges, steps, ? and names of months and weekdays; @every takes a duration such as 1h30m.",
			"examples":          []any{"0 6 * * 1-5", "@daily", "@every 2h"},
		}, pattern("^["+blanks+"]*(@(yearly|annually|monthly|weekly|daily|midnight|hourly)|@every [^=]+|[^="+blanks+"]+(["+blanks+"]+[^="+blanks+"]+){4})["+blanks+"]*$",
			"five fields in UTC, or a descriptor such as @daily")),

		"webhook": {"allOf": all(object{
			"if":   is("authMode", "signature"),
			"then": object{"required": []any{"signatureScheme"}},
			"else": without("signatureScheme, signature and replayWindow need authMode: signature", "signatureScheme", "signature", "replayWindow"),
		}, object{
			"if":   has("connect"),
			"then": object{"required": []any{"appTokenName"}},
			"else": object{"required": []any{"secretName"}, "allOf": all(without("appTokenName needs connect: socket", "appTokenName"))},
		}, onlyWith("connect", connects), onlyWith("accounts", func(s *native.Sender) bool { return s.Accounts != "" }), onlyWith("apiSecretName", takesAPI), reportRule("", takesAnswers), reportRule("check", takesChecks), object{
			"if": has("apiURL"), "then": object{"anyOf": all(has("apiSecretName"), has("connect"))},
		}, object{
			"if": has("replayWindow"), "then": object{"required": []any{"secretName"}},
		}, object{
			"if": merged(has("apiSecretName"), object{"properties": object{"signatureScheme": object{
				"enum": anys(schemesOf(func(s *native.Sender) bool { return takesAPI(s) && s.API == "" })),
			}}, "required": []any{"apiSecretName", "signatureScheme"}}),
			"then": object{"required": []any{"apiURL"}},
		})},
		"webhook.report.url":           reportURL,
		"webhook.report.secretName":    reportSecret,
		"automation.report.url":        reportURL,
		"automation.report.secretName": reportSecret,
		"webhook.apiSecretName":        {"x-triphammer-reference": "secrets", "examples": []any{"GITHUB_API_TOKEN"}},
		"webhook.appTokenName":         {"x-triphammer-reference": "secrets", "x-triphammer-tree": "Enabled webhooks have different ones.", "examples": []any{"SLACK_APP_TOKEN"}},
		"webhook.apiURL":               merged(pattern(apiURL.String(), "an https address without a query"), object{"examples": []any{"https://github.example.com/api/v3"}}),
		"webhook.accounts":             {"examples": []any{[]any{"shop-bot"}}},
		"webhook.accounts[]":           pattern("^["+blanks+"]*[^@"+blanks+"]", "must not be blank, nor begin with @"),
		"webhook.signature": {"x-triphammer-signature": "The scheme says which keys it takes; hmac, ed25519 and token_header need header.", "examples": []any{
			object{"header": "X-Signature", "prefix": "sha256="},
		}},
		"webhook.signature.toleranceSeconds": {"minimum": 0, "maximum": 604800},
		"webhook.authMode": {"enumDescriptions": []any{
			"Header Authorization: Bearer <secret>", "The secret is the last segment of the URL", "The sender signs each request",
		}},
		"webhook.signatureScheme": schemeNames(),
		"webhook.secretName":      {"x-triphammer-reference": "secrets", "examples": []any{"DEPLOYS_WEBHOOK_SECRET"}},
		"webhook.deliveryIdHeader": merged(
			pattern("^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}$", "the name of a header, of at most 100 characters"),
			object{"x-triphammer-credential-header": false, "x-triphammer-shared-header": false, "examples": []any{"X-Request-Id"}}),

		"webhook.replayWindow": merged(pattern(replayWindows.String(), "minutes or hours are expected, from 1m to 72h"),
			object{"x-triphammer-replayable": "The scheme signs the body, and not the identity of a delivery.", "examples": []any{"10m"}}),

		"runner":                    runnerRules(),
		"runner.setupCommands":      {"examples": []any{[]any{"npm ci"}}},
		"environment.repositories":  {"examples": []any{[]any{object{"url": "https://git.example.com/shop.git", "ref": "main"}}}},
		"environment.command":       {"examples": []any{[]any{"claude", "-p"}}},
		"environment":               {"allOf": all(object{"if": has("cache"), "then": object{"required": []any{"setupCommands"}, "properties": object{"setupCommands": object{"minItems": 1}}}})},
		"environment.cache":         {"examples": []any{object{"paths": []any{"~/.npm"}, "files": []any{"package-lock.json"}}}},
		"environment.cache.paths[]": {"allOf": all(pattern(cachePath.String(), "a path below the working directory, or with ~/ below the home"))},
		"environment.cache.files[]": {"allOf": all(pattern(cacheFile.String(), "a path below the working directory"))},
		"environment.setupCommands": {"examples": []any{[]any{"npm ci"}}},
		"environment.repositories[]": {"allOf": all(object{
			"if":   has("url"),
			"then": without("url stands instead of owner and name", "owner", "name"),
			"else": object{"required": []any{"owner", "name"}},
		}, object{
			"if":   object{"required": []any{"secret", "url"}},
			"then": object{"properties": object{"url": pattern(secretURL.String(), "an address of https or ssh, which a secret may go to")}},
		})},
		"environment.repositories[].url": {
			"allOf":                             all(pattern("^[^-]", "must not begin with a dash")),
			"x-triphammer-url-without-password": true,
		},
		"environment.repositories[].ref":  {"allOf": all(pattern("^[^-]", "must not begin with a dash"))},
		"environment.repositories[].path": {"allOf": all(pattern(`^([^/.][^/]*|\.[^/.][^/]*)(/([^/.][^/]*|\.[^/.][^/]*|\.\.[^/]+))*$`, "a plain path within the workspace"))},
		"environment.env": {
			"propertyNames": pattern("^[A-Za-z_][A-Za-z0-9_]*$", "the name of a variable"),
			"allOf": all(object{
				"patternProperties": object{"^TRIPHAMMER_": false}, "errorMessage": "names that begin with TRIPHAMMER_ are the server's",
			}),
		},
		"environment.env.*":          {"allOf": all(pattern("^[^\x00]*$", "must not hold a NUL byte"))},
		"environment.timeoutMinutes": {"exclusiveMinimum": 0, "maximum": maxMinutes},
		"environment.idleMinutes":    {"exclusiveMinimum": 0, "maximum": maxMinutes},
		"environment.network": {
			"type": []any{"string", "array"}, "examples": []any{"on", "off", []any{"api.example.com", "*.example.com:443"}},
			"minItems": 1, "items": merged(object{"type": "string", "maxLength": hosts.MaxText}, pattern(hosts.Syntax, "a host, such as api.example.com or *.example.com:443")),
			"if": object{"type": "string"}, "then": object{"enum": []any{"on", "off"}},
		},
		"environment.services": {"x-triphammer-services": "The variables of services differ from each other, and from those of env and secrets."},
		"environment.services[].name": merged(pattern(serviceName.String(), "small letters, digits and dashes, the first a letter"), object{
			"allOf": all(object{"not": object{"pattern": notService.String()}, "errorMessage": "agents and the server use the variable themselves"}),
		}),
		"environment.services[].url": merged(pattern(serviceURL.String(), "an https:// address without a user"), object{"x-triphammer-url": true, "examples": []any{"https://sentry.io/api/0"}}),
		"environment.services[].header": merged(pattern(serviceHeader.String(), "the name of a header"), object{
			"examples":                []any{"PRIVATE-TOKEN", "Authorization: Bearer"},
			"x-triphammer-own-header": true,
		}),
		"environment.services[].paths[]": merged(pattern(servicePath.String(), "a path below url"), object{
			"examples": []any{"/issues/*/comments", "/projects/**"},
			"allOf":    all(object{"not": object{"pattern": `\*\*/|\*\*.|[^/]\*\*`}, "errorMessage": "** stands at the end for the rest"}),
		}),
		"environment.isolation": {"examples": anys(schema.Isolations)},

		"tests[]": {"allOf": all(object{
			"if":   has("payloadFile"),
			"then": without("keep one of payload and payloadFile", "payload"),
			"else": object{"required": []any{"payload"}},
		})},
		"tests[].webhook":     {"x-triphammer-reference": "webhooks"},
		"tests[].expect":      {"x-triphammer-reference": "automations"},
		"tests[].payloadFile": {"x-triphammer-file": "tests"},

		"scorer":              {"x-triphammer-body": "The text below the front matter must not be blank."},
		"scorer.agents":       {"x-triphammer-reference": "agents"},
		"scorer.samplingRate": {"minimum": 0.005, "exclusiveMaximum": 100.005},
		"scorer.passingScore": {
			"minimum": 0, "maximum": 1,
			"x-triphammer-passing-score": "At least one label's score reaches it, and at least one does not.",
		},
		"scorer.labels":         {"maxItems": maxLabels, "x-triphammer-unique-by": []any{"value"}},
		"scorer.labels[].score": {"minimum": 0, "maximum": 1},

		"benchmark_suite":       {"x-triphammer-tree": "The name is unique in the factory; tasks and the files in tasks/ are the same."},
		"benchmark_suite.agent": {"x-triphammer-reference": "agents"},
		"benchmark_suite.tasks": {"x-triphammer-reference": "tasks"},
		"benchmark_suite.configurations": {
			"maxItems":               maxConfigurations,
			"x-triphammer-unique-by": []any{"name"}, "x-triphammer-at-most-one": object{"role": "baseline"},
		},
		"benchmark_suite.configurations[].agents[]": {"allOf": all(oneModel)},
		"benchmark_suite_task.startingRepoRefs[]": merged(
			pattern(strings.ReplaceAll(repoRef().String(), `\s`, " \t\n\f\r"), "github.com:OWNER/REPO@ and the 40 digits of a commit"),
			object{"examples": []any{"github.com:example/shop@0123456789abcdef0123456789abcdef01234567"}}),
	}
	for path, most := range map[string]int64{
		"environment.budget.usd": maxSpending, "environment.budget.tokens": maxSpending, "environment.budget.turns": maxSpending,
		"environment.resources.memoryMb": maxMegabytes, "environment.resources.cpus": maxCPUs,
		"environment.resources.processes": maxProcesses, "environment.resources.diskMb": maxMegabytes,
		"automation.budget.usd": maxSpending, "automation.budget.tokens": maxSpending, "automation.budget.turns": maxSpending,
		"automation.budget.usdPerDay": maxSpending, "automation.budget.tokensPerDay": maxSpending,
		"automation.retry.attempts": maxAttempts, "automation.retry.delaySeconds": maxSeconds, "automation.maxRunsPerHour": maxPerHour,
		"automation.maxRunsPerPersonPerHour": maxPerHour,
		"automation.push.max":                maxPushed, "automation.push.maxBytes": maxPushedBytes,
	} {
		rules[path] = merged(rules[path], object{"exclusiveMinimum": 0, "maximum": most})
	}
	for _, k := range output.Kinds {
		for _, b := range k.Bounds {
			if b.Type == output.Count {
				rules["automation.outputs."+k.Name+"."+b.Name] = object{"exclusiveMinimum": 0, "maximum": cmp.Or(b.Most, output.MaxRequests)}
			}
		}
	}
	rules["automation.outputs.createIssue.repositories[]"] = pattern(strings.ReplaceAll(ownerName.String(), `\s`, " \t\n\f\r"), "OWNER/NAME")
	return rules
}

// padded is an expression for words in any case, with blanks around them.
func padded(words ...string) string {
	return "^[" + blanks + "]*" + anyCaseOf(words) + "[" + blanks + "]*$"
}

// onlyWith refuses a key unless the scheme is one of those senders'.
func onlyWith(key string, means func(*native.Sender) bool) object {
	schemes := schemesOf(means)
	return object{
		"if": has(key),
		"then": object{
			"required":   []any{"signatureScheme"},
			"properties": object{"signatureScheme": object{"enum": anys(schemes), "errorMessage": key + " needs " + strings.Join(schemes, ", ")}},
		},
	}
}

// reportRule is which senders take an answer of a kind; empty: any kind.
func reportRule(kind string, means func(*native.Sender) bool) object {
	rule := onlyWith("report "+kind, means)
	said := object{"anyOf": []any{object{"enum": []any{"thread", "check"}}, object{"type": "array"}}}
	if kind != "" {
		said = object{"anyOf": []any{object{"enum": []any{kind}}, object{"type": "array", "contains": object{"enum": []any{kind}}}}}
	}
	rule["if"] = object{"properties": object{"report": said}, "required": []any{"report"}}
	return rule
}

func takesAnswers(s *native.Sender) bool { return len(s.Answers) > 0 }

func takesChecks(s *native.Sender) bool { return slices.Contains(s.Answers, "check") }

func schemeNames() object {
	var values, providers []any
	for _, s := range signature.All() {
		values, providers = append(values, s.Name), append(providers, s.Provider)
	}
	return object{"enum": values, "enumDescriptions": providers, "errorMessage": "no such scheme: triphammer schemes list has them"}
}

func runnerRules() object {
	shapes := []object{}
	for _, cpus := range slices.Sorted(maps.Keys(macShapes)) {
		for _, memory := range macShapes[cpus] {
			shapes = append(shapes, object{"properties": object{"vcpus": object{"const": cpus}, "memoryGb": object{"const": memory}}})
		}
	}
	size := object{"minimum": 1, "x-triphammer-power-of-two": true}
	return object{"allOf": all(object{
		"if": object{"required": []any{"platform"}, "properties": object{"platform": merged(object{"type": "object"}, is("os", "macos"))}},
		"then": object{"properties": object{
			"platform": object{
				"properties": object{"arch": object{"const": "aarch64", "errorMessage": "macOS runners are aarch64"}},
				"allOf":      all(without("linux means nothing with os macos", "linux")),
			},
			"instanceShape": object{"anyOf": anys(shapes), "errorMessage": "4 and 7, 6 and 14, 8 and 14, 12 and 28, or 12 and 56"},
		}},
		"else": object{
			"required": []any{"platform"},
			"properties": object{
				"platform":      object{"required": []any{"linux"}, "allOf": all(without("mac means nothing with os linux", "mac"))},
				"instanceShape": object{"properties": object{"vcpus": size, "memoryGb": size}},
			},
		},
	})}
}
