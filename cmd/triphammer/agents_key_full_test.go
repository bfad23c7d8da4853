//go:build full

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"triphammer/server/run/fakemodel"
)

// TestKeyInKernel looks for the key of the model in runs between the walls of the kernel alone (SPEC 25.1).
// Claude with its key as a granted secret is the control: the same search finds it.
func TestKeyInKernel(t *testing.T) {
	model := newListening(t, secondTurn)
	agents := []realAgent{
		agentNamed("claude"), agentNamed("codex"), agentNamed("gemini"), agentNamed("opencode"), agentNamed("opencode-acp"),
		{name: "control", harness: "{type: claude}", environment: "env: {ANTHROPIC_BASE_URL: MODEL}\nsecrets: [ANTHROPIC_API_KEY]\n"},
	}
	hunted := agentCases[slices.IndexFunc(agentCases, func(c agentCase) bool { return c.name == "cancel" })]
	files := map[string]string{"factory.yaml": factoryYAML, "webhooks/hook.yaml": "secretName: S\n"}
	for _, a := range agents {
		name := a.name + "-" + hunted.name
		files["environments/"+name+".yaml"] = strings.ReplaceAll(a.environment, "MODEL", model.URL)
		files["automations/"+name+".md"] = fmt.Sprintf("---\nenvironmentId: %s\nharness: %s\ntriggers:\n- {provider: webhook, event: received, filter: {webhooks: [hook], payload: {case: [%s]}}}\n---\nDo it.\n\n%s",
			name, a.harness, name, hunted.prompt)
	}
	w := &agentsWorld{world: *newWorld(t, files)}
	w.cleanUp()
	for _, name := range []string{"KEY", "ANTHROPIC_API_KEY"} {
		w.run(fakemodel.Key, "secrets", "set", name)
	}
	w.walledBy("kernel", "--max-runs", "6", "--model-provider", "loop="+model.URL+"/v1")
	w.hook, w.key = w.url("hook"), strings.TrimSpace(w.run("", "keys", "create", "k", "--scope", "runs"))
	t.Run("agents", func(t *testing.T) {
		for _, a := range agents {
			t.Run(a.name, func(t *testing.T) {
				t.Parallel()
				mine := *w
				mine.t = t
				mine.play(t, a, hunted)
			})
		}
	})
	// Transcripts, patches and artifacts, and whatever else the server keeps.
	kept := 0
	err := filepath.WalkDir(filepath.Join(w.dir, "data"), func(name string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		kept++
		text, err := os.ReadFile(name)
		if bytes.Contains(text, []byte(fakemodel.Key)) {
			t.Errorf("%s has the key", name)
		}
		return err
	})
	if err != nil || kept == 0 {
		t.Errorf("%d files were searched: %v", kept, err)
	}
}

// keyOutside tells whether the gateway of the agent's runs has its key.
func (a realAgent) keyOutside() bool { return strings.Contains(a.harness, "auth:") }

// hunt looks for the key of the model in everything that a run in progress has: the variables and the
// memory of its processes, and its files (SPEC 25.1). If the key is inside, the same search finds it.
func (w *agentsWorld) hunt(a realAgent, id string) {
	w.t.Helper()
	key := []byte(fakemodel.Key)
	var found []string
	searched := int64(0)
	for _, line := range processesOf(id) {
		pid, program, _ := strings.Cut(line, " ")
		folder := filepath.Join("/proc", pid)
		env, _ := os.ReadFile(filepath.Join(folder, "environ"))
		if bytes.Contains(env, key) {
			found = append(found, "the variables of "+program)
		}
		n, has := inMemory(folder, key)
		if searched += n; has {
			found = append(found, "the memory of "+program)
		}
	}
	folder := filepath.Join(w.dir, "data", "runs", id)
	files := 0
	err := filepath.WalkDir(folder, func(name string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil //nolint:nilerr // the agent removes files meanwhile
		}
		files++
		if text, err := os.ReadFile(name); err == nil && bytes.Contains(text, key) {
			found = append(found, name)
		}
		return nil
	})
	if err != nil || files == 0 || searched == 0 {
		w.t.Errorf("%v: %d files in %s and %d bytes of memory were searched", err, files, folder, searched)
	}
	if a.keyOutside() != (len(found) == 0) {
		w.t.Errorf("the key is outside: %v; it is in %q", a.keyOutside(), found)
	}
	w.t.Logf("%d MB of memory and %d files were searched: %d times", searched>>20, files, len(found))
}

// inMemory looks for a text in what a process can write to, as far as it has been used: agents reserve
// much more.
func inMemory(folder string, text []byte) (searched int64, found bool) {
	maps, _ := os.ReadFile(filepath.Join(folder, "maps"))
	memory, err := os.Open(filepath.Join(folder, "mem"))
	if err != nil {
		return 0, false
	}
	defer func() { _ = memory.Close() }()
	pages, err := os.Open(filepath.Join(folder, "pagemap"))
	if err != nil {
		return 0, false
	}
	defer func() { _ = pages.Close() }()
	const page, step = 4 << 10, 256 // pages at a time
	buffer, entries := make([]byte, step*page+len(text)), make([]byte, step*8)
	for line := range strings.Lines(string(maps)) {
		var from, to int64
		var rights string
		if _, err := fmt.Sscanf(line, "%x-%x %s", &from, &to, &rights); err != nil || !strings.HasPrefix(rights, "rw") {
			continue
		}
		for at := from; at < to; at += step * page {
			n, _ := pages.ReadAt(entries, at/page*8)
			if !slices.ContainsFunc(slices.Collect(slices.Chunk(entries[:n/8*8], 8)), func(e []byte) bool { return e[7]&0xc0 != 0 }) { // present or swapped
				continue
			}
			n, _ = memory.ReadAt(buffer[:min(int64(len(buffer)), to-at)], at) // with the begin of the next part
			searched += int64(n)
			if bytes.Contains(buffer[:n], text) {
				return searched, true
			}
		}
	}
	return searched, false
}
