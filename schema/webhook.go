package schema

// Webhook is the shape of webhooks/<name>.yaml.
var Webhook = Shape{Type: TypeMap, Keys: []Key{
	{Name: "authMode", Default: `"token"`, Shape: Shape{Type: TypeString, Enum: AuthModes}},
	{Name: "signatureScheme", Shape: nonBlank},
	{Name: "signature", Own: true, Shape: Shape{Type: TypeMap, Keys: []Key{
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
	{Name: "secretName", Shape: nonBlank}, // package factory reports its absence: with connect it is optional
	{Name: "deliveryIdHeader", Shape: nonBlank},
	{Name: "replayWindow", Own: true, Shape: nonBlank},
	{Name: "accounts", Own: true, Shape: Shape{Type: TypeList, NonEmpty: true, Elem: &nonBlank}},
	{Name: "connect", Own: true, Shape: Shape{Type: TypeString, Enum: []string{"socket"}}},
	{Name: "appTokenName", Own: true, Shape: nonBlank},
	{Name: "apiSecretName", Own: true, Shape: nonBlank},
	{Name: "apiURL", Own: true, Shape: nonBlank},
	{Name: "report", Own: true, Shape: reports}, // the default depends on integrations
	{Name: "reportText", Own: true, Default: `"full"`, Shape: reportText},
	{Name: "enabled", Default: "true", Shape: boolean},
}}
