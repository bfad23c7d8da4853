package signature

import (
	"bytes"
	"cmp"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// JWT is how a sender uses a JSON Web Token (RFC 7519) that is signed with HS256
// and a shared secret. The form's header carries it.
type JWT struct {
	Word         string   // the word that may stand before the token
	Issuer       string   // what iss must be; empty: anything
	URLClaim     string   // the claim that is the webhook's URL
	URLHash      string   // the claim that is the hex SHA-256 of the URL
	BodyHash     string   // the claim that is the SHA-256 of the body; empty: the token does not bind the body
	BodyEncoding Encoding // of BodyHash
	QueryHash    string   // the claim that is Atlassian's hash of method, path and query
	Expires      bool     // exp is required; otherwise iat must be within the row's tolerance
	Keys         bool     // the secret may hold several keys with white space between them: the sender's current and next
}

func (j *JWT) words() string {
	text := "a JSON Web Token, HS256 with the secret as it is"
	if j.Keys {
		text += " (or several keys, with a space between them: the current one and the next)"
	}
	for _, c := range []struct{ claim, is string }{
		{"iss", j.Issuer},
		{j.URLClaim, "the webhook's URL"},
		{j.URLHash, "the hex SHA-256 of the URL"},
		{j.BodyHash, "the " + string(j.BodyEncoding) + " SHA-256 of the body"},
		{j.QueryHash, "the hash of method, path and query"},
	} {
		if c.claim != "" && c.is != "" {
			text += "; `" + c.claim + "` is " + c.is
		}
	}
	if j.BodyHash == "" {
		text += "; the body is not covered"
	}
	return text
}

var raw64 = base64.RawURLEncoding.Strict()

// claims are the parts of a token that matter here.
type claims map[string]json.RawMessage

func (c claims) text(name string) string {
	var text string
	if json.Unmarshal(c[name], &text) != nil {
		return ""
	}
	return text
}

// names tells whether a claim is the text, or a list that contains it (RFC 7519
// 4.1.3).
func (c claims) names(claim, text string) bool {
	var all []string
	if json.Unmarshal(c[claim], &all) == nil {
		return slices.Contains(all, text)
	}
	return c.text(claim) == text
}

// time reads a NumericDate.
func (c claims) time(name string) (at time.Time, there, ok bool) {
	value, there := c[name]
	if !there {
		return time.Time{}, false, true
	}
	seconds, err := strconv.ParseFloat(string(value), 64)
	if err != nil || seconds < 0 || seconds > 1e11 {
		return time.Time{}, true, false
	}
	return time.UnixMilli(int64(seconds * 1000)), true, true
}

func (s *Scheme) verifyJWT(key []byte) func(*Request) *Error {
	keys := [][]byte{key}
	if s.JWT.Keys {
		keys = bytes.Fields(key)
	}
	return func(r *Request) *Error {
		header := s.Forms[0].Signature
		value, err := one(r.Header, header)
		if err != nil {
			return err
		}
		if word, token, ok := strings.Cut(value, " "); ok {
			if s.JWT.Word == "" || !strings.EqualFold(word, s.JWT.Word) {
				return failure(HeaderMalformed, "%s does not hold a token alone", header)
			}
			value = token
		}
		c, err := openJWT(value, keys)
		if err != nil {
			return err
		}
		if err := s.JWT.hold(c, r); err != nil {
			return err
		}
		return s.checkClaimedTimes(c, r.Now)
	}
}

// openJWT returns the content of a token that one of the keys signed.
func openJWT(token string, keys [][]byte) (claims, *Error) {
	malformed := failure(HeaderMalformed, "not a JSON Web Token")
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return nil, malformed
	}
	head, err := raw64.DecodeString(parts[0])
	if err != nil {
		return nil, malformed
	}
	var h map[string]json.RawMessage
	if json.Unmarshal(head, &h) != nil {
		return nil, malformed
	}
	// The token never chooses how it is verified.
	if string(h["alg"]) != `"HS256"` || h["crit"] != nil {
		return nil, failure(HeaderMalformed, "the token is not signed with HS256")
	}
	given, err := raw64.DecodeString(parts[2])
	if err != nil {
		return nil, malformed
	}
	matched := false
	for _, key := range keys {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(token[:len(parts[0])+1+len(parts[1])]))
		if hmac.Equal(mac.Sum(nil), given) {
			matched = true
		}
	}
	if !matched {
		return nil, failure(SignatureMismatch, "the token is not signed with the webhook's secret")
	}
	payload, err := raw64.DecodeString(parts[1])
	var c claims
	if err != nil || json.Unmarshal(payload, &c) != nil {
		return nil, malformed
	}
	return c, nil
}

func (j *JWT) hold(c claims, r *Request) *Error {
	other := func(claim string) *Error {
		return failure(SignatureMismatch, "the token's %s is not of this request", claim)
	}
	if j.Issuer != "" && c.text("iss") != j.Issuer {
		return failure(SignatureMismatch, "the token's iss is not %q", j.Issuer)
	}
	if j.URLClaim != "" && !c.names(j.URLClaim, r.URL) {
		return other(j.URLClaim)
	}
	if j.URLHash != "" && !sameHash(c.text(j.URLHash), Hex, []byte(r.URL)) {
		return other(j.URLHash)
	}
	if j.QueryHash != "" && c.text(j.QueryHash) != queryHash(r.Method, r.URL) {
		return other(j.QueryHash)
	}
	if j.BodyHash != "" && !sameHash(c.text(j.BodyHash), j.BodyEncoding, r.Body) {
		return other(j.BodyHash)
	}
	return nil
}

func sameHash(text string, enc Encoding, data []byte) bool {
	st := &state{}
	got, ok := st.decode(enc, text)
	want := sha256.Sum256(data)
	return ok && hmac.Equal(got, want[:])
}

// clockLeeway is how far a sender's clock may be ahead if its row states no
// tolerance.
const clockLeeway = time.Minute

// checkClaimedTimes checks the times of a token. A token is valid from iat and nbf to exp,
// with the row's tolerance for clocks. Without exp, a token is valid for the tolerance after
// iat.
func (s *Scheme) checkClaimedTimes(c claims, now time.Time) *Error {
	exp, expires, ok1 := c.time("exp")
	nbf, begins, ok2 := c.time("nbf")
	iat, issued, ok3 := c.time("iat")
	if !ok1 || !ok2 || !ok3 {
		return failure(HeaderMalformed, "a time of the token is not a number of seconds")
	}
	// No sender issues a token in the future, but somebody who once had the secret could have
	// made tokens in advance. So such a token is refused even if no tolerance is stated.
	latest := now.Add(cmp.Or(s.Tolerance, clockLeeway))
	switch {
	case s.JWT.Expires && !expires:
		return failure(HeaderMalformed, "the token has no exp")
	case expires && now.After(exp.Add(s.Tolerance)):
		return failure(TimestampTooOld, "the token expired %s ago", now.Sub(exp).Round(time.Second))
	case begins && nbf.After(latest):
		return failure(TimestampInFuture, "the token is not valid for another %s", nbf.Sub(now).Round(time.Second))
	case issued && iat.After(latest):
		return failure(TimestampInFuture, "the token is issued %s from now", iat.Sub(now).Round(time.Second))
	case expires || s.Tolerance == 0:
		return nil
	case !issued:
		return failure(HeaderMalformed, "the token has no iat")
	}
	return s.checkAge(strconv.FormatInt(iat.Unix(), 10), now)
}

// queryHash is Atlassian's qsh: the SHA-256 of method, path and sorted query.
func queryHash(method, address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	path := strings.TrimSuffix(u.EscapedPath(), "/")
	path = cmp.Or(path, "/")
	query := u.Query()
	delete(query, "jwt")
	var pairs []string
	for name, values := range query {
		for i, value := range values {
			values[i] = strings.ReplaceAll(url.QueryEscape(value), "+", "%20")
		}
		slices.Sort(values)
		pairs = append(pairs, strings.ReplaceAll(url.QueryEscape(name), "+", "%20")+"="+strings.Join(values, ","))
	}
	slices.Sort(pairs)
	sum := sha256.Sum256([]byte(strings.ToUpper(method) + "&" + strings.ReplaceAll(path, "&", "%26") + "&" + strings.Join(pairs, "&")))
	return hex.EncodeToString(sum[:])
}

// tokenLife is how long the tokens that Sign makes are valid.
const tokenLife = time.Minute

func (s *Scheme) signJWT(key []byte, r *Request) {
	if r.Header == nil {
		r.Header = http.Header{}
	}
	j := s.JWT
	if j.Keys {
		key = bytes.Fields(key)[0]
	}
	c := map[string]any{"iat": r.Now.Unix(), "jti": rand.Text()}
	set := func(name string, value any) {
		if name != "" {
			c[name] = value
		}
	}
	if j.Issuer != "" {
		c["iss"] = j.Issuer
	}
	if j.Expires {
		c["nbf"], c["exp"] = r.Now.Unix(), r.Now.Add(tokenLife).Unix()
	}
	hashed := func(data []byte, enc Encoding) string {
		sum := sha256.Sum256(data)
		return enc.encode(sum[:])
	}
	set(j.URLClaim, r.URL)
	set(j.URLHash, hashed([]byte(r.URL), Hex))
	set(j.QueryHash, queryHash(r.Method, r.URL))
	set(j.BodyHash, hashed(r.Body, j.BodyEncoding))
	payload, _ := json.Marshal(c) // plain data always encodes
	token := raw64.EncodeToString([]byte(`{"alg":"HS256","typ":"JWT"}`)) + "." + raw64.EncodeToString(payload)
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(token))
	token += "." + raw64.EncodeToString(mac.Sum(nil))
	if j.Word != "" {
		token = j.Word + " " + token
	}
	r.Header.Set(s.Forms[0].Signature, token)
}
