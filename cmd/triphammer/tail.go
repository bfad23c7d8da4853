package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"triphammer/server/api"

	"github.com/spf13/cobra"
)

// tailInterval is how often the log is looked at.
const tailInterval = time.Second

func tailCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "tail", Short: "Follow the log, and forward deliveries to another address", Args: cobra.NoArgs,
		Long: `Follow the delivery log until interrupted. With --forward each accepted delivery is posted on, such as to a server on
this machine: the original bytes, and the headers that are kept. Credentials are never kept, so a receiver that checks
them needs --secret-file: then each is signed again, in the mode of its webhook, with that secret.`,
		Example: `  triphammer deliveries tail --webhook ci
  triphammer deliveries tail --forward http://127.0.0.1:3000/hook
  triphammer deliveries tail --webhook github-main --forward http://127.0.0.1:3000/hook --secret-file github.secret`,
		RunE: withServer(true, tail),
	}
	selectFlags(c)
	c.Flags().Int("lines", 10, "how many existing deliveries to show first")
	c.Flags().Bool("once", false, "show the existing deliveries and end, without following")
	c.Flags().String("forward", "", "address to post new accepted deliveries to")
	c.Flags().String("secret-file", "", "with --forward: sign what is forwarded in the mode of its webhook, with this secret")
	return c
}

func tail(c *cobra.Command, _ []string, cl *client) error {
	query, err := selection(c)
	if err != nil {
		return err
	}
	to, err := forwarding(c)
	if err != nil {
		return err
	}
	lines, _ := c.Flags().GetInt("lines")
	once, _ := c.Flags().GetBool("once")
	last := ""
	shown, err := collect[api.Delivery](c.Context(), cl, "/deliveries", "deliveries", query, max(lines, 1))
	if err != nil {
		return err
	}
	if len(shown) > 0 {
		last = shown[0].ID
	}
	for _, d := range slices.Backward(shown[:min(lines, len(shown))]) {
		fmt.Fprintln(printable{c.OutOrStdout()}, tailLine(d))
	}
	ticker := time.NewTicker(tailInterval)
	defer ticker.Stop()
	for !once {
		select {
		case <-c.Context().Done():
			return nil
		case <-ticker.C:
		}
		newer, err := newerThan(c.Context(), cl, query, last)
		if err != nil {
			if c.Context().Err() != nil {
				return nil
			}
			return err
		}
		for _, d := range newer {
			line := tailLine(d)
			if to != nil && d.Outcome == "accepted" {
				line += "  " + to.forward(c.Context(), cl, d)
			}
			fmt.Fprintln(printable{c.OutOrStdout()}, line)
			last = d.ID
		}
	}
	return nil
}

// newerThan reads what came after a delivery, oldest first. Ids sort by time.
func newerThan(ctx context.Context, cl *client, query url.Values, last string) ([]api.Delivery, error) {
	var newer []api.Delivery
	page := url.Values{}
	for name, values := range query {
		page[name] = values
	}
	page.Set("limit", "100")
	for {
		var answer struct {
			Deliveries []api.Delivery `json:"deliveries"`
			PageInfo   api.PageInfo   `json:"page_info"`
		}
		if err := cl.get(ctx, "/deliveries?"+page.Encode(), &answer); err != nil {
			return nil, err
		}
		for _, d := range answer.Deliveries {
			if d.ID <= last {
				slices.Reverse(newer)
				return newer, nil
			}
			newer = append(newer, d)
		}
		if !answer.PageInfo.HasNextPage {
			slices.Reverse(newer)
			return newer, nil
		}
		page.Set("cursor", answer.PageInfo.NextCursor)
	}
}

func tailLine(d api.Delivery) string {
	line := fmt.Sprintf("%s  %s  %s  %s", d.ReceivedAt.Local().Format(time.TimeOnly), d.ID, d.Webhook, outcomeText(d))
	switch {
	case d.Reason != "":
		line += "  " + d.Reason
	case d.DuplicateOf != "":
		line += "  of " + d.DuplicateOf
	case len(d.Runs) > 0:
		line += "  " + strings.Join(d.Runs, " ")
	}
	return line
}

// forwarder posts deliveries on.
type forwarder struct{ address, secret string }

// forwarding reads the flags; nil if nothing is forwarded.
func forwarding(c *cobra.Command) (*forwarder, error) {
	address, _ := c.Flags().GetString("forward")
	secretFile, _ := c.Flags().GetString("secret-file")
	if address == "" {
		if secretFile != "" {
			return nil, exitWith(exitUsage, "--secret-file goes with --forward")
		}
		return nil, nil
	}
	if u, err := url.Parse(address); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, exitWith(exitUsage, "--forward %q is not an address such as http://127.0.0.1:3000/hook", address)
	}
	f := &forwarder{address: address}
	if secretFile != "" {
		if webhook, _ := c.Flags().GetString("webhook"); webhook == "" {
			return nil, exitWith(exitUsage, "--secret-file is of one webhook: name it with --webhook")
		}
		var err error
		if f.secret, err = sendSecret(c); err != nil {
			return nil, err
		}
	}
	return f, nil
}

var forwardClient = senderClient(30 * time.Second)

// forward posts one delivery on, and says what became of it.
func (f *forwarder) forward(ctx context.Context, cl *client, d api.Delivery) string {
	status, err := f.post(ctx, cl, d)
	if err != nil {
		return "not forwarded: " + err.Error()
	}
	return fmt.Sprintf("forwarded: %d", status)
}

func (f *forwarder) post(ctx context.Context, cl *client, d api.Delivery) (int, error) {
	body, err := cl.do(ctx, http.MethodGet, "/deliveries/"+d.ID+"/payload", nil)
	if err != nil {
		return 0, err
	}
	var detail api.DeliveryDetail
	if err := cl.get(ctx, "/deliveries/"+d.ID, &detail); err != nil {
		return 0, err
	}
	header := http.Header{}
	for name, value := range detail.Headers {
		header.Set(name, value)
	}
	if f.secret != "" {
		var w api.Webhook
		if err := cl.get(ctx, "/webhooks/"+url.PathEscape(d.Webhook), &w); err != nil {
			return 0, err
		}
		w.URL = f.address
		status, _, _, err := (&message{webhook: &w, body: body, secret: f.secret, header: header}).post(ctx, forwardClient)
		return status, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.address, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header = header
	if req.Header.Get("Content-Type") == "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := forwardClient.Do(req)
	if err != nil {
		if failed := (*url.Error)(nil); errors.As(err, &failed) {
			err = failed.Err
		}
		return 0, err
	}
	_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10))
	return resp.StatusCode, errors.Join(err, resp.Body.Close())
}

func exportCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "export", Short: "Write deliveries as JSON lines, with their bodies", Args: cobra.NoArgs,
		Long: `Write entries of the log as JSON, one a line, newest first: as in deliveries list, and payload_base64 with the stored body,
byte for byte, of those that have one.`,
		Example: `  triphammer deliveries export --webhook ci --since 24h > ci.jsonl`,
		RunE:    withServer(false, exportDeliveries),
	}
	selectFlags(c)
	c.Flags().Bool("no-payload", false, "leave the bodies out")
	c.Flags().Int("limit", 0, "how many; 0: all")
	return c
}

// exported is a line of deliveries export.
type exported struct {
	api.Delivery
	Payload string `json:"payload_base64,omitempty"`
}

func exportDeliveries(c *cobra.Command, _ []string, cl *client) error {
	query, err := selection(c)
	if err != nil {
		return err
	}
	limit, _ := c.Flags().GetInt("limit")
	bare, _ := c.Flags().GetBool("no-payload")
	all, err := collect[api.Delivery](c.Context(), cl, "/deliveries", "deliveries", query, limit)
	if err != nil {
		return err
	}
	encoder := json.NewEncoder(c.OutOrStdout())
	encoder.SetEscapeHTML(false)
	for _, d := range all {
		line := exported{Delivery: d}
		if !bare && d.Outcome == "accepted" {
			body, err := cl.do(c.Context(), http.MethodGet, "/deliveries/"+d.ID+"/payload", nil)
			if err != nil {
				return err
			}
			line.Payload = base64.StdEncoding.EncodeToString(body)
		}
		if err := encoder.Encode(line); err != nil {
			return err
		}
	}
	return nil
}
