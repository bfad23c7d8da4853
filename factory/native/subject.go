package native

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"triphammer/factory/jsonscan"
)

// MaxSubject is the largest length of a subject, in bytes. A longer one ends with a digest of the whole.
const MaxSubject = 200

// SubjectOf is what the event is about, such as github:acme/app#12 (SPEC 21.1). It is empty if the
// delivery does not say so.
func (e *Event) SubjectOf(p *Payload) string {
	values := e.Subject.values(p)
	if len(values) != 1 {
		return ""
	}
	return SubjectText(e.Sender.Provider, values[0])
}

// TitleOf is what people call the subject of a delivery, such as the title of its issue. It is empty if the
// delivery does not say so. The body must be valid JSON (jsonscan.Check).
func (s *Sender) TitleOf(d Delivery) string {
	for _, title := range s.title.values(s.read(d, s.headReader)) {
		return title
	}
	return ""
}

// RepositoryOf is the repository that a subject is in, with its provider, such as github:acme/app. It is
// empty if the subject is in none.
func RepositoryOf(subject string) string {
	provider, name, _ := strings.Cut(subject, ":")
	if !slices.ContainsFunc(senders(), func(s *Sender) bool { return s.Provider == provider && s.HasHeads() }) {
		return ""
	}
	for _, end := range []string{"#", "!", "@", "/heads/", "/tags/"} {
		name, _, _ = strings.Cut(name, end)
	}
	if name == "" {
		return ""
	}
	return provider + ":" + name
}

// SubjectText is a subject in its canonical form: who names the thing, and its name there.
func SubjectText(of, name string) string { return limited(of + ":" + escaped(name, "")) }

// escaped is a text in which blanks, control characters, %, what is not UTF-8, and the further
// characters are written as in a URL, so that two texts never become one.
func escaped(text, further string) string {
	var b strings.Builder
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		if r <= ' ' || r == '%' || r >= 0x7f && r < 0xa0 || r == utf8.RuneError && size <= 1 || strings.ContainsRune(further, r) {
			for _, c := range []byte(text[i : i+size]) {
				fmt.Fprintf(&b, "%%%02X", c)
			}
		} else {
			b.WriteString(text[i : i+size])
		}
		i += size
	}
	return b.String()
}

func limited(subject string) string {
	if len(subject) <= MaxSubject {
		return subject
	}
	sum := sha256.Sum256([]byte(subject))
	digest := "~" + hex.EncodeToString(sum[:16])
	return strings.ToValidUTF8(subject[:MaxSubject-len(digest)], "") + digest
}

// thing is what has a name at a place, such as number 12 of acme/app: acme/app#12. There is none unless
// both have one value.
func thing(where Source, mark string, name Source) Source {
	return Source{Doc: where.Doc + mark + name.Doc, places: slices.Concat(where.places, name.places), read: func(p *Payload) []string {
		at, names := where.values(p), name.values(p)
		if len(at) != 1 || len(names) != 1 {
			return nil
		}
		return []string{at[0] + mark + names[0]}
	}}
}

// either is the first of the sources that has one value.
func either(sources ...Source) Source {
	var docs []string
	var all Source
	for _, s := range sources {
		docs, all.places = append(docs, s.Doc), append(all.places, s.places...)
	}
	all.Doc = strings.Join(docs, ", else ")
	all.read = func(p *Payload) []string {
		for _, s := range sources {
			if values := s.values(p); len(values) == 1 {
				return values
			}
		}
		return nil
	}
	return all
}

// when is a source that has values only while a condition holds.
func when(c Condition, s Source) Source {
	return Source{Doc: s.Doc, places: slices.Concat(c.Source.places, s.places), read: func(p *Payload) []string {
		if !c.holds(p) {
			return nil
		}
		return s.values(p)
	}}
}

// ofSite is a name at a site, with the host of the site before it unless the host is one of homes or below
// one. page is the address of a page there.
func ofSite(page, name Source, homes ...string) Source {
	return Source{Doc: name.Doc, places: slices.Concat(page.places, name.places), read: func(p *Payload) []string {
		names, host := name.values(p), ""
		for _, address := range page.values(p) {
			if u, err := url.Parse(address); err == nil {
				host = strings.ToLower(u.Host)
			}
		}
		if len(names) != 1 || host == "" || slices.ContainsFunc(homes, func(home string) bool { return host == home || strings.HasSuffix(host, "."+home) }) {
			return names
		}
		return []string{host + "/" + names[0]}
	}}
}

// ref is a branch or a tag of a push: heads/main, tags/v1.
func ref(s Source) Source {
	return mapped("the branch or tag of", s, func(name string) []string { return []string{strings.TrimPrefix(name, "refs/")} })
}

// Template is the subject that an automation gives its events (SPEC 21.1), such as
// {service.name}/{alert.id}: {a.b} stands for the scalar at a.b of the payload.
type Template struct {
	literals []string // one more than paths
	paths    []string
	reader   *node
}

// ParseTemplate reads a template. A template without a path would give all events one subject, and is
// refused.
func ParseTemplate(text string) (*Template, error) {
	t := &Template{reader: &node{}}
	rest := text
	for {
		literal, after, found := strings.Cut(rest, "{")
		if strings.Contains(literal, "}") {
			return nil, fmt.Errorf("%q has a } without a { before it", text)
		}
		t.literals = append(t.literals, literal)
		if !found {
			break
		}
		path, next, closed := strings.Cut(after, "}")
		switch {
		case !closed:
			return nil, fmt.Errorf("%q has a { without a } after it", text)
		case !templatePath.MatchString(path):
			return nil, fmt.Errorf("{%s} is no path to a value of the payload: write the keys with dots between them, such as {alert.id}", path)
		}
		t.paths = append(t.paths, path)
		t.reader.add(place{path: path})
		rest = next
	}
	if len(t.paths) == 0 {
		return nil, fmt.Errorf("%q names no value of the payload, so that all events would have one subject: write {a.b} for the value at a.b", text)
	}
	return t, nil
}

var templatePath = regexp.MustCompile(`^[^\s.{}\[\]]+(\.[^\s.{}\[\]]+)*$`)

// Subject is what the template makes of a payload of a webhook. The body must be valid JSON. If the
// payload lacks a value, the subject is empty, and missing is the path of the value.
func (t *Template) Subject(webhook string, body []byte) (subject, missing string) {
	p := &Payload{values: make(map[string][]string, len(t.paths))}
	scan := jsonscan.Scanner{Data: body}
	scan.Space()
	p.walk(&scan, t.reader)
	var b strings.Builder
	for i, path := range t.paths {
		value := strings.Join(p.values[path], "")
		if value == "" {
			return "", path
		}
		b.WriteString(escaped(t.literals[i], "") + escaped(value, marks)) // a value cannot play the text between values
	}
	b.WriteString(escaped(t.literals[len(t.paths)], ""))
	name := escaped(webhook, ":")
	if ByProvider(name) != nil || name == ownSubject {
		name = ownSubject + ":" + name // a sender's events have its name before them
	}
	return limited(name + ":" + b.String()), ""
}

// marks are the characters that the text of a template may have between values.
const marks = "!\"#$&'()*+,/:;<=>?@[\\]^`{|}"

// ownSubject begins the subjects of webhooks that are named as a sender is.
const ownSubject = "webhook"
