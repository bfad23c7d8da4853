package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"text/template"
)

// -o template=TEXT is a Go template over the objects of the API. A field that the object can
// never have is an error. One that it just lacks is empty, as in "{{.automation}}" of a run that no
// automation started.

// nothing is null in JSON: it counts as false.
type nothing []struct{}

func (nothing) String() string               { return "null" }
func (nothing) MarshalJSON() ([]byte, error) { return []byte("null"), nil }

// parseTemplate reads the text of -o template=.
func parseTemplate(source string) (*template.Template, error) {
	functions := template.FuncMap{
		"json": func(value any) (string, error) {
			text, err := json.Marshal(value)
			return string(text), err
		},
		"join":  joinTexts,
		"upper": strings.ToUpper, "lower": strings.ToLower,
	}
	t, err := template.New("").Option("missingkey=error").Funcs(functions).Parse(source)
	if err != nil {
		return nil, templateError(source, err, nil)
	}
	return t, nil
}

// joinTexts joins the elements of a list.
func joinTexts(separator string, list any) (string, error) {
	all, ok := list.([]any)
	if _, none := list.(nothing); !ok && !none {
		return "", fmt.Errorf("join takes a list, not %v", list)
	}
	texts := make([]string, len(all))
	for i, one := range all {
		texts[i] = fmt.Sprint(one)
	}
	return strings.Join(texts, separator), nil
}

// writeTemplate prints each row by a template, on a line of its own.
func writeTemplate(w io.Writer, source string, rows []any) error {
	t, err := parseTemplate(source)
	if err != nil {
		return err
	}
	for _, row := range rows {
		text, err := json.Marshal(row)
		if err != nil {
			return err
		}
		value, err := decodeNumbers(text)
		if err != nil {
			return err
		}
		value = complete(value, reflect.TypeOf(row))
		var b bytes.Buffer
		if err := t.Execute(&b, value); err != nil {
			return exitWith(exitUsage, "-o template: %w", templateError(source, err, value))
		}
		if !bytes.HasSuffix(b.Bytes(), []byte("\n")) {
			b.WriteByte('\n')
		}
		if _, err := w.Write(b.Bytes()); err != nil {
			return err
		}
	}
	return nil
}

var (
	templatePlace = regexp.MustCompile(`^template: :(\d+)(?::(\d+))?: (?:executing "" at (<.*>): )?`)
	templateKey   = regexp.MustCompile(`map has no entry for key "(.*)"$`)
)

// templateError says where a template is wrong, and names the fields that an object has.
func templateError(source string, err error, value any) error {
	text := err.Error()
	place := templatePlace.FindStringSubmatch(text)
	if place == nil {
		return err
	}
	what := text[len(place[0]):]
	if key := templateKey.FindStringSubmatch(text); key != nil {
		what = fmt.Sprintf("there is no field %q", key[1])
		if object, ok := value.(map[string]any); ok && object[key[1]] == nil && strings.TrimPrefix(strings.Trim(place[3], "<>"), ".") == key[1] {
			what += "; the fields are " + strings.Join(slices.Sorted(maps.Keys(object)), ", ")
		}
	}
	where := ""
	if strings.Contains(source, "\n") {
		where = "line " + place[1] + " "
	}
	if place[2] != "" {
		where += "column " + place[2] + " "
	}
	if where == "" {
		return errors.New(what)
	}
	return fmt.Errorf("%sof the template: %s", where, what)
}

// decodeNumbers decodes JSON. Whole numbers stay whole, so that they are printed as they are.
func decodeNumbers(text []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var value any
	err := d.Decode(&value)
	return value, err
}

// complete replaces numbers and nulls of decoded JSON by what a template shows well, and adds the
// fields that the type has and that the value lacks.
func complete(value any, of reflect.Type) any {
	for of != nil && of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	switch value := value.(type) {
	case nil:
		return nothing(nil)
	case json.Number:
		if n, err := value.Int64(); err == nil {
			return n
		}
		n, _ := value.Float64() // it was a number of JSON
		return n
	case []any:
		var element reflect.Type
		if of != nil && of.Kind() == reflect.Slice {
			element = of.Elem()
		}
		for i := range value {
			value[i] = complete(value[i], element)
		}
	case map[string]any:
		fields := fieldsOf(of)
		for name, field := range fields {
			if _, has := value[name]; !has {
				value[name] = missingField(field)
			}
		}
		for name := range value {
			value[name] = complete(value[name], fields[name])
		}
	}
	return value
}

// missingField is the value of a field that an object lacks.
func missingField(of reflect.Type) any {
	switch of.Kind() {
	case reflect.String:
		return ""
	case reflect.Bool:
		return false
	case reflect.Int, reflect.Int64, reflect.Float64:
		return json.Number("0")
	}
	return nil
}

// fieldsOf are the types of the fields of an object, by their names in JSON.
func fieldsOf(of reflect.Type) map[string]reflect.Type {
	if of == nil || of.Kind() != reflect.Struct {
		return nil
	}
	fields := make(map[string]reflect.Type)
	for _, f := range reflect.VisibleFields(of) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.IsExported() && name != "" && name != "-" {
			fields[name] = f.Type
		}
	}
	return fields
}
