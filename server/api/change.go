package api

import "time"

// ChangeRequest is the body of POST /api/v1/factories/<name>/changes.
type ChangeRequest struct {
	// Base is the commit that the person has seen. If others have changed the same files
	// since, the change is refused. Empty: the newest commit, whatever it is.
	Base string `json:"base,omitempty"`
	// Message is the message of the commit. Empty: the server makes one from the paths.
	Message string `json:"message,omitempty"`
	// Files are the new texts, by path from the folder that holds factory.yaml; null removes
	// the file.
	Files map[string]*string `json:"files"`
}

// Change is the answer to a ChangeRequest.
type Change struct {
	Commit    string `json:"commit"`    // the commit of the change, or the newest commit if Unchanged
	Unchanged bool   `json:"unchanged"` // the files already are as requested: there is no new commit
	// Live tells that the commit serves. If it does not, Waits says why.
	Live  bool   `json:"live"`
	Waits string `json:"waits,omitempty"`
	// Apply is missing if nothing was applied: unchanged, or pinned.
	Apply *Apply `json:"apply,omitempty"`
	// Since are changes of other files by others since the base. The commit includes them.
	Since []FileEdit `json:"since"`
}

// FileEdit is the newest commit to a file.
type FileEdit struct {
	Path    string    `json:"path"`
	Commit  string    `json:"commit"`
	Author  string    `json:"author"`
	Subject string    `json:"subject"`
	Time    time.Time `json:"time"`
}

// Moved is part of a problem: others have changed files of a change since its base.
type Moved struct {
	Tip   string     `json:"tip"`   // the newest commit
	Paths []string   `json:"paths"` // of the change that others changed too
	Since []FileEdit `json:"since"` // all files that changed
}

// FactoryFiles is GET /api/v1/factories/<name>/files: the files of the newest commit of a hosted
// factory, or of the live commit of another factory.
type FactoryFiles struct {
	Commit string        `json:"commit"` // empty: there is no commit yet
	Files  []FactoryFile `json:"files"`
}

// FactoryFile is a file below the folder that holds factory.yaml.
type FactoryFile struct {
	Path       string `json:"path"`
	Size       int64  `json:"size"`
	Executable bool   `json:"executable,omitempty"`
}

// FileText is GET /api/v1/factories/<name>/files/<path>.
type FileText struct {
	FactoryFile
	Commit   string `json:"commit"`
	Content  string `json:"content"`
	Encoding string `json:"encoding,omitempty"` // of the content
}

// FactoryCommit is an entry of GET /api/v1/factories/<name>/log.
type FactoryCommit struct {
	Commit  string    `json:"commit"`
	Author  string    `json:"author"`
	Subject string    `json:"subject"`
	Time    time.Time `json:"time"`
}
