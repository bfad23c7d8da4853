// Package githubapp acts as a GitHub App (SPEC 24.2). A managed secret that is an App holds a
// document with the App's id and private key. The key signs requests for installation tokens,
// each for one repository and for the permissions of one use. Only tokens leave the server or
// the worker, and they end after an hour.
package githubapp

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"triphammer/server/secret"
)

// publicAPI is the API of github.com.
const publicAPI = "https://api.github.com"

// App is a GitHub App with its key.
type App struct {
	ID  int64
	API string // address of the API, without a final slash
	key *rsa.PrivateKey
}

// document is the value of a managed secret that is an App.
type document struct {
	App *struct {
		ID  int64  `json:"id"`
		Key string `json:"key"`           // private key, PEM
		API string `json:"api,omitempty"` // of a GitHub Enterprise Server; empty: publicAPI
	} `json:"githubApp"`
}

// Is tells whether the value of a secret is a GitHub App, even one that cannot be used.
func Is(v secret.Value) bool {
	text := strings.TrimSpace(v.Reveal())
	if !strings.HasPrefix(text, "{") || !strings.Contains(text, `"githubApp"`) {
		return false
	}
	var d map[string]json.RawMessage
	if json.Unmarshal([]byte(text), &d) != nil {
		return true // a document that was cut off still has the key
	}
	_, is := d["githubApp"]
	return is
}

// Value makes the value of a managed secret. api is the address of the API of a GitHub Enterprise
// Server; empty: github.com. key is the private key in PEM, as GitHub gives it.
func Value(id int64, key, api string) (secret.Value, error) {
	var d document
	d.App = new(struct {
		ID  int64  `json:"id"`
		Key string `json:"key"`
		API string `json:"api,omitempty"`
	})
	d.App.ID, d.App.Key, d.App.API = id, strings.TrimSpace(key)+"\n", strings.TrimRight(api, "/")
	text, err := json.Marshal(d)
	if err != nil {
		return secret.Value{}, err
	}
	v := secret.New(string(text))
	_, err = Parse(v)
	return v, err
}

// Parse reads the value of a managed secret that is an App. The error says what is wrong with it
// and shows nothing of it.
func Parse(v secret.Value) (*App, error) {
	var d document
	if err := json.Unmarshal([]byte(v.Reveal()), &d); err != nil || d.App == nil {
		return nil, errors.New(`it is no GitHub App: {"githubApp": {"id": 1, "key": "PEM"}}`)
	}
	a := &App{ID: d.App.ID, API: publicAPI}
	if a.ID <= 0 {
		return nil, errors.New("the id of a GitHub App is a number, which the App's page at GitHub shows as App ID")
	}
	if d.App.API != "" {
		a.API = strings.TrimRight(d.App.API, "/")
		if !validAPI(a.API) {
			return nil, errors.New(noAPI)
		}
	}
	var err error
	a.key, err = parseKey(d.App.Key)
	return a, err
}

const noAPI = "the API of a GitHub App is an address such as https://github.example.com/api/v3"

func validAPI(api string) bool {
	u, err := url.Parse(api)
	return err == nil && u.Host != "" && u.User == nil && u.RawQuery == "" && u.Fragment == "" && (u.Scheme == "https" || u.Scheme == "http" && loopback(u.Hostname()))
}

func parseKey(text string) (*rsa.PrivateKey, error) {
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return nil, errors.New("the key of a GitHub App is the file NAME.private-key.pem, which GitHub gives (-----BEGIN RSA PRIVATE KEY-----)")
	}
	key, err := x509.ParsePKCS1PrivateKey(block.Bytes)
	if err != nil {
		other, _ := x509.ParsePKCS8PrivateKey(block.Bytes)
		if key, _ = other.(*rsa.PrivateKey); key == nil {
			return nil, errors.New("the key of the GitHub App cannot be read as an RSA private key: make another on the App's page at GitHub")
		}
	}
	if key.N.BitLen() < 2048 || key.N.BitLen() > 8192 { // GitHub makes 2048
		return nil, fmt.Errorf("the key of the GitHub App has %d bits, and GitHub's have 2048", key.N.BitLen())
	}
	return key, nil
}

// loopback tells whether a host is this machine, by its name.
func loopback(name string) bool {
	addr, err := netip.ParseAddr(name)
	return name == "localhost" || err == nil && addr.IsLoopback()
}

// Site is the address of the pages and repositories that belong to the App's API.
func (a *App) Site() string { return siteOf(a.API) }

// siteOf is the address of the pages and repositories that belong to an API: of
// https://api.github.com it is https://github.com.
func siteOf(api string) string {
	u, err := url.Parse(api)
	if err != nil {
		return ""
	}
	site := url.URL{Scheme: u.Scheme, Host: strings.TrimPrefix(u.Host, "api.")}
	return site.String()
}

// Serves tells whether a repository, by its address, is at the GitHub of the App.
// name is its OWNER/NAME.
func (a *App) Serves(repository string) (name string, err error) {
	u, err := url.Parse(repository)
	if err != nil {
		return "", errors.New("the address of the repository cannot be read")
	}
	site, _ := url.Parse(a.Site())
	if u.Scheme != site.Scheme || u.Host != site.Host {
		return "", fmt.Errorf("it is an App of %s, and the repository is elsewhere", a.Site())
	}
	name = strings.TrimSuffix(strings.Trim(u.Path, "/"), ".git")
	if !validRepository(name) {
		return "", fmt.Errorf("the repository of a GitHub App has an address such as %s/OWNER/NAME", a.Site())
	}
	return name, nil
}

// validRepository tells whether a text is OWNER/NAME, which needs no escapes in an address.
func validRepository(name string) bool {
	owner, repository, both := strings.Cut(name, "/")
	plain := func(s string) bool {
		return s != "" && s != "." && s != ".." && strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.") == ""
	}
	return both && plain(owner) && plain(repository)
}

// lifetime is for how long a signed request can be used. GitHub takes at most 10 minutes, and a
// clock may be ahead.
const lifetime = 8 * time.Minute

// signed is a JSON Web Token that proves to GitHub who asks (RS256).
func (a *App) signed(now time.Time) (string, error) {
	part := base64.RawURLEncoding.EncodeToString
	claims, err := json.Marshal(map[string]any{"iss": strconv.FormatInt(a.ID, 10), "iat": now.Add(-time.Minute).Unix(), "exp": now.Add(lifetime).Unix()})
	if err != nil {
		return "", err
	}
	text := part([]byte(`{"alg":"RS256","typ":"JWT"}`)) + "." + part(claims)
	sum := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(rand.Reader, a.key, crypto.SHA256, sum[:])
	return text + "." + part(signature), err
}
