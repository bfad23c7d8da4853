package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"

	"triphammer/cmd/triphammer/client/exit"
	"triphammer/server/api"
	"triphammer/server/terms"
)

// A context is a saved server: its address, the key for it, and the factory that commands
// mean there. It saves a person the variables in each shell.

// savedContext is a context as it is stored.
type savedContext struct {
	Name    string `json:"name"`
	Server  string `json:"server"`
	Factory string `json:"factory,omitempty"`
	Key     string `json:"key"`
}

// savedContexts is the file of contexts.
type savedContexts struct {
	Current  string         `json:"current,omitempty"`
	Contexts []savedContext `json:"contexts"`
}

var contextName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`) })

// find returns a context, or an error that names those there are.
func (s *savedContexts) find(name string) (*savedContext, error) {
	for i := range s.Contexts {
		if s.Contexts[i].Name == name {
			return &s.Contexts[i], nil
		}
	}
	if len(s.Contexts) == 0 {
		return nil, exit.With(exit.NotFound, "there is no context %s, and no other; save one: triphammer context add %s --server URL", name, name)
	}
	return nil, exit.With(exit.NotFound, "%s", api.NoneNamed("context", name, s.names()))
}

func (s *savedContexts) names() []string {
	return terms.Each(s.Contexts, func(one savedContext) string { return one.Name })
}

// configFolder is where this program keeps what belongs to a person; empty if the person has
// no home.
func configFolder() string {
	dir := os.Getenv("XDG_CONFIG_HOME")
	if !filepath.IsAbs(dir) { // the specification of that variable says to ignore other paths
		home, err := os.UserHomeDir()
		if err != nil {
			return ""
		}
		dir = filepath.Join(home, ".config")
	}
	return filepath.Join(dir, "triphammer")
}

// ContextsFile has the contexts, in the folder of the configuration of this program.
const ContextsFile = "contexts.json"

// readContexts reads the contexts. It refuses a file that others can read, because they may
// have the keys.
func readContexts() (*savedContexts, error) {
	saved := &savedContexts{}
	dir := configFolder()
	if dir == "" {
		return saved, nil
	}
	path := filepath.Join(dir, ContextsFile)
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return saved, nil
	}
	if err != nil {
		return nil, exit.With(exit.Usage, "the contexts: %w", err)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return nil, exit.With(exit.Usage,
			"%s has keys, and others can use it by its mode %04o. Close it (chmod 600 %s), and replace its keys if others use this machine", path, mode, path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, exit.With(exit.Usage, "the contexts: %w", err)
	}
	if err := json.Unmarshal(text, saved); err != nil {
		return nil, exit.With(exit.Usage, "%s is damaged: %w. Repair it, or remove it and add the contexts again", path, err)
	}
	return saved, nil
}

// changeContexts reads the contexts, changes them and writes them. Whoever else changes them
// meanwhile waits. A reader has the old file or the new one, also if the machine fails.
func changeContexts(change func(*savedContexts) error) error {
	dir := configFolder()
	if dir == "" {
		return exit.With(exit.Usage, "there is no place for contexts: neither XDG_CONFIG_HOME nor HOME is set")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return exit.With(exit.Usage, "the contexts: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, ContextsFile+".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return exit.With(exit.Usage, "the contexts: %w", err)
	}
	defer func() { _ = lock.Close() }() // which ends the lock
	for err = syscall.EINTR; errors.Is(err, syscall.EINTR); {
		err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		return exit.With(exit.Usage, "locking the contexts: %w", err)
	}
	saved, err := readContexts()
	if err == nil {
		err = change(saved)
	}
	if err != nil {
		return err
	}
	slices.SortFunc(saved.Contexts, func(a, b savedContext) int { return strings.Compare(a.Name, b.Name) })
	text, err := json.MarshalIndent(saved, "", "  ")
	if err == nil {
		err = replaceFile(filepath.Join(dir, ContextsFile), append(text, '\n'))
	}
	if err != nil {
		return exit.With(exit.Usage, "writing the contexts: %w", err)
	}
	return nil
}

// replaceFile writes a file of mode 0600 that has the old or the new content at each moment. If
// the path is a symbolic link, as of those who keep such files elsewhere, it stays one.
func replaceFile(path string, text []byte) error {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// checkContextName refuses names that would need quoting in a shell.
func checkContextName(name string) error {
	if !contextName().MatchString(name) {
		return exit.With(exit.Usage, "%q is no name of a context: it takes letters, digits, dots, dashes and underscores, and begins with a letter or digit", name)
	}
	return nil
}

// set adds or replaces a context. The first one is the current one.
func (s *savedContexts) set(one savedContext, replace bool) error {
	i := slices.IndexFunc(s.Contexts, func(have savedContext) bool { return have.Name == one.Name })
	switch {
	case i < 0:
		s.Contexts = append(s.Contexts, one)
	case !replace:
		return exit.With(exit.Conflict, "there is a context %s already, for %s; replace it with --replace", one.Name, s.Contexts[i].Server)
	default:
		s.Contexts[i] = one
	}
	if len(s.Contexts) == 1 {
		s.Current = one.Name
	}
	return nil
}

// describe is a context without its key.
func (s savedContext) describe() string {
	if s.Factory == "" {
		return fmt.Sprintf("%s (%s)", s.Name, s.Server)
	}
	return fmt.Sprintf("%s (%s, factory %s)", s.Name, s.Server, s.Factory)
}
