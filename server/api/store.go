package api

import "time"

// StoreReport is the result of a check of a store or of a backup.
type StoreReport struct {
	Sound    bool             `json:"sound"`
	Problems []string         `json:"problems"` // the first 20
	Schema   int              `json:"schema"`
	KeyID    string           `json:"key_id"` // of the sealing key that opens its secrets
	Rows     map[string]int64 `json:"rows"`
	Newest   *time.Time       `json:"newest_delivery,omitempty"`
	// Partial: the schema is older, and only the structure of the file was checked.
	Partial bool `json:"partial,omitempty"`
}

// BackupSent is the action of the audit log for a backup that was sent as a whole. A backup
// that was begun is a store.backup.
const BackupSent = "store.backup_sent"
