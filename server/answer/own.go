package answer

import (
	"encoding/json"
	"regexp"
	"strings"

	"triphammer/server/store"
)

// own says where a delivery has the text that the event is about, by provider. Other texts, such as
// earlier comments that a delivery repeats, may be answers of ours too, and mean nothing.
var own = map[string][]string{
	"github":       {"comment.body", "review.body", "check_run.external_id", "check_run.output.summary", "description"},
	"gitlab":       {"object_attributes.note"},
	"jira":         {"comment.body"},
	"linear":       {"data.body", "agentActivity.content.body"},
	"slack":        {"event.text", "event.message.text", "event.metadata.event_payload", "event.message.metadata.event_payload", "event.metadata.event_type"},
	"teams":        {"text", "value.text"},
	"azure_devops": {"resource.comment.content", "resource.content", "resource.fields.System.History"},
}

var markers = regexp.MustCompile(`triphammer:run_[0-9a-z]{13}:[0-9a-f]{32}`)

// Marked are the runs whose answers the text of a delivery may be, with the markers in it. Whether
// the markers are ours is not known yet.
func Marked(provider string, body []byte) map[store.RunID]string {
	if !store.HasMarker(body) {
		return nil
	}
	var payload any
	if json.Unmarshal(body, &payload) != nil {
		return nil
	}
	var found map[store.RunID]string
	for _, path := range own[provider] {
		for _, marker := range markers.FindAllString(textAt(payload, path), 4) {
			if id, err := store.ParseID[store.Run](strings.Split(marker, ":")[1]); err == nil {
				if found == nil {
					found = make(map[store.RunID]string)
				}
				found[id] = marker
			}
		}
	}
	return found
}

// textAt is the text at a path of a payload. A mapping or a list is its JSON.
func textAt(at any, path string) string {
	for path != "" {
		object, is := at.(map[string]any)
		if !is {
			return ""
		}
		if value, whole := object[path]; whole {
			at = value
			break
		}
		step, rest, _ := strings.Cut(path, ".")
		if at = object[step]; rest == path {
			return ""
		}
		path = rest
	}
	if text, is := at.(string); is {
		return text
	}
	text, err := json.Marshal(at)
	if err != nil || at == nil {
		return ""
	}
	return string(text)
}
