package schema

import "slices"

// Automation is the shape of automations/<name>/automation.md.
var Automation = Shape{Type: TypeMap, Keys: append(slices.Clone(Settings.Keys),
	Key{Name: "enabled", Default: "true", Shape: boolean},
	Key{Name: "agent", Shape: nonBlank},
	Key{Name: "retry", Own: true, Shape: Shape{Type: TypeMap, Keys: []Key{
		{Name: "attempts", Required: true, Shape: integer},
		{Name: "delaySeconds", Default: "10", Shape: number},
	}}},
	Key{Name: "budget", Own: true, Shape: Shape{Type: TypeMap, Keys: append(slices.Clone(budget),
		Key{Name: "usdPerDay", Shape: number},
		Key{Name: "tokensPerDay", Shape: integer},
	)}},
	Key{Name: "report", Own: true, Shape: reports},
	Key{Name: "reportText", Own: true, Shape: reportText},
	Key{Name: "subject", Own: true, Shape: nonBlank},
	Key{Name: "perSubject", Own: true, Default: `"parallel"`, Shape: Shape{Type: TypeString, Enum: []string{"parallel", "queue", "replace", "skip", "continue"}}},
	Key{Name: "settle", Own: true, Shape: nonBlank},
	Key{Name: "maxRunsPerHour", Own: true, Default: "60", Shape: integer},
	Key{Name: "startedBy", Own: true, Shape: Shape{Type: TypeList, NonEmpty: true, Elem: &nonBlank}},
	Key{Name: "maxRunsPerPersonPerHour", Own: true, Shape: integer},
	Key{Name: "overflow", Own: true, Default: `"pause"`, Shape: Shape{Type: TypeString, Enum: []string{"pause", "queue"}}},
	Key{Name: "triggers", Required: true, Shape: Shape{Type: TypeList, NonEmpty: true, Elem: &Shape{Type: TypeMap, Keys: []Key{
		{Name: "provider", Required: true, Ruled: true, Shape: nonBlank},
		{Name: "event", Required: true, Ruled: true, Shape: nonBlank},
		{Name: "filter", Shape: Shape{Type: TypeMapOf, Nullable: true, Elem: &anything}},
		{Name: "schedule", Shape: Shape{Type: TypeMap, Nullable: true, Keys: []Key{
			{Name: "cron", Required: true, Shape: nonBlank},
			{Name: "name", Shape: optionalText},
		}}},
	}}}},
)}
