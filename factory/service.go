package factory

import (
	"cmp"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"triphammer/schema"
)

// Service is an HTTP service that runs reach by their gateway, which adds the credential (SPEC 25.4).
type Service struct {
	Name    string   `json:"name"`
	URL     string   `json:"url"`
	Secret  string   `json:"secret"`           // name of the managed secret
	Header  string   `json:"header,omitempty"` // its name, and after a colon what comes before the secret
	Methods []string `json:"methods,omitempty"`
	Paths   []string `json:"paths,omitempty"` // below URL; * is a part without a slash, ** at the end is the rest
}

// Variable is the variable in which a run finds the address of the service.
func (s Service) Variable() string {
	return strings.ToUpper(strings.ReplaceAll(s.Name, "-", "_")) + "_URL"
}

// HeaderOf is the header with which requests go to the service.
func (s Service) HeaderOf(value string) (name, text string) {
	name, before, colon := strings.Cut(s.Header, ":")
	if before = strings.TrimSpace(before); colon && before != "" {
		value = before + " " + value
	}
	return strings.TrimSpace(name), value
}

var (
	serviceName = regexp.MustCompile(`^[a-z][a-z0-9]*(-[a-z0-9]+)*$`)
	notService  = regexp.MustCompile(`^triphammer-|^base$|-base$`)
	// serviceURL matches addresses without a user, to which a secret may go.
	serviceURL    = regexp.MustCompile(`^(https://[A-Za-z0-9._-]+|http://localhost|http://127\.0\.0\.1|http://\[::1\]|https://\[[0-9a-f:]+\])(:[0-9]{1,5})?(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)*/?(\?[!-~]*)?$`)
	serviceHeader = regexp.MustCompile("^[A-Za-z0-9!$&'*+.^_`|~-]+(:[ -~]*)?$")
	servicePath   = regexp.MustCompile(`^(/|(/([A-Za-z0-9_~*@:,+=!$&'()-][A-Za-z0-9._~*@:,+=!$&'()-]*))+/?)$`)
	// ownHeader matches the headers that the gateway sets itself.
	ownHeader = regexp.MustCompile(`^(?i:host|content-length|transfer-encoding|connection|accept-encoding|user-agent)$`)
)

// services reads the services of an environment.
func services(d *document) (all []Service) {
	taken := make(map[string]string) // what sets a variable
	for name := range plainTexts(d.Root.Get("env")) {
		taken[name] = "env"
	}
	for _, name := range textsOf(d.Root.Get("secrets")) {
		taken[name] = "secrets"
	}
	for i, n := range itemsOf(d.Root.Get("services")) {
		if n.Kind != schema.Mapping {
			continue
		}
		where := fmt.Sprintf("services[%d]", i)
		s := Service{Name: textOf(n.Get("name")), URL: textOf(n.Get("url")), Secret: textOf(n.Get("secretName")), Header: textOf(n.Get("header")), Methods: textsOf(n.Get("methods"))}
		for _, item := range itemsOf(n.Get("paths")) {
			s.Paths = append(s.Paths, textOf(item))
		}
		bad := func(key, hint, message string) {
			if at := n.Get(key); at != nil {
				d.Error(at.At, schema.InvalidValue, hint, where+"."+key+" "+message)
			}
		}
		s.Header = cmp.Or(s.Header, "Authorization: Bearer")
		if s.Methods == nil {
			s.Methods = []string{"GET"}
		}
		switch by, clash := taken[s.Variable()]; {
		case !serviceName.MatchString(s.Name):
			bad("name", "write such as sentry", "is not small letters, digits and dashes, the first a letter")
		case notService.MatchString(s.Name):
			bad("name", "choose another", fmt.Sprintf("would set %s, which agents and the server use themselves", s.Variable()))
		case clash:
			bad("name", "choose another", fmt.Sprintf("would set the variable %s, which %s sets already", s.Variable(), by))
		}
		taken[s.Variable()] = "another service"
		s.check(bad)
		all = append(all, s)
	}
	return all
}

// check tells what is wrong with a service besides its name.
func (s Service) check(bad func(key, hint, message string)) {
	if u, err := url.Parse(s.URL); err != nil || !serviceURL.MatchString(s.URL) || !portFits(u.Port()) {
		bad("url", "write such as https://sentry.io/api/0, without a user and a password; http is for this machine alone", "is not an address to which a secret may go")
	}
	if strings.HasPrefix(s.Header, "?") {
		bad("header", "write the header in which the service takes its key, such as X-Goog-Api-Key for ?key", "is a parameter of the address: a secret goes into headers alone, because addresses are logged on the way")
	} else if name, _ := s.HeaderOf(""); !serviceHeader.MatchString(s.Header) || ownHeader.MatchString(name) {
		bad("header", "write such as PRIVATE-TOKEN, or Authorization: Bearer", "is not the name of a header for a credential, with what comes before the secret after a colon")
	}
	for _, p := range s.Paths {
		if front := strings.TrimSuffix(p, "/**"); !servicePath.MatchString(p) || strings.Contains(front, "**") {
			bad("paths", "write such as /issues/*/comments or /projects/**", fmt.Sprintf("has %q, which is no path below url: * stands for a part without a slash, ** at the end for the rest", p))
		}
	}
}

func portFits(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return text == "" || err == nil && n > 0
}
