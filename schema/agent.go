package schema

import "slices"

// Agent is the shape of agents/<name>/agent.md.
var Agent = Shape{Type: TypeMap, Keys: append(slices.Clone(Settings.Keys),
	Key{Name: "description", Shape: optionalText},
	Key{Name: "agentType", Default: `"CUSTOM"`, Shape: Shape{Type: TypeString, Nullable: true, NonEmpty: true, Enum: AgentTypes, EnumCode: InvalidReference}},
	Key{Name: "credentialStrategy", Shape: strategy},
)}
