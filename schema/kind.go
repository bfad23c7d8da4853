package schema

import "slices"

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
	{Name: "mcpServers", Shape: mcpServers},
	{Name: "cloudProviders", Shape: cloudProviders},
	{Name: "providers", Shape: cloudProviders}, // its old name
	{Name: "integrations", Shape: Shape{Type: TypeList, Elem: &Shape{Type: TypeMap, Keys: []Key{
		{Name: "type", Required: true, Shape: nonBlank},
		{Name: "microsoft-teams", Shape: Shape{Type: TypeMap, Keys: []Key{{Name: "autoRespondToThreadReplies", Shape: boolean}}}},
		// Their settings are not published.
		{Name: "slack", Shape: Shape{Type: TypeMapOf, Elem: &anything}},
		{Name: "linear", Shape: Shape{Type: TypeMapOf, Elem: &anything}},
		{Name: "jira", Shape: Shape{Type: TypeMapOf, Elem: &anything}},
	}}}},
	{Name: "agentDefaults", Shape: Settings},
}}

// Version is the only schemaVersion.
const Version = "v1alpha1"

// Agent is the shape of agents/<name>/agent.md.
var Agent = Shape{Type: TypeMap, Keys: append(slices.Clone(Settings.Keys),
	Key{Name: "description", Shape: optionalText},
	Key{Name: "agentType", Default: `"CUSTOM"`, Shape: Shape{Type: TypeString, Nullable: true, NonEmpty: true, Enum: AgentTypes, EnumCode: InvalidReference}},
	Key{Name: "credentialStrategy", Shape: strategy},
)}

// Automation is the shape of automations/<name>/automation.md.
var Automation = Shape{Type: TypeMap, Keys: append(slices.Clone(Settings.Keys),
	Key{Name: "enabled", Default: "true", Shape: boolean},
	Key{Name: "agent", Shape: nonBlank},
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

// Webhook is the shape of webhooks/<name>.yaml.
var Webhook = Shape{Type: TypeMap, Keys: []Key{
	{Name: "authMode", Default: `"token"`, Shape: Shape{Type: TypeString, Enum: AuthModes}},
	{Name: "signatureScheme", Shape: nonBlank},
	{Name: "signature", Shape: Shape{Type: TypeMap, Keys: []Key{ // ours
		{Name: "header", Shape: nonBlank},
		{Name: "algorithm", Shape: Shape{Type: TypeString, Enum: []string{"sha256", "sha1", "sha512"}}},
		{Name: "encoding", Shape: Shape{Type: TypeString, Enum: []string{"hex", "base64", "base64url"}}},
		{Name: "secretEncoding", Shape: Shape{Type: TypeString, Enum: []string{"text", "base64", "hex", "pem"}}},
		{Name: "prefix", Shape: nonBlank},
		{Name: "separator", Shape: Shape{Type: TypeString, Enum: []string{",", ";", " "}}},
		{Name: "template", Shape: nonBlank},
		{Name: "timestampHeader", Shape: nonBlank},
		{Name: "timestampPrefix", Shape: nonBlank},
		{Name: "timestampFormat", Shape: Shape{Type: TypeString, Enum: []string{"seconds", "milliseconds", "rfc3339"}}},
		{Name: "idHeader", Shape: nonBlank},
		{Name: "toleranceSeconds", Shape: integer},
	}}},
	{Name: "secretName", Required: true, Shape: nonBlank},
	{Name: "deliveryIdHeader", Shape: nonBlank},
	{Name: "enabled", Default: "true", Shape: boolean},
}}

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

// Tests is the shape of tests/<name>.yaml, whose root is a list (SPEC 2.2b).
var Tests = Shape{Type: TypeList, NonEmpty: true, Elem: &Shape{Type: TypeMap, Keys: []Key{
	{Name: "name", Required: true, Shape: nonBlank},
	{Name: "webhook", Required: true, Shape: nonBlank},
	{Name: "payload", Shape: Shape{Type: Any, Nullable: true}},
	{Name: "payloadFile", Shape: nonBlank},
	{Name: "expect", Required: true, Shape: Shape{Type: TypeList, Elem: &nonBlank, Unique: true}},
}}}

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
