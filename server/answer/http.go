package answer

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"triphammer/factory/native"
	"triphammer/server/lookup"
)

// maxPages is how many pages of a thread's texts are looked through.
const maxPages = 40

var (
	errLong    = lookup.Fail("has too many texts in the thread to look through", true)
	errList    = lookup.Fail("answered something other than the texts of the thread", false)
	errNowhere = lookup.Fail("the place does not name what to answer", true)
	errNoID    = lookup.Unsure("answered without saying what it posted")
)

// failed is the failure in an error; nil: there is none.
func failed(err error) *lookup.Failure {
	var f *lookup.Failure
	errors.As(err, &f)
	return f
}

// at makes a path of parts, none of which becomes several, or leads out of the path: nothing has the
// name . or ..
func at(parts ...string) string {
	var b strings.Builder
	for _, p := range parts {
		if p = url.PathEscape(p); strings.Trim(p, ".") == "" {
			p = "_"
		}
		b.WriteString("/" + p)
	}
	return b.String()
}

func bearer(api lookup.API) http.Header {
	return http.Header{"Authorization": {"Bearer " + strings.TrimSpace(api.Secret.Reveal())}}
}

func basic(credential string) http.Header {
	return http.Header{"Authorization": {"Basic " + base64.StdEncoding.EncodeToString([]byte(credential))}}
}

// address is an API with the address of the sender's own service, if the webhook has no apiURL.
func address(api lookup.API, provider string) lookup.API {
	if api.URL == "" {
		api.URL = native.ByProvider(provider).API
	}
	return api
}

// noted reads what a delivery says, as far as it has the documented shape.
func noted(d native.Delivery, into any) {
	_ = json.Unmarshal(d.Body, into) // what is missing is missed later
}

var digits = regexp.MustCompile(`^\d{1,19}$`)

// numeral is a number of a payload as text, or empty.
func numeral(n json.RawMessage) string {
	if text := strings.Trim(string(n), `"`); digits.MatchString(text) {
		return text
	}
	return ""
}

// described is a state in one line of a check, in at most some characters.
func described(m Message, most int) string {
	text := m.Outcome
	switch m.State {
	case Started:
		text = "has started"
	case Waits:
		text = "waits"
	}
	if m.Why != "" {
		text += ": " + m.Why
	}
	return oneLine(text, most)
}

// result is how a run stands, for checks.
type result uint8

const (
	pending result = iota
	succeeded
	cancelled
	unsuccessful
)

func (m Message) result() result {
	switch outcome := strings.ToLower(m.Outcome); {
	case m.State != Ended:
		return pending
	case strings.HasPrefix(outcome, "succe"):
		return succeeded
	case strings.HasPrefix(outcome, "cancel"):
		return cancelled
	}
	return unsuccessful
}

// checkName names the check of an automation.
func checkName(m Message) string { return "triphammer/" + oneLine(m.Automation, maxName) }

// has tells whether a refusal's text has one of the words.
func has(answer []byte, words ...string) bool {
	answer = bytes.ToLower(answer)
	return slices.ContainsFunc(words, func(w string) bool { return bytes.Contains(answer, []byte(w)) })
}

type call struct {
	ctx    context.Context
	client *lookup.Client
	api    lookup.API
	header http.Header
	// explain is lookup.Request.Explain of all its requests.
	explain func(status int, answer []byte) (string, bool)
}

func (c *call) do(method, path string, body, into any) error {
	return c.client.Do(c.ctx, c.api, lookup.Request{Method: method, Path: path, Header: c.header, Body: body, Into: into, Explain: c.explain})
}
