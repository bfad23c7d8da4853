package api

import "encoding/json"

// TestFilter is the body of POST /api/v1/filters/test and /api/v1/filters/ask.
type TestFilter struct {
	Factory    string          `json:"factory,omitempty"`
	Automation string          `json:"automation,omitempty"`
	Filter     json.RawMessage `json:"filter,omitempty"`
	DeliveryID string          `json:"delivery_id,omitempty"`
	Payload    json.RawMessage `json:"payload,omitempty"`
	// Headers come with Payload.
	Headers map[string]string `json:"headers,omitempty"`
	Webhook string            `json:"webhook,omitempty"`
}

// FilterVerdict is the answer to a TestFilter.
type FilterVerdict struct {
	WouldTrigger bool   `json:"would_trigger"`
	Verdict      string `json:"verdict"` // Would trigger, Would not trigger, Not known
	// Asks is the sender whose API POST /api/v1/filters/ask can ask for missing data. Asked are
	// the questions that were asked.
	Asks         string      `json:"asks,omitempty"`
	Asked        []string    `json:"asked,omitempty"`
	WebhookCheck FilterCheck `json:"webhook_check"`
	PayloadCheck FilterCheck `json:"payload_check"`
	// Subject is what the event is about, if the payload passes. SubjectLacks is the path of the
	// automation's own subject that has no value in the payload.
	Subject      string      `json:"subject,omitempty"`
	SubjectLacks string      `json:"subject_lacks,omitempty"`
	Conditions   []Condition `json:"conditions"`
	// Webhooks has a verdict for each webhook that the automation selects, if the request
	// has no webhook.
	Webhooks []WebhookVerdict `json:"webhooks,omitempty"`
}

// WebhookVerdict is the part of a FilterVerdict for one webhook.
type WebhookVerdict struct {
	Webhook      string `json:"webhook"`
	WouldTrigger bool   `json:"would_trigger"`
	Unknown      bool   `json:"unknown,omitempty"` // the verdict needs data that only the sender's API has
	Detail       string `json:"detail"`
}

// FilterCheck is one part of a FilterVerdict.
type FilterCheck struct {
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
	Path   string `json:"path,omitempty"`
	Want   string `json:"want,omitempty"`
	Got    string `json:"got,omitempty"`
}
