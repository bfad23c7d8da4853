package server

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

// olderIDs are the names that the ids of objects have beside id.
var olderIDs = []string{"run_id", "task_id", "delivery_id", "uid", "schedule_id", "event_uuid", "artifact_uid"}

// TestObjectsHaveID: what an answer identifies by an older name has an id too, and does not
// have it sometimes only. Only the answer to a delivery is as its senders have always had it.
func TestObjectsHaveID(t *testing.T) {
	doc, err := openapi3.NewLoader().LoadFromData(openapiDocument)
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[*openapi3.Schema]bool)
	checked := 0
	var walk func(where string, ref *openapi3.SchemaRef)
	walk = func(where string, ref *openapi3.SchemaRef) {
		if ref == nil || seen[ref.Value] {
			return
		}
		s := ref.Value
		seen[s] = true
		for _, older := range olderIDs {
			if s.Properties[older] == nil {
				continue
			}
			checked++
			if s.Properties["id"] == nil || slices.Contains(s.Required, older) && !slices.Contains(s.Required, "id") {
				t.Errorf("%s: an object has %s without id", where, older)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
			walk(where+"."+name, s.Properties[name])
		}
		for _, all := range []openapi3.SchemaRefs{s.AllOf, s.AnyOf, s.OneOf} {
			for _, one := range all {
				walk(where, one)
			}
		}
		walk(where+"[]", s.Items)
		walk(where+".*", s.AdditionalProperties.Schema)
	}
	for path, item := range doc.Paths.Map() {
		if strings.HasPrefix(path, ingress) {
			continue
		}
		for method, op := range item.Operations() {
			for status, answer := range op.Responses.Map() {
				for _, content := range answer.Value.Content {
					walk(method+" "+path+" "+status, content.Schema)
				}
			}
		}
	}
	if checked < 20 {
		t.Errorf("only %d objects with an older name were found", checked)
	}
}
