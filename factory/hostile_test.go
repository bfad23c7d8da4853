package factory

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"triphammer/schema"
)

// hostileRepository writes objects as they are, however malformed, into a real
// repository.
type hostileRepository struct {
	t    *testing.T
	path string
}

func newHostileRepository(t *testing.T) *hostileRepository {
	t.Helper()
	r := &hostileRepository{t, filepath.Join(t.TempDir(), "r.git")}
	r.git(nil, "init", "-q", "--bare", r.path)
	return r
}

func (r *hostileRepository) git(stdin []byte, args ...string) string {
	r.t.Helper()
	cmd := exec.Command("git", args...)
	if args[0] != "init" {
		cmd.Dir = r.path
	}
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com")
	cmd.Stdin = bytes.NewReader(stdin)
	out, err := cmd.Output()
	if err != nil {
		r.t.Fatalf("git %v: %v", args, err)
	}
	return strings.TrimSpace(string(out))
}

// entry is one entry of a tree object.
type entry struct{ mode, name, hash string }

const (
	asFile, asLink, asFolder, asSubmodule = "100644", "120000", "40000", "160000"
	nowhere                               = "1234567890123456789012345678901234567890"
)

func (r *hostileRepository) blob(text string) string {
	r.t.Helper()
	return r.git([]byte(text), "hash-object", "-w", "--stdin")
}

// folder writes a tree of entries, sorted as Git wants them.
func (r *hostileRepository) folder(entries ...entry) string {
	r.t.Helper()
	slices.SortStableFunc(entries, func(a, b entry) int { return strings.Compare(a.key(), b.key()) })
	var object bytes.Buffer
	for _, e := range entries {
		hash, err := hex.DecodeString(e.hash)
		if err != nil {
			r.t.Fatal(err)
		}
		object.WriteString(e.mode + " " + e.name + "\x00")
		object.Write(hash)
	}
	return r.git(object.Bytes(), "hash-object", "-t", "tree", "-w", "--literally", "--stdin")
}

func (e entry) key() string {
	if e.mode == asFolder {
		return e.name + "/"
	}
	return e.name
}

// hostileTrees are trees that cost much if they are let, by name; each must be
// refused unless the name says that it is merely odd.
func hostileTrees(r *hostileRepository) map[string]string {
	root := entry{asFile, "factory.yaml", r.blob(minimal)}
	webhook, automation, tiny := r.blob("secretName: S\n"), r.blob("---\ntriggers: [{provider: github, event: push}]\n---\n"), r.blob("x")
	trees := make(map[string]string)
	in := func(folder string, entries ...entry) string {
		return r.folder(root, entry{asFolder, folder, r.folder(entries...)})
	}
	file := func(name, text string) {
		trees[name] = in("webhooks", entry{asFile, "w.yaml", r.blob(text)})
	}
	fill := func(s string) string { return strings.Repeat(s, (schema.MaxFile-100)/len(s)) }
	var keys, aliases strings.Builder
	for i := range 40_000 {
		fmt.Fprintf(&keys, "%x:\n", 0x10000+i)
	}
	aliases.WriteString("a0: &a0 [x]\n")
	for i := 1; aliases.Len() < schema.MaxFile-200; i++ {
		fmt.Fprintf(&aliases, "a%d: &a%d [*a%d, *a%d, *a%d, *a%d]\n", i, i, i-1, i-1, i-1, i-1)
	}
	file("40,000 keys", keys.String()[:schema.MaxFile-1])
	file("40,000 keys in braces", "{"+fill("a:,")+"}")
	file("one key many times", fill("a:\n"))
	file("aliases of aliases", aliases.String())
	file("an alias of itself", "a: &a [*a]\n")
	file("open lists", fill("["))
	file("open mappings", fill("{a: "))
	file("dashes", fill("- "))
	file("question marks", fill("? "))
	file("an error at the end", fill("a:\n - 1\n")+"\n\t]")
	file("tags", fill("!!a "))
	file("documents", fill("---\n"))
	file("UTF-16", "\xff\xfe"+fill("a\x00"))
	file("5 MB", strings.Repeat("# filler\n", 5<<20/9))
	file("a long line", "secretName: '"+fill("é")+"\n")

	large := r.blob(strings.Repeat("x: y\n", 1<<20))
	trees["factory.yaml of 5 MB"] = r.folder(entry{asFile, "factory.yaml", large})
	trees["factory.yaml is a link"] = r.folder(entry{asLink, "factory.yaml", r.blob("/etc/passwd")})
	trees["factory.yaml is a folder"] = r.folder(entry{asFolder, "factory.yaml", r.folder()})
	trees["a link as webhook"] = in("webhooks", entry{asLink, "w.yaml", r.blob("../../../etc/passwd")})
	trees["a link as folder"] = r.folder(root, entry{asLink, "automations", r.blob("/")})
	trees["a submodule as agent"] = in("agents", entry{asSubmodule, "lead", nowhere})
	trees["a submodule as folder"] = r.folder(root, entry{asSubmodule, "webhooks", nowhere})
	trees["a blob that is not there"] = in("webhooks", entry{asFile, "w.yaml", nowhere})
	trees["names that are no names"] = in("webhooks",
		entry{asFile, "a\nb.yaml", webhook}, entry{asFile, "h\xf6k.yaml", webhook}, entry{asFile, "..", webhook}, entry{asFile, "a/../../b.yaml", webhook})
	trees["a long name"] = in("webhooks", entry{asFile, strings.Repeat("n", 1<<20) + ".yml", tiny}, entry{asFile, strings.Repeat("n", 1<<20), tiny}, entry{asFile, "x.yaml", tiny})

	var many, folders, strays, big []entry
	one := r.folder(entry{asFile, "automation.md", automation})
	for i := range 100_000 {
		many = append(many, entry{asFile, fmt.Sprintf("w%06d.yaml", i), webhook})
		folders = append(folders, entry{asFolder, fmt.Sprintf("a%06d", i), one})
		strays = append(strays, entry{asFile, fmt.Sprintf("s%06d.yml", i), tiny})
		if i < 200 {
			big = append(big, entry{asFile, fmt.Sprintf("w%06d.yaml", i), large})
		}
	}
	trees["100,000 webhooks"] = in("webhooks", many...)
	trees["100,000 automations"] = in("automations", folders...)
	trees["200 webhooks of 5 MB"] = in("webhooks", big...)
	trees["odd: 99,000 stray files"] = in("webhooks", strays[:99_000]...)
	trees["100,000 stray files"] = in("webhooks", strays...)

	// Many files of what is bounded in each.
	same := func(folder string, n int, name, hash string) entry {
		var entries []entry
		mode := asFile
		if !strings.HasSuffix(name, ".yaml") {
			mode = asFolder
		}
		for i := range n {
			entries = append(entries, entry{mode, fmt.Sprintf(name, i), hash})
		}
		return entry{asFolder, folder, r.folder(entries...)}
	}
	values := r.blob("- {name: n, webhook: w, expect: [], payload: [" + strings.Repeat("1,", 15_000) + "]}")
	trees["2,000,000 values"] = r.folder(root, same("tests", 140, "t%d.yaml", values))
	trees["unknown keys everywhere"] = r.folder(root, same("webhooks", 140, "w%d.yaml", r.blob("secretName: S\n"+unknownKeys(1_500))))
	plain := r.folder(entry{asFile, "agent.md", r.blob("---\n---\n")})
	misnamed := r.folder(entry{asFile, "automation.md", r.blob("---\nagent: aegnt\ntriggers: [{provider: github, event: push}]\n---\n")})
	trees["thousands of names that are near"] = r.folder(root, same("agents", 2_000, "agent%d", plain), same("automations", 2_000, "a%d", misnamed))
	wide := r.blob("---\ntriggers:\n" + strings.Repeat("- {provider: webhook, event: received, filter: {webhooks: [w], payload: {a: {in: [1, 2, 3, 4], not_in: [1, 2, 3]}}}}\n", 1_000) + "---\n")
	trees["20,000 filters that contradict themselves"] = r.folder(root, same("automations", 20, "a%d", r.folder(entry{asFile, "automation.md", wide})))

	// A tree that holds itself twice, twice, … has more files than there are atoms.
	bomb, deep := r.folder(entry{asFile, "stray", tiny}), r.folder(entry{asFile, "automation.md", automation})
	for range 50 {
		bomb = r.folder(entry{asFolder, "a", bomb}, entry{asFolder, "b", bomb})
	}
	for range 40 {
		deep = r.folder(entry{asFolder, "d", deep})
	}
	trees["a folder of itself"] = r.folder(root, entry{asFolder, "automations", bomb})
	trees["40 folders in each other"] = r.folder(root, entry{asFolder, "automations", deep})
	return trees
}

// Bounds of reliability.md's R24 for refusing a tree: of the second of CPU time,
// three are allowed for a slow machine, and slowdown times that.
const (
	hostileCPU  = 3 * time.Second
	hostileHeap = 96 << 20 // of 64 MB, with what the collector has not come to
)

var slowdown time.Duration = 1 // more under the race detector

// cpuTime is what the process has used, which other processes do not lengthen.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// peakHeap is how much more memory than before is in use while do runs, with a
// collector that is eager.
func peakHeap(do func()) uint64 {
	defer debug.SetGCPercent(debug.SetGCPercent(10))
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	read := func() uint64 {
		metrics.Read(sample)
		return sample[0].Value.Uint64()
	}
	runtime.GC()
	base := read()
	done, peak := make(chan struct{}), make(chan uint64)
	go func() {
		most := base
		for {
			select {
			case <-done:
				peak <- most - base
				return
			case <-time.After(time.Millisecond):
				most = max(most, read())
			}
		}
	}()
	do()
	close(done)
	return <-peak
}
