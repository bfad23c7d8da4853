package signature

import (
	"encoding/json"
	"strings"

	"triphammer/factory/jsonscan"
)

// field is the value at a path of keys of the body: the text of a string, or a number as it
// is written. The last of repeated keys counts.
func field(body []byte, path string) (string, bool) {
	if jsonscan.Check(body) != nil {
		return "", false
	}
	return textAt(jsonscan.Scanner{Data: body}, path)
}

// fields are the texts at a path in which * stands for every item of a list. It fails if an
// item lacks its text.
func fields(body []byte, path string) (found []string, ok bool) {
	before, after, listed := strings.Cut(path, ".*.")
	if !listed {
		text, ok := field(body, path)
		return []string{text}, ok
	}
	s := jsonscan.Scanner{Data: body}
	if jsonscan.Check(body) != nil || !find(&s, before) || s.Peek() != '[' {
		return nil, false
	}
	for s.Enter(); s.More(); {
		text, ok := textAt(s, after)
		if !ok {
			return nil, false
		}
		found = append(found, text)
		_ = s.Skip() // Check has passed the body
	}
	return found, len(found) > 0
}

// find moves to the value at a path of keys, in a body that Check has passed.
func find(s *jsonscan.Scanner, path string) bool {
	for more := true; more; {
		var key string
		key, path, more = strings.Cut(path, ".")
		if s.Space(); s.Peek() != '{' {
			return false
		}
		found := 0
		for s.Enter(); s.More(); {
			if string(s.Name()) == key {
				found = s.Pos
			}
			_ = s.Skip() // Check has passed the body
		}
		if s.Pos = found; found == 0 {
			return false
		}
	}
	return true
}

func textAt(s jsonscan.Scanner, path string) (string, bool) {
	if !find(&s, path) {
		return "", false
	}
	switch first := s.Peek(); {
	case first == '"':
		text := s.Unquote()
		if len(text) == 0 || len(text) > maxHeader {
			return "", false
		}
		return string(text), true
	case first == '-', '0' <= first && first <= '9':
		start := s.Pos
		_ = s.Number() // Check has passed the body
		return string(s.Data[start:s.Pos]), true
	}
	return "", false
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
