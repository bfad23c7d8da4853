package host

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"triphammer/cmd/triphammer/client"
)

// nearestDev is the data directory that `dev` made in this folder or in one above; empty if
// there is none. A folder of another user is passed over: its owner could answer as they like.
func nearestDev() string {
	dir, err := os.Getwd()
	if err != nil {
		return ""
	}
	for {
		own := filepath.Join(dir, DevFolder)
		data := filepath.Join(own, "data")
		if _, err := os.Stat(filepath.Join(data, StoreFile)); err == nil && ownedByUser(own) && ownedByUser(data) {
			return data
		}
		above := filepath.Dir(dir)
		if above == dir {
			return ""
		}
		dir = above
	}
}

// madeSecret is the value that dev made up for a secret; empty if there is none.
func madeSecret(data, name string) (string, error) {
	text, err := os.ReadFile(filepath.Join(data, MadeFolder, name))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return client.DropNewline(string(text)), err
}

func ownedByUser(path string) bool {
	info, err := os.Lstat(path)
	if err != nil {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && info.IsDir() && int(stat.Uid) == os.Geteuid()
}
