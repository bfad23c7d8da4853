package secret

import (
	"bytes"
	"encoding/binary"
	"strings"
)

// A credential of a well-known kind is hidden even if it was not granted, because an agent can
// find it in a repository or get it from a service. Only kinds with an unmistakable form are
// here, because hiding too much makes a transcript useless.

const (
	digits  = "0123456789"
	upper   = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	letters = upper + "abcdefghijklmnopqrstuvwxyz"
	base64s = letters + digits + "+/="
	urlSafe = letters + digits + "-_"
	own     = tokenRandom + tokenChecked
)

// kinds are credentials that consist of a prefix and a number of characters of a set.
var kinds = []struct {
	prefixes    string
	set         string
	least, most int
}{
	{"sk-ant- sk-proj- sk-svcacct- sk-admin- sk-or-v1-", urlSafe, 32, 400},         // Anthropic, OpenAI, OpenRouter
	{"ghp_ gho_ ghu_ ghr_", letters + digits, 36, 255},                             // GitHub
	{"ghs_", urlSafe + ".", 36, 4096},                                              // GitHub, of Apps: newer ones hold a JSON Web Token
	{"github_pat_", letters + digits + "_", 60, 255},                               // GitHub
	{"glpat- gldt- glrt- glcbt- glptt-", urlSafe + ".", 20, 255},                   // GitLab
	{"xoxb- xoxp- xoxa- xoxr- xoxs- xoxe- xapp-", letters + digits + "-", 24, 255}, // Slack
	{"AKIA ASIA", upper + digits, 16, 16},                                          // Amazon
	{"AIza", urlSafe, 35, 35},                                                      // Google
	{"npm_", letters + digits, 36, 36},                                             // npm
	{"pypi-AgEIcHlwaS5vcmc", urlSafe, 50, 400},                                     // PyPI
	{"hf_", letters, 34, 34},                                                       // Hugging Face
	{"sk_live_ rk_live_", letters + digits, 24, 255},                               // Stripe
	{"dop_v1_ doo_v1_", "abcdef" + digits, 64, 64},                                 // DigitalOcean
	{"thk_ ths_ thl_", letters + digits, own, own},                                 // this server
}

// matcher is form.match for a kind of credential.
type matcher func(text []byte) (n int, open bool)

// tokens are the kinds of credentials by their first bytes; tokenStarts are the shorter
// beginnings.
var tokens, tokenStarts = tokenIndex()

func tokenIndex() (index map[uint32][]matcher, starts map[string]bool) {
	index, starts = make(map[uint32][]matcher), make(map[string]bool)
	add := func(start string, m matcher) {
		at := binary.LittleEndian.Uint32([]byte(start))
		index[at] = append(index[at], m)
		for n := 1; n < indexed; n++ {
			starts[start[:n]] = true
		}
	}
	for _, k := range kinds {
		for _, prefix := range strings.Fields(k.prefixes) {
			m := func(text []byte) (int, bool) { return matchRun(text, prefix, k.set, k.least, k.most) }
			if len(prefix) >= indexed {
				add(prefix, m)
				continue
			}
			for _, c := range k.set {
				add(prefix+string(c), m)
			}
		}
	}
	add("-----BEGIN", matchKey)
	// A JSON Web Token begins with the base64 of {" and the first letter of a key.
	for _, start := range strings.Fields("eyJh eyJ0 eyJr eyJj eyJl eyJ4 eyJq eyJ6 eyJi") {
		add(start, matchWebToken)
	}
	return index, starts
}

// follows tells whether a credential can begin after two bytes. It cannot begin within a word.
// The letter of \n in a JSON string is no part of a word.
func follows(before [2]byte) bool {
	return !inWord(before[1]) || before[0] == '\\' && strings.IndexByte("nrt", before[1]) >= 0
}

func inWord(c byte) bool {
	return '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' || c == '_'
}

// count is how many bytes at the beginning of text are in a set, at most most. all tells that
// the whole text is in the set, so that more text could add to the count.
func count(text []byte, set string, most int) (n int, all bool) {
	for n < len(text) && n < most && strings.IndexByte(set, text[n]) >= 0 {
		n++
	}
	return n, n == len(text) && n < most
}

// matchPrefix matches a fixed text.
func matchPrefix(text []byte, prefix string) (ok, open bool) {
	if len(text) < len(prefix) {
		return false, prefix[:len(text)] == string(text)
	}
	return string(text[:len(prefix)]) == prefix, false
}

// matchRun matches a prefix and a number of characters of a set, after which no other
// letter or digit follows.
func matchRun(text []byte, prefix, set string, least, most int) (n int, open bool) {
	if ok, open := matchPrefix(text, prefix); !ok {
		return 0, open
	}
	rest := text[len(prefix):]
	n, _ = count(rest, set, most)
	switch {
	case n == len(rest):
		open = true // more text may follow, even more than is allowed
	case inWord(rest[n]):
		return 0, false
	}
	if n < least {
		return 0, open
	}
	return len(prefix) + n, open
}

const (
	maxKey    = 16 << 10 // bytes of a private key
	leastKey  = 64
	maxHeader = 48
)

// matchKey matches a private key in PEM, with plain line breaks or with line breaks as in a JSON
// string. The key may lack its end.
func matchKey(text []byte) (n int, open bool) {
	const begin, private, end, dashes = "-----BEGIN ", "PRIVATE KEY-----", "-----END ", "-----"
	if ok, open := matchPrefix(text, begin); !ok {
		return 0, open
	}
	head := text[:min(len(text), maxHeader)]
	kind, _ := count(head[len(begin):], upper+digits+" ", maxHeader)
	at := bytes.Index(head, []byte(private))
	if at < 0 {
		rest := head[len(begin)+kind:]
		return 0, len(text) < maxHeader && strings.HasPrefix(dashes, string(rest))
	}
	if at > len(begin)+kind {
		return 0, false
	}
	n = at + len(private)
	body, all := count(text[n:], base64s+"\r\n\\ ", maxKey)
	n += body
	if body < leastKey {
		return 0, all
	}
	if ok, more := matchPrefix(text[n:], end); !ok {
		return n, all || more
	}
	tail := text[n+len(end) : min(len(text), n+len(end)+maxHeader)]
	if i := bytes.Index(tail, []byte(dashes)); i >= 0 {
		return n + len(end) + i + len(dashes), false
	}
	return n, len(tail) < maxHeader
}

// matchWebToken matches a JSON Web Token: two objects and a signature.
func matchWebToken(text []byte) (n int, open bool) {
	const most, leastObject, leastSignature = 4 << 10, 10, 20
	for range 2 {
		if ok, open := matchPrefix(text[n:], "eyJ"); !ok {
			return 0, open
		}
		object, all := count(text[n:], urlSafe, most)
		if n += object + 1; all || object < leastObject || object == most || text[n-1] != '.' {
			return 0, all
		}
	}
	signature, all := count(text[n:], urlSafe, most)
	if signature < leastSignature {
		return 0, all
	}
	return n + signature, all
}
