package schema

// Environment is the shape of environments/<name>.yaml (SPEC 2.2a).
var Environment = Shape{Type: TypeMap, Keys: []Key{
	{Name: "description", Shape: optionalText},
	{Name: "dockerImage", Shape: nonBlank},
	{Name: "repositories", Shape: Shape{Type: TypeList, Elem: &Shape{Type: TypeMap, Keys: []Key{
		{Name: "url", Shape: nonBlank},
		{Name: "ref", Shape: nonBlank},
		{Name: "path", Shape: nonBlank},
		{Name: "owner", Shape: nonBlank},
		{Name: "name", Shape: nonBlank},
	}}}},
	{Name: "setupCommands", Shape: Shape{Type: TypeList, Elem: &nonBlank}},
	{Name: "env", Shape: Shape{Type: TypeMapOf, Elem: &text}},
	{Name: "secrets", Shape: names},
	{Name: "command", Shape: Shape{Type: TypeList, NonEmpty: true, Elem: &nonBlank}},
	{Name: "timeoutMinutes", Default: "60", Shape: number},
	{Name: "idleMinutes", Default: "15", Shape: number},
	{Name: "network", Default: `"on"`, Shape: anything},
	{Name: "budget", Shape: Shape{Type: TypeMap, Keys: []Key{
		{Name: "usd", Shape: number},
		{Name: "tokens", Shape: integer},
		{Name: "turns", Shape: integer},
	}}},
	{Name: "isolation", Shape: Shape{Type: TypeString, Enum: Isolations}},
}}

// Isolations are the values of an environment's isolation, weakest first.
var Isolations = []string{"process", "bubblewrap", "container", "kubernetes"}
