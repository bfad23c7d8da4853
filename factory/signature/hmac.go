package signature

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"hash"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Verifier compiles the scheme with a secret. The error is a *SecretError.
func (s *Scheme) Verifier(secret string) (*Verifier, error) {
	key, err := s.key(secret)
	if err != nil {
		return nil, err
	}
	e := &engine{scheme: s, template: parseTemplate(s.Template)}
	newHash := s.Algorithm.hash()
	e.states.New = func() any { return &state{mac: hmac.New(newHash, key)} }
	return &Verifier{name: s.Name, needsBody: true, check: e.verify}, nil
}

func (s *Scheme) key(secret string) ([]byte, error) {
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
	default:
		return []byte(secret), nil
	}
	if err != nil || len(key) == 0 { // err quotes a byte of the secret
		return nil, &SecretError{"is not " + string(s.Key) + ", as " + s.Name + " wants it; copy it whole from the sender"}
	}
	return key, nil
}

func (a Algorithm) hash() func() hash.Hash {
	switch a {
	case HMACSHA1:
		return sha1.New
	case HMACSHA512:
		return sha512.New
	}
	return sha256.New
}

// engine verifies the requests of one row with one key.
type engine struct {
	scheme   *Scheme
	template []part
	states   sync.Pool // of *state: the key schedule is computed once per state
}

// state is what one verification works with.
type state struct {
	mac     hash.Hash
	sum     [64]byte
	decoded [64]byte
	buf     []byte
}

// part is a piece of a template: a literal, or the name of a variable.
type part struct{ literal, variable string }

// headerVariable begins the variables that stand for a request header.
const headerVariable = "h:"

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

// presented is what a request puts forward as its proof.
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
	if err := e.present(r, &p); err != nil {
		return err
	}
	if p.n == 0 {
		return failure(SignatureMismatch, "no signature of the form that %s sends", e.scheme.Name)
	}
	st := e.states.Get().(*state)
	defer e.states.Put(st)
	want := st.compute(e.template, &p, r)
	matched := false
	for i := range p.n { // all of them, whichever matches
		if got, ok := st.decode(e.scheme.Encoding, p.candidate(i)); ok && hmac.Equal(got, want) {
			matched = true
		}
	}
	if !matched {
		return failure(SignatureMismatch, "none of %d signatures is of this body with the webhook's secret", p.n)
	}
	if e.scheme.Tolerance == 0 {
		return nil
	}
	return e.checkAge(p.ts, r.Now)
}

// present reads the headers of the first form that is there.
func (e *engine) present(r *Request, p *presented) *Error {
	form := e.scheme.Forms[0]
	for _, f := range e.scheme.Forms {
		if r.Header.Get(f.Signature) != "" {
			form = f
			break
		}
	}
	value, err := one(r.Header, form.Signature)
	if err != nil {
		return err
	}
	if form.Timestamp != "" {
		if p.ts, err = one(r.Header, form.Timestamp); err != nil {
			return err
		}
	}
	if form.ID != "" {
		if p.id, err = e.presentID(r.Header, form); err != nil {
			return err
		}
	}
	for _, part := range e.template {
		if name, ok := strings.CutPrefix(part.variable, headerVariable); ok {
			if _, err := one(r.Header, name); err != nil {
				return err
			}
		}
	}
	return e.split(form.Signature, value, p)
}

// presentID reads the id that the signature covers.
func (e *engine) presentID(h http.Header, form Form) (string, *Error) {
	id, err := one(h, form.ID)
	if err != nil {
		return "", err
	}
	// A dot would let the border between id and timestamp move.
	if strings.Contains(id, ".") {
		return "", failure(HeaderMalformed, "%s holds a dot", form.ID)
	}
	// The id header of another form is not signed. Were it another id, a captured
	// request could be sent again under a name that was never seen.
	for _, f := range e.scheme.Forms {
		for _, other := range h[http.CanonicalHeaderKey(f.ID)] {
			if other != id && other != "" {
				return "", failure(HeaderMalformed, "%s is not the id that is signed", f.ID)
			}
		}
	}
	return id, nil
}

// split reads the signature header: one value, or a list in which unknown and
// malformed items are skipped.
func (e *engine) split(header, value string, p *presented) *Error {
	parse := e.scheme.Parse
	for more := true; more; {
		item := value
		if more = false; parse.Separator != "" {
			item, value, more = strings.Cut(value, parse.Separator)
			item = strings.TrimSpace(item)
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
				return failure(HeaderMalformed, "%s has more than %d signatures", header, maxCandidates)
			}
			p.add(signature)
		}
	}
	if parse.TimestampKey != "" && p.ts == "" {
		return failure(HeaderMalformed, "%s has no timestamp", header)
	}
	return nil
}

// compute is the signature that the request should have. Its headers were
// checked before.
func (st *state) compute(template []part, p *presented, r *Request) []byte {
	st.mac.Reset()
	for _, part := range template {
		text := part.literal
		switch part.variable {
		case "":
		case "body":
			st.mac.Write(r.Body)
			continue
		case "ts":
			text = p.ts
		case "id":
			text = p.id
		case "method":
			text = r.Method
		case "url":
			text = r.URL
		default:
			text = r.Header.Get(strings.TrimPrefix(part.variable, headerVariable))
		}
		st.buf = append(st.buf[:0], text...)
		st.mac.Write(st.buf)
	}
	return st.mac.Sum(st.sum[:0])
}

// decode reads a candidate; what it returns is valid until the next call.
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
	n, err := text64.Strict().Decode(st.decoded[:], st.buf)
	return st.decoded[:n], err == nil
}

// encode is the inverse of decode.
func (enc Encoding) encode(sum []byte) string {
	switch enc {
	case Base64:
		return base64.StdEncoding.EncodeToString(sum)
	case Base64URL:
		return base64.RawURLEncoding.EncodeToString(sum)
	}
	return hex.EncodeToString(sum)
}

func (e *engine) checkAge(ts string, now time.Time) *Error {
	at, ok := e.scheme.Time.parse(ts)
	if !ok {
		return failure(HeaderMalformed, "the timestamp is not %s", e.scheme.Time.words())
	}
	tolerance := e.scheme.Tolerance
	switch age := now.Sub(at); {
	case age > tolerance:
		return failure(TimestampTooOld, "signed %s ago, at most %s", age.Round(time.Second), tolerance)
	case age < -tolerance:
		return failure(TimestampInFuture, "signed for %s from now, at most %s", age.Abs().Round(time.Second), tolerance)
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
	if f == UnixMillis {
		return time.UnixMilli(n), true
	}
	return time.Unix(n, 0), true
}

func (f TimeFormat) format(at time.Time) string {
	switch f {
	case RFC3339:
		return at.UTC().Format(time.RFC3339)
	case UnixMillis:
		return strconv.FormatInt(at.UnixMilli(), 10)
	}
	return strconv.FormatInt(at.Unix(), 10)
}

func (f TimeFormat) words() string {
	switch f {
	case RFC3339:
		return "in the form of RFC 3339"
	case UnixMillis:
		return "in whole milliseconds"
	}
	return "in whole seconds"
}

// Sign sets the headers that a genuine sender would set on the request: its id
// if it has none, the timestamp of r.Now, and the signature. It makes r.Header
// if that is nil. The error is a *SecretError, or says which header the scheme
// signs but the request lacks.
func (s *Scheme) Sign(secret string, r *Request) error {
	key, err := s.key(secret)
	if err != nil {
		return err
	}
	template := parseTemplate(s.Template)
	for _, part := range template {
		if name, ok := strings.CutPrefix(part.variable, headerVariable); ok && r.Header.Get(name) == "" {
			return fmt.Errorf("%s signs the header %s, which the request lacks", s.Name, name)
		}
	}
	if r.Header == nil {
		r.Header = http.Header{}
	}
	form := s.Forms[0]
	var p presented
	if form.ID != "" {
		if p.id = r.Header.Get(form.ID); p.id == "" {
			p.id = "msg_" + rand.Text()
			r.Header.Set(form.ID, p.id)
		}
	}
	for _, name := range s.Identity {
		if r.Header.Get(name) == "" {
			r.Header.Set(name, strings.ToLower(rand.Text()))
		}
	}
	if form.Timestamp != "" || s.Parse.TimestampKey != "" {
		p.ts = s.Time.format(r.Now)
	}
	st := &state{mac: hmac.New(s.Algorithm.hash(), key)}
	signature := s.Parse.Prefix + s.Encoding.encode(st.compute(template, &p, r))
	if form.Timestamp != "" {
		r.Header.Set(form.Timestamp, p.ts)
	}
	if s.Parse.TimestampKey != "" {
		signature = s.Parse.TimestampKey + p.ts + s.Parse.Separator + signature
	}
	r.Header.Set(form.Signature, signature)
	return nil
}
