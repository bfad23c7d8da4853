package api

import "encoding/json"

// PageInfo tells whether a list goes on.
type PageInfo struct {
	HasNextPage bool   `json:"has_next_page"`
	NextCursor  string `json:"next_cursor,omitempty"`
}

// List is a list, or a page of one. In its JSON the entries have the name of their
// kind, such as {"runs": […], "page_info": {…}}.
type List[T Listed] struct {
	Entries  []T
	PageInfo *PageInfo // nil: the list has no pages
}

// Listed is what lists are of.
type Listed interface {
	list() string // what their entries are called
}

func (AgentEntry) list() string       { return "agents" }
func (AgentEnvironment) list() string { return "environments" }
func (Apply) list() string            { return "applies" }
func (AuditEntry) list() string       { return "entries" }
func (Automation) list() string       { return "automations" }
func (Delivery) list() string         { return "deliveries" }
func (Key) list() string              { return "keys" }
func (Notice) list() string           { return "notices" }
func (PendingSecret) list() string    { return "pending_secrets" }
func (Run) list() string              { return "runs" }
func (Schedule) list() string         { return "schedules" }
func (Secret) list() string           { return "secrets" }
func (Webhook) list() string          { return "webhooks" }

// MarshalJSON implements json.Marshaler.
func (l List[T]) MarshalJSON() ([]byte, error) {
	var kind T
	all := map[string]any{kind.list(): l.Entries}
	if l.PageInfo != nil {
		all["page_info"] = l.PageInfo
	}
	return json.Marshal(all)
}

// UnmarshalJSON implements json.Unmarshaler.
func (l *List[T]) UnmarshalJSON(text []byte) error {
	var kind T
	var all map[string]json.RawMessage
	if err := json.Unmarshal(text, &all); err != nil {
		return err
	}
	if info := all["page_info"]; info != nil {
		if err := json.Unmarshal(info, &l.PageInfo); err != nil {
			return err
		}
	}
	return json.Unmarshal(all[kind.list()], &l.Entries)
}
