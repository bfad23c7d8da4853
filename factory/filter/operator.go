package filter

import (
	"strconv"
	"strings"
)

const operatorFieldHint = "a payload field that is itself named in, not_in or exists cannot be filtered on"

// isOperator tells whether a key is an operator (SPEC 8.2).
func isOperator(key string) bool { return key == "in" || key == "not_in" || key == "exists" }

// isOperators tells whether an object is an operator object: not empty, and all
// its keys are operators (SPEC 8.2).
func isOperators(v Value) bool {
	for _, f := range v.Fields {
		if !isOperator(f.Key) {
			return false
		}
	}
	return len(v.Fields) > 0
}

// split tells the operators among an object's keys from the others.
func split(v Value) (ops, others []Field) {
	for _, f := range v.Fields {
		if isOperator(f.Key) {
			ops = append(ops, f)
		} else {
			others = append(others, f)
		}
	}
	return ops, others
}

func quoteKeys(fields []Field) string {
	keys := make([]string, len(fields))
	for i, f := range fields {
		keys[i] = strconv.Quote(f.Key)
	}
	return strings.Join(keys, ", ")
}

// mixed reports an object with operators and other keys, and the other problems of both.
func (c *compiler) mixed(v Value, ops, others []Field, cond *rule, depth int) {
	v.Fields = nil
	for _, f := range others {
		hint := operatorFieldHint
		if op := nearOperator(f.Key); op != "" {
			hint = "did you mean " + strconv.Quote(op) + "?"
		} else {
			v.Fields = append(v.Fields, f)
		}
		c.problem(cond.path, f.Line, f.Column, hint, "operators and other keys are mixed: %q is not an operator", f.Key)
	}
	c.operators(cond, ops)
	c.object(v, cond.path, depth+1)
}

func nearOperator(key string) string {
	switch strings.ToLower(strings.NewReplacer("_", "", "-", "", "$", "").Replace(key)) {
	case "notin", "nin", "notinn", "not", "noneof":
		return "not_in"
	case "exist", "exits", "present":
		return "exists"
	case "inn", "anyof", "oneof", "eq", "equals":
		return "in"
	}
	return ""
}

func (c *compiler) operators(cond *rule, ops []Field) {
	for _, f := range ops {
		path := cond.path + "." + f.Key
		switch {
		case f.Key == "exists" && f.Value.Kind != Bool:
			hint := "write true or false"
			if f.Value.Kind == Object || f.Value.Kind == Array {
				hint = operatorFieldHint
			}
			c.problem(path, f.Value.Line, f.Value.Column, hint, "exists is true or false, not %s", f.Value.Kind)
		case f.Key == "exists" && f.Value.Bool:
			cond.exists = mustExist
		case f.Key == "exists":
			cond.exists = mustNotExist
		case f.Value.Kind != Array:
			hint := "write [" + source(f.Value) + "]"
			if f.Value.Kind == Object {
				hint = operatorFieldHint
			}
			c.problem(path, f.Value.Line, f.Value.Column, hint, "%s takes an array of values, not %s", f.Key, f.Value.Kind)
		case f.Key == "in":
			cond.in = c.set(f.Value, path)
		default:
			cond.notIn = c.set(f.Value, path)
		}
	}
	if cond.exists == mustNotExist && cond.in != nil {
		c.problem(cond.path, ops[0].Line, ops[0].Column, "take one of them out", "a field cannot be absent and hold one of the values of in")
	}
	for _, a := range cond.in {
		for _, b := range cond.notIn {
			if a.key == b.key {
				c.problem(cond.path, ops[0].Line, ops[0].Column, "take it out of one of them", "both in and not_in hold %s", a.show)
			}
		}
	}
}
