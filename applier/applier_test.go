package applier

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"triphammer/applier/gitrepo"
	"triphammer/factory"
	"triphammer/schema"
)

const (
	factoryYAML = "schemaVersion: v1alpha1\nname: Example\n"
	webhookYAML = "secretName: HOOK_SECRET\n"
	automation  = "---\ntriggers:\n  - provider: webhook\n    event: received\n    filter: {webhooks: [hook]}\n---\nDo it.\n"
)

func tree(files ...string) fstest.MapFS {
	t := fstest.MapFS{"factory.yaml": {Data: []byte(factoryYAML)}}
	for i := 0; i < len(files); i += 2 {
		t[files[i]] = &fstest.MapFile{Data: []byte(files[i+1])}
	}
	return t
}

// records is a Memory that a test can break, and whose methods it can hear of.
type records struct {
	*Memory
	broken                    error                                        // of Record
	onRecord                  func(ctx context.Context, done *Apply) error // before it is kept
	onSecrets, onPast, onSpec func()                                       // afterwards
	onEndPin                  func() error
}

func newRecords() *records { return &records{Memory: &Memory{}} }

func (r *records) config(source Source) Config {
	return Config{Factory: "default", Source: source, Live: &Live{}, Ledger: r, Logger: slog.New(slog.DiscardHandler)}
}

func (r *records) breaks(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.broken = err
}

func (r *records) Record(ctx context.Context, done *Apply) (string, error) {
	r.mu.Lock()
	err := r.broken
	r.mu.Unlock()
	if r.onRecord != nil {
		err = errors.Join(err, r.onRecord(ctx, done))
	}
	if err != nil {
		return "", err
	}
	return r.Memory.Record(ctx, done)
}

func (r *records) Secrets(ctx context.Context, names []string) (map[string]SecretValue, error) {
	if r.onSecrets != nil {
		defer r.onSecrets()
	}
	return r.Memory.Secrets(ctx, names)
}

func (r *records) Past(ctx context.Context, factory, hash string) (gitrepo.Commit, fs.FS, error) {
	if r.onPast != nil {
		defer r.onPast()
	}
	return r.Memory.Past(ctx, factory, hash)
}

func (r *records) Spec(f *factory.Factory, a *factory.Automation) ([]byte, error) {
	if r.onSpec != nil {
		r.onSpec()
	}
	return r.Memory.Spec(f, a)
}

func (r *records) EndPin(ctx context.Context, factory string) error {
	if r.onEndPin != nil {
		return r.onEndPin()
	}
	return r.Memory.EndPin(ctx, factory)
}

func (r *records) outcomes() []Outcome {
	var all []Outcome
	for _, a := range r.Applies() {
		all = append(all, a.Outcome)
	}
	return all
}

// fake is a source whose commits are trees in memory.
type fake struct {
	mu   sync.Mutex
	head string
	err  error
	tree map[string]fs.FS
	kick func()
}

func (f *fake) Head(context.Context) (gitrepo.Commit, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return gitrepo.Commit{Hash: f.head}, f.err
}

func (f *fake) Tree(_ context.Context, hash, _ string) (fs.FS, error) { return f.tree[hash], nil }

func (f *fake) Watch(ctx context.Context, kick func()) error {
	f.mu.Lock()
	f.kick = kick
	f.mu.Unlock()
	<-ctx.Done()
	return nil
}

func (f *fake) Describe() (string, string) { return "fake", "main" }

func (f *fake) push(head string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.head, f.err = head, err
	f.kick()
}

func start(t *testing.T, a *Applier) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestRefusedKeepsTheLastGood: nothing of a bad commit goes live, it is not
// tried again by itself, and the next good one heals it (SPEC 4.2, 4.4).
func TestRefusedKeepsTheLastGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		good := tree("webhooks/hook.yaml", webhookYAML, "automations/a.md", automation)
		source := &fake{head: "good", tree: map[string]fs.FS{
			"good": good, "bad": tree("webhooks/hook.yaml", "colour: green\n"), "better": good,
		}}
		r := newRecords()
		r.SetSecret("HOOK_SECRET", "s3cret")
		cfg := r.config(source)
		a := New(cfg)
		start(t, a)
		synctest.Wait()
		first, ok := cfg.Live.Webhook("whk_hook")
		if !ok || first.Revision.ApplyID != "apl_1" || len(first.Automations) != 1 || first.SecretGeneration != 1 {
			t.Fatalf("webhook %+v", first)
		}
		source.push("bad", nil)
		time.Sleep(time.Hour)
		if now, _ := cfg.Live.Webhook("whk_hook"); now != first {
			t.Error("a refused commit changed what serves")
		}
		if s := a.State(); s.Head != "bad" || s.LastApply.Outcome != Refused || s.Error == "" || s.Applied.Commit.Hash != "good" || !s.NextAttempt.IsZero() {
			t.Errorf("state %+v", s)
		}
		source.push("better", nil)
		synctest.Wait()
		if s := a.State(); s.Error != "" || s.Applied.Commit.Hash != "better" {
			t.Errorf("state %+v", s)
		}
		if got := r.outcomes(); !slices.Equal(got, []Outcome{Applied, Refused, Applied}) {
			t.Errorf("applies %v", got)
		}
	})
}

// TestReportSecret: the secret that signs messages to an address has to be there, and able to sign. A refusal for
// it is tried again when it is set (SPEC 4.4, 22.1).
func TestReportSecret(t *testing.T) {
	const automation = "---\ntriggers: [{provider: webhook, event: received, filter: {webhooks: [hook]}}]\nreport: {url: 'https://ci.example.com', secretName: OF_A}\n---\nGo.\n"
	synctest.Test(t, func(t *testing.T) {
		source := &fake{head: "c1", tree: map[string]fs.FS{"c1": tree(
			"webhooks/hook.yaml", webhookYAML+"report: {url: 'https://ci.example.com', secretName: OF_HOOK}\n", "agents/lead/agent.md", "---\nagentType: FOREMAN\n---\n", "automations/a.md", automation,
		)}}
		r := newRecords()
		cfg := r.config(source)
		r.SetSecret("HOOK_SECRET", "x")
		a := New(cfg)
		start(t, a)
		found := func() (all []string) {
			synctest.Wait()
			for _, d := range a.State().LastApply.Diagnostics {
				if d.Severity == schema.Error {
					all = append(all, fmt.Sprint(d.Code, " ", d.Path, ":", d.Line, ": ", d.Message))
				}
			}
			return all
		}
		if got := strings.Join(found(), "\n"); !strings.Contains(got, "TH_MISSING_SECRET automations/a.md:3: there is no managed secret OF_A") || !strings.Contains(got, "TH_MISSING_SECRET webhooks/hook.yaml:2: there is no managed secret OF_HOOK") {
			t.Fatal(got)
		}
		r.SetSecret("OF_A", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
		r.SetSecret("OF_HOOK", "whsec_no base64")
		a.SecretSet("OF_HOOK")
		if got := found(); len(got) != 1 || !strings.Contains(got[0], "secret OF_HOOK cannot sign messages (report.secretName)") || strings.Contains(got[0], "no base64") {
			t.Fatal(got)
		}
		r.SetSecret("OF_HOOK", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
		a.SecretSet("OF_HOOK")
		if got := found(); len(got) > 0 {
			t.Fatal(got)
		}
	})
}

// TestTrial: a trial serves without the secrets that prove no delivery, warns of what it goes without, and
// applies again when one of them is set; without the secret of a sender it does not serve (SPEC 4.5).
func TestTrial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &fake{head: "c1", tree: map[string]fs.FS{"c1": tree(
			"webhooks/hook.yaml", webhookYAML+"authMode: signature\nsignatureScheme: github\napiSecretName: API\n",
			"webhooks/other.yaml", webhookYAML+"report: {url: 'https://ci.example.com', secretName: OF_HOOK}\n",
		)}}
		r := newRecords()
		cfg := r.config(source)
		cfg.Trial = true
		a := New(cfg)
		start(t, a)
		lacks := func(secret string) string {
			t.Helper()
			synctest.Wait()
			served, ok := cfg.Live.Revision(cfg.Factory)
			if !ok {
				t.Fatalf("it does not serve: %+v", a.State().LastApply)
			}
			warned := slices.ContainsFunc(a.State().LastApply.Diagnostics, func(d schema.Diagnostic) bool {
				return d.Code == schema.MissingSecret && d.Severity == schema.Warning && strings.Contains(d.Hint, "secrets set "+secret)
			})
			if not := served.NotSet(secret); warned != (not != "") {
				t.Errorf("%q, and warned: %v", not, warned)
			}
			return served.NotSet(secret)
		}
		synctest.Wait()
		if _, ok := cfg.Live.Revision(cfg.Factory); ok {
			t.Fatal("it serves without the secret of a sender")
		}
		r.SetSecret("HOOK_SECRET", "x")
		a.SecretSet("HOOK_SECRET")
		if lacks("API") == "" || lacks("OF_HOOK") == "" || lacks("HOOK_SECRET") != "" {
			t.Error("not all is known that is not set")
		}
		if hook, _ := cfg.Live.Webhook("whk_hook"); hook.NoCredential() != lacks("API") {
			t.Errorf("%q", hook.NoCredential())
		}
		if hook, _ := cfg.Live.Webhook("whk_other"); !strings.Contains(hook.NoCredential(), "needs apiSecretName") {
			t.Errorf("%q", hook.NoCredential())
		}
		r.SetSecret("API", "token")
		a.SecretSet("API")
		if lacks("API") != "" || lacks("OF_HOOK") == "" {
			t.Error("a secret that is set serves only after another apply")
		}
	})
}

// TestSecrets: a new value waits for an apply; a refusal for a missing one is
// tried again when it is set (SPEC 4.4, 4.5).
func TestSecrets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &fake{head: "c1", tree: map[string]fs.FS{"c1": tree("webhooks/hook.yaml", webhookYAML+"authMode: url_token\n")}}
		r := newRecords()
		cfg := r.config(source)
		a := New(cfg)
		start(t, a)
		synctest.Wait()
		if s := a.State(); s.LastApply.Outcome != Refused || s.LastApply.Diagnostics[0].Code != schema.MissingSecret || !strings.Contains(s.LastApply.Diagnostics[0].Hint, "triphammer secrets set HOOK_SECRET") {
			t.Fatalf("without the secret: %+v", s.LastApply)
		}
		a.SecretSet("OTHER")
		r.SetSecret("HOOK_SECRET", "not/url/safe")
		a.SecretSet("HOOK_SECRET")
		synctest.Wait()
		d := a.State().LastApply.Diagnostics[0]
		if d.Code != schema.BadSecret || strings.Contains(d.Message, "not/url") {
			t.Fatalf("with an unsuitable secret: %+v", d)
		}
		r.SetSecret("HOOK_SECRET", "url-safe")
		a.SecretSet("HOOK_SECRET")
		synctest.Wait()
		if w, ok := cfg.Live.Webhook("whk_hook"); !ok || w.SecretGeneration != 2 {
			t.Fatalf("webhook %+v", w)
		}
		r.SetSecret("HOOK_SECRET", "rotated")
		a.SecretSet("HOOK_SECRET")
		source.push("c1", nil)
		time.Sleep(time.Hour)
		if w, _ := cfg.Live.Webhook("whk_hook"); w.SecretGeneration != 2 {
			t.Error("a new value is in use before the next apply")
		}
		done, err := a.Apply(t.Context(), "command")
		if err != nil || done.Outcome != Applied {
			t.Fatal(done, err)
		}
		if w, _ := cfg.Live.Webhook("whk_hook"); w.SecretGeneration != 3 || done.Plan.Update[0].Keys[0] != "secret generation" {
			t.Errorf("after the apply: %+v, plan %+v", w, done.Plan)
		}
		if got := r.outcomes(); !slices.Equal(got, []Outcome{Refused, Refused, Applied, Applied}) {
			t.Errorf("applies %v", got)
		}
	})
}

// TestSecretSetMeanwhile: a secret that is set while the apply that lacks it is
// still running is not overlooked.
func TestSecretSetMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &fake{head: "c1", tree: map[string]fs.FS{"c1": tree("webhooks/hook.yaml", webhookYAML)}}
		r := newRecords()
		cfg := r.config(source)
		var a *Applier
		r.onRecord = func(_ context.Context, done *Apply) error {
			if done.Outcome == Refused {
				r.SetSecret("HOOK_SECRET", "s3cret")
				a.SecretSet("HOOK_SECRET")
			}
			return nil
		}
		a = New(cfg)
		start(t, a)
		synctest.Wait()
		if got := r.outcomes(); !slices.Equal(got, []Outcome{Refused, Applied}) {
			t.Errorf("applies %v", got)
		}
	})
}

// TestTransientFailures back off, are recorded once each, and heal (SPEC 4.8).
func TestTransientFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &fake{err: errors.New("unreachable"), tree: map[string]fs.FS{"c1": tree()}}
		r := newRecords()
		cfg := r.config(source)
		a := New(cfg)
		start(t, a)
		time.Sleep(10 * time.Minute)
		if got := r.outcomes(); !slices.Equal(got, []Outcome{Failed}) {
			t.Errorf("applies %v", got)
		}
		if s := a.State(); s.Error != "unreachable" || time.Until(s.NextAttempt) > lastRetry || time.Since(s.Since) < 9*time.Minute {
			t.Errorf("state %+v", s)
		}
		source.mu.Lock()
		source.head, source.err = "c1", nil // no kick: the retry must find it
		source.mu.Unlock()
		time.Sleep(lastRetry + time.Second)
		if s := a.State(); s.Error != "" || s.Applied.Commit.Hash != "c1" {
			t.Errorf("state %+v", s)
		}
		// A failure of the record is one too: nothing goes live unrecorded.
		r.breaks(errors.New("disk full"))
		source.tree["c2"] = tree("webhooks/hook.yaml", webhookYAML)
		r.SetSecret("HOOK_SECRET", "s")
		source.push("c2", nil)
		synctest.Wait()
		if _, live := cfg.Live.Webhook("whk_hook"); live || !strings.Contains(a.State().Error, "disk full") {
			t.Errorf("unrecorded and live: %t, %+v", live, a.State())
		}
		r.breaks(nil)
		time.Sleep(lastRetry + time.Second)
		if _, live := cfg.Live.Webhook("whk_hook"); !live {
			t.Error("not healed")
		}
		// An unreadable source and back: the same head is not applied again.
		source.push("", errors.New("gone"))
		synctest.Wait()
		source.push("c2", nil)
		time.Sleep(time.Hour)
		if s := a.State(); s.Error != "" || r.outcomes()[len(r.outcomes())-1] != Failed {
			t.Errorf("state %+v, applies %v", s, r.outcomes())
		}
	})
}

// TestRestored: after a restart the live commit is not applied again (SPEC 4.4).
func TestRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &fake{head: "c1", tree: map[string]fs.FS{"c1": tree()}}
		r := newRecords()
		cfg := r.config(source)
		cfg.Live.Swap(&Revision{Factory: "default", Commit: gitrepo.Commit{Hash: "c1"}, Definition: &factory.Factory{}})
		a := New(cfg)
		start(t, a)
		time.Sleep(time.Hour)
		if len(r.outcomes()) > 0 {
			t.Errorf("applies %v", r.outcomes())
		}
	})
}

func TestPlan(t *testing.T) {
	m := &Memory{}
	m.SetSecret("HOOK_SECRET", "s")
	build := func(files ...string) *Revision {
		b, err := Build(t.Context(), BuildInput{Factory: "f", Tree: tree(files...), Secrets: m.Secrets, UIDs: m.UIDs, Spec: m.Spec})
		if err != nil || b.Revision == nil {
			t.Fatal(err, b)
		}
		return b.Revision
	}
	from := build("webhooks/hook.yaml", webhookYAML, "webhooks/old.yaml", webhookYAML, "automations/a.md", automation)
	to := build("webhooks/hook.yaml", webhookYAML+"enabled: false\n", "webhooks/new.yaml", webhookYAML, "automations/a.md", automation)
	p := Diff(from, to)
	if len(p.Create) != 1 || p.Create[0].Name != "new" || len(p.Delete) != 1 || p.Delete[0].Name != "old" ||
		len(p.Update) != 1 || !slices.Equal(p.Update[0].Keys, []string{"enabled"}) ||
		len(p.Unchanged) != 2 || p.Unchanged[0].Kind != "automation" || p.Unchanged[1].Kind != "factory" {
		t.Errorf("plan %+v", p)
	}
	// A default shows where it is set and where it counts.
	from = build("automations/a.md", automation)
	to = build("automations/a.md", automation, "factory.yaml", factoryYAML+"agentDefaults: {workerHost: other}\n")
	p = Diff(from, to)
	if len(p.Update) != 2 || !slices.Equal(p.Update[0].Keys, []string{"workerHost"}) || !slices.Equal(p.Update[1].Keys, []string{"agentDefaults.workerHost"}) {
		t.Errorf("plan %+v", p)
	}
}
