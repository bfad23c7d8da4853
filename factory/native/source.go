package native

import (
	"slices"
	"strings"

	"triphammer/factory/jsonscan"
)

// Source is where in a delivery values come from.
type Source struct {
	Doc    string // for people: the places, and what is done with their values
	places []place
	read   func(*Payload) []string
}

// place is where in a delivery a value is: a path in the body such as
// `issue.labels[].name`, or a header such as `@X-Github-Event`.
type place struct {
	path  string
	whole bool // the value as JSON, whatever its type
}

func placesOf(paths ...string) []place {
	all := make([]place, len(paths))
	for i, path := range paths {
		all[i].path = path
	}
	return all
}

func (s Source) values(p *Payload) []string {
	if s.read == nil {
		return nil
	}
	return s.read(p)
}

// at are the values at places of the body, such as `issue.labels[].name`, or of headers.
// Nulls, objects and arrays are no values; a number is as the sender wrote it.
func at(paths ...string) Source {
	return Source{Doc: strings.Join(paths, ", "), places: placesOf(paths...), read: func(p *Payload) []string {
		if len(paths) == 1 {
			return p.values[paths[0]]
		}
		var all []string
		for _, path := range paths {
			all = append(all, p.values[path]...)
		}
		return all
	}}
}

// first are the values at the first of the places that has a value.
func first(paths ...string) Source {
	return Source{Doc: strings.Join(paths, ", else "), places: placesOf(paths...), read: func(p *Payload) []string {
		for _, path := range paths {
			if values := p.values[path]; len(values) > 0 {
				return values
			}
		}
		return nil
	}}
}

// given is the value at a place as JSON, also a null: it tells whether the place is there.
func given(path string) Source {
	return Source{Doc: path + " is given", places: []place{{path: path, whole: true}}, read: func(p *Payload) []string { return p.values[path] }}
}

// mapped makes any number of values of each value of a source.
func mapped(doc string, s Source, change func(string) []string) Source {
	return Source{Doc: doc + " " + s.Doc, places: s.places, read: func(p *Payload) []string {
		var all []string
		for _, value := range s.values(p) {
			all = append(all, change(value)...)
		}
		return all
	}}
}

// mentions are the names that a text mentions (see mentionsIn).
func mentions(inner string, s Source) Source {
	named := mapped("who is mentioned in", s, nil)
	named.read = func(p *Payload) []string {
		var all []string
		for _, text := range s.values(p) {
			names, known := p.mentions[text]
			if !known {
				names = mentionsIn(text, inner)
				p.mentions[text] = names
			}
			all = append(all, names...)
		}
		return all
	}
	return named
}

// accounts are the values that are accounts of the webhook, without regard to case.
func accounts(s Source) Source {
	return Source{Doc: "accounts of the webhook in " + s.Doc, places: s.places, read: func(p *Payload) []string {
		var all []string
		for _, value := range s.values(p) {
			if slices.ContainsFunc(p.Accounts, func(a string) bool { return strings.EqualFold(a, value) }) {
				all = append(all, value)
			}
		}
		return all
	}}
}

// items reads values from each element of an array. get finds a string, number or boolean of
// the element by its key; other values are empty. also are further sources that read looks at.
func items(doc, path string, read func(p *Payload, get func(key string) string) []string, also ...Source) Source {
	places := []place{{path: path, whole: true}}
	for _, s := range also {
		places = append(places, s.places...)
	}
	return Source{Doc: doc, places: places, read: func(p *Payload) []string {
		var all []string
		for _, element := range p.values[path] {
			fields := fieldsOf([]byte(element))
			all = append(all, read(p, func(key string) string { return fields[key] })...)
		}
		return all
	}}
}

// fieldsOf are the strings, numbers and booleans of a JSON object.
func fieldsOf(object []byte) map[string]string {
	s := jsonscan.Scanner{Data: object}
	s.Space()
	if s.Peek() != '{' {
		return nil
	}
	all := make(map[string]string)
	for s.Enter(); s.More(); {
		name, start := string(s.Name()), s.Pos
		switch s.Peek() {
		case '"':
			all[name] = string(s.Unquote())
		case '{', '[', 'n':
			_ = s.Skip()
		default:
			_ = s.Skip()
			all[name] = string(s.Data[start:s.Pos])
		}
	}
	return all
}
