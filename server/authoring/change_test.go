package authoring

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"triphammer/factory"
	"triphammer/schema"
	"triphammer/server/api"
)

// TestChangeOf: paths are from the folder of the factory, and a commit without a message gets one.
func TestChangeOf(t *testing.T) {
	text := "x"
	for want, files := range map[string]map[string]*string{
		"Change webhooks/ci.yaml": {"webhooks/ci.yaml": &text},
		"Remove webhooks/ci.yaml": {"webhooks/ci.yaml": nil},
		"Change 2 files":          {"a": &text, "b": nil},
	} {
		got, err := changeOf(api.ChangeRequest{Base: "b", Files: files}, "factory")
		if err != nil || got.Message != want || got.Base != "b" || len(got.Files) != len(files) {
			t.Errorf("%s: %+v, %v", want, got, err)
		}
		for name := range files {
			if _, there := got.Files["factory/"+name]; !there {
				t.Errorf("%s is not in the folder: %v", name, got.Files)
			}
		}
	}
	if got, err := changeOf(api.ChangeRequest{Message: " Say why\n", Files: map[string]*string{"a": &text}}, "."); err != nil || got.Message != "Say why" || got.Files["a"] == nil {
		t.Errorf("%+v, %v", got, err)
	}
	many := make(map[string]*string)
	for n := range factory.DefaultMaxFiles + 1 {
		many[fmt.Sprintf("notes/%d.md", n)] = &text
	}
	long := strings.Repeat("x", schema.MaxFile+1)
	for name, req := range map[string]api.ChangeRequest{
		"no files":       {},
		"too many files": {Files: many},
		"too long":       {Files: map[string]*string{"a": &long}},
		"a long message": {Files: map[string]*string{"a": &text}, Message: long[:maxMessage+1]},
	} {
		if _, err := changeOf(req, "factory"); !errors.Is(err, ErrRequest) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, path := range []string{"../x", "/etc/passwd", "a/../../x", "", ".", "webhooks/"} {
		if _, err := changeOf(api.ChangeRequest{Files: map[string]*string{path: &text}}, "factory"); !errors.Is(err, ErrRequest) {
			t.Errorf("%q: %v", path, err)
		}
	}
}
