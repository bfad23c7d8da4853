// Package oidctest is an OpenID Connect provider for tests: discovery, keys, authorization
// code with PKCE, and tokens signed with RS256. It follows the standard, unless a test asks
// for a token that no provider should issue.
package oidctest

import (
	"crypto"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

// The client that the provider knows.
const (
	ClientID     = "triphammer"
	ClientSecret = "a secret, with + and %"
)

// How a token is signed.
const (
	RS256    = "RS256"
	None     = "none"
	HS256    = "HS256" // with the public key as the secret
	OtherKey = "other" // RS256 with a key that is not published
)

// Provider is a provider that signs in everybody who comes, as the same person.
type Provider struct {
	*httptest.Server
	Redirect string // the only address that the provider sends people back to

	mu     sync.Mutex
	key    *rsa.PrivateKey
	kid    int
	codes  map[string]*grant
	claims func(map[string]any)
	signed string
	down   bool
	tokens int
}

type grant struct{ challenge, nonce, redirect string }

// Start starts a provider, until the test ends.
func Start(t testing.TB) *Provider {
	p := &Provider{codes: make(map[string]*grant), signed: RS256, claims: func(map[string]any) {}}
	p.Rotate(t)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", p.discovery)
	mux.HandleFunc("GET /keys", p.keys)
	mux.HandleFunc("GET /authorize", p.authorize)
	mux.HandleFunc("POST /token", p.token)
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.down {
			http.Error(w, "down", http.StatusBadGateway)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(p.Close)
	return p
}

// Rotate replaces the key that signs tokens.
func (p *Provider) Rotate(t testing.TB) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.key, p.kid = key, p.kid+1
}

// Say sets how the next tokens are signed. claims changes their claims.
func (p *Provider) Say(signed string, claims func(map[string]any)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.signed, p.claims = signed, claims
}

// SetDown makes the provider fail every request, or stop failing.
func (p *Provider) SetDown(down bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = down
}

// Tokens is how many tokens the provider has issued.
func (p *Provider) Tokens() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tokens
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func (p *Provider) discovery(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, map[string]any{
		"issuer": p.URL, "authorization_endpoint": p.URL + "/authorize", "token_endpoint": p.URL + "/token", "jwks_uri": p.URL + "/keys",
		"response_types_supported": []string{"code"}, "subject_types_supported": []string{"public"},
		"id_token_signing_alg_values_supported": []string{RS256, HS256, None}, "code_challenge_methods_supported": []string{"S256"},
	})
}

func (p *Provider) keys(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, map[string]any{"keys": []any{map[string]any{
		"kty": "RSA", "alg": RS256, "use": "sig", "kid": fmt.Sprint(p.kid),
		"n": encode(p.key.N.Bytes()), "e": encode(big.NewInt(int64(p.key.E)).Bytes()),
	}}})
}

func (p *Provider) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	switch {
	case q.Get("client_id") != ClientID || q.Get("redirect_uri") != p.Redirect:
		http.Error(w, "no such client", http.StatusBadRequest)
		return
	case q.Get("response_type") != "code" || !strings.Contains(" "+q.Get("scope")+" ", " openid ") || q.Get("code_challenge_method") != "S256" ||
		q.Get("code_challenge") == "" || q.Get("state") == "" || q.Get("nonce") == "":
		http.Error(w, "not what a careful client sends: "+r.URL.RawQuery, http.StatusBadRequest)
		return
	}
	code := rand.Text()
	p.codes[code] = &grant{q.Get("code_challenge"), q.Get("nonce"), q.Get("redirect_uri")}
	http.Redirect(w, r, q.Get("redirect_uri")+"?"+url.Values{"code": {code}, "state": {q.Get("state")}, "iss": {p.URL}}.Encode(), http.StatusFound)
}

func (p *Provider) token(w http.ResponseWriter, r *http.Request) {
	id, secret, _ := r.BasicAuth()
	unescaped, err := url.QueryUnescape(secret)
	if id != ClientID || err != nil || unescaped != ClientSecret {
		answer(w, http.StatusUnauthorized, map[string]string{"error": "invalid_client"})
		return
	}
	g := p.codes[r.PostFormValue("code")]
	delete(p.codes, r.PostFormValue("code")) // a code works once
	sum := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
	if g == nil || r.PostFormValue("grant_type") != "authorization_code" || r.PostFormValue("redirect_uri") != g.redirect || encode(sum[:]) != g.challenge {
		answer(w, http.StatusBadRequest, map[string]string{"error": "invalid_grant"})
		return
	}
	claims := map[string]any{
		"iss": p.URL, "sub": "248289761001", "aud": ClientID, "exp": time.Now().Add(time.Hour).Unix(), "iat": time.Now().Unix(), "nonce": g.nonce,
	}
	p.claims(claims)
	p.tokens++
	answer(w, http.StatusOK, map[string]any{"access_token": rand.Text(), "token_type": "Bearer", "expires_in": 3600, "id_token": p.sign(claims)})
}

func (p *Provider) sign(claims map[string]any) string {
	head, key := map[string]string{"alg": RS256, "kid": fmt.Sprint(p.kid), "typ": "JWT"}, p.key
	switch p.signed {
	case None, HS256:
		head["alg"] = p.signed
	case OtherKey:
		key, _ = rsa.GenerateKey(rand.Reader, 2048)
	}
	headText, _ := json.Marshal(head)
	body, _ := json.Marshal(claims)
	text := encode(headText) + "." + encode(body)
	var signature []byte
	switch p.signed {
	case None:
	case HS256:
		public, _ := x509.MarshalPKIXPublicKey(&p.key.PublicKey)
		mac := hmac.New(sha256.New, public)
		mac.Write([]byte(text))
		signature = mac.Sum(nil)
	default:
		sum := sha256.Sum256([]byte(text))
		signature, _ = rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
	}
	return text + "." + encode(signature)
}

func encode(data []byte) string { return base64.RawURLEncoding.EncodeToString(data) }
