//go:build full

package main

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"triphammer/server/run/event"
	"triphammer/server/run/fakemodel"
	"triphammer/server/worker/executor/containertest"
)

// ubuntu is the image that the tree names.
const ubuntu = "docker.io/library/ubuntu:24.04"

// makeStockImage makes an image with what every Debian has, which is neither git nor node nor an
// agent, and gives it the name that the tree uses, so that nothing is pulled.
func makeStockImage(t *testing.T) {
	t.Helper()
	const stock = "localhost/triphammer-stock:1"
	if exec.Command("podman", "image", "exists", stock).Run() != nil {
		tree := filepath.Join(t.TempDir(), "tree.tar")
		succeed(t, exec.Command("mmdebstrap", append([]string{"--quiet", "--variant=essential", "bookworm", tree}, containertest.Mirrors()...)...))
		succeed(t, exec.Command("podman", "import", "--quiet", tree, stock))
	}
	before, err := exec.Command("podman", "image", "inspect", "--format={{.Id}}", ubuntu).Output()
	succeed(t, exec.Command("podman", "tag", stock, ubuntu))
	t.Cleanup(func() {
		if succeed(t, exec.Command("podman", "untag", ubuntu, ubuntu)); err == nil {
			succeed(t, exec.Command("podman", "tag", strings.TrimSpace(string(before)), ubuntu))
		}
	})
}

// scripted is the model, to which prompts of the tree mean a script with a word.
type scripted map[string]string

// ServeHTTP implements http.Handler.
func (s scripted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the agent was stopped
	}
	const script = `\nMODEL: run echo WORD >>README.md && git commit -qam WORD && echo WORD >left && git log -1 --format=%an:%s\nMODEL: say All is done.\n` // in JSON
	for prompt, word := range s {
		body = bytes.ReplaceAll(body, []byte(prompt), []byte(prompt+strings.ReplaceAll(script, "WORD", word)))
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	fakemodel.Handler().ServeHTTP(w, r)
}

// TestPublishedTreeInStockImage: a tree in the shape of the published ones runs unmodified in the
// image that it names, in which there is neither git nor the agent, with the real Claude Code: by
// hand what its schedule starts, and by a delivery once its repository has a webhook (SPEC 15.1).
func TestPublishedTreeInStockImage(t *testing.T) {
	t.Parallel()
	makeStockImage(t)
	archive, err := txtar.ParseFile("testdata/script/elsewhere.txtar")
	if err != nil {
		t.Fatal(err)
	}
	files := make(map[string]string)
	for _, f := range archive.Files {
		if name, is := strings.CutPrefix(f.Name, "tree/"); is {
			files[name] = string(f.Data)
		}
	}
	if image := strings.TrimPrefix(ubuntu, "docker.io/library/"); !strings.Contains(files["runners/standard.yaml"], "dockerImage: "+image+"\n") {
		t.Fatalf("the tree names another image than %s", image)
	}
	model := newListening(t, "")
	model.Config.Handler = scripted{"Look at what is new.": "Night", "Look at the issue.": "Issue"}
	folder, path := agentsPath(t)
	w := newWorld(t, files)
	if err := os.Chmod(filepath.Dir(w.dir), 0o711); err != nil {
		t.Fatal(err)
	}
	forge := filepath.Join(w.dir, "forge")
	shop := filepath.Join(forge, "acme", "shop.git")
	w.git("init", "-q", "--initial-branch=main", shop)
	if err := os.WriteFile(filepath.Join(shop, "README.md"), []byte("A shop.\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	w.git("-C", shop, "add", "-A")
	w.git("-C", shop, "commit", "-q", "-m", "A shop")
	w.startWith(func(cmd *exec.Cmd) {
		cmd.Env = append(cmd.Env, "TRIPHAMMER_RUN_USER=", "PATH="+path, "TRIPHAMMER_CODE_FORGES=GITHUB=file://"+forge)
	}, "--default-harness", "claude", "--run-read", folder, "--run-network", model.host, "--container-program", "podman", "--container-options",
		containertest.Options+" --env=ANTHROPIC_BASE_URL="+model.URL+" --env=ANTHROPIC_API_KEY="+fakemodel.Key)

	if said := w.run("", "automations", "list"); strings.Contains(said, "no program") {
		t.Errorf("it warns of programs that the image gets:\n%s", said)
	}
	w.run("", "automations", "run", "nightly", "--wait")
	w.changed("Night")

	w.write(map[string]string{"webhooks/github.yaml": "authMode: signature\nsignatureScheme: github\nsecretName: S\n"})
	w.push()
	w.run("", "apply")
	secret := filepath.Join(w.dir, "secret")
	if err := os.WriteFile(secret, []byte(testSecret), 0o600); err != nil {
		t.Fatal(err)
	}
	w.run("", "send", "github", "--secret-file", secret, "--event", "issue_labeled", "--set", "repository.full_name=acme/shop", "--set", "label.name=bug")
	w.await("the run of the delivery", func() bool { return strings.Contains(w.run("", "runs", "list"), "labelled") })
	w.run("", "runs", "watch", strings.TrimSpace(w.run("", "runs", "list", "--limit", "1", "-o", "name")))
	w.changed("Issue")
}

// changed checks that the last run has succeeded with a commit and a file beside it.
func (w *world) changed(word string) {
	w.t.Helper()
	id := strings.TrimSpace(w.run("", "runs", "list", "--limit", "1", "-o", "name"))
	events := w.transcript(id)
	defer func() {
		if w.t.Failed() {
			w.t.Log(w.run("", "runs", "logs", id))
		}
	}()
	if find(events, func(s event.Status) bool { return s.State == "INPROGRESS" && s.Isolation == "container" }) == nil ||
		find(events, func(s event.Status) bool { return s.State == "SUCCEEDED" }) == nil {
		w.t.Errorf("%s has not succeeded in a container", id)
	}
	for file, text := range map[string]string{"shop/README.md": "+" + word, "shop/left": "+" + word} {
		if find(events, func(f event.File) bool { return strings.HasSuffix(file, f.Path) && strings.Contains(f.Diff, text) }) == nil {
			w.t.Errorf("%s: %s has not changed", id, file)
		}
	}
	if find(events, func(c event.Command) bool { return !c.Started && strings.Contains(c.Output, ":"+word) }) == nil {
		w.t.Errorf("%s has made no commit", id)
	}
}
