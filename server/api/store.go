package api

import "time"

// StoreReport is what a check of a store, or of a copy of one, found.
type StoreReport struct {
	Sound    bool             `json:"sound"`
	Problems []string         `json:"problems"` // the first 20
	Schema   int              `json:"schema"`
	KeyID    string           `json:"key_id"` // of the sealing key that opens its secrets
	Rows     map[string]int64 `json:"rows"`
	Newest   *time.Time       `json:"newest_delivery,omitempty"`
	// Partial: its schema is older, and only the structure of the file was looked at.
	Partial bool `json:"partial,omitempty"`
}
