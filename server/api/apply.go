package api

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"triphammer/applier"
	"triphammer/schema"
)

// Apply is an entry of GET /api/v1/applies.
type Apply struct {
	ID          string          `json:"id"`
	Factory     string          `json:"factory"`
	Repository  string          `json:"repository"`
	Branch      string          `json:"branch"`
	Commit      string          `json:"commit"`
	Author      string          `json:"author"`
	Subject     string          `json:"subject"`
	Trigger     string          `json:"trigger"`
	Outcome     string          `json:"outcome"`
	Error       string          `json:"error,omitempty"`
	Plan        json.RawMessage `json:"plan"`
	Diagnostics json.RawMessage `json:"diagnostics"`
	StartedAt   time.Time       `json:"started_at"`
	FinishedAt  time.Time       `json:"finished_at"`
	Webhooks    []BoundWebhook  `json:"webhooks,omitempty"`
}

// BoundWebhook is a webhook of an apply, with the generation of its secret.
type BoundWebhook struct {
	Name       string `json:"name"`
	UID        string `json:"uid"`
	ID         string `json:"id"` // equal to uid
	SecretName string `json:"secret_name"`
	Generation int64  `json:"generation"`
}

// ApplyFiles is GET /api/v1/applies/<id>/files.
type ApplyFiles struct {
	ID     string        `json:"id"`
	Commit string        `json:"commit"`
	Files  []AppliedFile `json:"files"`
}

// AppliedFile is a definition file of an apply.
type AppliedFile struct {
	Path    string `json:"path"`
	Blob    string `json:"blob"` // Git object name
	Size    int    `json:"size"`
	Content string `json:"content,omitempty"` // only for the requested file

	Encoding   string `json:"encoding,omitempty"` // of the content
	Executable bool   `json:"executable,omitempty"`
}

// ApplyDiff is GET /api/v1/applies/<id>/diff.
type ApplyDiff struct {
	From       string       `json:"from"`
	FromCommit string       `json:"from_commit"`
	To         string       `json:"to"`
	ToCommit   string       `json:"to_commit"`
	Plan       applier.Plan `json:"plan"`
}

// DefinitionFiles is a tree of definition files in a request.
type DefinitionFiles struct {
	Files []DefinitionFile `json:"files"`
}

// DefinitionFile is a file of a tree.
type DefinitionFile struct {
	Path    string  `json:"path"` // from the folder that holds factory.yaml
	Content *string `json:"content"`

	Encoding   string `json:"encoding,omitempty"` // of the content: EncodingBase64; empty: it is text
	Executable bool   `json:"executable,omitempty"`
}

// EncodingBase64 is the encoding of a content that is not UTF-8, because JSON carries only UTF-8.
const EncodingBase64 = "base64"

// EncodeContent is the content of a file for JSON, byte for byte, with its encoding.
func EncodeContent(data []byte) (content, encoding string) {
	if utf8.Valid(data) {
		return string(data), ""
	}
	return base64.StdEncoding.EncodeToString(data), EncodingBase64
}

// DecodeContent is the opposite of EncodeContent. The error is for people.
func DecodeContent(content, encoding string) ([]byte, error) {
	switch encoding {
	case "":
		return []byte(content), nil
	case EncodingBase64:
		return base64.StdEncoding.DecodeString(content)
	}
	return nil, fmt.Errorf("the encoding %q is not %s", encoding, EncodingBase64)
}

// PlanAnswer is what an apply of a tree would do.
type PlanAnswer struct {
	schema.Answer
	Against   string             `json:"against,omitempty"` // the commit that serves
	Plan      applier.Plan       `json:"plan"`
	BackTests []applier.BackTest `json:"back_tests"`
}
