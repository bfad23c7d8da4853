package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"triphammer/cmd/triphammer/host"
	"triphammer/server/secret"
	"triphammer/server/store"
)

// campaign gives tests the size that make soak runs: minutes.
var campaign = flag.Bool("campaign", false, "all kills, cuts, pauses and crash states of the tests of make soak")

// bounded is how much a test does in make test, in make test-full and in make soak.
func bounded(test, full, soak int) int {
	switch {
	case *campaign:
		return soak
	case thorough:
		return full
	}
	return test
}

// inode is a file on the disk of a model: what the disk has confirmed, and what it may
// have or not.
type inode struct {
	kept    []byte
	pending []pendingCall
}

type pendingCall struct {
	*diskCall
	n int // of the record
}

// move is a change of names that the disk has not confirmed.
type move struct {
	*diskCall
	node *inode
	n    int
}

// modelDisk is what a disk may hold of a folder after recorded calls. It promises no more than
// POSIX does: a write is kept once its file was synced after it, a name once the folder was.
// Names change in order. A failed sync drops what it was to confirm.
type modelDisk struct {
	names, kept map[string]*inode
	moves       []move
	unsynced    bool // of a control: no sync of the log counts
}

func newModelDisk(folder map[string][]byte) *modelDisk {
	d := &modelDisk{names: make(map[string]*inode), kept: make(map[string]*inode)}
	for name, data := range folder {
		d.names[name] = &inode{kept: data}
		d.kept[name] = d.names[name]
	}
	return d
}

func change(data []byte, c *diskCall) []byte {
	end := int(c.at) + len(c.data)
	if c.what == "truncate" {
		end = int(c.at)
		data = data[:min(end, len(data))]
	}
	if grow := end - len(data); grow > 0 {
		data = append(data, make([]byte, grow)...)
	}
	copy(data[c.at:], c.data)
	return data
}

func moveIn(names map[string]*inode, m move) {
	switch m.what {
	case "create":
		names[m.path] = m.node
	case "link":
		names[m.to] = m.node
	case "rename":
		names[m.to] = m.node
		delete(names, m.path)
	case "remove":
		delete(names, m.path)
	}
}

// apply makes the call with the number n.
func (d *modelDisk) apply(c *diskCall, n int) {
	node := d.names[c.path]
	switch c.what {
	case "create":
		switch {
		case node == nil:
			m := move{c, &inode{}, n}
			moveIn(d.names, m)
			d.moves = append(d.moves, m)
		case c.at != 0: // O_TRUNC
			node.pending = append(node.pending, pendingCall{&diskCall{what: "truncate"}, n})
		}
	case "rename", "link", "remove":
		if node != nil {
			m := move{c, node, n}
			moveIn(d.names, m)
			d.moves = append(d.moves, m)
		}
	case "write", "truncate":
		if node != nil && !c.failed {
			node.pending = append(node.pending, pendingCall{c, n})
		}
	case "sync":
		switch {
		case c.path == "":
			if !c.failed {
				for _, m := range d.moves {
					moveIn(d.kept, m)
				}
				d.moves = nil
			}
		case node == nil || d.unsynced && strings.HasSuffix(c.path, "-wal"):
		case c.failed:
			node.pending = nil
		default:
			for _, p := range node.pending {
				node.kept = change(node.kept, p.diskCall)
			}
			node.pending = nil
		}
	}
}

// Ways in which a disk may lose what it has not confirmed.
var crashModes = []string{"none", "all", "prefix", "subset", "torn", "late"}

const sector = 512

// state is what the disk holds if the power fails now.
func (d *modelDisk) state(mode string, now int, random *rand.Rand) map[string][]byte {
	first := now
	for _, node := range d.names {
		if len(node.pending) > 0 {
			first = min(first, node.pending[0].n)
		}
	}
	limit := first + random.IntN(now-first+1) // of "prefix": what came before; of "late": what came after
	named := random.IntN(len(d.moves) + 1)
	switch mode {
	case "none":
		named = 0
	case "all":
		named = len(d.moves)
	case "prefix":
		named, _ = slices.BinarySearchFunc(d.moves, limit, func(m move, limit int) int { return m.n - limit })
	}
	names := maps.Clone(d.kept)
	for _, m := range d.moves[:named] {
		moveIn(names, m)
	}
	files := make(map[string][]byte)
	for name, node := range names {
		if !ofStore(name) {
			continue
		}
		data := bytes.Clone(node.kept)
		for _, p := range node.pending {
			switch c := p.diskCall; {
			case mode == "none", mode == "prefix" && p.n >= limit, mode == "late" && p.n < limit:
			case mode == "subset" && random.IntN(2) == 0:
			case mode == "torn" && c.what == "write":
				for from := 0; from < len(c.data); {
					to := min(len(c.data), from+sector-(int(c.at)+from)%sector)
					if random.IntN(2) == 0 {
						data = change(data, &diskCall{what: "write", at: c.at + int64(from), data: c.data[from:to]})
					}
					from = to
				}
			default:
				data = change(data, c)
			}
		}
		files[name] = data
	}
	return files
}

// folderOf reads what a data directory holds that a crash state is made of.
func folderOf(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	files := make(map[string][]byte)
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !ofStore(e.Name()) {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		files[e.Name()] = data
	}
	return files
}

// ofStore tells whether a crash state has a file: no other says what is kept.
func ofStore(name string) bool {
	return name == host.KeyName || strings.HasPrefix(name, host.StoreFile) && !strings.HasSuffix(name, "-shm")
}

// kept is what a store has.
type kept struct {
	runs    map[string]int    // of each delivery that was accepted
	applies map[string]string // their files and webhooks
	secrets string
}

// readStore opens what is left of a data directory as a server would, and reads all of it.
func readStore(ctx context.Context, dir string) (k kept, err error) {
	key, err := secret.LoadOrCreateKey(filepath.Join(dir, host.KeyName))
	if err != nil {
		return k, err
	}
	s, err := store.Open(ctx, store.Config{Path: filepath.Join(dir, host.StoreFile), Key: key, Existing: true, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		return k, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if problems, err := s.Integrity(ctx); err != nil || len(problems) > 0 {
		return k, fmt.Errorf("damaged: %q %w", problems, err)
	}
	k = kept{make(map[string]int), make(map[string]string), ""}
	each := func(query string, scan func(rows *sql.Rows) error) {
		if err == nil {
			var rows *sql.Rows
			if rows, err = s.Read.QueryContext(ctx, query); err == nil {
				for rows.Next() {
					err = errors.Join(err, scan(rows))
				}
				err = errors.Join(err, rows.Err(), rows.Close())
			}
		}
	}
	each("SELECT d.id, (SELECT count(*) FROM runs r WHERE r.delivery_id = d.id) FROM deliveries d WHERE d.outcome = 'accepted'", func(rows *sql.Rows) error {
		var id store.DeliveryID
		var runs int
		if err := rows.Scan(&id, &runs); err != nil {
			return err
		}
		k.runs[id.String()] = runs
		_, err := s.Deliveries.Payload(ctx, id)
		return err
	})
	each("SELECT a.id, (SELECT group_concat(path || hash) FROM (SELECT path, hex(hash) AS hash FROM apply_files WHERE apply_id = a.id ORDER BY path)), (SELECT count(*) FROM apply_webhooks w WHERE w.apply_id = a.id) FROM applies a WHERE a.outcome = 'applied'",
		func(rows *sql.Rows) error {
			var id, webhooks int64
			var files sql.NullString
			err := rows.Scan(&id, &files, &webhooks)
			k.applies[fmt.Sprint(id)] = fmt.Sprint(files.String, webhooks)
			return err
		})
	each("SELECT coalesce(group_concat(name), '') FROM secret_names", func(rows *sql.Rows) error { return rows.Scan(&k.secrets) })
	return k, err
}

// compare says what a store lacks, or has in part.
func (k kept) compare(acknowledged []string, whole kept) (wrong []string) {
	for _, id := range acknowledged {
		switch {
		case strings.HasPrefix(id, "dlv_") && k.runs[id] == 0, strings.HasPrefix(id, "secret ") && !strings.Contains(k.secrets, id[7:]):
			wrong = append(wrong, id+" was acknowledged and is lost")
		}
	}
	for id, runs := range k.runs {
		if runs != 1 {
			wrong = append(wrong, fmt.Sprintf("%s has %d runs", id, runs))
		}
	}
	for id, has := range k.applies {
		if has != whole.applies[id] {
			wrong = append(wrong, fmt.Sprintf("apply %s has %q, not %q", id, has, whole.applies[id]))
		}
	}
	return wrong
}

// smallDisk is the size of a disk on which the log is copied into the database after 2 MB.
const smallDisk = 64 << 20

// memoryFolder is a folder whose syncs cost nothing, if the machine has one.
func memoryFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "triphammer-test")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// crashed is what became of opening crash states.
type crashed struct {
	states, lost int
	wrong        []string
}

// crash makes crash states of a record, opens each, and tells what is lost. The power fails all
// over the record, and every second time just after a call that the disk confirms or that
// changes a name.
func crash(t *testing.T, before map[string][]byte, calls []diskCall, states int, unsynced bool, whole kept) (c crashed) {
	t.Helper()
	random := rand.New(rand.NewPCG(7, uint64(states)))
	var turns []int
	for i, c := range calls {
		if c.what == "sync" || c.what == "rename" || c.what == "link" || c.what == "answer" {
			turns = append(turns, i)
		}
	}
	cuts := make([]int, states)
	for i := range cuts {
		if cuts[i] = (i*len(calls) + random.IntN(len(calls))) / states; i%2 == 1 {
			cuts[i] = turns[(i*len(turns)+random.IntN(len(turns)))/states]
		}
	}
	slices.Sort(cuts)
	d := newModelDisk(before)
	d.unsynced = unsynced
	folder, n := memoryFolder(t), 0
	var acknowledged []string
	for i, cut := range cuts {
		for ; n <= cut; n++ {
			if calls[n].what == "answer" {
				acknowledged = append(acknowledged, string(calls[n].data))
			}
			d.apply(&calls[n], n)
		}
		mode := crashModes[random.IntN(len(crashModes))]
		dir := filepath.Join(folder, fmt.Sprint(i))
		files := d.state(mode, n, random)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for name, data := range files {
			if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		k, err := readStore(t.Context(), dir)
		var wrong []string
		switch {
		case errors.Is(err, store.ErrMissing) && len(acknowledged) == 0 && files[host.StoreFile] == nil: // not made yet
		case err != nil:
			wrong = []string{err.Error()}
		default:
			wrong = k.compare(acknowledged, whole)
		}
		c.states++
		if len(wrong) > 0 {
			c.lost++
			c.wrong = append(c.wrong, fmt.Sprintf("the power fails after call %d of %d (%s): %d wrong, such as: %s", cut, len(calls), mode, len(wrong), wrong[0]))
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// load sends deliveries until it is told to stop, and tells of each answer, which is nil if the server is dead.
func (w *world) load(url string, senders int, body func(n int) string, answered func(resp *http.Response, id string)) (stop func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	var all sync.WaitGroup
	caller := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: senders}}
	for s := range senders {
		all.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				identity := fmt.Sprintf("%d-%d-%d", s, n, time.Now().UnixNano())
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body(n)))
				if err != nil {
					w.t.Error(err)
					return
				}
				req.Header.Set("Authorization", "Bearer "+testSecret)
				req.Header.Set("X-Service-Delivery-Id", identity)
				resp, err := caller.Do(req)
				if err != nil {
					select { // the server is dead
					case <-ctx.Done():
					case <-time.After(2 * time.Millisecond):
					}
					if ctx.Err() == nil {
						answered(nil, "")
					}
					continue
				}
				var answer struct {
					DeliveryID string `json:"delivery_id"`
				}
				err = json.NewDecoder(resp.Body).Decode(&answer)
				_ = resp.Body.Close()
				if resp.StatusCode == http.StatusAccepted && err != nil {
					continue // cut off: not acknowledged
				}
				answered(resp, answer.DeliveryID)
			}
		})
	}
	return func() {
		cancel()
		all.Wait()
		caller.CloseIdleConnections()
	}
}

func plainWorld(t *testing.T) *world {
	t.Helper()
	return newWorld(t, map[string]string{
		"factory.yaml": factoryYAML, "webhooks/hook.yaml": "secretName: S\n", "environments/env.yaml": "command: ['true']\n",
		"automations/all.md": automationFile("hook", ""),
	})
}

// quietly are the flags of servers that execute no run and refuse no delivery.
var quietly = []string{"--rate-limit", "0", "--max-runs-per-hour", "0", "--max-runs", "0"}

// said waits until so many deliveries were accepted.
func (w *world) said(accepted <-chan string, n int) {
	w.t.Helper()
	for range n {
		select {
		case <-accepted:
		case <-time.After(30 * time.Second):
			w.t.Fatal("nothing is acknowledged")
		}
	}
}

// TestPowerLoss (R3): wherever the power fails while a server takes deliveries, applies a commit,
// copies its log and ends, and whatever the disk keeps of what it has not confirmed, the store
// opens, has each delivery that was acknowledged with its run, and no apply in part. With a
// disk that confirms what it has not written, it is not so.
func TestPowerLoss(t *testing.T) {
	t.Parallel()
	w := plainWorld(t)
	data := filepath.Join(w.dir, "data")
	before := folderOf(t, data)
	x := &watcher{t: t, dir: data, total: smallDisk, record: true}
	states, enough := bounded(90, 240, 3000), bounded(400, 600, 2500)
	w.startWatched(x, quietly...)
	accepted := make(chan string, 10_000)
	stop := w.load(w.url("hook"), 8, func(n int) string { return fmt.Sprintf(`{"n":%d,"x":"%s"}`, n, strings.Repeat("y", n*37%3000)) }, func(resp *http.Response, id string) {
		if resp != nil && resp.StatusCode == http.StatusAccepted {
			accepted <- id
		}
	})
	w.said(accepted, enough/2)
	w.write(map[string]string{"webhooks/more.yaml": "secretName: S\n", "automations/more.md": automationFile("more", "")})
	w.push()
	w.run("", "apply")
	w.said(accepted, enough/2)
	stop()
	w.stop()
	<-x.ended
	whole, err := readStore(t.Context(), data)
	if err != nil {
		t.Fatal(err)
	}
	copies := 0
	for i, c := range x.calls {
		if c.what == "sync" && c.path == host.StoreFile && i < len(x.calls)-50 {
			copies++
		}
	}
	got := crash(t, before, x.calls, states, false, whole)
	for _, wrong := range got.wrong[:min(5, len(got.wrong))] {
		t.Error(wrong)
	}
	control := crash(t, before, x.calls, 60, true, whole)
	t.Logf("%d calls, %d deliveries, %d syncs of the database: %d states, %d wrong; without syncs of the log %d of %d", len(x.calls), len(whole.runs), copies, got.states, got.lost, control.lost, control.states)
	if control.lost < 20 || copies == 0 || len(whole.applies) < 2 || len(whole.runs) < enough {
		t.Errorf("this proves nothing: %d of the states without syncs are wrong, %d copies of the log, %d applies, %d deliveries", control.lost, copies, len(whole.applies), len(whole.runs))
	}
}

// startWatched starts the server as a watched program, without the race detector.
func (w *world) startWatched(x *watcher, args ...string) {
	w.t.Helper()
	w.startWith(func(cmd *exec.Cmd) {
		if cmd.Path == binary {
			cmd.Path = plain
		}
		x.watch(cmd)
	}, args...)
}
