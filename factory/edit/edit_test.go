package edit

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"triphammer/factory"
	"triphammer/schema"
)

func keys(t testing.TB, text string) Change {
	t.Helper()
	n, err := schema.NodeOf([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return Change{Keys: n}
}

func prompt(c Change, text string) Change {
	c.Text = &text
	return c
}

// tree is a copy of a tree with changes.
func tree(t testing.TB, of fs.FS, changes ...Files) fstest.MapFS {
	t.Helper()
	all := fstest.MapFS{}
	if of != nil {
		err := fs.WalkDir(of, ".", func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			data, err := fs.ReadFile(of, name)
			all[name] = &fstest.MapFile{Data: data}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, files := range changes {
		for name, data := range files {
			if data == nil {
				delete(all, name)
			} else {
				all[name] = &fstest.MapFile{Data: data}
			}
		}
	}
	return all
}

func load(t testing.TB, of fs.FS) (*factory.Factory, schema.Diagnostics) {
	t.Helper()
	f, report, err := factory.Load(t.Context(), of, factory.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return f, report.Diagnostics
}

func good(t testing.TB) map[string]fs.FS {
	entries, err := os.ReadDir("../../testdata/factories/good")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]fs.FS{}
	for _, e := range entries {
		all[e.Name()] = os.DirFS("../../testdata/factories/good/" + e.Name())
	}
	return all
}

// TestLife makes one definition of each kind in every good tree, changes and deletes it. The
// tree stays valid, and in the end it is what it was.
func TestLife(t *testing.T) {
	for name, before := range good(t) {
		t.Run(name, func(t *testing.T) {
			_, findings := load(t, before)
			now := tree(t, before)
			step := func(files Files, err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
				now = tree(t, now, files)
				if _, found := load(t, now); found.HasErrors() {
					t.Fatal(found)
				}
			}
			step(Create(now, "environment", "made", keys(t, `{"env":{"A":"a: b","B":"*x\n---\n"},"timeoutMinutes":5}`)))
			step(Create(now, "webhook", "made", keys(t, `{"secretName":"S","authMode":"url_token"}`)))
			f, _ := load(t, now)
			kind := "REVIEW"
			if f.Foreman() == nil {
				kind = "FOREMAN"
			}
			step(Create(now, "agent", "made", prompt(keys(t, `{"description":"&y","agentType":"`+kind+`"}`), "You are\n---\nagent: x")))
			step(Create(now, "automation", "made", prompt(keys(t,
				`{"agent":"made","environmentId":"made","triggers":[{"provider":"webhook","event":"received","filter":{"webhooks":["made"],"payload":{"a: b":["*x"]}}}]}`), "Do\n---\nit")))
			step(Update(now, "webhook", "made", keys(t, `{"enabled":false,"authMode":null,"deliveryIdHeader":"X-Id"}`)))
			step(Update(now, "automation", "made", prompt(keys(t, `{"enabled":false,"retry":{"attempts":3}}`), "Do that")))
			step(Update(now, "environment", "made", keys(t, `{"env":{"A":null,"C":"1"},"network":["a.example.com"]}`)))
			f, _ = load(t, now)
			if w := f.Webhook("made"); w.Enabled || w.AuthMode != factory.Token || w.DeliveryIDHeader != "X-Id" {
				t.Errorf("%+v", w)
			}
			if a := f.Automation("made"); a.Enabled || a.Prompt != "Do that" || a.Retry.Attempts != 3 {
				t.Errorf("%+v", a)
			}
			if e := f.Environment("made"); !maps.Equal(e.Env, map[string]string{"B": "*x\n---\n", "C": "1"}) || e.Network.Hosts[0] != "a.example.com" {
				t.Errorf("%+v", e)
			}
			if a := f.Agent("made"); a.Prompt != "You are\n---\nagent: x" || a.Description != "&y" {
				t.Errorf("%+v", a)
			}
			if files, err := Update(now, "webhook", "made", keys(t, `{"enabled":false,"authMode":"token"}`)); err != nil || len(files) > 0 {
				t.Error("nothing to change:", files, err)
			}
			for _, kind := range []string{"automation", "agent", "environment", "webhook"} {
				step(Delete(now, kind, "made"))
			}
			if _, after := load(t, now); !slices.Equal(after, findings) || !maps.EqualFunc(now, tree(t, before), func(a, b *fstest.MapFile) bool { return string(a.Data) == string(b.Data) }) {
				t.Errorf("the tree is another: %v", after)
			}
		})
	}
}

// TestEnable disables and enables whatever there is. The files are then what they were, apart
// from the key.
func TestEnable(t *testing.T) {
	changed := 0
	for name, before := range good(t) {
		f, _ := load(t, before)
		all := map[string]string{}
		for _, w := range f.Webhooks {
			all[w.Name] = "webhook"
		}
		for _, a := range f.Automations {
			all[a.Name] = "automation"
		}
		for one, kind := range all {
			off, err := Update(before, kind, one, keys(t, `{"enabled":false}`))
			if err != nil {
				t.Fatal(name, one, err)
			}
			on, err := Update(tree(t, before, off), kind, one, keys(t, `{"enabled":null}`))
			if err != nil {
				t.Fatal(name, one, err)
			}
			for path, data := range on {
				old, err := fs.ReadFile(before, path)
				old = []byte(strings.Replace(string(old), "enabled: false\n", "", 1))
				if changed++; err != nil || string(data) != string(old) {
					t.Errorf("%s %s: %q was %q", name, path, data, old)
				}
			}
		}
	}
	if changed < 5 {
		t.Error("only", changed)
	}
}

func TestRefused(t *testing.T) {
	of := fstest.MapFS{
		"webhooks/ci.yaml":       {Data: []byte("secretName: A\n")},
		"webhooks/anchor.yaml":   {Data: []byte("secretName: &a A\nauthMode: *a\n")},
		"webhooks/twice.yaml":    {Data: []byte("secretName: A\nsecretName: B\n")},
		"webhooks/tab.yaml":      {Data: []byte("secretName:\n\t- A\n")},
		"webhooks/empty.yaml":    {},
		"webhooks/huge.yaml":     {Data: []byte("secretName: A\n#" + strings.Repeat("x", schema.MaxFile))},
		"webhooks/link.yaml":     {Data: []byte("ci.yaml"), Mode: fs.ModeSymlink},
		"webhooks/folder.yaml/x": {},
		"automations/old.md":     {Data: []byte("---\n---\nOld")},
		"agents/a/agent.md":      {Data: []byte("---\n---\n")},
		"agents/a/skills/s/x":    {},
		"agents/ab/skills/s/x":   {},
	}
	for _, one := range []struct {
		kind error
		err  func() (Files, error)
	}{
		{ErrExists, func() (Files, error) { return Create(of, "webhook", "ci", Change{}) }},
		{ErrExists, func() (Files, error) { return Create(of, "webhook", "link", Change{}) }},
		{ErrExists, func() (Files, error) { return Create(of, "webhook", "folder", Change{}) }},
		{ErrExists, func() (Files, error) { return Create(of, "automation", "old", Change{}) }},
		{ErrBroken, func() (Files, error) { return Update(of, "webhook", "anchor", keys(t, `{"enabled":false}`)) }},
		{ErrBroken, func() (Files, error) { return Update(of, "webhook", "twice", keys(t, `{"enabled":false}`)) }},
		{ErrBroken, func() (Files, error) { return Update(of, "webhook", "tab", keys(t, `{"enabled":false}`)) }},
		{ErrBroken, func() (Files, error) { return Update(of, "webhook", "empty", keys(t, `{"enabled":false}`)) }},
		{ErrBroken, func() (Files, error) { return Update(of, "webhook", "huge", keys(t, `{"enabled":false}`)) }},
		{ErrBroken, func() (Files, error) { return Update(of, "webhook", "ci", keys(t, `["x"]`)) }},
		{ErrNotFound, func() (Files, error) { return Update(of, "webhook", "link", keys(t, `{"enabled":false}`)) }},
		{ErrNotFound, func() (Files, error) { return Delete(of, "webhook", "folder") }},
	} {
		if files, err := one.err(); !errors.Is(err, one.kind) || files != nil {
			t.Errorf("%v, %v where %v is expected", files, err, one.kind)
		}
	}
	for _, name := range []string{"", ".", "..", "../ci", "a/b", "/etc/passwd", `a\b`, "a b", "A", "a\x00", "a: b", "*x", "&y", "-a", "a-", "a.yaml", "é", "\u202e", strings.Repeat("a", 65), "NAME"} {
		for _, kind := range []string{"webhook", "automation", "environment", "agent"} {
			if files, err := Create(of, kind, name, Change{}); !errors.Is(err, ErrName) {
				t.Errorf("create %s %q: %v, %v", kind, name, files, err)
			}
			if files, err := Update(of, kind, name, Change{}); !errors.Is(err, ErrNotFound) {
				t.Errorf("update %s %q: %v, %v", kind, name, files, err)
			}
			if files, err := Delete(of, kind, name); !errors.Is(err, ErrNotFound) {
				t.Errorf("delete %s %q: %v, %v", kind, name, files, err)
			}
		}
	}
	files, err := Delete(of, "agent", "a")
	if err != nil || !slices.Equal(files.Paths(), []string{"agents/a/agent.md", "agents/a/skills/s/x"}) {
		t.Error(files, err)
	}
	if files, err := Delete(of, "automation", "old"); err != nil || !slices.Equal(files.Paths(), []string{"automations/old.md"}) {
		t.Error(files, err)
	}
}

func TestSecretName(t *testing.T) {
	for name, want := range map[string]string{"ci": "CI_WEBHOOK_SECRET", "staging-alerts": "STAGING_ALERTS_WEBHOOK_SECRET", "1": "HOOK_1_WEBHOOK_SECRET", "_": "HOOK_WEBHOOK_SECRET"} {
		if got := SecretName(name); got != want {
			t.Error(name, got)
		}
	}
}

// TestNeeded: an environment that others name stays, and the refusal says where. One that
// nobody names, or nobody names any more, goes.
func TestNeeded(t *testing.T) {
	const automation = "---\nenvironmentId: app\ntriggers:\n- {provider: github, event: push}\n---\nDo it.\n"
	all := tree(t, nil, Files{
		"factory.yaml":         []byte("schemaVersion: v1alpha1\nname: T\nagentDefaults:\n  environmentId: app\n"),
		"environments/app.yml": []byte("{}\n"), "environments/app.yaml": []byte("{}\n"), "environments/free.yaml": []byte("{}\n"),
		"automations/a.md": []byte(automation), "automations/gone.md": []byte(strings.Replace(automation, "app", "nothere", 1)),
	})
	_, err := Delete(all, "environment", "app")
	bad, is := errors.AsType[*Error](err)
	if !is || !errors.Is(err, ErrUsed) || len(bad.Found) != 2 || bad.Found[0].Path != "automations/a.md" || bad.Found[0].Line != 2 || bad.Found[0].Severity != schema.Error || !strings.Contains(bad.Message, "and 1 more") {
		t.Fatalf("%v %+v", err, bad)
	}
	files, err := Delete(all, "environment", "free")
	if err != nil || !slices.Equal(files.Paths(), []string{"environments/free.yaml"}) {
		t.Error(files, err)
	}
	after := tree(t, all, Files{"automations/a.md": nil, "factory.yaml": []byte("schemaVersion: v1alpha1\nname: T\n")})
	if files, err = Delete(after, "environment", "app"); err != nil || len(files) != 1 {
		t.Error(files, err)
	}
}

// TestOrdered: what a change brings is written in the order of the documentation, at each
// depth; what was there keeps its place.
func TestOrdered(t *testing.T) {
	files, err := Create(tree(t, nil), "environment", "e", keys(t, `{"env":{"B":"1","A":"2"},"repositories":[{"ref":"main","url":"https://git.example.com/a.git"}],"description":"x"}`))
	if got, want := string(files["environments/e.yaml"]), "description: x\nrepositories:\n  - url: https://git.example.com/a.git\n    ref: main\nenv: {B: '1', A: '2'}\n"; err != nil || got != want {
		t.Errorf("%s %v", got, err)
	}
	files, err = Update(tree(t, nil, files), "environment", "e", keys(t, `{"timeoutMinutes":5,"dockerImage":"i","description":"y"}`))
	if got := string(files["environments/e.yaml"]); err != nil || !strings.HasPrefix(got, "description: 'y'\nrepositories:") || !strings.HasSuffix(got, "dockerImage: i\ntimeoutMinutes: 5\n") {
		t.Errorf("%s %v", got, err)
	}
}
