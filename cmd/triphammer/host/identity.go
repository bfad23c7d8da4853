package host

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"triphammer/server/secret"
	"triphammer/server/worker"
)

// identity is the id of the worker that the data directory belongs to. The first start makes
// it, so that what a worker left when it died is known to be its own.
func (in *instance) identity() (string, error) {
	path := filepath.Join(in.dir, worker.IdentityFile)
	text, err := os.ReadFile(path)
	if err == nil {
		if id := strings.TrimSpace(string(text)); id != "" {
			return id, nil
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("the identity of this worker: %w", err)
	}
	id := "wrk_" + strings.ToLower(rand.Text()[:13])
	err = os.WriteFile(path, []byte(id+"\n"), 0o600)
	if err == nil {
		err = secret.SyncFolder(in.dir)
	}
	if err != nil {
		return "", fmt.Errorf("the identity of this worker: %w", err)
	}
	return id, nil
}
