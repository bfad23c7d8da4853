package signature

import (
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"hash"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/text/unicode/norm"
)

// Verifier compiles the scheme with a secret. For an asymmetric scheme, the secret is
// the sender's public key. If the secret does not suit, the error is a *SecretError.
func (s *Scheme) Verifier(secret string) (*Verifier, error) {
	check, err := s.check(secret)
	if err != nil {
		return nil, err
	}
	if s.FormAdvice != "" {
		check = s.refuseForms(check)
	}
	return &Verifier{name: s.Name, needsBody: s.readsBody(), check: check, challenge: s.challenger(secret)}, nil
}

// refuseForms gives an HTML form a reason of its own. The sender signs forms in another
// way, so a genuine form would look forged.
func (s *Scheme) refuseForms(check func(*Request) *Error) func(*Request) *Error {
	return func(r *Request) *Error {
		err := check(r)
		if err == nil || err.Reason != SignatureMismatch {
			return err
		}
		kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
		if kind != "application/x-www-form-urlencoded" && kind != "multipart/form-data" {
			return err
		}
		return failure(FormBody, "the body is a form, which %s signs in another way and which is no JSON: no form can be accepted here; %s", s.Provider, s.FormAdvice)
	}
}

func (s *Scheme) check(secret string) (func(*Request) *Error, error) {
	switch {
	case s.Algorithm == Basic:
		return s.basic(secret)
	case s.Algorithm == Token:
		return s.token(secret)
	case s.asymmetric():
		verify, err := s.publicKey(secret)
		if err != nil {
			return nil, err
		}
		return newEngine(s, s.Algorithm.digest(), verify).verify, nil
	}
	key, err := s.key(secret)
	if err != nil {
		return nil, err
	}
	switch {
	case s.code != nil:
		return func(r *Request) *Error { return s.code.verify(s, key, r) }, nil
	case s.JWT != nil:
		return s.verifyJWT(key), nil
	}
	e := newEngine(s, s.Algorithm.keyed(key), hmac.Equal)
	e.secret = string(key)
	return e.verify, nil
}

// key is the key that a shared secret encodes.
func (s *Scheme) key(secret string) ([]byte, error) {
	if secret == s.Refused && secret != "" {
		return nil, &SecretError{"is the public one of " + s.Provider + "'s test deliveries"}
	}
	for _, prefix := range s.KeyPrefixes {
		if rest, ok := strings.CutPrefix(secret, prefix); ok {
			secret = rest
			break
		}
	}
	if strings.TrimSpace(secret) == "" {
		return nil, &SecretError{"is empty"}
	}
	var key []byte
	var err error
	switch s.Key {
	case KeyBase64:
		key, err = base64.RawStdEncoding.DecodeString(strings.TrimRight(secret, "="))
	case KeyHex:
		key, err = hex.DecodeString(secret)
	case KeyNFKD:
		return norm.NFKD.Bytes([]byte(secret)), nil
	default:
		return []byte(secret), nil
	}
	if err != nil || len(key) == 0 { // err quotes a byte of the secret
		return nil, &SecretError{"is not " + string(s.Key) + ", as " + s.Name + " wants it; copy it whole from the sender"}
	}
	return key, nil
}

// keyed makes the hash that computes the proof.
func (a Algorithm) keyed(key []byte) func() hash.Hash {
	switch a {
	case HMACSHA1:
		return func() hash.Hash { return hmac.New(sha1.New, key) }
	case HMACSHA512:
		return func() hash.Hash { return hmac.New(sha512.New, key) }
	case SHA1:
		return sha1.New
	case SHA256:
		return sha256.New
	}
	return func() hash.Hash { return hmac.New(sha256.New, key) }
}

// engine verifies the requests of one row with one key.
type engine struct {
	scheme   *Scheme
	template []part
	secret   string                           // only for a plain digest
	equal    func(signature, sum []byte) bool // in constant time where that matters
	states   sync.Pool                        // of *state: the key schedule is computed once per state
}

func newEngine(s *Scheme, newHash func() hash.Hash, equal func(signature, sum []byte) bool) *engine {
	e := &engine{scheme: s, template: parseTemplate(s.Template), equal: equal}
	e.states.New = func() any { return &state{hash: newHash()} }
	return e
}

// state is what one verification works with.
type state struct {
	hash    hash.Hash
	sum     []byte
	decoded [maxSignature]byte
	buf     []byte
}

// maxSignature is the length in bytes of the longest signature that is read: RSA with 8192
// bits.
const maxSignature = 1024

// maxGroups limits the lists of one header that each have their own timestamp.
const maxGroups = 8

// part is a piece of a template: a literal, or the name of a variable.
type part struct{ literal, variable string }

// Prefixes of the variables for a request header and for a field of the body.
const (
	headerVariable = "h:"
	fieldVariable  = "json:"
)

func parseTemplate(template string) []part {
	var parts []part
	for template != "" {
		literal, rest, found := strings.Cut(template, "{")
		if literal != "" {
			parts = append(parts, part{literal: literal})
		}
		if !found {
			break
		}
		var variable string
		variable, template, _ = strings.Cut(rest, "}")
		parts = append(parts, part{variable: variable})
	}
	return parts
}

// presented is the proof that a request presents.
type presented struct {
	id, ts     string
	candidates [8]string // the usual few, without allocation
	more       []string
	n          int
}

func (p *presented) add(candidate string) {
	if p.n < len(p.candidates) {
		p.candidates[p.n] = candidate
	} else {
		p.more = append(p.more, candidate)
	}
	p.n++
}

func (p *presented) candidate(i int) string {
	if i < len(p.candidates) {
		return p.candidates[i]
	}
	return p.more[i-len(p.candidates)]
}

func (e *engine) verify(r *Request) *Error {
	var p presented
	form, err := e.present(r, &p)
	if err != nil {
		return err
	}
	if form.Field != "" {
		value, ok := field(r.Body, form.Field)
		if !ok {
			return failure(HeaderMissing, "the body has no %s", form.Field)
		}
		p.add(value)
		return e.prove(r, &p)
	}
	if group := e.scheme.Parse.Group; group != "" {
		return e.verifyGroups(r, form, p)
	}
	found := false
	for i := range 1 + len(form.Also) {
		name := form.Signature
		if i > 0 {
			name = form.Also[i-1]
		}
		if values := r.Header[name]; len(form.Also) > 0 && (len(values) == 0 || len(values) == 1 && values[0] == "") {
			continue
		}
		value, err := one(r.Header, name)
		if err != nil {
			return err
		}
		if err := e.split(name, value, &p); err != nil {
			return err
		}
		found = true
	}
	if !found {
		return failure(HeaderMissing, "%s", form.Signature)
	}
	return e.prove(r, &p)
}

// verifyGroups reads a header of several lists, one for each key of the sender.
func (e *engine) verifyGroups(r *Request, form *Form, empty presented) *Error {
	value, err := one(r.Header, form.Signature)
	if err != nil {
		return err
	}
	if strings.Count(value, e.scheme.Parse.Group) >= maxGroups {
		return failure(HeaderMalformed, "%s has more than %d groups", form.Signature, maxGroups)
	}
	for group := range strings.SplitSeq(value, e.scheme.Parse.Group) {
		p := empty
		if err = e.split(form.Signature, group, &p); err == nil {
			err = e.prove(r, &p)
		}
		if err == nil {
			return nil
		}
	}
	return err
}

// prove compares the proof that a request presents with the expected one.
func (e *engine) prove(r *Request, p *presented) *Error {
	if p.n == 0 {
		return failure(SignatureMismatch, "no signature of the form that %s sends", e.scheme.Name)
	}
	st := e.states.Get().(*state)
	defer e.states.Put(st)
	sum, err := st.compute(e, p, r)
	if err != nil {
		return err
	}
	matched := false
	for i := range p.n { // all of them, for constant time
		if got, ok := st.decode(e.scheme.Encoding, p.candidate(i)); ok && e.equal(got, sum) {
			matched = true
		}
	}
	if !matched {
		if p.n == 1 {
			return failure(SignatureMismatch, "the signature is not that of this request with the webhook's secret")
		}
		return failure(SignatureMismatch, "none of the %d signatures is that of this request with the webhook's secret", p.n)
	}
	if e.scheme.Tolerance == 0 {
		return nil
	}
	if e.scheme.TimeField != "" {
		p.ts, _ = field(r.Body, e.scheme.TimeField)
	}
	return e.scheme.checkAge(p.ts, r.Now)
}

// present reads the headers of the first form that the request has, except for its
// signature.
func (e *engine) present(r *Request, p *presented) (form *Form, err *Error) {
	form = &e.scheme.Forms[0]
	for i := range e.scheme.Forms {
		if f := &e.scheme.Forms[i]; f.Signature != "" && len(r.Header[f.Signature]) > 0 {
			form = f
			break
		}
	}
	if form.Signature != "" && len(form.Also) == 0 { // report the first missing header
		if _, err := one(r.Header, form.Signature); err != nil {
			return nil, err
		}
	}
	if form.Timestamp != "" {
		if p.ts, err = one(r.Header, form.Timestamp); err != nil {
			return nil, err
		}
	}
	if form.ID != "" {
		if p.id, err = e.presentID(r.Header, form); err != nil {
			return nil, err
		}
	}
	for _, part := range e.template {
		if name, ok := strings.CutPrefix(part.variable, headerVariable); ok {
			if _, err := one(r.Header, name); err != nil {
				return nil, err
			}
		}
	}
	return form, nil
}

// presentID reads the id that the signature covers.
func (e *engine) presentID(h http.Header, form *Form) (string, *Error) {
	id, err := one(h, form.ID)
	if err != nil {
		return "", err
	}
	// With a dot in the id, the boundary between id and timestamp would be ambiguous.
	if strings.Contains(id, ".") {
		return "", failure(HeaderMalformed, "%s holds a dot", form.ID)
	}
	// This form does not sign the id header of another form. If that header had another id,
	// somebody could send a captured request again under a new identity.
	for _, f := range e.scheme.Forms {
		for _, other := range h[f.ID] {
			if other != id && other != "" {
				return "", failure(HeaderMalformed, "%s is not the id that is signed", f.ID)
			}
		}
	}
	return id, nil
}

// split reads the signature header: one value, or a list. It skips unknown and malformed
// items of a list.
func (e *engine) split(header, value string, p *presented) *Error {
	parse := &e.scheme.Parse
	wantsTime := parse.TimestampKey != "" || parse.TimestampFirst
	for i, more := 0, true; more; i++ {
		item := value
		if more = false; parse.Separator != "" {
			item, value, more = strings.Cut(value, parse.Separator)
			item = strings.TrimRight(strings.TrimSpace(item), parse.Trim)
		}
		if parse.TimestampFirst && i == 0 {
			p.ts = item
			continue
		}
		if parse.TimestampKey != "" {
			if ts, ok := strings.CutPrefix(item, parse.TimestampKey); ok {
				if p.ts != "" {
					return failure(HeaderMalformed, "%s has two timestamps", header)
				}
				p.ts = ts
				continue
			}
		}
		if signature, ok := strings.CutPrefix(item, parse.Prefix); ok && signature != "" {
			if p.n == maxCandidates {
				return failure(HeaderMalformed, "more than %d signatures", maxCandidates)
			}
			p.add(signature)
		}
	}
	if wantsTime && p.ts == "" {
		return failure(HeaderMalformed, "%s has no timestamp", header)
	}
	return nil
}

// compute is the digest that the request's signature should prove. It is valid until the
// next call. present has checked the headers.
func (st *state) compute(e *engine, p *presented, r *Request) ([]byte, *Error) {
	st.hash.Reset()
	for _, part := range e.template {
		text := part.literal
		switch part.variable {
		case "":
		case "body":
			st.hash.Write(r.Body)
			continue
		case "ts":
			text = p.ts
		case "id":
			text = p.id
		case "method":
			text = r.Method
		case "url":
			text = r.URL
		case "base":
			text, _, _ = strings.Cut(r.URL, "?")
		case "secret":
			text = e.secret
		default:
			if path, ok := strings.CutPrefix(part.variable, fieldVariable); ok {
				if text, ok = field(r.Body, path); !ok {
					return nil, failure(HeaderMissing, "the body has no %s", path)
				}
				break
			}
			text = r.Header.Get(strings.TrimPrefix(part.variable, headerVariable))
		}
		st.buf = append(st.buf[:0], text...)
		st.hash.Write(st.buf)
	}
	st.sum = st.hash.Sum(st.sum[:0])
	return st.sum, nil
}

// decode reads a candidate. The result is valid until the next call.
func (st *state) decode(enc Encoding, text string) ([]byte, bool) {
	text64 := base64.RawStdEncoding
	switch enc {
	case Base64URL:
		text64 = base64.RawURLEncoding
	case Hex:
		if hex.DecodedLen(len(text)) > len(st.decoded) {
			return nil, false
		}
		st.buf = append(st.buf[:0], text...)
		n, err := hex.Decode(st.decoded[:], st.buf)
		return st.decoded[:n], err == nil
	}
	text = strings.TrimRight(text, "=")
	if text64.DecodedLen(len(text)) > len(st.decoded) {
		return nil, false
	}
	st.buf = append(st.buf[:0], text...)
	// The decoders skip line breaks. A header has no line break, but a field of a body may.
	if slices.Contains(st.buf, '\n') || slices.Contains(st.buf, '\r') {
		return nil, false
	}
	n, err := text64.Strict().Decode(st.decoded[:], st.buf)
	return st.decoded[:n], err == nil
}

func (enc Encoding) encode(sum []byte) string {
	switch enc {
	case Base64:
		return base64.StdEncoding.EncodeToString(sum)
	case Base64URL:
		return base64.RawURLEncoding.EncodeToString(sum)
	}
	return hex.EncodeToString(sum)
}

func (s *Scheme) checkAge(ts string, now time.Time) *Error {
	at, ok := s.Time.parse(ts)
	if !ok {
		return failure(HeaderMalformed, "the timestamp is not %s", s.Time.words())
	}
	switch age := now.Sub(at); {
	case age > s.Tolerance:
		return failure(TimestampTooOld, "signed %s ago, at most %s", age.Round(time.Second), s.Tolerance)
	case age < -s.Tolerance:
		return failure(TimestampInFuture, "signed for %s from now, at most %s", age.Abs().Round(time.Second), s.Tolerance)
	}
	return nil
}

func (f TimeFormat) parse(text string) (time.Time, bool) {
	if f == RFC3339 {
		at, err := time.Parse(time.RFC3339, text)
		return at, err == nil
	}
	// ParseInt would take a sign; 14 digits of milliseconds last to the year 5138.
	if text == "" || len(text) > 14 || strings.Trim(text, "0123456789") != "" {
		return time.Time{}, false
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, false
	}
	if f == UnixMillis || f == UnixAuto && len(text) >= 12 {
		return time.UnixMilli(n), true
	}
	return time.Unix(n, 0), true
}

func (f TimeFormat) format(at time.Time) string {
	switch f {
	case RFC3339:
		return at.UTC().Format(time.RFC3339)
	case UnixMillis, UnixAuto:
		return strconv.FormatInt(at.UnixMilli(), 10)
	}
	return strconv.FormatInt(at.Unix(), 10)
}

func (f TimeFormat) words() string {
	if f == RFC3339 {
		return "in the form of RFC 3339"
	}
	return "in whole " + string(f)
}
