package server

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"triphammer/factory"
	"triphammer/factory/signature"
	"triphammer/server/access"
	"triphammer/server/api"
	"triphammer/server/delivery"
	"triphammer/server/terms"
)

// Limits of the headers that a caller gives a test.
const (
	maxTestHeaders = 50
	maxTestHeader  = 4096 // bytes of a value
)

// sendTest sends a test to a webhook. The answer never has what proves the delivery.
func (s *Server) sendTest(ctx context.Context, c *call, f access.Factory) (shown api.TestSent, err error) {
	req, err := optionalBody[api.SendTest](c)
	if err != nil {
		return shown, err
	}
	w := c.LiveWebhook(f.Name, c.Param("webhook"))
	if w == nil {
		return shown, f.NoneNamed("webhook", c.Param("webhook"))
	}
	test := delivery.Test{URL: s.showWebhook(w).URL, By: c.Name, Client: clientOf(c.Context)}
	if test.Header, test.Body, err = testOf(w.Def, req, s.cfg.Now()); err != nil {
		return shown, err
	}
	answer, err := f.SendTest(ctx, w, test)
	switch {
	case err != nil:
		return shown, err
	case answer.Entry == 0 && answer.RetryAfter > 0:
		c.Header("Retry-After", strconv.Itoa(answer.RetryAfter))
		if answer.Status == http.StatusTooManyRequests {
			return shown, api.Refuse(api.TooManyRequests, "the webhook takes no more deliveries now: "+answer.Reason)
		}
		return shown, api.Refuse(api.Unavailable, "the webhook takes no delivery now: "+answer.Reason)
	}
	shown.Status = answer.Status
	if answer.Entry == 0 {
		c.audit("webhook.test", w.Def.Name, f.Name, "a question, answered with "+strconv.Itoa(answer.Status))
		return shown, nil
	}
	c.audit("webhook.test", w.Def.Name, f.Name, answer.Entry.String())
	d, err := c.Delivery(ctx, answer.Entry.String())
	if err == nil {
		entry := showDelivery(d.Delivery)
		shown.Delivery = &entry
	}
	return shown, err
}

// testOf is the delivery that a caller asks for.
func testOf(w *factory.Webhook, req api.SendTest, now time.Time) (http.Header, []byte, error) {
	header := make(http.Header)
	if string(req.Payload) == "null" {
		req.Payload = nil
	}
	if req.Event != "" || req.Payload == nil {
		samples := samplesFor(w, now)
		i := slices.IndexFunc(samples, func(one signature.Sample) bool { return cmp.Or(req.Event, one.Event) == one.Event })
		if i < 0 {
			events := terms.Each(samples, func(one signature.Sample) string { return one.Event })
			return nil, nil, refuse("event", req.Event, "there is no sample of this event; there are %s", strings.Join(events, ", "))
		}
		for name, value := range samples[i].Headers {
			header.Set(name, value)
		}
		if req.Payload == nil {
			req.Payload = json.RawMessage(samples[i].Body)
		}
	}
	if len(req.Headers) > maxTestHeaders {
		return nil, nil, refuse("headers", "", "a test has at most %d headers", maxTestHeaders)
	}
	for name, value := range req.Headers {
		switch {
		case !signature.IsHeaderName(name):
			return nil, nil, refuse("headers", name, "%q is no header name", name)
		case len(value) > maxTestHeader || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }):
			return nil, nil, refuse("headers", name, "the value of %s is longer than %d bytes, or has control characters", name, maxTestHeader)
		}
		header.Set(name, value)
	}
	return header, req.Payload, nil
}

// samplesFor are deliveries that the sender of a webhook could send.
func samplesFor(w *factory.Webhook, now time.Time) []signature.Sample {
	if w.Scheme != nil {
		if all := signature.SamplesOf(w.Scheme.Name); len(all) > 0 {
			return all
		}
	}
	return []signature.Sample{signature.PlainSample(now)}
}
