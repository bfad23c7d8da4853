package schema

// Runner is the shape of runners/<name>.yaml.
var Runner = Shape{Type: TypeMap, Keys: []Key{
	{Name: "description", Shape: optionalText},
	{Name: "setupCommands", Shape: texts},
	{Name: "instanceShape", Shape: Shape{Type: TypeMap, Keys: []Key{
		{Name: "vcpus", Required: true, Shape: integer},
		{Name: "memoryGb", Required: true, Shape: integer},
	}}},
	{Name: "platform", Shape: Shape{Type: TypeMap, Keys: []Key{
		{Name: "os", Default: `"linux"`, Shape: Shape{Type: TypeString, Enum: []string{"linux", "macos"}}},
		{Name: "arch", Shape: Shape{Type: TypeString, Enum: []string{"x86_64", "aarch64"}}},
		{Name: "linux", Shape: Shape{Type: TypeMap, Keys: []Key{
			{Name: "dockerImage", Required: true, Shape: nonBlank},
			{Name: "registryCredentialSecretName", Shape: nonBlank},
		}}},
		{Name: "mac", Shape: Shape{Type: TypeMap, Keys: []Key{
			{Name: "version", Required: true, Shape: Shape{Type: TypeString, Enum: []string{"14", "15", "26", "27"}}},
		}}},
	}}},
}}
