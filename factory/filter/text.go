package filter

import (
	"encoding/json"
	"slices"
	"strings"
)

// String returns the filter as canonical JSON: two filters have the same text if and
// only if they are equal. Keys and values are sorted. It is empty for a nil filter.
func (f *Filter) String() string {
	if f == nil {
		return ""
	}
	return f.root.text()
}

// Values are the values that the filter allows, for each field with a condition (such as
// payload.build.status): as JSON, sorted; nil if the filter does not limit the field to a
// set.
func (f *Filter) Values() map[string][]string {
	all := make(map[string][]string)
	if f != nil {
		f.root.values(all)
	}
	return all
}

func (p *pattern) values(all map[string][]string) {
	for i := range p.fields {
		r := &p.fields[i]
		if r.nested != nil && len(r.nested.fields) > 0 {
			r.nested.values(all)
		} else {
			all[r.path] = r.allowed()
		}
	}
}

// allowed are the values of in, as JSON, sorted.
func (r *rule) allowed() []string {
	var set []string
	for _, v := range r.in {
		set = append(set, v.text())
	}
	slices.Sort(set)
	return slices.Compact(set)
}

func (p *pattern) text() string {
	fields := make([]string, len(p.fields))
	for i := range p.fields {
		r := &p.fields[i]
		fields[i] = quoted(r.key) + ":" + r.text()
	}
	slices.Sort(fields)
	return "{" + strings.Join(fields, ",") + "}"
}

func (r *rule) text() string {
	if r.nested != nil {
		return r.nested.text()
	}
	if r.exists == anyExistence && len(r.notIn) == 0 {
		return texts(r.in)
	}
	var operators []string
	if r.exists != anyExistence {
		operators = append(operators, map[existence]string{mustExist: `"exists":true`, mustNotExist: `"exists":false`}[r.exists])
	}
	if len(r.in) > 0 {
		operators = append(operators, `"in":`+texts(r.in))
	}
	if len(r.notIn) > 0 {
		operators = append(operators, `"not_in":`+texts(r.notIn))
	}
	return "{" + strings.Join(operators, ",") + "}"
}

func texts(set []scalar) string {
	all := make([]string, len(set))
	for i, v := range set {
		all[i] = v.text()
	}
	slices.Sort(all)
	return "[" + strings.Join(slices.Compact(all), ",") + "]"
}

func (v scalar) text() string {
	switch v.key {
	case keyTrue:
		return "true"
	case keyFalse:
		return "false"
	case keyNull:
		return "null"
	}
	if v.key[0] == tagString {
		return quoted(v.key[1:])
	}
	return written(v.key[1:])
}

// written is a number's canonical text without an exponent, if that is short.
func written(number string) string {
	digits, exponent, found := strings.Cut(number, "e")
	if !found {
		return number
	}
	sign := ""
	if strings.HasPrefix(digits, "-") {
		sign, digits = "-", digits[1:]
	}
	const most = 20
	var n int
	if json.Unmarshal([]byte(exponent), &n) != nil || n > most || n < -most {
		return number
	}
	if n >= 0 {
		return sign + digits + strings.Repeat("0", n)
	}
	if short := 1 - n - len(digits); short > 0 {
		digits = strings.Repeat("0", short) + digits
	}
	return sign + digits[:len(digits)+n] + "." + digits[len(digits)+n:]
}

func quoted(s string) string {
	text, _ := json.Marshal(s) // a string always encodes
	return string(text)
}
