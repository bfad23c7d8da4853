package server

import (
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/gin-gonic/gin"

	"triphammer/server/api"
)

// parameter is one of a query, as openapi.yaml describes it.
type parameter struct {
	repeats bool // it can be given more than once
	keyed   bool // it is given as name[key]
}

// parameters are those that the routes take, by method and path.
var parameters = sync.OnceValue(func() map[string]map[string]parameter { return parametersOf(string(openapiDocument)) })

var (
	pathLine      = regexp.MustCompile(`^  (/\S*):$`)
	methodLine    = regexp.MustCompile(`^    (get|post|put|patch|delete):$`)
	parameterLine = regexp.MustCompile(`^        - \{name: (\w+), in: query,`)
	inPath        = regexp.MustCompile(`[:*](\w+)`)
)

// parametersOf reads the lines of openapi.yaml. TestParameters compares it with what a parser
// reads.
func parametersOf(document string) map[string]map[string]parameter {
	all := make(map[string]map[string]parameter)
	path, route := "", ""
	for line := range strings.Lines(document) {
		line = strings.TrimSuffix(line, "\n")
		if m := pathLine.FindStringSubmatch(line); m != nil {
			path = m[1]
		} else if m := methodLine.FindStringSubmatch(line); m != nil {
			route = strings.ToUpper(m[1]) + " " + path
			all[route] = make(map[string]parameter)
		} else if m := parameterLine.FindStringSubmatch(line); m != nil {
			all[route][m[1]] = parameter{repeats: strings.Contains(line, "type: array"), keyed: strings.Contains(line, "style: deepObject")}
		}
	}
	return all
}

// strict is checkQuery for a route that serve does not make.
func (s *Server) strict(c *gin.Context) {
	if err := checkQuery(c); err != nil {
		s.failWith(c, err)
	}
}

// checkQuery refuses a parameter that the route does not take, and one that is given twice and
// can be given once. So no parameter silently does nothing.
func checkQuery(c *gin.Context) error {
	if c.Request.URL.RawQuery == "" {
		return nil
	}
	known := parameters()[c.Request.Method+" "+inPath.ReplaceAllString(c.FullPath(), "{$1}")]
	query, err := url.ParseQuery(c.Request.URL.RawQuery)
	if err != nil {
		return api.Refuse(api.InvalidRequest, "the query of the address is not well formed: "+err.Error())
	}
	for _, given := range slices.Sorted(maps.Keys(query)) {
		name, _, hasKey := strings.Cut(given, "[")
		p, found := known[name]
		switch {
		case len(known) == 0:
			return refuse(given, "", "this route takes no parameters, and %q is one: leave it out", given)
		case !found || hasKey != p.keyed || hasKey && !strings.HasSuffix(given, "]"):
			return refuse(given, "", "this route does not take the parameter %q: it takes %s", given, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		case len(query[given]) > 1 && !p.repeats:
			return refuse(given, "", "%s can be given once", given)
		}
	}
	return nil
}
