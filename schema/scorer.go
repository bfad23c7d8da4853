package schema

// Scorer is the shape of scorers/<slug>/scorer.md.
var Scorer = Shape{Type: TypeMap, Keys: []Key{
	{Name: "name", Shape: nonBlank},
	{Name: "description", Shape: optionalText},
	{Name: "agents", Required: true, Shape: Shape{Type: TypeList, NonEmpty: true, Elem: &nonBlank, Unique: true}},
	{Name: "enabled", Default: "true", Shape: boolean},
	{Name: "output", Shape: Shape{Type: TypeString, Enum: []string{"classification"}}},
	{Name: "labels", Required: true, Shape: Shape{Type: TypeList, NonEmpty: true, Elem: &Shape{Type: TypeMap, Keys: []Key{
		{Name: "value", Required: true, Shape: nonBlank},
		{Name: "score", Required: true, Shape: number},
		{Name: "description", Shape: optionalText},
	}}}},
	{Name: "passingScore", Required: true, Shape: number},
	{Name: "samplingRate", Default: "25", Shape: number},
	{Name: "model", Required: true, Shape: nonBlank},
	{Name: "selfImprovement", Default: "false", Shape: boolean},
}}
