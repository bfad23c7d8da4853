package api

import (
	"encoding/json"
	"strconv"

	"triphammer/factory"
	"triphammer/schema"
)

// Commit is what every request that makes a commit to a hosted factory may say of it.
type Commit struct {
	// Base is the commit that the person has seen. If others have changed the same file since,
	// the answer is a conflict. Empty: the newest commit.
	Base string `json:"base,omitempty"`
	// Message is that of the commit. Empty: one that says what was done.
	Message string `json:"message,omitempty"`
}

// WebhookKeys are the keys of a webhook. What is missing stays, or gets its default. An empty
// text takes a key out.
type WebhookKeys struct {
	AuthMode         *string `json:"auth_mode,omitempty"`
	SignatureScheme  *string `json:"signature_scheme,omitempty"`
	DeliveryIDHeader *string `json:"delivery_id_header,omitempty"`
	Enabled          *bool   `json:"enabled,omitempty"`
	// SecretName is the managed secret. A new webhook gets a name like its own if it is empty.
	SecretName *string `json:"secret_name,omitempty"`
	// Signature has options of the scheme, as in the file; null takes one out.
	Signature map[string]any `json:"signature,omitempty"`
}

// Patch is the same as a merge patch of the keys of the file. An authMode without signatures
// takes out what is about them.
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

// WebhookSecret says where the secret of a new webhook comes from: exactly one of its fields.
// None means Generate, if the receiver makes the secret and not the sender.
type WebhookSecret struct {
	Generate bool   `json:"generate,omitempty"` // a new one, which the answer shows once
	Value    string `json:"value,omitempty"`    // the one that the sender made
	Name     string `json:"name,omitempty"`     // a managed secret that is there already
	Later    bool   `json:"later,omitempty"`    // it is not known yet: the webhook is disabled until it is
}

// WebhookPatch is the body of PATCH /api/v1/factories/<name>/webhooks/<webhook>.
type WebhookPatch struct {
	Commit
	WebhookKeys
}

// WebhookRotation is the body of POST /api/v1/factories/<name>/webhooks/<webhook>/rotate. It may be missing.
type WebhookRotation struct {
	// Value is the new secret. Empty: a new one is generated, which the answer shows once.
	Value string `json:"value,omitempty"`
}

// WebhookChange is the answer to a change of a webhook: the webhook as it is now, and the
// commit.
type WebhookChange struct {
	Webhook
	Change
	// Secret is a secret that was generated. It is never shown again.
	Secret string `json:"secret,omitempty"`
	// URLWithToken is the whole URL of a webhook with auth_mode url_token, with that secret in it.
	URLWithToken string `json:"url_with_token,omitempty"`
	Warning      string `json:"warning,omitempty"` // about the secret
	// Listeners are the automations that select the webhook.
	Listeners []string `json:"listeners"`
	// SharedWith are the other users of its secret.
	SharedWith []SecretUse `json:"shared_with,omitempty"`
}

// DefinitionPatch is the body of POST /api/v1/factories/<name>/automations (environments, agents), and
// of PATCH …/automations/<automation>.
type DefinitionPatch struct {
	Commit
	Name string `json:"name,omitempty"` // of a new one
	// Definition is a merge patch (RFC 7396) of the keys of the file, spelled as there: null
	// takes a key out.
	Definition json.RawMessage `json:"definition,omitempty"`
	// Prompt is the text below the keys, of an automation or agent.
	Prompt *string `json:"prompt,omitempty"`
}

// DefinitionChange is the answer to a change of an automation, environment or agent.
type DefinitionChange struct {
	Definition *Definition `json:"definition,omitempty"` // as it is now; missing: it was deleted
	Change
}

// Definition is GET /api/v1/factories/<name>/automations/<automation> (environments, agents, webhooks):
// what its file says in the newest commit.
type Definition struct {
	Kind    string          `json:"kind"` // automation, environment, agent, webhook
	Name    string          `json:"name"`
	Factory string          `json:"factory"`
	Path    string          `json:"path"`
	Commit  string          `json:"commit"` // take it as the base of a change
	Keys    json.RawMessage `json:"definition"`
	Prompt  string          `json:"prompt,omitempty"`
}
