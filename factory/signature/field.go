package signature

import (
	"encoding/json"
	"strings"
)

// field is the text of the body's value at a path of keys and numbers of items:
// that of a string, or a number as it is written. Of repeated keys the last
// counts.
func field(body []byte, path string) (string, bool) {
	values, ok := fields(body, path)
	if !ok || len(values) != 1 {
		return "", false
	}
	return values[0], true
}

// fields are the texts at a path in which * stands for every item of a list. It
// fails if one of them is not there.
func fields(body []byte, path string) ([]string, bool) {
	var found []string
	ok := walk(body, strings.Split(path, "."), &found)
	return found, ok && len(found) > 0
}

func walk(value json.RawMessage, path []string, found *[]string) bool {
	if len(path) == 0 {
		return leaf(value, found)
	}
	if path[0] == "*" {
		var items []json.RawMessage
		if json.Unmarshal(value, &items) != nil {
			return false
		}
		for _, item := range items {
			if !walk(item, path[1:], found) {
				return false
			}
		}
		return true
	}
	var object map[string]json.RawMessage
	if json.Unmarshal(value, &object) != nil {
		return false
	}
	next, ok := object[path[0]]
	return ok && walk(next, path[1:], found)
}

func leaf(value json.RawMessage, found *[]string) bool {
	if len(value) == 0 || value[0] != '"' {
		text := string(value)
		*found = append(*found, text)
		return text != "" && strings.IndexByte("-0123456789", text[0]) >= 0
	}
	var text string
	if json.Unmarshal(value, &text) != nil || text == "" || len(text) > maxHeader {
		return false
	}
	*found = append(*found, text)
	return true
}

// withField is the body with a value at the path; objects on the way are made. A
// body that is no object, or has something else on the way, stays as it is.
func withField(body json.RawMessage, path []string, value json.RawMessage) json.RawMessage {
	if len(path) == 0 {
		return value
	}
	if path[0] == "*" {
		items := []json.RawMessage{[]byte("{}")}
		if body != nil && json.Unmarshal(body, &items) != nil {
			return body
		}
		for i := range items {
			items[i] = withField(items[i], path[1:], value)
		}
		changed, _ := json.Marshal(items)
		return changed
	}
	object := map[string]json.RawMessage{}
	if body != nil && (json.Unmarshal(body, &object) != nil || object == nil) {
		return body
	}
	object[path[0]] = withField(object[path[0]], path[1:], value)
	changed, _ := json.Marshal(object)
	return changed
}
