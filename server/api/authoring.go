package api

import (
	"encoding/json"
	"strconv"

	"triphammer/factory"
	"triphammer/schema"
)

// Commit is a part of every request that makes a commit to a hosted factory.
type Commit struct {
	// Base is the commit that the person has seen. If others have changed the same file since,
	// the answer is a conflict. Empty: the newest commit.
	Base string `json:"base,omitempty"`
	// Message is the message of the commit. Empty: the server describes the change.
	Message string `json:"message,omitempty"`
}

// WebhookKeys are the keys of a webhook. A missing key stays, or gets its default in a new
// webhook. An empty text removes a key.
type WebhookKeys struct {
	AuthMode         *string `json:"auth_mode,omitempty"`
	SignatureScheme  *string `json:"signature_scheme,omitempty"`
	DeliveryIDHeader *string `json:"delivery_id_header,omitempty"`
	Enabled          *bool   `json:"enabled,omitempty"`
	// SecretName is the managed secret. If it is empty, the server makes a name from the name
	// of the new webhook.
	SecretName *string `json:"secret_name,omitempty"`
	// APISecretName is the managed secret with which the API of the sender is asked, at APIURL.
	APISecretName *string `json:"api_secret_name,omitempty"`
	APIURL        *string `json:"api_url,omitempty"`
	// Signature has options of the scheme, as in the file; null removes an option.
	Signature map[string]any `json:"signature,omitempty"`
}

// Patch makes a merge patch of the keys of the file. An authMode without signatures also removes
// the keys that are about signatures.
func (k WebhookKeys) Patch() (*schema.Node, error) {
	patch := &schema.Node{Kind: schema.Mapping}
	set := func(key string, value *schema.Node) {
		patch.Fields = append(patch.Fields, schema.Field{Key: key, Value: value})
	}
	text := func(key string, value *string) {
		switch {
		case value == nil:
		case *value == "":
			set(key, &schema.Node{Kind: schema.Null})
		default:
			set(key, &schema.Node{Kind: schema.String, Text: *value})
		}
	}
	if k.AuthMode != nil && *k.AuthMode != string(factory.Signature) {
		if k.SignatureScheme == nil {
			k.SignatureScheme = new(string)
		}
		if k.Signature == nil {
			set("signature", &schema.Node{Kind: schema.Null})
		}
	}
	text("authMode", k.AuthMode)
	text("signatureScheme", k.SignatureScheme)
	text("secretName", k.SecretName)
	text("apiSecretName", k.APISecretName)
	text("apiURL", k.APIURL)
	text("deliveryIdHeader", k.DeliveryIDHeader)
	if k.Enabled != nil {
		set("enabled", &schema.Node{Kind: schema.Bool, Text: strconv.FormatBool(*k.Enabled)})
	}
	if k.Signature != nil {
		options, err := json.Marshal(k.Signature)
		if err != nil {
			return nil, err
		}
		n, err := schema.NodeOf(options)
		if err != nil {
			return nil, err
		}
		set("signature", n)
	}
	return patch, nil
}

// NewWebhook is the body of POST /api/v1/factories/<name>/webhooks.
type NewWebhook struct {
	Commit
	WebhookKeys
	Name   string        `json:"name"`
	Secret WebhookSecret `json:"secret"`
}

// WebhookSecret says where the secret of a new webhook comes from. At most one field is set. No
// field means Generate, if the receiver makes the secret and not the sender.
type WebhookSecret struct {
	Generate bool   `json:"generate,omitempty"` // the server makes a secret, and the answer shows it once
	Value    string `json:"value,omitempty"`    // the secret that the sender made
	Name     string `json:"name,omitempty"`     // an existing managed secret
	Later    bool   `json:"later,omitempty"`    // the secret is not known yet: the webhook is disabled until it is set
}

// WebhookPatch is the body of PATCH /api/v1/factories/<name>/webhooks/<webhook>.
type WebhookPatch struct {
	Commit
	WebhookKeys
}

// WebhookRotation is the body of POST /api/v1/factories/<name>/webhooks/<webhook>/rotate. It may be missing.
type WebhookRotation struct {
	// Value is the new secret. Empty: the server makes one, and the answer shows it once.
	Value string `json:"value,omitempty"`
}

// WebhookChange is the answer to a change of a webhook: the changed webhook and the commit.
type WebhookChange struct {
	Webhook
	Change
	// Secret is a generated secret. It is never shown again.
	Secret string `json:"secret,omitempty"`
	// URLWithToken is the whole URL of a webhook with auth_mode url_token, including the secret.
	URLWithToken string `json:"url_with_token,omitempty"`
	Warning      string `json:"warning,omitempty"` // about the secret
	// Listeners are the automations that select the webhook.
	Listeners []string `json:"listeners"`
	// SharedWith are the other definitions that use the secret.
	SharedWith []SecretUse `json:"shared_with,omitempty"`
}

// DefinitionPatch is the body of POST /api/v1/factories/<name>/automations (environments, agents), and
// of PATCH …/automations/<automation>.
type DefinitionPatch struct {
	Commit
	Name string `json:"name,omitempty"` // only for a new definition
	// Definition is a merge patch (RFC 7396) of the keys of the file, spelled as in the file:
	// null removes a key.
	Definition json.RawMessage `json:"definition,omitempty"`
	// Prompt is the text below the keys of an automation or agent.
	Prompt *string `json:"prompt,omitempty"`
}

// DefinitionChange is the answer to a change of an automation, environment or agent.
type DefinitionChange struct {
	Definition *Definition `json:"definition,omitempty"` // the changed definition; missing: it was deleted
	Change
}

// Definition is GET /api/v1/factories/<name>/automations/<automation> (environments, agents, webhooks):
// the content of the file in the newest commit.
type Definition struct {
	Kind    string          `json:"kind"` // automation, environment, agent, webhook
	Name    string          `json:"name"`
	Factory string          `json:"factory"`
	Path    string          `json:"path"`
	Commit  string          `json:"commit"` // the base for a change of this definition
	Keys    json.RawMessage `json:"definition"`
	Prompt  string          `json:"prompt,omitempty"`
}
