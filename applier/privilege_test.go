package applier

import (
	"context"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"triphammer/applier/gitrepo"
)

// TestNoPrivilege: where repositories, keys, secrets and limits are is the
// server's configuration. A definition that tries to say it is refused, and does
// not serve (SPEC 4.9, 10.1).
func TestNoPrivilege(t *testing.T) {
	for name, text := range map[string]string{
		"factory.yaml:repo":           factoryYAML + "repo: https://example.com/other.git\n",
		"factory.yaml:branch":         factoryYAML + "branch: other\n",
		"factory.yaml:path":           factoryYAML + "path: /etc\n",
		"factory.yaml:verify-keys":    factoryYAML + "verify-keys: /dev/null\n",
		"factory.yaml:secrets-dir":    factoryYAML + "secrets-dir: /etc\n",
		"factory.yaml:include":        factoryYAML + "include: [https://example.com/more.yaml]\n",
		"factory.yaml:max-runs":       factoryYAML + "max-runs: 1000\n",
		"webhooks/w.yaml:a file":      "secretName: ../../etc/passwd\n",
		"webhooks/w.yaml:a variable":  "secretName: $HOME\n",
		"webhooks/w.yaml:secretFile":  "secretName: S\nsecretFile: /etc/passwd\n",
		"webhooks/w.yaml:uid":         "secretName: S\nuid: whk_of_another_factory00000\n",
		"webhooks/w.yaml:rateLimit":   "secretName: S\nrateLimit: 0\n",
		"webhooks/w.yaml:factory":     "secretName: S\nfactory: another\n",
		"environments/e.yaml:a user":  "command: [x]\nuser: root\n",
		"environments/e.yaml:mounts":  "command: [x]\nmounts: [/:/host]\n",
		"environments/e.yaml:workdir": "command: [x]\nworkingDirectory: /\n",
	} {
		path, _, _ := strings.Cut(name, ":")
		definitions := tree(path, text)
		if path == "environments/e.yaml" { // one that nothing names would be ignored
			definitions["factory.yaml"] = &fstest.MapFile{Data: []byte(factoryYAML + "agentDefaults: {environmentId: e}\n")}
		}
		source := &fake{head: "bad", tree: map[string]fs.FS{"bad": definitions}}
		r := newRecords()
		r.SetSecret("S", "s3cret-value-of-sixteen")
		cfg := r.config(source)
		done, err := New(cfg).Apply(t.Context(), "command")
		if err != nil || done.Outcome != Refused {
			t.Errorf("%s: %+v, %v", name, done, err)
		}
		if _, ok := cfg.Live.Revision("default"); ok {
			t.Errorf("%s serves", name)
		}
	}
}

// TestSecretsAreNotShown: a value of a secret is in nothing that an apply says,
// whether it suits or not.
func TestSecretsAreNotShown(t *testing.T) {
	const canary = "c4nary+of+a+secret"
	for mode, want := range map[string]Outcome{"authMode: token\n": Applied, "authMode: url_token\n": Refused} {
		source := &fake{head: "c", tree: map[string]fs.FS{"c": tree("webhooks/hook.yaml", webhookYAML+mode, "automations/a.md", automation)}}
		r := newRecords()
		r.SetSecret("HOOK_SECRET", canary)
		a := New(r.config(source))
		done, err := a.Apply(t.Context(), "command")
		if err != nil || done.Outcome != want {
			t.Fatalf("%+v, %v", done, err)
		}
		if shown := fmt.Sprintf("%+v %+v %+v %+v %q", done, done.Plan, done.Diagnostics, a.State(), Diff(nil, done.Revision)); strings.Contains(shown, canary) {
			t.Errorf("%s: %s", mode, shown)
		}
	}
}

// moving is a source that gets a new head whenever it is read.
type moving struct {
	*fake
	reads []string
}

func (m *moving) Tree(_ context.Context, hash, dir string) (fs.FS, error) {
	m.reads = append(m.reads, hash)
	m.mu.Lock()
	m.head = "evil"
	m.mu.Unlock()
	return m.fake.Tree(context.Background(), hash, dir)
}

// TestOneCommit: what was verified is what is read, and what was read is what
// serves and is kept, whatever is pushed meanwhile.
func TestOneCommit(t *testing.T) {
	source := &moving{fake: &fake{head: "good", tree: map[string]fs.FS{"good": tree(), "evil": tree("webhooks/hook.yaml", webhookYAML)}}}
	r := newRecords()
	r.SetSecret("HOOK_SECRET", "s")
	cfg := r.config(source)
	var verified []string
	cfg.Verify = func(_ context.Context, hash string) (string, error) {
		verified = append(verified, hash)
		if hash == "evil" {
			return "", gitrepo.ErrUnverified
		}
		return "", nil
	}
	done, err := New(cfg).Apply(t.Context(), "command")
	if err != nil || done.Outcome != Applied || fmt.Sprint(verified, source.reads) != "[good] [good]" {
		t.Fatalf("%+v, %v, verified %v, read %v", done, err, verified, source.reads)
	}
	kept := r.Applies()[0]
	if live, _ := cfg.Live.Revision("default"); live.Commit.Hash != "good" || kept.Commit.Hash != "good" || len(kept.Snapshot.Files) != 1 {
		t.Errorf("live %+v, kept %+v", live, kept)
	}
}
