package client

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

	"github.com/spf13/cobra"

	"triphammer/cmd/triphammer/client/exit"
	"triphammer/cmd/triphammer/client/term"
	"triphammer/server/api"
)

// tailInterval is how often the log is read.
const tailInterval = time.Second

// tailOptions are the flags of tail.
type tailOptions struct {
	selectOptions
	lines               int
	once                bool
	forward, secretFile string
}

func tailCommand() *cobra.Command {
	o := &tailOptions{}
	c := &cobra.Command{
		Use: "tail", Short: "Follow the log, and forward deliveries to another address", Args: cobra.NoArgs,
		Long: `Follow the delivery log until interrupted. With --forward each accepted delivery is posted on, such as to a server on
this machine: the original bytes, and the headers that are kept. Credentials are never kept, so a receiver that checks
them needs --secret-file: then each is signed again, in the mode of its webhook, with that secret.`,
		Example: `  triphammer deliveries tail --webhook ci
  triphammer deliveries tail --forward http://127.0.0.1:3000/hook
  triphammer deliveries tail --webhook github-main --forward http://127.0.0.1:3000/hook --secret-file github.secret`,
		RunE: WithServer(true, func(c *cobra.Command, _ []string, cl *Client) error { return o.tail(c, cl) }),
	}
	o.flags(c)
	o.sinceFlag(c)
	c.Flags().IntVar(&o.lines, "lines", 10, "how many existing deliveries to show first")
	c.Flags().BoolVar(&o.once, "once", false, "show the existing deliveries and end, without following")
	c.Flags().StringVar(&o.forward, "forward", "", "address to post new accepted deliveries to")
	c.Flags().StringVar(&o.secretFile, "secret-file", "", "with --forward: sign what is forwarded in the mode of its webhook, with this secret")
	return c
}

func (o *tailOptions) tail(c *cobra.Command, cl *Client) error {
	query, err := o.query()
	if err != nil {
		return err
	}
	to, err := o.forwarding(c)
	if err != nil {
		return err
	}
	last := ""
	shown, err := Collect[api.Delivery](c.Context(), cl, "/deliveries", query, max(o.lines, 1))
	if err != nil {
		return err
	}
	if len(shown) > 0 {
		last = shown[0].ID
	}
	out := term.ForPeople(c, c.OutOrStdout())
	for _, d := range slices.Backward(shown[:min(o.lines, len(shown))]) {
		fmt.Fprintln(out, tailLine(out, d))
	}
	ticker := time.NewTicker(tailInterval)
	defer ticker.Stop()
	for !o.once {
		select {
		case <-c.Context().Done():
			return nil
		case <-ticker.C:
		}
		newer, err := NewerThan(c.Context(), cl, query, last)
		if err != nil {
			if c.Context().Err() != nil {
				return nil
			}
			return err
		}
		for _, d := range newer {
			line := tailLine(out, d)
			if to != nil && d.Outcome == "accepted" {
				line += "  " + to.forward(c.Context(), cl, d)
			}
			fmt.Fprintln(out, line)
			last = d.ID
		}
	}
	return nil
}

// NewerThan reads the deliveries after one, the oldest first. Ids sort by time.
func NewerThan(ctx context.Context, cl *Client, query url.Values, last string) ([]api.Delivery, error) {
	var newer []api.Delivery
	page := url.Values{}
	for name, values := range query {
		page[name] = values
	}
	page.Set("limit", "100")
	for {
		var answer api.List[api.Delivery]
		if err := cl.Get(ctx, "/deliveries?"+page.Encode(), &answer); err != nil {
			return nil, err
		}
		for _, d := range answer.Entries {
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

func tailLine(w io.Writer, d api.Delivery) string {
	line := fmt.Sprintf("%s  %s  %s  %s", term.Hour(w, d.ReceivedAt), d.ID, d.Webhook, OutcomeText(d))
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

// forwarder posts deliveries to another address.
type forwarder struct{ address, secret string }

// forwarding makes the forwarder of --forward; nil if the flag is not given.
func (o *tailOptions) forwarding(c *cobra.Command) (*forwarder, error) {
	if o.forward == "" {
		if o.secretFile != "" {
			return nil, exit.With(exit.Usage, "--secret-file goes with --forward")
		}
		return nil, nil
	}
	if u, err := url.Parse(o.forward); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, exit.With(exit.Usage, "--forward %q is not an address such as http://127.0.0.1:3000/hook", o.forward)
	}
	f := &forwarder{address: o.forward}
	if o.secretFile != "" {
		if o.webhook == "" {
			return nil, exit.With(exit.Usage, "--secret-file is of one webhook: name it with --webhook")
		}
		var err error
		if f.secret, err = sendSecret(c, o.secretFile); err != nil {
			return nil, err
		}
	}
	return f, nil
}

var forwardClient = senderClient(30 * time.Second)

// forward posts one delivery, and describes the result.
func (f *forwarder) forward(ctx context.Context, cl *Client, d api.Delivery) string {
	status, err := f.post(ctx, cl, d)
	if err != nil {
		return "not forwarded: " + err.Error()
	}
	return fmt.Sprintf("forwarded: %d", status)
}

func (f *forwarder) post(ctx context.Context, cl *Client, d api.Delivery) (int, error) {
	body, err := cl.do(ctx, http.MethodGet, "/deliveries/"+d.ID+"/payload", nil)
	if err != nil {
		return 0, err
	}
	var detail api.DeliveryDetail
	if err := cl.Get(ctx, "/deliveries/"+d.ID, &detail); err != nil {
		return 0, err
	}
	header := http.Header{}
	for name, value := range detail.Headers {
		header.Set(name, value)
	}
	if f.secret != "" {
		var w api.Webhook
		if err := cl.Get(ctx, "/webhooks/"+url.PathEscape(d.Webhook), &w); err != nil {
			return 0, err
		}
		w.URL = f.address
		status, _, _, err := (&Message{Webhook: &w, Body: body, Secret: f.secret, Header: header}).Post(ctx, forwardClient)
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
	var selected selectOptions
	var bare bool
	c := &cobra.Command{
		Use: "export", Short: "Write deliveries as JSON lines, with their bodies", Args: cobra.NoArgs,
		Long: `Write entries of the log as JSON, one a line, newest first: as in deliveries list, and payload_base64 with the stored body,
byte for byte, of those that have one.`,
		Example: `  triphammer deliveries export --webhook ci --since 24h > ci.jsonl`,
		RunE:    WithServer(false, func(c *cobra.Command, _ []string, cl *Client) error { return exportDeliveries(c, cl, &selected, bare) }),
	}
	selected.flags(c)
	selected.timespan.flags(c)
	c.Flags().BoolVar(&bare, "no-payload", false, "leave the bodies out")
	term.LimitFlag(c, &selected.limit, 0)
	return c
}

// exported is a line of deliveries export.
type exported struct {
	api.Delivery
	Payload string `json:"payload_base64,omitempty"`
}

func exportDeliveries(c *cobra.Command, cl *Client, selected *selectOptions, bare bool) error {
	query, err := selected.query()
	if err != nil {
		return err
	}
	all, err := Collect[api.Delivery](c.Context(), cl, "/deliveries", query, selected.limit)
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
