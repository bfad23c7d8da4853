package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"triphammer/factory/signature"
	"triphammer/server"
)

func sendCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "send WEBHOOK",
		Short: "Send a delivery, as a sender does",
		Long: `Send one delivery to a webhook over HTTP, authenticated in whichever mode it has. The secret is read from --secret-file or
from the variable TRIPHAMMER_WEBHOOK_SECRET: the server never gives a stored one out. It exits with 0 if the answer is 202.`,
		Args: exactly("WEBHOOK"),
		RunE: send,
	}
	f := c.Flags()
	f.String("payload-file", "", "file with the body; - reads standard input")
	f.StringP("payload", "d", "", "the body")
	f.String("secret-file", "", "file with the webhook's secret")
	f.StringArrayP("header", "H", nil, "further header, such as 'X-Event-Id: 7'")
	f.Duration("timeout", 30*time.Second, "how long to wait for the answer")
	clientFlags(c)
	return c
}

// message is a delivery to be sent.
type message struct {
	webhook *server.Webhook
	body    []byte
	secret  string
	header  http.Header
}

// post sends a delivery as its sender would.
func (m *message) post(ctx context.Context, client *http.Client) (status int, answer []byte, header http.Header, err error) {
	address := strings.ReplaceAll(m.webhook.URL, "{token}", m.secret)
	if m.header == nil {
		m.header = http.Header{}
	}
	m.header.Set("Content-Type", "application/json")
	switch m.webhook.AuthMode {
	case "token":
		m.header.Set("Authorization", "Bearer "+m.secret)
	case "signature":
		scheme, ok := signature.Lookup(m.webhook.SignatureScheme)
		if !ok {
			return 0, nil, nil, exitWith(exitUsage, "this version cannot sign as %s does", m.webhook.SignatureScheme)
		}
		if o := m.webhook.Signature; o != nil {
			if scheme, err = scheme.With(*o); err != nil {
				return 0, nil, nil, exitWith(exitUsage, "this version cannot sign as the webhook's file says: %w", err)
			}
		}
		signed := &signature.Request{Method: http.MethodPost, URL: address, Header: m.header, Body: m.body, Now: time.Now()}
		if err := scheme.Sign(m.secret, signed); err != nil {
			return 0, nil, nil, exitWith(exitUsage, "%w", err)
		}
		address, m.body = signed.URL, signed.Body // a few schemes put their proof there
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(m.body))
	if err != nil {
		return 0, nil, nil, exitWith(exitUsage, "the webhook's address cannot be used")
	}
	req.Header = m.header
	resp, err := client.Do(req)
	if err != nil {
		if failed := (*url.Error)(nil); errors.As(err, &failed) {
			err = failed.Err // without the address, which may hold the token
		}
		return 0, nil, nil, exitWith(exitUnreachable, "the server cannot be reached at %s: %w", m.webhook.URL, err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err = io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	return resp.StatusCode, answer, resp.Header, err
}

func send(c *cobra.Command, args []string) error {
	f := c.Flags()
	body, err := sendBody(c)
	if err != nil {
		return err
	}
	w, cl, err := findWebhook(c, args[0], true)
	if err != nil {
		return err
	}
	defer cl.close()
	m := &message{webhook: w, body: body, header: http.Header{}}
	if m.secret, err = sendSecret(c); err != nil {
		return err
	}
	headers, _ := f.GetStringArray("header")
	for _, h := range headers {
		name, value, ok := strings.Cut(h, ":")
		if !ok {
			return exitWith(exitUsage, "--header %q is not of the form Name: value", h)
		}
		m.header.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	timeout, _ := f.GetDuration("timeout")
	ctx, cancel := context.WithTimeout(c.Context(), timeout)
	defer cancel()
	status, answer, header, err := m.post(ctx, &http.Client{})
	if err != nil {
		return err
	}
	fmt.Fprintf(c.OutOrStdout(), "%d %s\n", status, strings.TrimSpace(string(answer)))
	if after := header.Get("Retry-After"); after != "" {
		fmt.Fprintf(c.ErrOrStderr(), "Retry-After: %s\n", after)
	}
	if status != http.StatusAccepted {
		return silently(exitBad)
	}
	return nil
}

func sendBody(c *cobra.Command) ([]byte, error) {
	text, _ := c.Flags().GetString("payload")
	name, _ := c.Flags().GetString("payload-file")
	switch {
	case c.Flags().Changed("payload") && name != "":
		return nil, exitWith(exitUsage, "--payload and --payload-file exclude each other")
	case name == "-":
		return io.ReadAll(c.InOrStdin())
	case name != "":
		body, err := os.ReadFile(name)
		if err != nil {
			return nil, exitWith(exitUsage, "--payload-file: %w", err)
		}
		return body, nil
	case c.Flags().Changed("payload"):
		return []byte(text), nil
	}
	return json.Marshal(map[string]string{"event": "test", "sent_at": time.Now().UTC().Format(time.RFC3339Nano)})
}

func sendSecret(c *cobra.Command) (string, error) {
	if name, _ := c.Flags().GetString("secret-file"); name != "" {
		f, err := os.Open(name)
		if err != nil {
			return "", exitWith(exitUsage, "--secret-file: %w", err)
		}
		defer func() { _ = f.Close() }()
		return readSecret(f, c.ErrOrStderr(), "the webhook")
	}
	value, err := secretVariable("TRIPHAMMER_WEBHOOK_SECRET")
	if err == nil && value == "" {
		return "", exitWith(exitUsage, "the webhook's secret is needed: --secret-file FILE, or TRIPHAMMER_WEBHOOK_SECRET")
	}
	return value, err
}
