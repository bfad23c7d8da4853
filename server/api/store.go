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

// What a backup holds: an archive of tar. An archive without the last one is incomplete.
const (
	ArchivedKey       = "key"           // the sealing key; the server sends none, and `triphammer db backup --with-key` adds it
	ArchivedStore     = "triphammer.db" // the store, as a file of SQLite
	ArchivedArtifacts = "artifacts/"    // then the folder of a run, a slash and the name of a file
	ArchivedHosted    = "hosted/"       // then the name of a factory: its repository, by git bundle; empty if that is
	ArchivedEnd       = "end"

	// ArchivedBranch is the PAX record with the production branch of a repository.
	ArchivedBranch = "TRIPHAMMER.branch"
)

// HostedFolder is the folder of the data directory with the repositories that live there.
const HostedFolder = "hosted"

// BackupSent is the action of the audit log for a backup that was sent as a whole. A backup
// that was begun is a store.backup.
const BackupSent = "store.backup_sent"
