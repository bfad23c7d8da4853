package signature

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
)

// Handshake is how a sender checks a URL, before or between its deliveries.
type Handshake struct {
	Method   string // GET and HEAD are never answered (SPEC C4.4)
	Unsigned bool   // the handshake comes without a proof
	Asks     []Ask  // questions by POST; the first whose conditions a request meets is answered

	SecretHeader string // the header that delivers the secret
	SecretField  string // the field of the body that delivers the secret
}

// Ask is one question of a sender. A request asks it if all stated conditions hold.
type Ask struct {
	Header, Value string // the request has the header with this value; empty Value: any value
	Field, Is     string // the body has the field with this text; empty Is: any text
	Only          bool   // the body holds nothing beside that field
	Without       string // the body lacks this key
	Empty         string // this key of the body is an empty list
	Query         string // the URL has this parameter
	Form          string // the body is a form of this one field, a number

	Status int
	Echo   Echo
}

// Echo is the way to make the answer.
type Echo string

// The answers.
const (
	EchoNothing Echo = ""
	EchoText    Echo = "text"   // the value of the field challenge, or of the parameter, as text/plain
	EchoJSON    Echo = "json"   // {"challenge": …}
	EchoType    Echo = "type"   // {"type":1}
	EchoHeader  Echo = "header" // the header with the secret
	EchoSigned  Echo = "signed" // plainToken, and its HMAC under the key of the deliveries
)

// Asks describes the sender's questions in words.
func (s *Scheme) Asks() []string {
	h := s.Handshake
	if h == nil {
		return nil
	}
	if h.Method != http.MethodPost {
		return []string{"before it delivers it asks the URL by " + h.Method + ", which this server answers with 405: a proxy in front must answer it"}
	}
	when, learns := "by a signed POST", ""
	if h.Unsigned {
		when = "by a POST that is not signed"
	}
	if h.SecretHeader+h.SecretField != "" {
		learns = ", which delivers the secret"
	}
	var all []string
	for _, a := range h.Asks {
		all = append(all, when+learns+" ("+a.words()+")")
	}
	return all
}

func (a *Ask) words() string {
	switch {
	case a.Header != "":
		return strings.TrimSuffix("header "+a.Header+": "+a.Value, ": ")
	case a.Empty != "":
		return "empty list " + a.Empty
	case a.Query != "":
		return "parameter " + a.Query
	case a.Form != "":
		return "form with " + a.Form
	case a.Is != "":
		return a.Field + " is " + a.Is
	}
	return a.Field + " alone"
}

// Reply answers a handshake.
type Reply struct {
	Status      int
	ContentType string // empty: the answer has no body
	Header      http.Header
	Body        []byte
	Secret      string // the secret that the request delivers; empty if it delivers none
}

// Challenge answers a signed question, or returns false if the request asks none. Call it
// only for requests that Verify has accepted, because some answers are made with the key.
func (v *Verifier) Challenge(r *Request) (Reply, bool) {
	if v.challenge == nil {
		return Reply{}, false
	}
	return v.challenge(r)
}

// Greet answers a question that comes without a proof, or returns false if the request asks no
// such question. The answer does not depend on a secret of this server. Anybody could have
// sent the Reply.Secret, so the caller decides whether the webhook may use it.
func (s *Scheme) Greet(r *Request) (Reply, bool) {
	if s.Handshake == nil || !s.Handshake.Unsigned {
		return Reply{}, false
	}
	return s.Handshake.answer(r, nil)
}

// challenger answers the signed questions of the scheme with this secret.
func (s *Scheme) challenger(secret string) func(*Request) (Reply, bool) {
	if s.Handshake == nil || s.Handshake.Unsigned || len(s.Handshake.Asks) == 0 {
		return nil
	}
	return func(r *Request) (Reply, bool) { return s.Handshake.answer(r, []byte(secret)) }
}

func (h *Handshake) answer(r *Request, key []byte) (Reply, bool) {
	if r.Method != http.MethodPost || h.Method != http.MethodPost {
		return Reply{}, false
	}
	for _, ask := range h.Asks {
		if ask.met(r) {
			return h.reply(ask, r, key)
		}
	}
	return Reply{}, false
}

// met looks first for what a delivery lacks: only the body of what may be the question is decoded.
func (a *Ask) met(r *Request) bool {
	if a.Header != "" {
		value, err := one(r.Header, a.Header)
		if err != nil || a.Value != "" && value != a.Value {
			return false
		}
	}
	if a.Form != "" {
		number, ok := strings.CutPrefix(string(r.Body), a.Form+"=")
		if !ok || number == "" || strings.Trim(number, "0123456789") != "" {
			return false
		}
	}
	if a.Query != "" && parameter(r.URL, a.Query) == "" {
		return false
	}
	if a.Field != "" {
		if text, ok := field(r.Body, a.Field); !ok || a.Is != "" && text != a.Is {
			return false
		}
	}
	if a.Field == "" && a.Without == "" && a.Empty == "" {
		return true
	}
	var body map[string]json.RawMessage
	if json.Unmarshal(r.Body, &body) != nil || a.Only && len(body) != 1 || a.Without != "" && body[a.Without] != nil {
		return false
	}
	var list []json.RawMessage
	return a.Empty == "" || json.Unmarshal(body[a.Empty], &list) == nil && list != nil && len(list) == 0
}

func (h *Handshake) reply(a Ask, r *Request, key []byte) (Reply, bool) {
	reply := Reply{Status: a.Status}
	challenge, _ := field(r.Body, "challenge")
	text, encode := "text/plain; charset=utf-8", "application/json"
	ok := true
	switch a.Echo {
	case EchoText:
		allowed := harmless
		if a.Query != "" {
			challenge, allowed = parameter(r.URL, a.Query), printable
		}
		reply.ContentType, reply.Body = text, []byte(challenge)
		ok = made(challenge, allowed)
	case EchoJSON:
		reply.ContentType = encode
		reply.Body, _ = json.Marshal(map[string]string{"challenge": challenge}) // strings always encode
		ok = made(challenge, harmless)
	case EchoType:
		reply.ContentType, reply.Body = encode, []byte(`{"type":1}`)
	case EchoHeader:
		reply.Secret = r.Header.Get(h.SecretHeader)
		reply.Header = http.Header{h.SecretHeader: {reply.Secret}}
		ok = made(reply.Secret, harmless)
	case EchoSigned:
		// A delivery must never sign the text that is signed here, or a question could be
		// used to forge a delivery. So the text must be a token without a colon.
		token, _ := field(r.Body, "payload.plainToken")
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(token))
		reply.ContentType = encode
		reply.Body, _ = json.Marshal(map[string]string{"plainToken": token, "encryptedToken": hex.EncodeToString(mac.Sum(nil))})
		ok = len(key) > 0 && made(token, harmless)
	}
	if h.SecretField != "" {
		reply.Secret, _ = field(r.Body, h.SecretField)
		ok = ok && made(reply.Secret, harmless)
	}
	if !ok {
		return Reply{}, false
	}
	return reply, true
}

// maxEcho is the longest text that is echoed, in bytes.
const maxEcho = 512

// made tells whether text consists of allowed characters, and is not too long.
func made(text string, allowed func(rune) bool) bool {
	return text != "" && len(text) <= maxEcho && strings.IndexFunc(text, func(c rune) bool { return !allowed(c) }) < 0
}

// harmless are the characters of tokens, that is, of both base64 alphabets. Nobody can write
// JSON, markup or a timestamped base string with them.
func harmless(c rune) bool {
	return c < 0x80 && (unreserved(byte(c)) && c != '~' || strings.ContainsRune("+/=", c))
}

func printable(c rune) bool { return c >= ' ' && c < 0x7f && c != '<' && c != '>' }

func parameter(address, name string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Query().Get(name)
}
