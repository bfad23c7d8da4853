package mcp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"triphammer/server/inert"
)

// checkArguments refuses arguments that a tool does not take, in words of JSON. The SDK would
// refuse them in words of Go.
func checkArguments(given json.RawMessage, of reflect.Type) error {
	if text := bytes.TrimSpace(given); len(text) == 0 || string(text) == "null" {
		given = json.RawMessage("{}") // clients send null for no arguments
	}
	return checkArgument("arguments", given, of)
}

func checkArgument(name string, given json.RawMessage, of reflect.Type) error {
	mismatch := func(wanted string) error {
		return fmt.Errorf("%s: %s is expected, not %s", name, wanted, inert.Text(shortened(given)))
	}
	null := string(bytes.TrimSpace(given)) == "null"
	switch of.Kind() {
	case reflect.Pointer:
		if null {
			return nil
		}
		return checkArgument(name, given, of.Elem())
	case reflect.Struct:
		var fields map[string]json.RawMessage
		if null || json.Unmarshal(given, &fields) != nil {
			return mismatch("an object")
		}
		return checkFields(name, fields, of)
	case reflect.Map:
		var fields map[string]json.RawMessage
		if null || json.Unmarshal(given, &fields) != nil {
			return mismatch("an object")
		}
		for _, key := range slices.Sorted(maps.Keys(fields)) {
			if err := checkArgument(name+"."+inert.Text(shortened([]byte(key))), fields[key], of.Elem()); err != nil {
				return err
			}
		}
	case reflect.Slice:
		var items []json.RawMessage
		if json.Unmarshal(given, &items) != nil {
			return mismatch("a list")
		}
		for i, item := range items {
			if err := checkArgument(fmt.Sprintf("%s[%d]", name, i), item, of.Elem()); err != nil {
				return err
			}
		}
	default:
		if null || json.Unmarshal(given, reflect.New(of).Interface()) != nil {
			return mismatch(scalars[of.Kind()])
		}
	}
	return nil
}

var scalars = map[reflect.Kind]string{reflect.String: "a text", reflect.Bool: "true or false", reflect.Int: "a whole number", reflect.Int64: "a whole number"}

func checkFields(name string, fields map[string]json.RawMessage, of reflect.Type) error {
	within := strings.TrimPrefix(name+".", "arguments.")
	known := make(map[string]reflect.Type)
	for _, f := range reflect.VisibleFields(of) {
		key, options, tagged := strings.Cut(f.Tag.Get("json"), ",")
		if key == "" {
			continue // the fields of the embedded struct are visible
		}
		known[key] = f.Type
		if _, given := fields[key]; !given && !(tagged && options == "omitempty") {
			return errors.New(within + key + " is missing")
		}
	}
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		of, ok := known[key]
		if !ok {
			takes := "nothing"
			if len(known) > 0 {
				takes = strings.Join(slices.Sorted(maps.Keys(known)), ", ")
			}
			return fmt.Errorf("%s takes %s, and not %s", name, takes, inert.Text(shortened([]byte(key))))
		}
		if err := checkArgument(within+key, fields[key], of); err != nil {
			return err
		}
	}
	return nil
}

// shortened is the beginning of a long argument.
func shortened(given []byte) string {
	const most = 100
	if text := beginning(string(given), most); len(text) < len(given) {
		return text + "…"
	}
	return string(given)
}
