package signature

import (
	"encoding/json"
	"strings"
)

// field is the text of the body's value at a path of keys: that of a string, or
// a number as it is written. Of repeated keys the last counts.
func field(body []byte, path string) (string, bool) {
	if !json.Valid(body) {
		return "", false
	}
	value, ok := at(body, path)
	if !ok {
		return "", false
	}
	return leaf(value)
}

// fields are the texts at a path in which * stands for every item of a list. It
// fails if one of them is not there.
func fields(body []byte, path string) (found []string, ok bool) {
	before, after, listed := strings.Cut(path, ".*.")
	if !listed {
		text, ok := field(body, path)
		return []string{text}, ok
	}
	if !json.Valid(body) {
		return nil, false
	}
	list, ok := at(body, before)
	if !ok || list[0] != '[' {
		return nil, false
	}
	for i := space(list, 1); list[i] != ']'; {
		end := skip(list, i)
		value, ok := at(list[i:end], after)
		if !ok {
			return nil, false
		}
		text, ok := leaf(value)
		if !ok {
			return nil, false
		}
		found = append(found, text)
		if i = space(list, end); list[i] == ',' {
			i = space(list, i+1)
		}
	}
	return found, len(found) > 0
}

// at is the value at a path of keys of valid JSON.
func at(value []byte, path string) ([]byte, bool) {
	for more := true; more; {
		var key string
		key, path, more = strings.Cut(path, ".")
		i := space(value, 0)
		if value[i] != '{' {
			return nil, false
		}
		var found []byte
		for i = space(value, i+1); value[i] != '}'; {
			end := skip(value, i)
			name := value[i:end]
			from := space(value, space(value, end)+1) // after the colon
			end = skip(value, from)
			if same(name, key) {
				found = value[from:end]
			}
			if i = space(value, end); value[i] == ',' {
				i = space(value, i+1)
			}
		}
		if found == nil {
			return nil, false
		}
		value = found
	}
	return value, true
}

// same tells whether a quoted name is the key.
func same(quoted []byte, key string) bool {
	inner := quoted[1 : len(quoted)-1]
	if string(inner) == key {
		return true
	}
	if strings.IndexByte(string(inner), '\\') < 0 {
		return false
	}
	var name string
	return json.Unmarshal(quoted, &name) == nil && name == key
}

// space is where the blanks from i on end.
func space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}

// skip is where the value of valid JSON that begins at i ends.
func skip(b []byte, i int) int {
	depth := 0
	for {
		switch b[i] {
		case '"':
			for i++; b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
			i++
		case '{', '[':
			depth++
			i++
		case '}', ']':
			depth--
			i++
		case ',', ':', ' ', '\t', '\n', '\r':
			i++
			continue // within a list or an object
		default:
			for i < len(b) && strings.IndexByte(",:]} \t\n\r", b[i]) < 0 {
				i++
			}
		}
		if depth == 0 {
			return i
		}
	}
}

func leaf(value []byte) (string, bool) {
	if value[0] != '"' {
		return string(value), value[0] == '-' || '0' <= value[0] && value[0] <= '9'
	}
	if inner := value[1 : len(value)-1]; len(inner) > 0 && len(inner) <= maxHeader && plain(inner) {
		return string(inner), true
	}
	var text string
	if json.Unmarshal(value, &text) != nil || text == "" || len(text) > maxHeader {
		return "", false
	}
	return text, true
}

// plain tells whether a string stands for itself.
func plain(inner []byte) bool {
	for _, c := range inner {
		if c == '\\' || c >= 0x80 {
			return false
		}
	}
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
