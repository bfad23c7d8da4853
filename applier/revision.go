package applier

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"triphammer/applier/gitrepo"
	"triphammer/factory"
	"triphammer/factory/match"
	"triphammer/factory/native"
	"triphammer/factory/signature"
	"triphammer/schema"
)

// Revision is one applied snapshot, ready to serve. It is immutable.
type Revision struct {
	ApplyID     string
	Factory     string // the factory's name on this server
	Commit      gitrepo.Commit
	AppliedAt   time.Time
	Definition  *factory.Factory
	Webhooks    []*Webhook // sorted by name, disabled ones too
	Automations []*Automation
	Unset       []string // secrets that enabled definitions name and that are not set (BuildInput.Trial)
}

// NotSet says that a managed secret is not set, and how to set it. It is empty if the secret is set.
func (r *Revision) NotSet(secret string) string {
	if !slices.Contains(r.Unset, secret) {
		return ""
	}
	return fmt.Sprintf("there is no managed secret %s; set it (triphammer secrets set %[1]s)", secret)
}

// NoCredential says why the sender's API is neither asked nor told of anything. It is empty if there
// is a secret for that.
func (w *Webhook) NoCredential() string {
	if w.Def.APISecretName == "" {
		return "needs apiSecretName in the webhook file"
	}
	return w.Revision.NotSet(w.Def.APISecretName)
}

// Webhook is a webhook of a revision, ready to serve.
type Webhook struct {
	UID              string
	Factory          string
	Def              *factory.Webhook
	SecretGeneration int64               // 0: the secret is not set, which is allowed only for a disabled webhook
	Verifier         *signature.Verifier // nil in a revision built without secrets, and for a webhook that takes no requests
	Index            *match.Index
	Automations      []*Automation // in the order of the numbers of Index
	Revision         *Revision
}

// Automation is an automation of a revision, with the spec of its runs.
type Automation struct {
	Def      *factory.Automation
	Spec     []byte // opaque to this package
	SpecHash [32]byte
}

// Gone are the names and UIDs of webhooks that a trigger selects and that this revision
// does not have.
func (r *Revision) Gone(t *factory.Trigger) []string {
	_, gone := r.selected(t)
	return gone
}

func (r *Revision) selected(t *factory.Trigger) (there []*Webhook, gone []string) {
	for _, name := range slices.Concat(t.Webhooks, t.WebhookIDs) {
		i := slices.IndexFunc(r.Webhooks, func(w *Webhook) bool {
			return w.Def.Name == name && slices.Contains(t.Webhooks, name) || w.UID == name && slices.Contains(t.WebhookIDs, name)
		})
		if i < 0 {
			gone = append(gone, name)
			continue
		}
		there = append(there, r.Webhooks[i])
	}
	return there, gone
}

// Raising are the webhooks whose deliveries carry the events of a sender.
func (r *Revision) Raising(s *native.Sender) (all []*Webhook) {
	for _, w := range r.Webhooks {
		if w.Def.Sender() == s {
			all = append(all, w)
		}
	}
	return all
}

// Idle says why a trigger starts nothing on this server. It is empty if the trigger may
// start something. paused tells whether a webhook is paused.
func (r *Revision) Idle(t *factory.Trigger, paused func(*Webhook) bool) string {
	if !t.Fires() {
		return fmt.Sprintf("this server does not fire %s %s", t.Provider, t.Event)
	}
	if t.Scheduled() {
		return ""
	}
	there, gone := r.selected(t)
	if t.Native != nil {
		if there, gone = r.Raising(t.Native.Event.Sender), nil; len(there) == 0 {
			return "no webhook takes deliveries of " + t.Native.Event.Sender.Title
		}
	}
	var disabled, resting []string
	for _, w := range there {
		switch {
		case !w.Def.Enabled:
			disabled = append(disabled, w.Def.Name)
		case paused(w):
			resting = append(resting, w.Def.Name)
		default:
			return ""
		}
	}
	var why []string
	if len(gone) > 0 {
		why = append(why, "there is no webhook "+strings.Join(gone, ", "))
	}
	if len(disabled) > 0 {
		why = append(why, "disabled: webhook "+strings.Join(disabled, ", "))
	}
	if len(resting) > 0 {
		why = append(why, "paused: webhook "+strings.Join(resting, ", "))
	}
	return strings.Join(why, "; ")
}

// Dormant says why nothing starts an automation that is enabled. It is empty if a trigger
// may start it, or if the automation is disabled.
func (r *Revision) Dormant(a *factory.Automation, paused func(*Webhook) bool) string {
	if !a.Enabled {
		return ""
	}
	var why []string
	for i := range a.Triggers {
		idle := r.Idle(&a.Triggers[i], paused)
		if idle == "" {
			return ""
		}
		if !slices.Contains(why, idle) {
			why = append(why, idle)
		}
	}
	return strings.Join(why, "; ")
}

// SecretValue is one generation of a managed secret. It does not print itself.
type SecretValue struct {
	Generation int64
	App        bool // it is a GitHub App (SPEC 24.2)
	value      string
}

// NewSecretValue makes a SecretValue.
func NewSecretValue(generation int64, value string) SecretValue {
	return SecretValue{Generation: generation, value: value}
}

// Format implements fmt.Formatter.
func (v SecretValue) Format(f fmt.State, _ rune) {
	fmt.Fprintf(f, "generation %d", v.Generation)
}

// BuildInput is everything from which Build makes a Revision. Build calls the functions
// with the names that it finds in the tree.
type BuildInput struct {
	Factory string
	Commit  gitrepo.Commit
	Tree    fs.FS
	Options factory.Options
	// Secrets returns the values of the named secrets that exist. If Secrets is nil, the
	// revision can match and explain deliveries, but not verify them.
	Secrets func(ctx context.Context, names []string) (map[string]SecretValue, error)
	// UIDs returns a UID for each named webhook. If it is nil, UIDs are invented.
	UIDs func(ctx context.Context, factory string, names []string) (map[string]string, error)
	// Spec makes the run spec of an automation. If it is nil, there are no specs.
	Spec func(f *factory.Factory, a *factory.Automation) ([]byte, error)
	// Lacks finds what cannot act on this server, for warnings; nil: nothing is looked for.
	Lacks Lacks
	// Trial allows that a secret is not set that proves no delivery: it is a warning, and what needs
	// the secret is not done.
	Trial bool
}

// Lacks returns, for one factory, the function that lists which parts of an automation's
// definition cannot act on this server.
type Lacks func(ctx context.Context, f *factory.Factory) func(*factory.Automation) []Lack

// Lack is a part of a definition that cannot act, described for its author.
type Lack struct {
	Text string
	At   factory.Position // where the definition asks for it; zero: in the automation
}

// Built is the outcome of Build.
type Built struct {
	Revision    *Revision // nil if there are errors among the diagnostics
	Diagnostics schema.Diagnostics
	Deferred    []schema.Deferred
	Lacking     map[string]int64 // secrets that are missing (0) or unsuitable (the generation that does not suit)
}

// Build validates a tree and makes a Revision of it. It returns an error if something
// could not be read or looked up; invalid definitions are diagnostics instead. It serves
// an apply, the start of a server, and the explanation of old deliveries.
func Build(ctx context.Context, in BuildInput) (*Built, error) {
	f, report, err := factory.Load(ctx, in.Tree, in.Options)
	if err != nil {
		return nil, err
	}
	b := builder{BuildInput: in, Built: &Built{Diagnostics: report.Diagnostics, Deferred: report.Deferred, Lacking: make(map[string]int64)}}
	if report.Diagnostics.HasErrors() {
		return b.Built, nil
	}
	b.revision = &Revision{Factory: in.Factory, Commit: in.Commit, Definition: f}
	if err := b.build(ctx); err != nil {
		return nil, err
	}
	b.Diagnostics.Sort()
	if !b.Diagnostics.HasErrors() {
		b.Revision = b.revision
	}
	return b.Built, nil
}

type builder struct {
	BuildInput
	*Built
	revision *Revision // becomes Built.Revision if there are no errors
}

// inventedUIDs gives the webhook NAME the UID whk_NAME.
func inventedUIDs(names []string) map[string]string {
	uids := make(map[string]string, len(names))
	for _, name := range names {
		uids[name] = "whk_" + name
	}
	return uids
}

func (b *builder) build(ctx context.Context) error {
	f := b.revision.Definition
	var hooks, secrets []string
	for _, w := range f.Webhooks {
		hooks = append(hooks, w.Name)
		for _, name := range []string{w.SecretName, w.APISecretName, w.AppTokenName, w.Report.Hook.SecretName} {
			if name != "" {
				secrets = append(secrets, name)
			}
		}
	}
	for _, a := range f.Automations {
		if name := a.Report.Hook.SecretName; name != "" {
			secrets = append(secrets, name)
		}
	}
	var err error
	uids := inventedUIDs(hooks)
	if b.UIDs != nil {
		if uids, err = b.UIDs(ctx, b.Factory, hooks); err != nil {
			return fmt.Errorf("finding the UIDs of the webhooks: %w", err)
		}
	}
	var values map[string]SecretValue
	if b.Secrets != nil {
		slices.Sort(secrets)
		if values, err = b.Secrets(ctx, slices.Compact(secrets)); err != nil {
			return fmt.Errorf("reading the secrets: %w", err)
		}
	}
	byDef := make(map[*factory.Automation]*Automation)
	for _, def := range f.Automations {
		a := &Automation{Def: def}
		if b.Spec != nil {
			if a.Spec, err = b.Spec(f, def); err != nil {
				return fmt.Errorf("automation %s: %w", def.Name, err)
			}
			a.SpecHash = sha256.Sum256(a.Spec)
		}
		byDef[def] = a
		if def.Enabled {
			b.signer(def.Path, def.Report.Hook, values)
		}
		b.revision.Automations = append(b.revision.Automations, a)
	}
	known := make(map[string]bool)
	for _, def := range f.Webhooks {
		w := &Webhook{UID: uids[def.Name], Factory: b.Factory, Def: def, Revision: b.revision}
		if w.UID == "" {
			return fmt.Errorf("webhook %s has no UID", def.Name)
		}
		known[w.UID] = true
		b.verifier(w, values)
		if def.Enabled {
			b.signer(def.Path, def.Report.Hook, values)
		}
		w.Index = match.NewIndex(f.Candidates(def, w.UID))
		for _, a := range f.Selecting(def, w.UID) {
			w.Automations = append(w.Automations, byDef[a])
		}
		b.revision.Webhooks = append(b.revision.Webhooks, w)
	}
	b.Diagnostics = append(b.Diagnostics, f.Unresolved(known)...)
	b.warnOfLacks(ctx, f)
	return nil
}

// maxNamed bounds how many automations one finding names.
const maxNamed = 5

// warnOfLacks warns of what cannot act on this server. Equal lacks of several automations are
// one warning, at Lack.At or at the first of the automations.
func (b *builder) warnOfLacks(ctx context.Context, f *factory.Factory) {
	if b.Lacks == nil {
		return
	}
	lacks := b.Lacks(ctx, f)
	concerned := make(map[Lack][]string) // paths of automations
	for _, a := range f.Automations {
		if a.Enabled {
			for _, lack := range lacks(a) {
				concerned[lack] = append(concerned[lack], a.Path)
			}
		}
	}
	for _, lack := range slices.SortedFunc(maps.Keys(concerned), func(a, b Lack) int { return strings.Compare(a.Text, b.Text) }) { // Build sorts them by place
		all := concerned[lack]
		first, others, also := lack.At.Path, all, "for: "
		if first == "" || first == all[0] {
			first, others, also = all[0], all[1:], "also: "
		}
		hint := ""
		if len(others) > 0 {
			hint = also + strings.Join(others[:min(len(others), maxNamed)], ", ")
			if more := len(others) - maxNamed; more > 0 {
				hint += fmt.Sprintf(", and %d more", more)
			}
		}
		c := schema.Collector{Path: first}
		c.Warn(lack.At.At, schema.NotHere, hint, lack.Text)
		b.Diagnostics = append(b.Diagnostics, c.Found...)
	}
}

// signer checks the secret that signs messages to an address (SPEC 22.1).
func (b *builder) signer(path string, hook factory.Hook, values map[string]SecretValue) {
	if b.Secrets == nil || hook.SecretName == "" {
		return
	}
	c := schema.Collector{Path: path}
	hint := "triphammer secrets set " + hook.SecretName
	if v, ok := values[hook.SecretName]; !ok {
		b.unset(&c, hook.At, hook.SecretName, "report.secretName", "nothing is told to "+hook.URL)
		b.Diagnostics = append(b.Diagnostics, c.Found...)
		return
	} else if err := hook.Suits(v.value); err != nil {
		c.Error(hook.At, schema.BadSecret, "set another value: "+hint, fmt.Sprintf("secret %s cannot sign messages (report.secretName): %v", hook.SecretName, err))
	}
	if len(c.Found) > 0 {
		b.Lacking[hook.SecretName] = values[hook.SecretName].Generation
		b.Diagnostics = append(b.Diagnostics, c.Found...)
	}
}

// unset reports that there is no secret that key names. without is what a trial goes without.
func (b *builder) unset(c *schema.Collector, at schema.At, name, key, without string) {
	text := fmt.Sprintf("there is no managed secret %s, which %s names", name, key)
	report := c.Error
	if b.Trial {
		report, text = c.Warn, text+": "+without
		b.revision.Unset = append(b.revision.Unset, name)
	}
	report(at, schema.MissingSecret, "set it: triphammer secrets set "+name, text)
	b.Lacking[name] = 0
}

// verifier makes the verifier of a webhook with its secret (SPEC 4.5).
func (b *builder) verifier(w *Webhook, values map[string]SecretValue) {
	if b.Secrets == nil {
		return
	}
	c := schema.Collector{Path: w.Def.Path}
	lacks := func(code, hint, message string) {
		c.Error(w.Def.At, code, hint+": triphammer secrets set "+w.Def.SecretName, message)
		b.Lacking[w.Def.SecretName] = values[w.Def.SecretName].Generation
	}
	defer func() { b.Diagnostics = append(b.Diagnostics, c.Found...) }()
	for _, named := range [][2]string{{"apiSecretName", w.Def.APISecretName}, {"appTokenName", w.Def.AppTokenName}} {
		key, name := named[0], named[1]
		v, ok := values[name]
		if v.App && key == "appTokenName" {
			c.Error(w.Def.At, schema.BadSecret, "set another value: triphammer secrets set "+name, fmt.Sprintf("secret %s is a GitHub App, and %s takes a token of the sender", name, key))
			b.Lacking[name] = v.Generation
		}
		if name != "" && !ok && w.Def.Enabled {
			without := "nothing comes over a connection"
			if key == "apiSecretName" {
				without = w.Def.Sender().Title + " is asked nothing, and no answer is sent"
			}
			b.unset(&c, w.Def.At, name, key, without)
		}
	}
	if w.Def.SecretName == "" {
		return // the webhook takes no requests
	}
	v, ok := values[w.Def.SecretName]
	if !ok && !w.Def.Enabled {
		// Some senders tell their secret only when they have the URL.
		c.Warn(w.Def.At, schema.MissingSecret, "set it: triphammer secrets set "+w.Def.SecretName+"; then enable the webhook",
			fmt.Sprintf("there is no managed secret %s: this webhook cannot be enabled before there is", w.Def.SecretName))
		return
	}
	if !ok {
		lacks(schema.MissingSecret, "set it", fmt.Sprintf("there is no managed secret %s", w.Def.SecretName))
		return
	}
	var err error
	if v.App {
		lacks(schema.BadSecret, "set another value", fmt.Sprintf("secret %s is a GitHub App, which proves nothing about senders: name it as apiSecretName", w.Def.SecretName))
	} else if w.Verifier, err = w.Def.Verifier(v.value); err != nil {
		lacks(schema.BadSecret, "set another value", fmt.Sprintf("secret %s does not suit authMode %s: %v", w.Def.SecretName, w.Def.AuthMode, err))
	}
	w.SecretGeneration = v.Generation
}

// Live is the routing table: one pointer to the revisions of all factories. Each method
// loads the pointer once.
type Live struct {
	mu    sync.Mutex // of writers
	table atomic.Pointer[table]
}

type table struct {
	webhooks  map[string]*Webhook // by UID
	factories map[string]*Revision
}

// Webhook finds a webhook by UID, even if it is disabled.
func (l *Live) Webhook(uid string) (*Webhook, bool) {
	t := l.table.Load()
	if t == nil {
		return nil, false
	}
	w, ok := t.webhooks[uid]
	return w, ok
}

// Revision is the revision that a factory serves.
func (l *Live) Revision(factory string) (*Revision, bool) {
	t := l.table.Load()
	if t == nil {
		return nil, false
	}
	r, ok := t.factories[factory]
	return r, ok
}

// Revisions are the revisions that all factories serve, sorted by name.
func (l *Live) Revisions() []*Revision {
	t := l.table.Load()
	if t == nil {
		return nil
	}
	all := make([]*Revision, 0, len(t.factories))
	for _, name := range slices.Sorted(maps.Keys(t.factories)) {
		all = append(all, t.factories[name])
	}
	return all
}

// Swap makes r the live revision of its factory.
func (l *Live) Swap(r *Revision) {
	l.mu.Lock()
	defer l.mu.Unlock()
	next := &table{webhooks: make(map[string]*Webhook), factories: map[string]*Revision{r.Factory: r}}
	if t := l.table.Load(); t != nil {
		for name, other := range t.factories {
			if name != r.Factory {
				next.factories[name] = other
			}
		}
	}
	for _, revision := range next.factories {
		for _, w := range revision.Webhooks {
			next.webhooks[w.UID] = w
		}
	}
	l.table.Store(next)
}
