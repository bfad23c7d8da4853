package hosted

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// kept is the name of a file in a repository. It says that the factory was made while the server
// ran, so that a restarted server serves the factory without a configuration.
const kept = "kept"

// Keep makes Kept list the factory of the repository. why is for people who look into the folder.
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
