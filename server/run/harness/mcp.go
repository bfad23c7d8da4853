package harness

import (
	"regexp"
	"strings"
)

// variable matches a reference to a variable of the run in a value of a definition.
var variable = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)\}`)

// names are the variables that a value refers to.
func names(value string) []string {
	var all []string
	for _, m := range variable.FindAllStringSubmatch(value, -1) {
		all = append(all, m[1])
	}
	return all
}

// rewrite replaces each reference to a variable by what the harness calls it.
func rewrite(value string, reference func(name string) string) string {
	return variable.ReplaceAllStringFunc(value, func(m string) string {
		return reference(strings.TrimSuffix(strings.TrimPrefix(m, "${"), "}"))
	})
}

// rewriteAll does that with each value.
func rewriteAll(values map[string]string, reference func(name string) string) map[string]string {
	all := make(map[string]string, len(values))
	for k, v := range values {
		all[k] = rewrite(v, reference)
	}
	return all
}
