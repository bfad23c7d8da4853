package signature

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"hash"
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
	text := strings.TrimPrefix(secret, s.KeyPrefix)
	if strings.TrimSpace(text) == "" {
		return nil, &SecretError{"is empty"}
	}
	if s.Key != KeyBase64 {
		return []byte(text), nil
	}
	key, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(text, "="))
	if err != nil || len(key) == 0 {
		return nil, &SecretError{"is not base64, as " + s.Name + " wants it (" + s.KeyPrefix + "…)"}
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

type state struct {
	mac     hash.Hash
	sum     [64]byte
	decoded [64]byte
	buf     []byte
}

// part is a piece of a template: a literal, or one of {body}, {ts} and {id}.
type part struct{ literal, variable string }

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
	want := st.compute(e.template, &p, r.Body)
	matched := false
	for i := range p.n {
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
		if p.id, err = one(r.Header, form.ID); err != nil {
			return err
		}
		// A dot would let the border between id and timestamp move.
		if strings.Contains(p.id, ".") {
			return failure(HeaderMalformed, "%s holds a dot", form.ID)
		}
	}
	return e.split(form.Signature, value, p)
}

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

func (st *state) compute(template []part, p *presented, body []byte) []byte {
	st.mac.Reset()
	for _, part := range template {
		switch part.variable {
		case "body":
			st.mac.Write(body)
			continue
		case "ts":
			st.buf = append(st.buf[:0], p.ts...)
		case "id":
			st.buf = append(st.buf[:0], p.id...)
		default:
			st.buf = append(st.buf[:0], part.literal...)
		}
		st.mac.Write(st.buf)
	}
	return st.mac.Sum(st.sum[:0])
}

// decode reads a signature in hex of any case or base64 with or without padding.
func (st *state) decode(enc Encoding, text string) ([]byte, bool) {
	if enc == Base64 {
		text = strings.TrimRight(text, "=")
		if base64.RawStdEncoding.DecodedLen(len(text)) > len(st.decoded) {
			return nil, false
		}
		st.buf = append(st.buf[:0], text...)
		n, err := base64.RawStdEncoding.Strict().Decode(st.decoded[:], st.buf)
		return st.decoded[:n], err == nil
	}
	if hex.DecodedLen(len(text)) > len(st.decoded) {
		return nil, false
	}
	st.buf = append(st.buf[:0], text...)
	n, err := hex.Decode(st.decoded[:], st.buf)
	return st.decoded[:n], err == nil
}

func (e *engine) checkAge(ts string, now time.Time) *Error {
	seconds, ok := parseSeconds(ts)
	if !ok {
		return failure(HeaderMalformed, "the timestamp is not in whole seconds")
	}
	switch age := now.Sub(time.Unix(seconds, 0)); {
	case age > e.scheme.Tolerance:
		return failure(TimestampTooOld, "signed %s ago, at most %s", age.Round(time.Second), e.scheme.Tolerance)
	case age < -e.scheme.Tolerance:
		return failure(TimestampInFuture, "signed for %s from now, at most %s", (-age).Round(time.Second), e.scheme.Tolerance)
	}
	return nil
}

func parseSeconds(ts string) (int64, bool) {
	if ts == "" || len(ts) > 12 {
		return 0, false
	}
	for i := range len(ts) {
		if ts[i] < '0' || ts[i] > '9' {
			return 0, false
		}
	}
	n, err := strconv.ParseInt(ts, 10, 64)
	return n, err == nil
}

// Sign sets the headers that a genuine sender would set on the request: its id
// if it has none, the timestamp of r.Now, and the signature.
func (s *Scheme) Sign(secret string, r *Request) error {
	key, err := s.key(secret)
	if err != nil {
		return err
	}
	form := s.Forms[0]
	p := &presented{}
	if s.Tolerance != 0 {
		p.ts = strconv.FormatInt(r.Now.Unix(), 10)
	}
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
	st := &state{mac: hmac.New(s.Algorithm.hash(), key)}
	sum := st.compute(parseTemplate(s.Template), p, r.Body)
	signature := hex.EncodeToString(sum)
	if s.Encoding == Base64 {
		signature = base64.StdEncoding.EncodeToString(sum)
	}
	signature = s.Parse.Prefix + signature
	if form.Timestamp != "" {
		r.Header.Set(form.Timestamp, p.ts)
	}
	if s.Parse.TimestampKey != "" {
		signature = s.Parse.TimestampKey + p.ts + s.Parse.Separator + signature
	}
	r.Header.Set(form.Signature, signature)
	return nil
}
