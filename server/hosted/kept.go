package hosted

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// kept is a file in a repository which says that its factory was made while the server ran.
// So the factory is served after a restart too, without being in the configuration.
const kept = "kept"

// Keep marks the factory of the repository as one that Kept lists. why is for people who look
// into the folder.
func (r *Repository) Keep(why string) error {
	f, err := os.CreateTemp(r.cfg.Dir, kept+".*")
	if err != nil {
		return err
	}
	_, err = f.WriteString(line(why) + "\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), filepath.Join(r.cfg.Dir, kept))
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// Kept lists the factories that were kept. dir is the folder of the repositories.
func Kept(dir string) (names []string, err error) {
	all, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, d := range all {
		if name, is := strings.CutSuffix(d.Name(), ".git"); is {
			if _, err := os.Stat(filepath.Join(dir, d.Name(), kept)); err == nil {
				names = append(names, name)
			}
		}
	}
	return names, err
}
