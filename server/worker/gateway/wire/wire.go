// Package wire knows the wire formats of the APIs of models, as far as a gateway has to
// (SPEC 25.1, 25.2): what a request asks for and may not ask for, where the usage of tokens
// stands in an answer, and how an error looks.
//
// It sends nothing. Of an answer it keeps less than two kilobytes, whatever the answer is.
package wire

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
)

// MaxBody bounds the body of a request, in bytes. It is the bound of Anthropic's API
// (https://platform.claude.com/docs/en/api/overview, "Request size limits").
const MaxBody = 32 << 20

// Format is the wire format of a provider.
type Format struct {
	Name string // anthropic, openai, gemini, compatible

	// Keys are the headers in which a request may carry a key. The gateway removes all of them,
	// and sets the first to its own key, behind KeyPrefix.
	Keys      []string
	KeyPrefix string
	KeyQuery  string // the parameter of the query that may hold a key; to be removed; empty: there is no such

	read    func(c *call) error
	failure func(status int, reason string) any
}

// Formats are all formats. "compatible" is OpenAI's, as other servers speak it.
var Formats = []*Format{anthropic, openAI, gemini, compatible}

// Named is the format of the provider with a name: its own, or else the compatible one.
func Named(provider string) *Format {
	for _, f := range Formats {
		if f.Name == provider {
			return f
		}
	}
	return compatible
}

// Request is a request that may be passed on.
type Request struct {
	Path   string // below the address of the provider, clean; begins with a slash
	Body   []byte // the body to pass on; it may have other bytes than what came
	Model  string // as the request names it; may be empty if Free
	Stream bool   // it asks for a stream
	Free   bool   // it uses no tokens: it counts them, or asks for the list of models

	// Input is an estimate of the tokens of the request, upward: a token for every two bytes of
	// text, which text and code do not reach.
	Input int64
	// Limit is the most tokens that the answer may have, or NoLimit if the request says no maximum.
	Limit int64

	told  told
	long  bool                // it asks for a cache that is kept for longer, which costs more
	from  []byte              // the body as it came
	limit func(string) []edit // makes a text the maximum
	edits []edit              // the changes besides
}

// NoLimit is the Limit of a request that says no maximum.
const NoLimit = -1

// Refusal is why a request is not passed on. Format.Error makes an answer of it.
type Refusal struct {
	Status int // of HTTP
	Reason string
}

func (r *Refusal) Error() string { return r.Reason }

// Options say what a run may ask of a provider.
type Options struct {
	// Extras allows what a provider does besides answering as a model: hosted tools, remote MCP
	// servers, addresses and stored files as input, and faster service for more money. Nobody
	// counts what these cost beside tokens.
	Extras bool
}

// Read reads a request. path is what follows the address of the provider; a version at its
// begin is optional for openai and compatible. The error is a *Refusal: the request does not
// ask a model for an answer (as batches, files, background and stored responses), asks for
// what the options do not allow, has a key twice, or is not understood. Everything in a request
// is taken for hostile. The body must not be compressed.
func (f *Format) Read(method, path string, query url.Values, header http.Header, body []byte, may Options) (*Request, error) {
	c := &call{Request: Request{Path: path, Body: body, from: body, Limit: NoLimit}, format: f, method: method, query: query, may: may}
	if strings.ContainsAny(path, "%\\?#") || !strings.HasPrefix(path, "/") || strings.Contains(path, "//") || strings.Contains(path+"/", "/../") || strings.Contains(path+"/", "/./") {
		return nil, c.unknown()
	}
	if coding := header.Get("Content-Encoding"); coding != "" && coding != "identity" {
		return nil, &Refusal{http.StatusUnsupportedMediaType, "the gateway of a run reads requests to models, so it takes no body in the encoding " + clip(coding) + ": switch compression of requests off"}
	}
	if len(body) > MaxBody {
		return nil, &Refusal{http.StatusRequestEntityTooLarge, "the request has more than 32 MiB"}
	}
	if err := f.read(c); err != nil {
		return nil, err
	}
	c.Body = spliced(c.from, c.edits)
	return &c.Request, nil
}

// Error is the body of an answer that says why the gateway does not pass a request on. Its
// Content-Type is application/json. Harnesses show the reason to their users.
func (f *Format) Error(status int, reason string) []byte {
	text, _ := json.Marshal(f.failure(status, strings.ToValidUTF8(reason, "?"))) // texts and numbers
	return text
}

type object = map[string]any

// clip is a stranger's text, short and on one line.
func clip(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\uFFFD' {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	if r := []rune(text); len(r) > 100 {
		text = string(r[:100]) + "…"
	}
	return text
}
