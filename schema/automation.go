package schema

import (
	"slices"
	"strconv"

	"triphammer/schema/output"
)

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
	Key{Name: "approval", Own: true, Shape: Shape{Type: TypeList, NonEmpty: true, Unique: true, Elem: &Shape{Type: TypeString, Enum: []string{"start", "outsiders", "outputs"}}}},
	Key{Name: "approvers", Own: true, Shape: Shape{Type: TypeList, NonEmpty: true, Elem: &nonBlank}},
	Key{Name: "approvalTimeout", Own: true, Default: `"24h"`, Shape: nonBlank},
	Key{Name: "overflow", Own: true, Default: `"pause"`, Shape: Shape{Type: TypeString, Enum: []string{"pause", "queue"}}},
	Key{Name: "push", Own: true, Shape: Shape{Type: TypeMap, Keys: []Key{
		{Name: "branches", Default: `["triphammer/*","event"]`, Shape: Shape{Type: TypeList, NonEmpty: true, Elem: &nonBlank}},
		{Name: "tags", Shape: Shape{Type: TypeList, Elem: &nonBlank}},
		{Name: "max", Default: "3", Shape: integer},
		{Name: "maxBytes", Default: "67108864", Shape: integer},
	}}},
	Key{Name: "outputs", Own: true, Shape: Shape{Type: TypeMap, Keys: outputs()}},
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

// outputs are the kinds that an agent may ask for, with their bounds (SPEC 23.1).
func outputs() (keys []Key) {
	for _, k := range output.Kinds {
		shape := Shape{Type: TypeMap, Whole: true}
		for _, b := range k.Bounds {
			of := map[output.Type]Shape{output.Count: integer, output.Flag: boolean, output.Text: nonBlank, output.Texts: {Type: TypeList, NonEmpty: true, Unique: true, Elem: &nonBlank}}[b.Type]
			key := Key{Name: b.Name, Required: b.Required, Shape: of}
			if b.Default > 0 {
				key.Default = strconv.Itoa(b.Default)
			}
			shape.Keys = append(shape.Keys, key)
		}
		keys = append(keys, Key{Name: k.Name, Shape: shape})
	}
	return keys
}
