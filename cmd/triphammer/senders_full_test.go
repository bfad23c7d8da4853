//go:build full

package main

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"triphammer/factory/signature"
	"triphammer/server/api"
)

// sender is a package that a sender of webhooks publishes for its customers.
type sender struct {
	Package, Version, Scheme string
	Signs, Verifies          bool
	Blind                    bool              // the package does not look at the body
	Headers                  map[string]string // headers that the package needs and the scheme does not sign
	peer                     *peer
}

// peer is a program that runs such packages: one line of JSON in, one out.
type peer struct {
	in  *json.Encoder
	out *json.Decoder
}

type question struct {
	Op      string            `json:"op"`
	Package string            `json:"package,omitempty"`
	Scheme  string            `json:"scheme,omitempty"`
	Secret  string            `json:"secret,omitempty"`
	URL     string            `json:"url,omitempty"`
	Body    string            `json:"body,omitempty"`
	Headers map[string]string `json:"headers,omitempty"` // names in lower case
}

func startPeer(t *testing.T, dir, name string, args ...string) *peer {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close() // which ends it
		err := cmd.Wait()
		cancel()
		if t.Failed() {
			t.Logf("%s %v: %v\n%s", name, args, err, stderr.String())
		}
	})
	return &peer{json.NewEncoder(in), json.NewDecoder(out)}
}

func (p *peer) ask(t *testing.T, q question, into any) {
	t.Helper()
	err := p.in.Encode(q)
	if err == nil {
		err = p.out.Decode(into)
	}
	if err != nil {
		t.Fatalf("%s %s: %v; the npm packages are installed by npm ci in testdata/npm/senders", q.Op, q.Package, err)
	}
}

// sign has the package make a request.
func (s *sender) sign(t *testing.T, secret, address, body string) *signature.Request {
	t.Helper()
	var signed struct {
		URL, Body, Error string
		Headers          map[string]string
	}
	s.peer.ask(t, question{Op: "sign", Package: s.Package, Scheme: s.Scheme, Secret: secret, URL: address, Body: body}, &signed)
	if signed.Error != "" {
		t.Fatal(signed.Error)
	}
	r := &signature.Request{Method: http.MethodPost, URL: signed.URL, Header: http.Header{}, Body: []byte(signed.Body)}
	for name, value := range signed.Headers {
		r.Header.Set(name, value)
	}
	r.Header.Set("Content-Type", "application/json")
	return r
}

// verify asks the package whether a request is genuine.
func (s *sender) verify(t *testing.T, secret string, r *signature.Request) (ok bool, why string) {
	t.Helper()
	q := question{Op: "verify", Package: s.Package, Scheme: s.Scheme, Secret: secret, URL: r.URL, Body: string(r.Body), Headers: map[string]string{}}
	for name := range r.Header {
		q.Headers[strings.ToLower(name)] = r.Header.Get(name)
	}
	var answer struct {
		Verified bool
		Error    string
	}
	s.peer.ask(t, q, &answer)
	return answer.Verified, answer.Error
}

// keys are the secret of a webhook of a scheme, and the key that its sender signs with.
type keys struct{ held, signing string }

func newKeys(t *testing.T, s *signature.Scheme) keys {
	t.Helper()
	random := make([]byte, 32)
	_, _ = rand.Read(random) // it never fails
	pair := func(private crypto.Signer, err error, held func(der []byte) string) keys {
		if err != nil {
			t.Fatal(err)
		}
		secret, err := x509.MarshalPKCS8PrivateKey(private)
		if err != nil {
			t.Fatal(err)
		}
		public, err := x509.MarshalPKIXPublicKey(private.Public())
		if err != nil {
			t.Fatal(err)
		}
		return keys{held(public), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}))}
	}
	both := func(secret string) keys { return keys{secret, secret} }
	encoded := base64.StdEncoding.EncodeToString
	switch {
	case s.Algorithm == signature.Ed25519:
		public, private, err := ed25519.GenerateKey(nil)
		held := encoded(public)
		if s.Key == signature.KeyHex {
			held = hex.EncodeToString(public)
		}
		return pair(private, err, func([]byte) string { return held })
	case s.Algorithm == signature.ECDSAP256:
		private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		return pair(private, err, func(der []byte) string { return encoded(der) })
	case s.Name == "finch": // whose package wants base64 alone
		return both(encoded(random))
	case s.Key == signature.KeyBase64:
		return both("whsec_" + encoded(random))
	}
	return both(hex.EncodeToString(random))
}

// probe is a body; tampered changes one byte of it.
func probe(scheme string, n int) string {
	if scheme == "adyen" {
		return fmt.Sprintf(`{"notificationItems":[{"NotificationRequestItem":{"pspReference":"probe-a","merchantReference":"%d","merchantAccountCode":"Acc","originalReference":"","eventCode":"AUTHORISATION","success":"true","amount":{"value":7,"currency":"EUR"}}}]}`, n)
	}
	return fmt.Sprintf(`{"type":"storageUpdated","probe":"probe-a","n":%d}`, n) // a type that @liveblocks/node knows
}

func tampered(r *signature.Request) *signature.Request {
	other := *r
	other.Body = bytes.Replace(r.Body, []byte("probe-a"), []byte("probe-b"), 1)
	return &other
}

func postSigned(t *testing.T, r *signature.Request) answer {
	t.Helper()
	return post(t, http.MethodPost, r.URL, bytes.NewReader(r.Body), r.Header.Clone())
}

// TestSenders: a running server accepts what the packages of senders sign, and the
// packages accept what `triphammer send` would send. Neither accepts a body with one
// changed byte, or a signature by another key (SPEC 6.3).
func TestSenders(t *testing.T) {
	t.Parallel()
	senders := startSenders(t)
	var schemes []string
	for _, s := range senders {
		if !slices.Contains(schemes, s.Scheme) {
			schemes = append(schemes, s.Scheme)
		}
	}
	const perFactory = 20 // the format's limit of webhooks
	for group := range slices.Chunk(schemes, perFactory) {
		files := map[string]string{"factory.yaml": factoryYAML, "environments/env.yaml": "command: ['true']\n"}
		held := make(map[string]keys)
		for _, name := range group {
			scheme, ok := signature.Lookup(name)
			if !ok {
				t.Fatalf("there is no scheme %s", name)
			}
			held[name] = newKeys(t, scheme)
			file := strings.ReplaceAll(name, "_", "-")
			files["webhooks/"+file+".yaml"] = "secretName: " + strings.ToUpper(name) + "\nauthMode: signature\nsignatureScheme: " + name + "\n"
			if len(files) == 3 {
				files["automations/a.md"] = automationFile(file, "")
			}
		}
		w := newWorld(t, files)
		for name, k := range held {
			w.run(k.held, "secrets", "set", strings.ToUpper(name))
		}
		w.start()
		var hooks []api.Webhook
		w.list(&hooks, "webhooks", "list")
		address := make(map[string]string)
		for _, hook := range hooks {
			address[hook.SignatureScheme] = hook.URL
		}
		for _, s := range senders {
			if k, ours := held[s.Scheme]; ours {
				t.Run(s.Scheme+"/"+strings.ReplaceAll(s.Package, "/", "."), func(t *testing.T) {
					s.prove(t, address[s.Scheme], k)
				})
			}
		}
		w.kill()
	}
	if t.Failed() {
		return
	}
	page := sendersPage(senders)
	const path = "../../docs/interop.md"
	if *update {
		if err := os.WriteFile(path, page, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if have, err := os.ReadFile(path); err != nil || !bytes.Equal(have, page) {
		t.Errorf("%s is not what was proven now (%v); write it: go test -tags full ./cmd/triphammer -run Senders -update", path, err)
	}
}

// startSenders starts the programs that run the packages.
func startSenders(t *testing.T) []*sender {
	t.Helper()
	program := filepath.Join(t.TempDir(), "interop")
	build := exec.Command("go", "build", "-o", program, ".")
	build.Dir = "../../testdata/interop-go"
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var all []*sender
	for _, p := range []*peer{
		startPeer(t, "../../testdata/npm/senders", "node", "senders.mjs"),
		startPeer(t, ".", program),
	} {
		var list []*sender
		p.ask(t, question{Op: "list"}, &list)
		for _, s := range list {
			s.peer = p
			all = append(all, s)
		}
	}
	packages := make(map[string]bool)
	for _, s := range all {
		packages[s.Package] = true
	}
	if len(packages) < 50 {
		t.Fatalf("only %d packages", len(packages))
	}
	return all
}

var probes int

func (s *sender) prove(t *testing.T, address string, k keys) {
	scheme, _ := signature.Lookup(s.Scheme)
	wrong := newKeys(t, scheme)
	ours := func(secret string) *signature.Request {
		probes++
		r := &signature.Request{Method: http.MethodPost, URL: address, Header: http.Header{}, Body: []byte(probe(s.Scheme, probes)), Now: time.Now()}
		r.Header.Set("Content-Type", "application/json")
		for name, value := range s.Headers {
			r.Header.Set(name, value)
		}
		if err := scheme.Sign(secret, r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	theirs := func(secret string) *signature.Request {
		probes++
		return s.sign(t, secret, address, probe(s.Scheme, probes))
	}
	accepted := func(what string, r *signature.Request) {
		if got := postSigned(t, r); got.status != http.StatusAccepted {
			t.Errorf("%s: %d %s", what, got.status, got.body)
		}
	}
	refused := func(what string, r *signature.Request) {
		if got := postSigned(t, r); got.status != http.StatusUnauthorized {
			t.Errorf("%s: %d %s", what, got.status, got.body)
		}
	}
	covered := scheme.BindsBody() || s.Scheme == "adyen" // which signs the field that is changed
	if s.Signs {
		genuine := theirs(k.signing)
		accepted("what it signs", genuine)
		if covered {
			refused("what it signs, changed", tampered(genuine))
		}
		refused("what it signs with another key", theirs(wrong.signing))
	}
	if s.Verifies {
		// What is genuine comes first: some signatures last for seconds.
		genuine := ours(k.signing)
		if ok, why := s.verify(t, k.held, genuine); !ok {
			t.Errorf("it refuses what we sign: %s", why)
		}
		accepted("what it verifies", genuine)
		if covered {
			refused("what it verifies, changed", tampered(genuine))
		}
		if ok, _ := s.verify(t, k.held, tampered(genuine)); ok != s.Blind {
			t.Errorf("of a changed body it says %v", ok)
		}
		forged := ours(wrong.signing)
		if ok, _ := s.verify(t, k.held, forged); ok {
			t.Error("it accepts another key: the question proves nothing")
		}
		refused("what is signed with another key", forged)
	}
}

// sendersPage is docs/interop.md.
func sendersPage(senders []*sender) []byte {
	slices.SortStableFunc(senders, func(a, b *sender) int { return strings.Compare(a.Scheme, b.Scheme) })
	packages, schemes := make(map[string]bool), make(map[string]bool)
	for _, s := range senders {
		packages[s.Package], schemes[s.Scheme] = true, true
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, `# Proven against the senders' own packages

A test sends real requests between a running server and %d packages of %d schemes. It also makes this page
(`+"`go test -tags full ./cmd/triphammer -run Senders -update`"+`). Each row is a package that passed:

- **signs**: the package signs a request, and the server accepts it with 202.
- **verifies**: the package can only verify. The package and the server both accept a request that this program signs as `+"`triphammer send`"+` does.

In both cases the server answers 401 to two forged requests. The first is signed with another key. The second has one changed byte in the body; it is left out for a scheme that
does not cover the body. A package that verifies refuses both requests too, but a package marked *not the body* refuses only the first: it does not look at the body.

The senders publish the packages themselves, except `+"`discordgo`, `slack-go` and `go-github`"+`, which other people publish. [schemes.md](schemes.md) says what each scheme covers.

| scheme | package | version | proof |
| --- | --- | --- | --- |
`, len(packages), len(schemes))
	for _, s := range senders {
		proof := "verifies"
		if s.Signs {
			proof = "signs"
		}
		if s.Blind {
			proof += ", not the body"
		}
		if scheme, _ := signature.Lookup(s.Scheme); !scheme.BindsBody() {
			proof += "; the scheme does not cover the whole body"
		}
		registry := "npm"
		if strings.HasPrefix(s.Package, "github.com/") {
			registry = "Go"
		}
		fmt.Fprintf(&b, "| `%s` | %s `%s` | %s | %s |\n", s.Scheme, registry, s.Package, s.Version, proof)
	}
	return b.Bytes()
}
