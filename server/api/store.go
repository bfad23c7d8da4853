package api

import "time"

// StoreReport is the result of a check of a store or of a backup.
type StoreReport struct {
	Sound    bool             `json:"sound"`
	Problems []string         `json:"problems"` // the first 20
	Schema   int              `json:"schema"`
	KeyID    string           `json:"key_id"` // of the sealing key that opens the secrets
	Rows     map[string]int64 `json:"rows"`
	Newest   *time.Time       `json:"newest_delivery,omitempty"`
	// Partial tells that only the structure of the file was checked, because the schema is older.
	Partial bool `json:"partial,omitempty"`
}

// A backup is a tar archive with these entries. An archive without ArchivedEnd is incomplete.
const (
	ArchivedKey       = "key"           // the sealing key; the server sends none, and `triphammer db backup --with-key` adds it
	ArchivedStore     = "triphammer.db" // the store, as a file of SQLite
	ArchivedArtifacts = "artifacts/"    // followed by the folder of a run, a slash and the name of a file
	ArchivedHosted    = "hosted/"       // followed by the name of a factory: its repository as a git bundle, or empty for an empty repository
	ArchivedEnd       = "end"

	// ArchivedBranch is the PAX record with the production branch of a repository.
	ArchivedBranch = "TRIPHAMMER.branch"
)

// HostedFolder is the folder of the data directory with the hosted repositories.
const HostedFolder = "hosted"

// BackupSent is the action in the audit log for a backup that was completely sent. The action
// for the beginning of a backup is store.backup.
const BackupSent = "store.backup_sent"
