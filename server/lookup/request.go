package lookup

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"time"

	"triphammer/server/githubapp"
	"triphammer/server/secret"
)

// Failure is an answer that does not answer the question, or no answer at all. Its text holds
// neither the credential nor the content of an answer, except an error code.
type Failure struct {
	text      string
	final     bool          // another attempt would get the same answer
	after     time.Duration // how long the sender wants no request
	status    int           // of the answer; 0: there was no answer
	uncertain bool          // the sender may have done what it was asked to do
	cause     error
}

// failure is the name of a Failure within the package.
type failure = Failure

// Fail makes a Failure that text describes. final tells that another attempt would fail, too.
func Fail(text string, final bool) *Failure { return &failure{text: text, final: final} }

// Unsure makes a Failure after which nobody knows whether the sender did what it was asked to do.
func Unsure(text string) *Failure { return &failure{text: text, uncertain: true} }

// Error implements error.
func (f *Failure) Error() string { return f.text }

// Unwrap is the error of the connection; nil: there was an answer.
func (f *Failure) Unwrap() error { return f.cause }

// Final tells that another attempt would fail, too.
func (f *Failure) Final() bool { return f.final }

// After is how long the sender wants no request; 0: it does not say so.
func (f *Failure) After() time.Duration { return f.after }

// Status is the status of the sender's answer; 0: there was none.
func (f *Failure) Status() int { return f.status }

// Uncertain tells that the request was to change something, and that the sender may have done so.
func (f *Failure) Uncertain() bool { return f.uncertain }

// Request is a request to a sender's API.
type Request struct {
	Method string
	Path   string       // below the address of the API
	Header http.Header  // with the credential
	Body   any          // a form (url.Values), bytes, or else a value that is sent as JSON; nil: no body
	Into   any          // where the answer's JSON goes; nil: the answer is not read
	Reads  bool         // the request changes nothing, although its method is not GET
	Told   *http.Header // where the header of an answer that is no refusal goes; nil: it is not read
	// Explain gives a refusal its sentence, which makes it final. It gets the status and the first
	// bytes of the answer. rate tells that the refusal is a limit of requests. An empty sentence
	// keeps the general one.
	Explain func(status int, answer []byte) (sentence string, rate bool)
}

const (
	maxRefusal = 8 << 10     // bytes of an answer that Explain gets
	ratePause  = time.Minute // after a limit of requests that does not say how long it holds
)

// Do makes a request. All its errors are a [Failure].
func (c *Client) Do(ctx context.Context, api API, r Request) error {
	err := c.once(ctx, api, r)
	if f := (*failure)(nil); githubapp.Is(api.Secret) && errors.As(err, &f) && f.status == http.StatusUnauthorized {
		return c.once(ctx, api, r) // with another token: GitHub has done nothing by the one that it does not take
	}
	return err
}

func (c *Client) once(ctx context.Context, api API, r Request) error {
	body, kind, err := r.body()
	if err != nil {
		return &failure{text: "the request cannot be written", final: true}
	}
	if api.URL == "" {
		return &failure{text: "its address is not known: the webhook has no apiURL", final: true}
	}
	address := strings.TrimSuffix(api.URL, "/") + r.Path
	connected := false
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected = true }})
	req, err := http.NewRequestWithContext(traced, r.Method, address, bytes.NewReader(body))
	if err != nil {
		return &failure{text: "its address cannot be used", final: true}
	}
	req.Header = r.Header.Clone()
	if req.Header == nil {
		req.Header = http.Header{}
	}
	if kind != "" && req.Header.Get("Content-Type") == "" {
		req.Header.Set("Content-Type", kind)
	}
	req.Header.Set("User-Agent", "triphammer")
	if githubapp.Is(api.Secret) {
		if req.Header.Del("Authorization"); r.Method == http.MethodGet && r.Path == "/user" {
			return c.account(ctx, api.Secret, r.Into)
		}
		if err := c.installed(ctx, api, req, r); err != nil {
			return err
		}
	}
	changes := r.Method != http.MethodGet && !r.Reads
	resp, err := c.http.Do(req)
	if err != nil {
		if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
			err = wrapped.Err
		}
		return &failure{text: secret.Origin(address) + ": " + err.Error(), uncertain: changes && connected, cause: err}
	}
	defer func() { _ = resp.Body.Close() }()
	if code := resp.StatusCode; code < 200 || code > 299 || code == http.StatusNonAuthoritativeInfo {
		f := c.refusal(resp)
		c.forget(api, req, code)
		if r.Explain != nil {
			head, _ := io.ReadAll(io.LimitReader(resp.Body, maxRefusal)) // what there is of it
			f.explain(r.Explain(resp.StatusCode, head))
		}
		f.uncertain = changes && !f.final && (f.status >= 500 || f.status == http.StatusRequestTimeout)
		return f
	}
	if r.Told != nil {
		*r.Told = resp.Header
	}
	if r.Into == nil {
		return nil
	}
	answer := &io.LimitedReader{R: resp.Body, N: maxAnswer}
	if err := json.NewDecoder(answer).Decode(r.Into); err != nil {
		if answer.N <= 0 {
			return &failure{text: fmt.Sprintf("answered more than %d MB", maxAnswer>>20), final: !changes, status: resp.StatusCode, uncertain: changes}
		}
		return &failure{text: errAnswer.text, status: resp.StatusCode, uncertain: changes}
	}
	return nil
}

func (r *Request) body() (body []byte, kind string, err error) {
	switch b := r.Body.(type) {
	case nil:
		return nil, "", nil
	case []byte:
		return b, "", nil
	case url.Values:
		return []byte(b.Encode()), "application/x-www-form-urlencoded", nil
	}
	body, err = json.Marshal(r.Body)
	return body, "application/json", err
}

// explain gives a refusal a better sentence.
func (f *failure) explain(sentence string, rate bool) {
	if sentence != "" {
		f.text, f.final = fmt.Sprintf("answered %d: %s", f.status, sentence), true
	}
	if rate {
		f.text = fmt.Sprintf("answered %d: too many requests", f.status)
		f.final = false
		f.after = cmp.Or(f.after, ratePause)
	}
}

// Remember is what ask finds out about a thing by a credential, which may be remembered for 10 minutes.
func (c *Client) Remember(kind string, api API, id string, ask func() (string, error)) (string, error) {
	values, err := c.remember(kind, api, id, nameTime, func(string) ([]string, error) {
		value, err := ask()
		return []string{value}, err
	})
	if err != nil {
		return "", err
	}
	return values[0], nil
}
