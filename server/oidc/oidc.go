// Package oidc signs people in at an OpenID Connect provider, by an authorization code with
// PKCE, and gives them a role by the claims of the provider (SPEC 18.4). It keeps no state:
// between the two halves of a sign-in, the browser keeps a [Flow].
package oidc

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"triphammer/server/access"
)

// Config is what a Provider needs. All but Secret, Client and Now are required.
type Config struct {
	Issuer   string // an https address; http only on loopback
	ClientID string
	// Secret returns the client's secret, and is called for each sign-in. If Secret is nil, the
	// client has no secret, and only PKCE protects the code.
	Secret      func() (string, error)
	Redirect    string // address of the callback on this server
	Scopes      []string
	GroupsClaim string // the claim with the groups of a person
	Rules       []Rule
	Client      *http.Client
	Now         func() time.Time
}

// Rule gives a role to people with a claim.
type Rule struct{ Role, Claim, Value string }

// Claims for a Rule.
const (
	byEmail   = "email"  // an address that the provider has verified
	byDomain  = "domain" // the domain of such an address
	byGroup   = "group"
	bySubject = "subject" // the provider's identifier of a person
)

// ParseRule reads a rule such as operator=group:platform.
func ParseRule(text string) (Rule, error) {
	role, rest, _ := strings.Cut(text, "=")
	claim, value, _ := strings.Cut(rest, ":")
	r := Rule{strings.TrimSpace(role), strings.TrimSpace(claim), strings.TrimSpace(value)}
	switch {
	case !slices.Contains(access.Roles, r.Role):
		return r, fmt.Errorf("%q: write ROLE=CLAIM:VALUE, where ROLE is %s", text, strings.Join(access.Roles, ", "))
	case !slices.Contains([]string{byEmail, byDomain, byGroup, bySubject}, r.Claim) || r.Value == "":
		return r, fmt.Errorf("%q: write email:ADDRESS, domain:example.com, group:NAME or subject:ID after the role", text)
	}
	return r, nil
}

// Provider is a provider. It is safe for concurrent use.
type Provider struct {
	cfg Config

	mu    sync.Mutex
	found *oidc.Provider // nil until the provider has answered once
}

const (
	// answerTime is how long a request to the provider may take.
	answerTime = 10 * time.Second
	// maxAnswer is the largest answer of the provider, in bytes.
	maxAnswer = 1 << 20
	// flowTime is how long a person may take to sign in at the provider.
	flowTime = 10 * time.Minute
)

// New makes a Provider. It sends no request, because the provider may be off.
func New(cfg Config) (*Provider, error) {
	issuer, err := url.Parse(cfg.Issuer)
	switch {
	case err != nil || issuer.Host == "" || issuer.Scheme != "https" && !(issuer.Scheme == "http" && loopback(issuer.Hostname())):
		return nil, fmt.Errorf("the issuer %q is no https address, such as https://id.example.com", cfg.Issuer)
	case cfg.ClientID == "":
		return nil, errors.New("the client id is missing")
	case len(cfg.Rules) == 0:
		return nil, errors.New("no rule gives anybody a role")
	}
	if cfg.Client == nil {
		cfg.Client = http.DefaultClient
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	client := *cfg.Client
	client.Timeout, client.Transport, client.CheckRedirect = answerTime, bounded{client.Transport}, sendOnce
	cfg.Client = &client
	return &Provider{cfg: cfg}, nil
}

// sendOnce follows redirects, but not of the request for the token, which has the code and the
// secret of the client.
func sendOnce(_ *http.Request, before []*http.Request) error {
	switch {
	case before[0].Method != http.MethodGet:
		return http.ErrUseLastResponse
	case len(before) >= 10:
		return errors.New("stopped after 10 redirects") // as net/http does by itself
	}
	return nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// bounded limits the size of answers.
type bounded struct{ http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	to := b.RoundTripper
	if to == nil {
		to = http.DefaultTransport
	}
	resp, err := to.RoundTrip(r)
	if err == nil {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(resp.Body, maxAnswer), resp.Body}
	}
	return resp, err
}

// Name is the provider's name for people: its host.
func (p *Provider) Name() string {
	u, _ := url.Parse(p.cfg.Issuer) // New has parsed it
	return u.Host
}

// Flow is the state that the browser keeps while the person is at the provider. It binds the
// provider's answer to this browser.
type Flow struct {
	State    string `json:"s"`
	Nonce    string `json:"n"`
	Verifier string `json:"v"`
	To       string `json:"t"` // path of the page to open afterwards
	Until    int64  `json:"u"` // Unix time
}

// Encode makes the value of a cookie.
func (f Flow) Encode() string {
	text, _ := json.Marshal(f) // cannot fail
	return base64.RawURLEncoding.EncodeToString(text)
}

// DecodeFlow reads the value of a cookie. If the value is no flow, the result is empty.
func DecodeFlow(value string) (f Flow) {
	text, err := base64.RawURLEncoding.DecodeString(value)
	if err != nil || json.Unmarshal(text, &f) != nil {
		return Flow{}
	}
	return f
}

// ErrUnreachable says that the provider does not answer, or not like a provider.
var ErrUnreachable = errors.New("the sign-in service does not answer")

// Begin returns the address at which a person signs in, and the Flow for the browser. to is the
// path of the page to open afterwards.
func (p *Provider) Begin(ctx context.Context, to string) (address string, f Flow, err error) {
	c, _, err := p.client(ctx)
	if err != nil {
		return "", f, err
	}
	f = Flow{State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier(), To: to, Until: p.cfg.Now().Add(flowTime).Unix()}
	return c.AuthCodeURL(f.State, oidc.Nonce(f.Nonce), oauth2.S256ChallengeOption(f.Verifier)), f, nil
}

// client finds the provider and makes the client of its authorization server.
func (p *Provider) client(ctx context.Context) (*oauth2.Config, *oidc.Provider, error) {
	p.mu.Lock()
	found := p.found
	p.mu.Unlock()
	if found == nil {
		var err error
		if found, err = oidc.NewProvider(oidc.ClientContext(ctx, p.cfg.Client), p.cfg.Issuer); err != nil {
			return nil, nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
		}
		p.mu.Lock()
		p.found = found
		p.mu.Unlock()
	}
	c := &oauth2.Config{ClientID: p.cfg.ClientID, Endpoint: found.Endpoint(), RedirectURL: p.cfg.Redirect, Scopes: p.cfg.Scopes}
	var says struct {
		Methods []string `json:"token_endpoint_auth_methods_supported"`
	}
	if err := found.Claims(&says); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	c.Endpoint.AuthStyle = oauth2.AuthStyleInHeader // the default of the standard
	if p.cfg.Secret == nil || len(says.Methods) > 0 && !slices.Contains(says.Methods, "client_secret_basic") {
		c.Endpoint.AuthStyle = oauth2.AuthStyleInParams
	}
	if p.cfg.Secret != nil {
		secret, err := p.cfg.Secret()
		if err != nil {
			return nil, nil, fmt.Errorf("the secret of the client: %w", err)
		}
		c.ClientSecret = secret
	}
	return c, found, nil
}

// Person is a person who has signed in.
type Person struct {
	Name string
	Role string
}

// ErrNoRole says that the provider knows the person, but no rule gives a role.
var ErrNoRole = errors.New("no rule gives this person a role")

// maxSaid is how many characters of a reason in an answer are shown, because anybody can write it.
const maxSaid = 200

// Finish turns the provider's answer, which the browser brings, into a person. If the error is
// ErrNoRole, the person has a name but no role.
func (p *Provider) Finish(ctx context.Context, f Flow, answer url.Values) (who Person, err error) {
	switch {
	case f.State == "" || subtle.ConstantTimeCompare([]byte(f.State), []byte(answer.Get("state"))) != 1:
		return who, errors.New("the answer is not to a sign-in that this browser began")
	case p.cfg.Now().Unix() > f.Until:
		return who, errors.New("the sign-in took too long")
	case answer.Get("error") != "":
		return who, fmt.Errorf("the sign-in service says %.*s: %.*s", maxSaid, answer.Get("error"), maxSaid, answer.Get("error_description"))
	case answer.Has("iss") && answer.Get("iss") != p.cfg.Issuer:
		return who, errors.New("the answer is of another sign-in service")
	}
	c, found, err := p.client(ctx)
	if err != nil {
		return who, err
	}
	ctx = oidc.ClientContext(ctx, p.cfg.Client)
	token, err := c.Exchange(ctx, answer.Get("code"), oauth2.VerifierOption(f.Verifier))
	if err != nil {
		return who, fmt.Errorf("the sign-in service does not take the code: %w", plain(err))
	}
	raw, _ := token.Extra("id_token").(string)
	id, err := found.Verifier(&oidc.Config{ClientID: p.cfg.ClientID, Now: p.cfg.Now}).Verify(ctx, raw)
	if err != nil {
		return who, fmt.Errorf("the token of the sign-in service: %w", err)
	}
	claims := make(map[string]any)
	if err := id.Claims(&claims); err != nil {
		return who, fmt.Errorf("the token of the sign-in service: %w", err)
	}
	client, named := claims["azp"]
	switch {
	case subtle.ConstantTimeCompare([]byte(id.Nonce), []byte(f.Nonce)) != 1:
		return who, errors.New("the token is of another sign-in")
	case (named || len(id.Audience) > 1) && client != p.cfg.ClientID:
		return who, errors.New("the token was made for another client")
	case id.Subject == "":
		return who, errors.New("the token names nobody")
	}
	return p.person(id.Subject, claims)
}

// plain is an error without the answer of the provider, which may repeat a credential.
func plain(err error) error {
	if refused := (*oauth2.RetrieveError)(nil); errors.As(err, &refused) {
		return fmt.Errorf("status %d, %s", refused.Response.StatusCode, cmp.Or(refused.ErrorCode, "no reason"))
	}
	return err
}

// maxName is the largest length of a person's name, in bytes.
const maxName = 100

// person finds the name and the role of a person. The name is a verified e-mail address. If there
// is none, the name has the provider's identifier in it, because people can choose other names.
// An identifier that looks like an address is marked, to tell it from an address.
func (p *Provider) person(subject string, claims map[string]any) (who Person, err error) {
	email, _ := claims["email"].(string)
	email = strings.ToLower(email)
	if verified := claims["email_verified"]; verified != true && verified != "true" {
		email = ""
	}
	who.Name = email
	if who.Name == "" {
		if who.Name = subject; strings.Contains(subject, "@") {
			who.Name = "subject " + subject
		}
		if name, _ := claims["preferred_username"].(string); name != "" && name != subject {
			who.Name = name + " (" + subject + ")"
		}
	}
	if len(who.Name) > maxName || strings.ContainsFunc(who.Name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return Person{}, errors.New("the name of the person cannot be shown")
	}
	groups := texts(claims[p.cfg.GroupsClaim])
	_, domain, _ := strings.Cut(email, "@")
	best := -1
	for _, r := range p.cfg.Rules {
		holds := false
		switch r.Claim {
		case byEmail:
			holds = email != "" && email == strings.ToLower(r.Value)
		case byDomain:
			holds = domain != "" && domain == strings.ToLower(r.Value)
		case byGroup:
			holds = slices.Contains(groups, r.Value)
		case bySubject:
			holds = subject == r.Value
		}
		if rank := slices.Index(access.Roles, r.Role); holds && rank > best {
			best, who.Role = rank, r.Role
		}
	}
	if best < 0 {
		return who, ErrNoRole
	}
	return who, nil
}

// texts are the texts of a claim, which is a text or a list.
func texts(claim any) (all []string) {
	switch c := claim.(type) {
	case string:
		return []string{c}
	case []any:
		for _, one := range c {
			if text, ok := one.(string); ok {
				all = append(all, text)
			}
		}
	}
	return all
}
