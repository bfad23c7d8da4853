package native

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// Head is the code that an event is about, as the delivery says it (SPEC 21.7).
type Head struct {
	What    string   // for people, such as pull request 12
	Origins []string // the addresses of the repository that the event happened in; it has the head
	Fetch   string   // what Git fetches from there: the name of a commit, or of a ref such as refs/pull/12/head
	Branch  string   // the branch of Origins that the head is of; empty: it is of none, or the name is not known
	Base    string   // the branch that the head is to be merged into; empty: there is none
	Whose   Whose
}

// Whose tells whose repository a head comes from.
type Whose uint8

// The values of Whose.
const (
	Unknown Whose = iota // the delivery does not say
	Own                  // the repository that the event happened in
	Another              // another repository, such as a fork: its code is a stranger's
)

// head is a row of a sender: where in a delivery the code is that events are about. The first row
// that finds something to fetch counts.
type head struct {
	when    []Condition
	what    string
	number  Source // comes after what
	commit  Source
	ref     Source // what to fetch if there is no commit
	branch  Source
	base    Source
	origins Source

	// own tells that the code is always the repository's own. Otherwise it is if both of ids have one
	// value, and the same: the repository of the head, and the repository of the event.
	own bool
	ids [2]Source
}

func (h *head) eachSource(visit func(Source)) {
	for _, c := range h.when {
		visit(c.Source)
	}
	for _, s := range []Source{h.number, h.commit, h.ref, h.branch, h.base, h.origins, h.ids[0], h.ids[1]} {
		visit(s)
	}
}

// HasHeads tells whether events of the sender are about code.
func (s *Sender) HasHeads() bool { return len(s.heads) > 0 }

// BySource finds the sender whose events start runs of a source; nil: there is none.
func BySource(source string) *Sender {
	i := slices.IndexFunc(senders(), func(s *Sender) bool { return s.Source == source })
	if i < 0 {
		return nil
	}
	return senders()[i]
}

// Head is the code that a delivery's events are about. ok is false if they are about no code, or about
// a branch or a tag that is gone. The body must be valid JSON (jsonscan.Check).
func (s *Sender) Head(d Delivery) (h Head, ok bool) {
	if !s.HasHeads() {
		return Head{}, false
	}
	p := s.read(d, s.headReader)
	for i := range s.heads {
		if h, ok := s.heads[i].of(p); ok {
			return h, true
		}
	}
	return Head{}, false
}

// commitName matches the name of a commit or of another object. The name that consists of zeros means
// that there is none.
var commitName = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)

var digits = regexp.MustCompile(`^[0-9]{1,20}$`)

func (h *head) of(p *Payload) (Head, bool) {
	if slices.ContainsFunc(h.when, func(c Condition) bool { return !c.holds(p) }) {
		return Head{}, false
	}
	found := Head{What: h.what, Origins: h.origins.values(p), Branch: branchName(one(h.branch, p)), Base: branchName(one(h.base, p))}
	if number := one(h.number, p); digits.MatchString(number) {
		found.What += " " + number
	}
	switch commit, ref := one(h.commit, p), one(h.ref, p); {
	case commitName.MatchString(commit) && strings.Trim(commit, "0") != "":
		found.Fetch = commit
	case commit == "" && strings.HasPrefix(ref, "refs/") && refName(ref):
		found.Fetch = ref
	default:
		return Head{}, false
	}
	head, base := one(h.ids[0], p), one(h.ids[1], p)
	switch {
	case h.own || head != "" && head == base:
		found.Whose = Own
	case head != "" && base != "":
		found.Whose = Another
	}
	if found.Whose != Own {
		found.Branch = "" // of another repository
	}
	return found, true
}

// one is the value of a source that has one value.
func one(s Source, p *Payload) string {
	if values := s.values(p); len(values) == 1 {
		return values[0]
	}
	return ""
}

// branchName is the name of a branch, from a name with or without refs/heads/. It is empty for what
// cannot be the name of a branch, so that no name of a stranger means anything else to Git.
func branchName(name string) string {
	if rest, is := strings.CutPrefix(name, "refs/heads/"); is {
		name = rest
	} else if strings.HasPrefix(name, "refs/") {
		return ""
	}
	if name == "HEAD" || name == "@" || strings.HasPrefix(name, "-") || commitName.MatchString(name) || !refName("refs/heads/"+name) {
		return ""
	}
	return name
}

// refName tells whether a name can be the name of a ref (git check-ref-format).
func refName(name string) bool {
	if len(name) > 1000 || strings.Contains(name, "..") || strings.Contains(name, "@{") || strings.HasSuffix(name, ".") ||
		strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r == 0x7f || strings.ContainsRune(`~^:?*[\`, r) }) {
		return false
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || strings.HasPrefix(part, ".") || strings.HasSuffix(part, ".lock") {
			return false
		}
	}
	return true
}

// scpLike matches an address such as git@github.com:acme/app.git.
var scpLike = regexp.MustCompile(`^(?:[^/@:]+@)?([^/@:]+):([^/].*)$`)

// In tells whether an address is of the repository that the event happened in, whatever the protocol.
func (h *Head) In(address string) bool {
	place := placeOf(address)
	return place != "" && slices.ContainsFunc(h.Origins, func(o string) bool { return placeOf(o) == place })
}

// placeOf is host and path of a repository's address, in one form for all protocols. It is empty for
// what is no address of a host.
func placeOf(address string) string {
	host, path := "", ""
	if u, err := url.Parse(address); err == nil && u.Host != "" {
		host, path = u.Host, u.Path
		if known := map[string]string{"https": "443", "http": "80", "git": "9418"}[u.Scheme]; u.Port() == known || u.Scheme == "ssh" {
			host = u.Hostname()
		}
	} else if m := scpLike.FindStringSubmatch(address); m != nil {
		host, path = m[1], m[2]
	} else {
		return ""
	}
	return strings.ToLower(host + "/" + strings.TrimSuffix(strings.Trim(path, "/"), ".git"))
}
