package schema

// Words of the format (factory/testdata/rules 1.3–1.10, 2.1).
var (
	AuthModes            = []string{"token", "url_token", "signature"}
	AgentTypes           = []string{"CUSTOM", "FOREMAN", "MAIN", "TRIAGE", "SPEC", "IMPLEMENT", "REVIEW", "VERIFY"}
	CredentialStrategies = []string{"EXECUTOR", "CREATOR"}
	HarnessTypes         = []string{"oz", "claude", "claude-code", "codex", "gemini"}
	// OwnHarnessTypes are those that only this server knows (SPEC 9.4).
	OwnHarnessTypes = []string{"opencode"}
)

var (
	text         = Shape{Type: TypeString}
	nonBlank     = Shape{Type: TypeString, NonEmpty: true}
	optionalText = Shape{Type: TypeString, Nullable: true}
	inherited    = Shape{Type: TypeString, Nullable: true, NonEmpty: true} // null inherits, empty is an error
	boolean      = Shape{Type: TypeBool}
	integer      = Shape{Type: TypeInt}
	number       = Shape{Type: TypeNumber}
	texts        = Shape{Type: TypeList, Elem: &text}
	names        = Shape{Type: TypeList, Elem: &nonBlank, Unique: true}
	repeatable   = Shape{Type: TypeList, Elem: &nonBlank} // names that may repeat
	anything     = Shape{Type: Any}
	strategy     = Shape{Type: TypeString, Nullable: true, Enum: CredentialStrategies, EnumCode: InvalidReference}

	mcpServers = Shape{Type: TypeMapOf, Code: InvalidMCP, Elem: &Shape{Type: TypeMap, Code: InvalidMCP, Keys: []Key{
		{Name: "warpId", Required: true, Shape: Shape{Type: TypeString, NonEmpty: true, Code: InvalidMCP}},
	}}}

	cloudProviders = Shape{Type: TypeMap, Keys: []Key{
		{Name: "gcp", Shape: Shape{Type: TypeMap, Keys: []Key{
			{Name: "projectNumber", Required: true, Shape: nonBlank},
			{Name: "workloadIdentityFederationPoolId", Required: true, Shape: nonBlank},
			{Name: "workloadIdentityFederationProviderId", Required: true, Shape: nonBlank},
			{Name: "serviceAccountEmail", Shape: nonBlank},
		}}},
		{Name: "aws", Shape: Shape{Type: TypeMap, Keys: []Key{{Name: "roleArn", Required: true, Shape: nonBlank}}}},
	}}

	harnessType = Shape{Type: TypeString, NonEmpty: true, Enum: append(OwnHarnessTypes, HarnessTypes...)}
	harnessAuth = Shape{Type: TypeMap, Nullable: true, Keys: []Key{
		{Name: "source", Required: true, Shape: Shape{Type: TypeString, NonEmpty: true, Enum: []string{"managedSecret", "workerEnvironment"}}},
		{Name: "secretName", Shape: nonBlank},
	}}
	harness = Shape{Type: TypeMap, Keys: []Key{
		{Name: "type", Shape: orNull(harnessType)},
		{Name: "model", Shape: inherited},
		{Name: "reasoningLevel", Shape: optionalText},
		{Name: "auth", Shape: harnessAuth},
	}}
	// wholeHarness is that of a benchmark, which inherits nothing.
	wholeHarness = Shape{Type: TypeMap, Keys: []Key{
		{Name: "type", Required: true, Shape: harnessType},
		{Name: "model", Required: true, Shape: nonBlank},
		{Name: "auth", Shape: harnessAuth},
	}}

	repository = Shape{Type: TypeMap, Keys: []Key{
		{Name: "owner", Required: true, Shape: nonBlank},
		{Name: "name", Required: true, Shape: nonBlank},
	}}
)

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
	{Name: "mcpServers", Shape: mcpServers},
	{Name: "workerHost", Shape: optionalText},
}}
