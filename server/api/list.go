package api

import "encoding/json"

// PageInfo tells whether a list has more entries.
type PageInfo struct {
	HasNextPage bool   `json:"has_next_page"`
	NextCursor  string `json:"next_cursor,omitempty"`
}

// List is a list, or a page of a list. In its JSON the entries have the name of their
// kind, such as {"runs": […], "page_info": {…}}.
type List[T Listed] struct {
	Entries  []T
	PageInfo PageInfo
}

// Listed are the types of the entries of a List.
type Listed interface {
	// list returns the name of the entries in the JSON, and whether the list has page_info.
	list() (name string, pages bool)
}

func (AgentEntry) list() (string, bool)       { return "agents", false }
func (AgentEnvironment) list() (string, bool) { return "environments", false }
func (InboxItem) list() (string, bool)        { return "items", false }
func (Apply) list() (string, bool)            { return "applies", true }
func (AuditEntry) list() (string, bool)       { return "entries", true }
func (Automation) list() (string, bool)       { return "automations", true }
func (Delivery) list() (string, bool)         { return "deliveries", true }
func (Factory) list() (string, bool)          { return "factories", true }
func (FactoryCommit) list() (string, bool)    { return "commits", false }
func (FactoryStatus) list() (string, bool)    { return "factories", false }
func (AgentIdentity) list() (string, bool)    { return "agents", false }
func (Key) list() (string, bool)              { return "keys", true }
func (Notice) list() (string, bool)           { return "notices", true }
func (PendingSecret) list() (string, bool)    { return "pending_secrets", true }
func (Run) list() (string, bool)              { return "runs", true }
func (Schedule) list() (string, bool)         { return "schedules", false }
func (Secret) list() (string, bool)           { return "secrets", true }
func (Session) list() (string, bool)          { return "sessions", true }
func (SignatureScheme) list() (string, bool)  { return "signature_schemes", false }
func (Subject) list() (string, bool)          { return "subjects", true }
func (Webhook) list() (string, bool)          { return "webhooks", true }

// MarshalJSON implements json.Marshaler.
func (l List[T]) MarshalJSON() ([]byte, error) {
	var kind T
	name, pages := kind.list()
	all := map[string]any{name: l.Entries}
	if pages {
		all["page_info"] = l.PageInfo
	}
	return json.Marshal(all)
}

// UnmarshalJSON implements json.Unmarshaler.
func (l *List[T]) UnmarshalJSON(text []byte) error {
	var kind T
	name, pages := kind.list()
	var all map[string]json.RawMessage
	err := json.Unmarshal(text, &all)
	if err == nil {
		err = json.Unmarshal(all[name], &l.Entries)
	}
	if err == nil && pages {
		err = json.Unmarshal(all["page_info"], &l.PageInfo)
	}
	return err
}
