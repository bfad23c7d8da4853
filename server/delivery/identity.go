package delivery

import (
	"crypto/sha256"
	"encoding/hex"

	"triphammer/factory"
	"triphammer/server/store"
)

// maxIdentity is the longest identity that is kept unchanged, in bytes. Longer identities are
// hashed (SPEC 5.6).
const maxIdentity = 255

// identity is the identity of the delivery, from the first source that has a value (SPEC
// C6.2).
func (a *incoming) identity() store.Identity {
	if name := a.hook.Def.DeliveryIDHeader; name != "" {
		if value := headerValue(a.Header, name); value != "" {
			return store.Identity{Source: store.IdentityHeader, Value: value}
		}
	}
	for _, name := range a.providerHeaders() {
		if value := headerValue(a.Header, name); value != "" {
			return store.Identity{Source: store.IdentityProvider, Value: value}
		}
	}
	if value := headerValue(a.Header, factory.SenderIDHeader); value != "" {
		return store.Identity{Source: store.IdentitySender, Value: value}
	}
	return store.Identity{Source: store.IdentityBody, Value: digest(a.body)}
}

// providerHeaders are the headers in which the provider identifies a delivery. Only a
// webhook with a signature scheme has a provider.
func (a *incoming) providerHeaders() []string {
	if a.hook.Def.Scheme == nil {
		return nil
	}
	return a.hook.Def.Scheme.IdentityHeaders()
}

// replayable tells whether the signed body of a delivery could come again under another identity, from
// somebody without the secret (SPEC 5.13). Tests and replays come from people who may do this.
func replayable(def *factory.Webhook, d *store.Delivery) bool {
	_, ok := def.Replayable()
	return ok && d.TestBy == "" && d.ReplayOf == 0 && d.SecretGeneration != 0 // 0: it came over a connection
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}
