package native

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"
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

// SubjectText is a subject in its canonical form: who names the thing, and its name there. In the name,
// blanks, control characters, % and what is not UTF-8 are escaped as in a URL, so that two names never
// have one text.
func SubjectText(of, name string) string {
	var b strings.Builder
	b.WriteString(of + ":")
	for i := 0; i < len(name); {
		r, size := utf8.DecodeRuneInString(name[i:])
		if r <= ' ' || r == '%' || r >= 0x7f && r < 0xa0 || r == utf8.RuneError && size <= 1 {
			for _, c := range []byte(name[i : i+size]) {
				fmt.Fprintf(&b, "%%%02X", c)
			}
		} else {
			b.WriteString(name[i : i+size])
		}
		i += size
	}
	if b.Len() <= MaxSubject {
		return b.String()
	}
	sum := sha256.Sum256([]byte(b.String()))
	digest := "~" + hex.EncodeToString(sum[:16])
	return strings.ToValidUTF8(b.String()[:MaxSubject-len(digest)], "") + digest
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

// ofSite is a name at a site, with the host of the site before it unless it is home. page is the
// address of a page there.
func ofSite(home string, page, name Source) Source {
	return Source{Doc: name.Doc, places: slices.Concat(page.places, name.places), read: func(p *Payload) []string {
		names, host := name.values(p), ""
		for _, address := range page.values(p) {
			if u, err := url.Parse(address); err == nil {
				host = strings.ToLower(u.Host)
			}
		}
		if len(names) != 1 || host == "" || host == home {
			return names
		}
		return []string{host + "/" + names[0]}
	}}
}

// ref is a branch or a tag of a push: heads/main, tags/v1.
func ref(s Source) Source {
	return mapped("the branch or tag of", s, func(name string) []string { return []string{strings.TrimPrefix(name, "refs/")} })
}
