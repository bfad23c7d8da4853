package schema

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"strings"
	"sync"
)

// The JSON Schemas are generated from the tables of the parser and committed:
// go test ./factory -run Schema -update
//
//go:embed *.schema.json
var jsonSchemas embed.FS

const jsonSchemaExt = ".schema.json"

// JSONSchema is one of the JSON Schemas of the format, their bundle, or their index.
type JSONSchema struct {
	Text []byte // callers must not change it
	ETag string // a strong validator, with its quotes
}

// JSONSchemaNames are the names of the JSON Schemas (SPEC 3.6), sorted: documents such as
// "webhook", and "common", which the other schemas refer to.
func JSONSchemaNames() []string {
	entries, _ := jsonSchemas.ReadDir(".") // embedded files can always be read
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = strings.TrimSuffix(e.Name(), jsonSchemaExt)
	}
	return names
}

// LookupJSONSchema finds a document's JSON Schema by its name or its file name. Schemas
// refer to common.schema.json by the file name.
func LookupJSONSchema(name string) (JSONSchema, bool) {
	one, found := schemasByName()[strings.TrimSuffix(name, jsonSchemaExt)]
	return one, found
}

// schemasByName are read only once, because strangers may request them.
var schemasByName = sync.OnceValue(func() map[string]JSONSchema {
	all := make(map[string]JSONSchema)
	for _, name := range JSONSchemaNames() {
		text, _ := jsonSchemas.ReadFile(name + jsonSchemaExt)
		all[name] = newJSONSchema(text)
	}
	return all
})

// JSONSchemaBundle is all JSON Schemas by file name, with the version that they describe.
var JSONSchemaBundle = sync.OnceValue(func() JSONSchema {
	bundle := make(map[string]json.RawMessage)
	for _, name := range JSONSchemaNames() {
		one, _ := LookupJSONSchema(name)
		bundle[name+jsonSchemaExt] = one.Text
	}
	text, _ := json.Marshal(map[string]any{"schema_version": Version, "documents": bundle}) // a test holds each to be JSON
	return newJSONSchema(text)
})

// JSONSchemaIndex says which versions there are, and where the bundle of each is;
// root is the path of the schemas.
func JSONSchemaIndex(root string) JSONSchema {
	type version struct {
		SchemaVersion string `json:"schema_version"`
		SchemaURL     string `json:"schema_url"`
	}
	text, _ := json.Marshal(map[string]any{"current_version": Version, "versions": []version{{Version, root + "/" + Version}}}) // strings
	return newJSONSchema(text)
}

func newJSONSchema(text []byte) JSONSchema {
	sum := sha256.Sum256(text)
	return JSONSchema{Text: text, ETag: `"` + hex.EncodeToString(sum[:16]) + `"`}
}
