package notify

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"triphammer/factory/signature"
	"triphammer/server/secret"
)

// Hook is an address that takes messages, which are signed by the rules of Standard
// Webhooks.
type Hook struct {
	URL    string
	Secret func(context.Context) (string, error) // returns the signing key; called for each message
	Client *http.Client                          // from NewClient
}

// Post sends a message, and returns the status of the answer; 0: there was none. The id tells a receiver
// that a message arrived twice, and trace to which span of OpenTelemetry it belongs (SPEC 27.4); empty: to
// none. The error holds no part of the address but its origin.
func (h *Hook) Post(ctx context.Context, id, trace string, at time.Time, body []byte) (status int, err error) {
	value, err := h.Secret(ctx)
	if err != nil {
		return 0, err
	}
	standard, _ := signature.Lookup("standard_webhooks")
	r := signature.Request{Method: http.MethodPost, URL: h.URL, Header: http.Header{"Webhook-Id": {id}}, Body: body, Now: at}
	if err := standard.Sign(value, &r); err != nil {
		return 0, permanent{err}
	}
	if trace != "" {
		r.Header.Set("Traceparent", trace)
	}
	_, status, err = request(ctx, h.Client, http.MethodPost, h.URL, r.Header, body)
	return status, err
}

// permanent is a failure that would happen again at another attempt.
type permanent struct{ error }

// answered is the status of an answer that is not a success.
type answered int

func (a answered) Error() string { return fmt.Sprintf("answered %d", int(a)) }

// hopeless tells whether another attempt would most likely fail again.
func hopeless(err error) bool {
	var status answered
	if errors.As(err, &status) {
		return status < 500 && status != http.StatusRequestTimeout && status != http.StatusTooManyRequests
	}
	return errors.As(err, &permanent{})
}

// maxAnswer is how much of an answer is read, in bytes.
const maxAnswer = 256 << 10

// request makes a request. The error has only the scheme and the host of the address, because
// the rest of the address, the request and the answer can hold a secret.
func request(ctx context.Context, client *http.Client, method, address string, header http.Header, body []byte) (answer []byte, status int, err error) {
	req, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(body))
	if err != nil {
		return nil, 0, permanent{errors.New("its address cannot be used")} // err would repeat the address
	}
	req.Header = header
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "triphammer")
	resp, err := client.Do(req)
	if err != nil {
		if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
			err = fmt.Errorf("%s: %w", secret.Origin(address), wrapped.Err)
		}
		return nil, 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, _ = io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return answer, resp.StatusCode, answered(resp.StatusCode)
	}
	return answer, resp.StatusCode, nil
}

func encode(v any) []byte {
	text, _ := json.Marshal(v) // plain data always encodes
	return text
}

// NewClient makes a client for a Hook that trusts the roots; nil: the system's roots. The
// client follows no redirects, because the credential is only for the configured address.
func NewClient(roots *x509.CertPool) *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	if roots != nil {
		t.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	}
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}
