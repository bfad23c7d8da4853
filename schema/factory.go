package schema

// Factory is the shape of factory.yaml.
var Factory = Shape{Type: TypeMap, Keys: []Key{
	{Name: "schemaVersion", Required: true, Shape: Shape{Type: TypeString, NonEmpty: true, Enum: []string{Version}, EnumCode: UnsupportedVersion}},
	{Name: "name", Required: true, Shape: nonBlank},
	{Name: "description", Shape: optionalText},
	{Name: "alias", Shape: optionalText},
	{Name: "credentialStrategy", Shape: strategy},
	{Name: "repositories", Shape: Shape{Type: TypeList, Elem: &repository}},
	{Name: "codeForges", Shape: texts},
	{Name: "secrets", Shape: names},
	{Name: "mcpServers", Shape: MCPServers},
	{Name: "cloudProviders", Shape: cloudProviders},
	{Name: "providers", Shape: cloudProviders}, // its old name
	{Name: "integrations", Shape: Shape{Type: TypeList, Elem: &Shape{Type: TypeMap, Keys: []Key{
		{Name: "type", Required: true, Shape: nonBlank},
		{Name: "microsoft-teams", Shape: Shape{Type: TypeMap, Keys: []Key{{Name: "autoRespondToThreadReplies", Shape: boolean}}}},
		// How files spell these settings is not published: a rule of package factory names the known keys.
		{Name: "slack", Shape: Shape{Type: TypeMapOf, Elem: &anything}},
		{Name: "linear", Shape: Shape{Type: TypeMapOf, Elem: &anything}},
		{Name: "jira", Shape: Shape{Type: TypeMapOf, Elem: &anything}},
	}}}},
	{Name: "agentDefaults", Shape: Settings},
	// The published client names these keys, but not their content.
	{Name: "selfImprovement", Shape: anything},
	{Name: "scorerDefaults", Shape: anything},
	{Name: "scoring", Shape: anything},
}}

// Version is the only schemaVersion.
const Version = "v1alpha1"
