package schema

import "slices"

// Words of the format (factory/testdata/rules 1.3–1.10, 2.1).
var (
	AuthModes            = []string{"token", "url_token", "signature"}
	AgentTypes           = []string{"CUSTOM", "FOREMAN", "MAIN", "TRIAGE", "SPEC", "IMPLEMENT", "REVIEW", "VERIFY"}
	CredentialStrategies = []string{"EXECUTOR", "CREATOR"}
	HarnessTypes         = []string{"oz", "claude", "claude-code", "codex", "gemini"}
	// OwnHarnessTypes are the types of harness that only Triphammer knows, not the format (SPEC 9.4).
	OwnHarnessTypes = []string{"opencode", "acp"}
)

var (
	text         = Shape{Type: TypeString}
	nonBlank     = Shape{Type: TypeString, NonEmpty: true}
	optionalText = Shape{Type: TypeString, Nullable: true}
	inherited    = Shape{Type: TypeString, Nullable: true, NonEmpty: true} // null inherits, empty is an error
	reports      = Shape{
		Type: TypeList, NonEmpty: true, Unique: true, Elem: &Shape{Type: TypeString, Enum: []string{"thread", "check"}},
		Single: &Shape{Type: TypeString, Enum: []string{"none", "thread", "check"}},
		Keys:   []Key{{Name: "url", Required: true, Shape: nonBlank}, {Name: "secretName", Required: true, Shape: nonBlank}},
	}
	reportText = Shape{Type: TypeString, Enum: []string{"full", "link"}}
	boolean    = Shape{Type: TypeBool}
	integer    = Shape{Type: TypeInt}
	number     = Shape{Type: TypeNumber}
	texts      = Shape{Type: TypeList, Elem: &text}
	names      = Shape{Type: TypeList, Elem: &nonBlank, Unique: true}
	repeatable = Shape{Type: TypeList, Elem: &nonBlank} // names that may repeat
	command    = Shape{Type: TypeList, NonEmpty: true, Elem: &nonBlank}
	anything   = Shape{Type: Any}
	strategy   = Shape{Type: TypeString, Nullable: true, Enum: CredentialStrategies, EnumCode: InvalidReference}

	// MCPServers is the shape of mcpServers. One of warpId, command and url is required. The format has only
	// warpId; the other keys are ours (SPEC 15.2).
	MCPServers = Shape{Type: TypeMapOf, Code: InvalidMCP, Elem: &Shape{Type: TypeMap, Code: InvalidMCP, Keys: []Key{
		{Name: "warpId", Shape: mcpText},
		{Name: "command", Own: true, Shape: mcpText},
		{Name: "args", Own: true, Shape: Shape{Type: TypeList, Code: InvalidMCP, Elem: &Shape{Type: TypeString, Code: InvalidMCP}}},
		{Name: "env", Own: true, Shape: mcpTexts},
		{Name: "url", Own: true, Shape: mcpText},
		{Name: "headers", Own: true, Shape: mcpTexts},
	}}}
	mcpText  = Shape{Type: TypeString, NonEmpty: true, Code: InvalidMCP}
	mcpTexts = Shape{Type: TypeMapOf, Code: InvalidMCP, Elem: &Shape{Type: TypeString, Code: InvalidMCP}}

	cloudProviders = Shape{Type: TypeMap, Keys: []Key{
		{Name: "gcp", Shape: Shape{Type: TypeMap, Keys: []Key{
			{Name: "projectNumber", Required: true, Shape: nonBlank},
			{Name: "workloadIdentityFederationPoolId", Required: true, Shape: nonBlank},
			{Name: "workloadIdentityFederationProviderId", Required: true, Shape: nonBlank},
			{Name: "serviceAccountEmail", Shape: nonBlank},
		}}},
		{Name: "aws", Shape: Shape{Type: TypeMap, Keys: []Key{{Name: "roleArn", Required: true, Shape: nonBlank}}}},
	}}

	harnessType = Shape{Type: TypeString, NonEmpty: true, Enum: slices.Concat(OwnHarnessTypes, HarnessTypes)}
	harnessAuth = Shape{Type: TypeMap, Nullable: true, Keys: []Key{
		{Name: "source", Required: true, Shape: Shape{Type: TypeString, NonEmpty: true, Enum: []string{"managedSecret", "workerEnvironment"}}},
		{Name: "secretName", Shape: nonBlank},
	}}
	harness = Shape{Type: TypeMap, Keys: []Key{
		{Name: "type", Shape: orNull(harnessType)},
		{Name: "model", Shape: inherited},
		{Name: "reasoningLevel", Shape: optionalText},
		{Name: "auth", Shape: harnessAuth},
		{Name: "command", Own: true, Shape: command},
	}}
	// wholeHarness is the harness of a benchmark, which inherits nothing.
	wholeHarness = Shape{Type: TypeMap, Keys: []Key{
		{Name: "type", Required: true, Shape: harnessType},
		{Name: "model", Required: true, Shape: nonBlank},
		{Name: "auth", Shape: harnessAuth},
		{Name: "command", Own: true, Shape: command},
	}}

	repository = Shape{Type: TypeMap, Keys: []Key{
		{Name: "owner", Required: true, Shape: nonBlank},
		{Name: "name", Required: true, Shape: nonBlank},
	}}
)

// budget limits what runs may use. Only an automation has the keys for a day.
var budget = []Key{
	{Name: "usd", Shape: number},
	{Name: "tokens", Shape: integer},
	{Name: "turns", Shape: integer},
}

func orNull(s Shape) Shape {
	s.Nullable = true
	return s
}

// Settings is the shape of agentDefaults. Agents and automations have the same
// keys, and inherit what they leave out.
var Settings = Shape{Type: TypeMap, Keys: []Key{
	{Name: "model", Shape: inherited},
	{Name: "harness", Shape: harness},
	{Name: "runner", Shape: inherited},
	{Name: "environmentId", Shape: inherited},
	{Name: "secrets", Shape: repeatable},
	{Name: "mcpServers", Shape: MCPServers},
	{Name: "workerHost", Shape: optionalText},
}}
