package store

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"triphammer/server/secret"
)

// TestSecretSources: a value that changes at its source becomes the next
// generation when it is read, and only there can it be changed.
func TestSecretSources(t *testing.T) {
	folder := t.TempDir()
	write := func(value string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(folder, "TOKEN"), []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := open(t)
	s.cfg.Sources = []secret.Source{secret.Dir(folder), secret.Environment("HAMMER_SECRET_")}
	s.reopen(t)
	t.Setenv("HAMMER_SECRET_TOKEN", "of the environment") // the folder comes first
	t.Setenv("HAMMER_SECRET_OTHER", "other")
	read := func(name string) SecretValue {
		t.Helper()
		values, err := s.Secrets.Newest(t.Context(), []string{name})
		if err != nil {
			t.Fatal(err)
		}
		return values[name]
	}
	if v := read("TOKEN"); v.Generation != 1 || v.Value.Reveal() != "of the environment" {
		t.Errorf("generation %d", v.Generation)
	}
	write("first\n")
	for range 2 {
		if v := read("TOKEN"); v.Generation != 2 || v.Value.Reveal() != "first" {
			t.Errorf("generation %d", v.Generation)
		}
	}
	write("second\n")
	if v := read("TOKEN"); v.Generation != 3 || v.Value.Reveal() != "second" {
		t.Errorf("generation %d", v.Generation)
	}
	// What a webhook took before stays readable (SPEC 4.4).
	if v, err := s.Secrets.At(t.Context(), "TOKEN", 2); err != nil || v.Value.Reveal() != "first" {
		t.Errorf("%v", err)
	}
	if _, err := s.Secrets.Set(t.Context(), "TOKEN", secret.New("x")); !errors.Is(err, ErrConflict) {
		t.Errorf("set: %v", err)
	}
	if err := s.Secrets.Delete(t.Context(), "TOKEN", nil); !errors.Is(err, ErrConflict) {
		t.Errorf("delete: %v", err)
	}
	infos, err := s.Secrets.List(t.Context())
	if err != nil || len(infos) != 2 || infos[0].Name != "OTHER" || infos[0].Source != "variable HAMMER_SECRET_NAME" || infos[1].Source != "folder "+folder || infos[1].Generation != 3 {
		t.Errorf("%+v %v", infos, err)
	}
	write("")
	if _, err := s.Secrets.Newest(t.Context(), []string{"TOKEN"}); err == nil {
		t.Error("an empty file is a value")
	}
	if err := os.Mkdir(filepath.Join(folder, "FOLDER"), 0o700); err != nil {
		t.Fatal(err)
	}
	// What cannot be read hides nothing else.
	if infos, err := s.Secrets.List(t.Context()); err != nil || len(infos) != 2 {
		t.Errorf("%+v %v", infos, err)
	}
	// What is gone from its source stays with its last value, until it is deleted.
	if err := os.Remove(filepath.Join(folder, "TOKEN")); err != nil {
		t.Fatal(err)
	}
	if err := os.Unsetenv("HAMMER_SECRET_TOKEN"); err != nil {
		t.Fatal(err)
	}
	if v := read("TOKEN"); v.Generation != 3 {
		t.Errorf("generation %d", v.Generation)
	}
	if err := s.Secrets.Delete(t.Context(), "TOKEN", nil); err != nil {
		t.Error(err)
	}
}
