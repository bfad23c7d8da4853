package secret

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// MaxValue is the longest value of a managed secret in bytes (SPEC 10.1).
const MaxValue = 64 << 10

var managedName = regexp.MustCompile(`^[A-Z][A-Z0-9_]*$`)

// ValidName tells whether s can name a managed secret (SPEC 10.1).
func ValidName(s string) bool { return managedName.MatchString(s) }

// NameRule says how secrets can be named.
const NameRule = "a secret's name has capital letters, digits and _, and begins with a letter, such as DEPLOY_TOKEN"

// short is the length, in bytes, below which a secret can be guessed (SPEC 10.1).
const short = 16

// Warning says what is odd about the value of a secret; empty: nothing.
func Warning(value string) string {
	switch {
	case strings.TrimSpace(value) != value:
		return "the value begins or ends with white space, which is taken as part of it"
	case len(value) < short:
		return fmt.Sprintf("the value is shorter than %d bytes: it may be guessed", short)
	}
	return ""
}

// Source is a place outside the store that has values of managed secrets, such as a
// folder that an orchestrator mounts. Definitions name secrets, never sources.
type Source interface {
	// Lookup reads the value of a secret now; found is false if the source has none.
	Lookup(name string) (value Value, found bool, err error)
	// Names are the names of the source's secrets, sorted.
	Names() ([]string, error)
	// String names the source, without a value.
	String() string
}

// Dir is a folder with a file for each secret. The file has the name of the secret, as with
// secrets of Docker (/run/secrets) and Kubernetes, and credentials of systemd. One newline
// at the end of a file is dropped.
func Dir(path string) Source { return dir(path) }

type dir string

func (d dir) String() string { return "folder " + string(d) }

func (d dir) Lookup(name string) (Value, bool, error) {
	if !ValidName(name) {
		return Value{}, false, nil
	}
	path := filepath.Join(string(d), name)
	info, err := os.Stat(path) // links are followed: the files of Kubernetes are links
	if errors.Is(err, fs.ErrNotExist) {
		return Value{}, false, nil
	}
	if err == nil && !info.Mode().IsRegular() { // opening a pipe would wait for a writer
		err = fmt.Errorf("%s is not a regular file", path)
	}
	if err != nil {
		return Value{}, false, fmt.Errorf("secret %s: %w", name, err)
	}
	f, err := os.Open(path)
	if err != nil {
		return Value{}, false, fmt.Errorf("secret %s: %w", name, err)
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, MaxValue+3))
	if err != nil {
		return Value{}, false, fmt.Errorf("secret %s: %w", name, err)
	}
	value := strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r")
	return checked(name, path, value)
}

func (d dir) Names() ([]string, error) {
	entries, err := os.ReadDir(string(d))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if ValidName(e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// Environment has the variables that begin with a prefix: with the prefix
// HAMMER_SECRET_, the variable HAMMER_SECRET_DEPLOY_TOKEN is the secret
// DEPLOY_TOKEN.
func Environment(prefix string) Source { return environment(prefix) }

type environment string

func (e environment) String() string { return "variable " + string(e) + "NAME" }

func (e environment) Lookup(name string) (Value, bool, error) {
	value, found := os.LookupEnv(string(e) + name)
	if !found || !ValidName(name) {
		return Value{}, false, nil
	}
	return checked(name, "variable "+string(e)+name, value)
}

func (e environment) Names() ([]string, error) {
	var names []string
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		if name, ours := strings.CutPrefix(name, string(e)); ours && ValidName(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

func checked(name, place, value string) (Value, bool, error) {
	switch {
	case value == "":
		return Value{}, false, fmt.Errorf("secret %s: %s is empty", name, place)
	case len(value) > MaxValue:
		return Value{}, false, fmt.Errorf("secret %s: %s has more than %d bytes", name, place, MaxValue)
	}
	return New(value), true, nil
}
