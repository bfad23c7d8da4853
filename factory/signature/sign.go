package signature

import (
	"crypto"
	"crypto/hmac"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// Sign signs the request as a genuine sender would. It sets an id if there is none, the
// timestamp of r.Now, the signature, and other signed headers that the request lacks. It
// makes r.Header if that is nil. If the scheme puts its proof into the body or the URL, Sign
// changes r.Body or r.URL. For an asymmetric scheme, the secret is the private key. The error
// is a *SecretError, or says what the body lacks.
func (s *Scheme) Sign(secret string, r *Request) error {
	if _, err := s.check(secret); err != nil && !s.asymmetric() {
		return err
	}
	if r.Header == nil {
		r.Header = http.Header{}
	}
	for _, name := range s.Identity {
		if r.Header.Get(name) == "" {
			r.Header.Set(name, strings.ToLower(rand.Text()))
		}
	}
	form := s.Forms[0]
	switch s.Algorithm {
	case Basic:
		r.Header.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(secret)))
		return nil
	case Token:
		if form.Field != "" {
			return s.intoBody(r, form.Field, secret)
		}
		r.Header.Set(form.Signature, s.Parse.Prefix+secret)
		return nil
	}
	var key []byte
	var private crypto.Signer
	var err error
	if s.asymmetric() {
		private, err = s.privateKey(secret)
	} else {
		key, err = s.key(secret)
	}
	switch {
	case err != nil:
		return err
	case s.code != nil:
		return s.code.sign(s, key, r)
	case s.JWT != nil:
		s.signJWT(key, r)
		return nil
	}
	return s.signTemplate(key, private, r)
}

// SenderHasKey tells whether the sender signs with a private key. Then the secret of the
// webhook is the public key, which proves nothing by itself.
func (s *Scheme) SenderHasKey() bool { return s.asymmetric() }

// SecretInBody tells whether the sender puts the secret itself into the body.
func (s *Scheme) SecretInBody() bool { return s.Algorithm == Token && s.Forms[0].Field != "" }

// SecretFrom makes a secret that suits the scheme from a random text of letters and
// digits, whose length is a multiple of 4. It is empty for an asymmetric scheme, whose
// secret belongs to a key of the sender.
func (s *Scheme) SecretFrom(random string) string {
	switch {
	case s.Algorithm == Basic:
		return "sender:" + random
	case s.Key == KeyHex && !s.asymmetric():
		return hex.EncodeToString([]byte(random))
	}
	return random // base64 too
}

// signTemplate signs as a row says.
func (s *Scheme) signTemplate(key []byte, private crypto.Signer, r *Request) error {
	newHash := s.Algorithm.digest()
	if private == nil {
		newHash = s.Algorithm.keyed(key)
	}
	e := newEngine(s, newHash, hmac.Equal)
	e.secret = string(key)
	form := s.Forms[0]
	var p presented
	if form.ID != "" {
		if p.id = r.Header.Get(form.ID); p.id == "" {
			p.id = "msg_" + rand.Text()
			r.Header.Set(form.ID, p.id)
		}
	}
	ts := s.Time.format(r.Now)
	if s.TimeField != "" {
		if err := s.intoBody(r, s.TimeField, json.Number(ts)); err != nil {
			return err
		}
	}
	for _, part := range e.template {
		if name, ok := strings.CutPrefix(part.variable, headerVariable); ok && r.Header.Get(name) == "" {
			r.Header.Set(name, strings.ToLower(rand.Text()))
		}
		if path, ok := strings.CutPrefix(part.variable, fieldVariable); ok {
			if _, there := field(r.Body, path); !there {
				if err := s.intoBody(r, path, rand.Text()); err != nil {
					return err
				}
			}
		}
	}
	if strings.Contains(s.Template, "{ts}") {
		p.ts = ts
	}
	sum, bad := e.states.Get().(*state).compute(e, &p, r)
	if bad != nil {
		return bad
	}
	if private != nil {
		hashed := crypto.SHA256
		if s.Algorithm == Ed25519 {
			hashed = crypto.Hash(0)
		}
		var err error
		if sum, err = private.Sign(rand.Reader, sum, hashed); err != nil {
			return err
		}
	}
	signature := s.Parse.Prefix + s.Encoding.encode(sum)
	switch {
	case form.Field != "":
		return s.intoBody(r, form.Field, signature)
	case s.Parse.TimestampFirst:
		signature = p.ts + s.Parse.Separator + signature
	case s.Parse.TimestampKey != "":
		signature = s.Parse.TimestampKey + p.ts + s.Parse.Separator + signature
	}
	if form.Timestamp != "" {
		r.Header.Set(form.Timestamp, p.ts)
	}
	r.Header.Set(form.Signature, signature)
	return nil
}

// intoBody writes a value to a path of the body.
func (s *Scheme) intoBody(r *Request, path string, value any) error {
	encoded, err := json.Marshal(value)
	if err != nil {
		return err
	}
	r.Body = withField(r.Body, strings.Split(path, "."), encoded)
	if _, ok := fields(r.Body, path); !ok {
		return fmt.Errorf("%s carries %s in the body, which must be a JSON object for that", s.Name, path)
	}
	return nil
}
