package signature

import "testing"

// TestNewSecret: a secret that is made suits its scheme, and no two are alike.
func TestNewSecret(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range All() {
		secret, ok := s.NewSecret()
		if ok == s.asymmetric() {
			t.Errorf("%s: %v", s.Name, ok)
		}
		if !ok {
			continue
		}
		if _, err := s.Verifier(secret); err != nil || seen[secret] {
			t.Errorf("%s: %v", s.Name, err)
		}
		seen[secret] = true
	}
	for _, verifier := range []func(string) (*Verifier, error){Bearer, PathToken} {
		if _, err := verifier(NewToken()); err != nil {
			t.Error(err)
		}
	}
	for name, want := range map[string]bool{
		"github": true, "gitlab": true, "standard_webhooks": true, "grafana_timestamped": true, "hmac": true, "token_header": true,
		"stripe": false, "svix": false, "sentry": false, "asana": false, "ed25519": false, "buildkite_token": false, "slack": false,
	} {
		if s, _ := Lookup(name); s == nil || s.SecretIsYours() != want {
			t.Error(name)
		}
	}
}
