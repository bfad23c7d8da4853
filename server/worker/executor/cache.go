package executor

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"triphammer/server/inside"
	"triphammer/server/run/task"
)

// What this machine keeps of caches, as package inside makes them (SPEC 15.9). The oldest archives go first.
const (
	cacheFolder  = ".cache"   // in the folder of the runs; runs read the part of their environment alone
	mirrorFolder = ".mirrors" // in the same folder; no run reads there
	maxCaches    = 10 << 30   // bytes of all archives and mirrors (SPEC 15.10)
	cacheAge     = 7 * 24 * time.Hour
	newCache     = ".new-" // begins the names of archives that are not complete
)

// kept is the cache of a run that is in progress.
type kept struct {
	dir    string
	logger *slog.Logger
	may    bool     // the run may keep an archive
	file   *os.File // that is being written
	size   int64
	err    error // of writing
	sweep  func() error
}

// cache opens the cache of a task; nil: it has none.
func (e *Executor) cache(t *task.Task) *kept {
	if t.Cache == nil || t.Resume {
		return nil
	}
	of := sha256.Sum256([]byte(t.Cache.Scope))
	all := filepath.Join(e.dir, cacheFolder)
	k := &kept{dir: filepath.Join(all, hex.EncodeToString(of[:16])), logger: e.logger, may: fixed(t), sweep: func() error { return e.sweepCaches(maxCaches) }}
	err := os.MkdirAll(k.dir, 0o755)
	if err == nil { // another user of the runs reads there, whatever the umask
		err = errors.Join(os.Chmod(all, 0o711), os.Chmod(k.dir, 0o755))
	}
	if err != nil {
		e.logger.Warn("a run goes without its cache", "run", t.RunID, "error", err)
		return nil
	}
	return k
}

// fixed tells whether the definitions alone say which code the setup commands run. What an event is about is
// somebody else's code, perhaps an agent's, which must not reach later runs.
func fixed(t *task.Task) bool {
	return !t.Foreign && !slices.ContainsFunc(t.Repositories, func(r task.Repository) bool { return r.Head != nil })
}

// folders are what the run may read of it.
func (k *kept) folders() []string {
	if k == nil {
		return nil
	}
	return []string{k.dir}
}

// of is the cache for the job of the task.
func (k *kept) of(t *task.Task, isolation, image string) *inside.Cache {
	if k == nil {
		return nil
	}
	var from []string
	for _, r := range t.Repositories {
		from = append(from, r.URL, r.Path)
	}
	of, _ := json.Marshal([]any{isolation, image, runtime.GOARCH, t.Setup, t.Env, from, t.Cache.Paths}) // these always encode
	return &inside.Cache{Dir: k.dir, Of: string(of), Paths: t.Cache.Paths, Files: t.Cache.Files, Keeps: k.may}
}

// write adds a part to the archive that the run sends. Only the supervisor sends it, before the agent starts.
func (k *kept) write(part []byte) {
	if k == nil || !k.may || k.err != nil {
		return
	}
	if k.file == nil {
		k.file, k.err = os.CreateTemp(k.dir, newCache)
	}
	if k.size += int64(len(part)); k.size > inside.MaxCache {
		k.err = fmt.Errorf("an archive of a cache has more than %d bytes", int64(inside.MaxCache))
	}
	if k.err == nil {
		_, k.err = k.file.Write(part)
	}
}

var cacheKey = regexp.MustCompile(`^[0-9a-f]{64}$`)

// use keeps the archive that the run has sent, or notes that the run has used an archive.
func (k *kept) use(key string) {
	if k == nil || !cacheKey.MatchString(key) {
		return
	}
	if k.file == nil {
		now := time.Now()
		_ = os.Chtimes(filepath.Join(k.dir, key), now, now)
		return
	}
	err := k.err
	if err == nil {
		err = errors.Join(k.file.Chmod(0o644), k.file.Sync())
	}
	if err == nil {
		err = os.Rename(k.file.Name(), filepath.Join(k.dir, key))
	}
	k.close()
	if err = errors.Join(err, k.sweep()); err != nil {
		k.logger.Warn("a cache of setup commands was not kept", "error", err)
	}
}

// close forgets an archive that is not complete.
func (k *kept) close() {
	if k == nil || k.file == nil {
		return
	}
	_, _ = k.file.Close(), os.Remove(k.file.Name())
	k.file, k.may = nil, false
}

// sweepCaches removes archives and mirrors that nobody has used for long, and then the oldest until all have at
// most so many bytes. A mirror that a run uses now stays.
func (e *Executor) sweepCaches(most int64) error {
	type entry struct {
		path   string
		size   int64
		used   time.Time
		remove func(string) error
	}
	var all []entry
	for pattern, remove := range map[string]func(string) error{filepath.Join(cacheFolder, "*", "*"): os.Remove, filepath.Join(mirrorFolder, "*"): e.mirrors.Remove} {
		paths, _ := filepath.Glob(filepath.Join(e.dir, pattern))
		for _, path := range paths {
			k := entry{path: path, remove: remove}
			_ = filepath.WalkDir(path, func(at string, d fs.DirEntry, err error) error {
				if err != nil {
					return nil // it is gone
				}
				if info, err := d.Info(); err == nil {
					if k.size += info.Size(); at == path {
						k.used = info.ModTime()
					}
				}
				return nil
			})
			all = append(all, k)
		}
	}
	slices.SortFunc(all, func(a, b entry) int { return b.used.Compare(a.used) })
	var err error
	for _, k := range all {
		unused := e.now().Sub(k.used)
		if most -= k.size; unused > cacheAge || most < 0 && !strings.HasPrefix(filepath.Base(k.path), newCache) {
			if gone := k.remove(k.path); !errors.Is(gone, fs.ErrNotExist) {
				err = errors.Join(err, gone)
			}
		}
	}
	return err
}
