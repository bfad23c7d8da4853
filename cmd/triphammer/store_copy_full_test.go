//go:build full

package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"triphammer/cmd/triphammer/client/exit"
	"triphammer/cmd/triphammer/host"
	"triphammer/server/api"
	"triphammer/server/store/storetest"
)

// mover is a server whose store is moved.
type mover struct{ *world }

// shown is what a server shows of what it holds.
func (m *mover) shown() (all string) {
	m.t.Helper()
	var runs []api.Run
	m.list(&runs, "runs", "list")
	for _, r := range runs {
		text, err := json.Marshal(r)
		if err != nil {
			m.t.Fatal(err)
		}
		all += string(text) + m.run("", "runs", "logs", r.RunID) + m.run("", "runs", "artifacts", r.RunID, "-o", "json")
	}
	for _, what := range []string{"deliveries", "schedules", "applies", "webhooks", "keys", "secrets"} {
		all += m.run("", what, "list", "-o", "json")
	}
	return all
}

// differs is where two texts begin to differ.
func differs(a, b string) string {
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	cut := func(s string) string { return s[max(0, i-100):min(len(s), i+200)] }
	return cut(a) + "\n\n" + cut(b)
}

// fresh puts an empty data directory with the same sealing key in the place of that of the
// server, which becomes the folder of a name.
func (m *mover) fresh(name string) {
	m.t.Helper()
	data := filepath.Join(m.dir, "data")
	err := os.Rename(data, filepath.Join(m.dir, name))
	if err == nil {
		err = os.Mkdir(data, 0o700)
	}
	key, readErr := os.ReadFile(filepath.Join(m.dir, name, "key"))
	if err := errors.Join(err, readErr, os.WriteFile(filepath.Join(data, "key"), key, 0o600)); err != nil {
		m.t.Fatal(err)
	}
}

// TestMove: a store moves from a data directory into a database, and out of it again, with
// nothing lost: URLs, secrets, transcripts, artifacts, and schedules (SPEC 17.1).
func TestMove(t *testing.T) {
	t.Parallel()
	address := storetest.Postgres(t)
	w := &mover{newWorld(t, map[string]string{
		"factory.yaml": factoryYAML, "environments/env.yaml": "command: [sh, -c, 'echo \"héllo $RANDOM\"; echo content > \"$TRIPHAMMER_ARTIFACTS/note.txt\"; echo https://example.com/pull/1 >> \"$TRIPHAMMER_ARTIFACTS/links\"']\n",
		"webhooks/hook.yaml": "secretName: S\n", "automations/a.md": automationFile("hook", ""),
	})}
	w.start()
	hook := w.url("hook")
	ended := func(n int) {
		t.Helper()
		eventually(t, "the runs have ended", 30*time.Second, func() bool {
			var runs []api.Run
			w.list(&runs, "runs", "list")
			done := 0
			for _, r := range runs {
				if r.State == "SUCCEEDED" {
					done++
				}
			}
			return done >= n
		})
	}
	for _, body := range []string{`{"n":1}`, `{"n":"one"}`, `{"n":"\u0000 ü"}`} {
		w.deliver("hook", body)
	}
	w.run("", "schedules", "create", "--name", "New year", "--cron", "0 0 1 1 *", "--prompt", "Look.")
	ended(3)
	before := w.shown()
	w.fails(exit.Conflict, "store", "copy", "--from", "data", "--to", address)
	w.kill()

	said := w.run("", "store", "copy", "--from", "data", "--to", address)
	if !strings.Contains(said, "deliveries: 3, runs: 3") || !strings.Contains(said, "each was compared") {
		t.Error(said)
	}
	w.fails(exit.Conflict, "store", "copy", "--from", "data", "--to", address)
	w.run("", "db", "check", "--store", address)
	w.fresh("was")
	w.env = []string{"TRIPHAMMER_STORE=" + address}
	w.start()
	if after := w.shown(); after != before {
		t.Fatal(differs(before, after))
	}
	if u := w.url("hook"); u != hook {
		t.Errorf("%s is %s now", hook, u)
	}
	w.deliver("hook", `{"n":2}`)
	ended(4)
	before = w.shown()
	w.run("", "db", "backup", "shared.db")
	w.fails(exit.Conflict, "store", "copy", "--from", address, "--to", "down")
	w.kill()

	w.env = nil
	w.fails(exit.Usage, "store", "copy", "--from", address, "--to", "down") // without the key
	w.run("", "store", "copy", "--from", "data", "--to", "data")
	w.start()
	if after := w.shown(); after != before {
		t.Fatal(differs(before, after))
	}
	w.deliver("hook", `{"n":3}`)
	ended(5)
	w.run("", "db", "check")
	w.kill()

	w.fresh("down again") // the backup of the database is one of a store of one server
	w.run("", "db", "restore", "shared.db", "--data", "data")
	w.start()
	if after := w.shown(); after != before {
		t.Fatal(differs(before, after))
	}
}

// TestScheduleMoves: a schedule fires on after its store has moved into a database, once a
// minute (SPEC 17.1).
func TestScheduleMoves(t *testing.T) {
	t.Parallel()
	address := storetest.Postgres(t)
	w := &mover{newWorld(t, map[string]string{"factory.yaml": factoryYAML, "environments/env.yaml": "command: ['true']\n"})}
	w.start()
	w.run("", "schedules", "create", "--name", "Often", "--cron", "* * * * *", "--prompt", "Look.", "--environment", "env")
	w.kill()
	w.run("", "store", "copy", "--from", "data", "--to", address)
	w.fresh("was")
	w.env = []string{"TRIPHAMMER_STORE=" + address}
	w.start()
	began := time.Now()
	var runs []api.Run
	eventually(t, "it fires", 75*time.Second, func() bool {
		runs = nil
		w.list(&runs, "runs", "list")
		return slices.ContainsFunc(runs, func(r api.Run) bool { return r.CreatedAt.After(began) && r.State == "SUCCEEDED" })
	})
	minutes := make(map[time.Time]bool)
	for _, r := range runs {
		minute := r.CreatedAt.Truncate(time.Minute)
		if minutes[minute] {
			t.Errorf("two runs at %s", minute)
		}
		minutes[minute] = true
	}
}

// TestSharedStoreFirst: secrets and keys are for the database that a flag, a variable or the
// configuration names, before a server has run on it. No store is made beside it (SPEC 17.1).
func TestSharedStoreFirst(t *testing.T) {
	address := storetest.Postgres(t)
	w := &world{t: t, dir: t.TempDir(), addr: freeAddress(t)}
	w.cleanUp()
	w.write(map[string]string{
		"factory.yaml": factoryYAML, "environments/env.yaml": "command: ['true']\n",
		"webhooks/hook.yaml": "secretName: S\n", "automations/a.md": automationFile("hook", ""),
	})
	w.git("init", "-q", "--initial-branch=main")
	w.push()
	config := filepath.Join(w.dir, "config.yaml")
	if err := os.WriteFile(config, []byte("store: "+address+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	w.env = []string{"TRIPHAMMER_CONFIG=" + config}
	w.run(testSecret, "secrets", "set", "S")
	w.env = []string{"TRIPHAMMER_STORE=" + address}
	w.run("", "keys", "create", "first")
	w.env = nil
	w.run("", "keys", "create", "second", "--store", address)
	if out := w.fails(exit.Conflict, "keys", "create", "third", "--store", address+"_other"); !strings.Contains(out, "give one of the two") {
		t.Error(out)
	}
	if _, err := os.Lstat(filepath.Join(w.dir, "data", host.StoreFile)); !errors.Is(err, os.ErrNotExist) {
		t.Fatal("a store was made in the data directory:", err)
	}

	w.env = []string{"TRIPHAMMER_STORE=" + address}
	w.start()
	w.deliver("hook", `{"n":1}`)
	var keys []api.Key
	w.list(&keys, "keys", "list")
	if len(keys) != 2 {
		t.Errorf("keys: %+v", keys)
	}
	if out := w.fails(exit.Conflict, "keys", "create", "third", "--store", address+"_other"); !strings.Contains(out, "another store") {
		t.Error(out)
	}
}
