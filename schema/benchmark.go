package schema

// BenchmarkSuite is the shape of benchmarks/<slug>/suite.yaml.
var BenchmarkSuite = Shape{Type: TypeMap, Keys: []Key{
	{Name: "name", Required: true, Shape: nonBlank},
	{Name: "description", Shape: optionalText},
	{Name: "agent", Required: true, Shape: nonBlank},
	{Name: "configurations", Shape: Shape{Type: TypeList, NonEmpty: true, Elem: &Shape{Type: TypeMap, Keys: []Key{
		{Name: "name", Required: true, Shape: nonBlank},
		{Name: "role", Shape: Shape{Type: TypeString, Enum: []string{"baseline", "candidate"}}},
		{Name: "agents", Shape: Shape{Type: TypeList, Elem: &Shape{Type: TypeMap, Keys: []Key{
			{Name: "agent", Required: true, Shape: nonBlank},
			{Name: "model", Shape: inherited},
			{Name: "harness", Shape: wholeHarness},
		}}}},
	}}}},
	{Name: "tasks", Shape: names},
}}

// BenchmarkTask is the shape of benchmarks/<slug>/tasks/<slug>.yaml.
var BenchmarkTask = Shape{Type: TypeMap, Keys: []Key{
	{Name: "title", Required: true, Shape: nonBlank},
	{Name: "prompt", Required: true, Shape: nonBlank},
	{Name: "successCriteria", Required: true, Shape: nonBlank},
	{Name: "sourceRunId", Shape: optionalText},
	{Name: "startingRepoRefs", Shape: Shape{Type: TypeList, Elem: &nonBlank}},
}}
