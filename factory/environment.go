package factory

import (
	"cmp"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"strings"
	"time"

	"triphammer/factory/hosts"
	"triphammer/schema"
)

// Environment is environments/<name>.yaml (SPEC 2.2a).
type Environment struct {
	Name, Path, Description string
	DockerImage             string
	Repositories            []Repository
	SetupCommands           []string
	Cache                   *Cache
	Env                     map[string]string
	Secrets                 []string
	Command                 []string
	CommandAt               schema.At
	Timeout, Idle           time.Duration
	Network                 Network
	Services                []Service
	Models                  []string // that its runs may use; * stands for any text; empty: all
	HostedTools             bool     // its runs may use what a provider does besides answering as a model
	Budget                  Budget
	Resources               Resources
	Isolation               string // the weakest isolation that the environment accepts; empty: any
	TrustRepositorySettings bool   // the agent settings in its repositories act
}

// Budget limits what runs may use; 0 means no limit.
type Budget struct {
	USD          float64 `json:"usd,omitempty"` // of one run, like Tokens and Turns
	Tokens       int64   `json:"tokens,omitempty"`
	Turns        int64   `json:"turns,omitempty"`
	USDPerDay    float64 `json:"usd_per_day,omitempty"` // of all runs of an automation
	TokensPerDay int64   `json:"tokens_per_day,omitempty"`
}

// Repository is a repository to clone into the workspace of a run.
type Repository struct {
	URL  string `json:"url"`
	Ref  string `json:"ref,omitempty"`  // a branch, a tag, a commit or RefEvent; empty: RefEvent if the repository is the event's own and the event says whose its code is, else the default branch
	Path string `json:"path,omitempty"` // in the workspace
	// Forge is the code forge of a repository that is named by owner and name, such as
	// GITHUB. A server may have another address for the forge (see At).
	Forge string `json:"forge,omitempty"`
	// Secret is the name of the managed secret for cloning and pushing: a token, or
	// USER:TOKEN. The value stays outside the walls of the run.
	Secret string `json:"secret,omitempty"`
	// Access is what a run may do with the secret, one of schema.Accesses; empty: write.
	Access string `json:"access,omitempty"`
}

// RefEvent as a ref stands for what the event is about that starts a run (SPEC 21.7). A branch of that
// name is refs/heads/event.
const RefEvent = "event"

// ReadOnly tells whether a run may not push.
func (r Repository) ReadOnly() bool { return r.Access == schema.Accesses[0] }

// Cache is what the setup commands keep for later runs with the same lock files (SPEC 15.9).
type Cache struct {
	Paths []string `json:"paths"` // below the agent's working directory, or with ~/ below its home
	Files []string `json:"files"` // patterns of the lock files, below the working directory
}

// Network is what a run may reach.
type Network struct {
	On    bool // the definition allows the network explicitly
	Off   bool
	Hosts []string // if not empty, the only hosts that a run may reach
}

// Defaults of an environment (SPEC 2.2a).
const (
	DefaultTimeout = 60 * time.Minute
	DefaultIdle    = 15 * time.Minute
)

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// What a definition may ask for at most.
const (
	maxMinutes     = 7 * 24 * 60 // one week
	maxSeconds     = 24 * 60 * 60
	maxAttempts    = 10
	maxPushed      = 1000
	maxPushedBytes = 1 << 40
	maxPerHour     = 100_000
	maxSpending    = 1e15 // of each key of a budget
	maxMegabytes   = 1 << 30
	maxCPUs        = 1024
	maxProcesses   = 1 << 22
)

func (l *loader) environment(d *document) *Environment {
	n := d.Root
	e := &Environment{
		Name: d.name, Path: d.Path,
		Description:   textOf(n.Get("description")),
		DockerImage:   textOf(n.Get("dockerImage")),
		SetupCommands: textsOf(n.Get("setupCommands")),
		Secrets:       textsOf(n.Get("secrets")),
		Isolation:     IsolationNow(textOf(n.Get("isolation"))),
		Timeout:       minutes(d, "timeoutMinutes", DefaultTimeout),
		Idle:          minutes(d, "idleMinutes", DefaultIdle),

		TrustRepositorySettings: boolOf(n.Get("trustRepositorySettings"), false),
	}
	if n.Get("repositories") != nil {
		e.Repositories = []Repository{} // an empty list differs from an absent key
	}
	if command := n.Get("command"); command != nil {
		e.Command, e.CommandAt = wordsOf(command), command.At
	}
	for i, item := range itemsOf(n.Get("repositories")) {
		if item.Kind == schema.Mapping {
			e.Repositories = append(e.Repositories, repository(d, item, fmt.Sprintf("repositories[%d]", i)))
		}
	}
	if env := n.Get("env"); env != nil && env.Kind == schema.Mapping {
		e.Env = make(map[string]string, len(env.Fields))
		for _, f := range env.Fields {
			switch {
			case !variableName.MatchString(f.Key):
				d.Error(f.At, schema.InvalidValue, "write letters, digits and _, the first no digit", fmt.Sprintf("env: %q is not the name of a variable", f.Key))
			case strings.HasPrefix(f.Key, "TRIPHAMMER_"):
				d.Error(f.At, schema.InvalidValue, "take it out", fmt.Sprintf("env: %s is set by the server", f.Key))
			case strings.ContainsRune(f.Value.Text, 0):
				d.Error(f.Value.At, schema.InvalidValue, "take it out", fmt.Sprintf("env: %s holds a NUL byte", f.Key))
			}
			e.Env[f.Key] = f.Value.Text
		}
	}
	e.Cache = cache(d)
	e.Network = network(d)
	e.Services, e.Models, e.HostedTools = services(d), textsOf(n.Get("models")), boolOf(n.Get("hostedTools"), false)
	e.Budget = budget(d)
	e.Resources = Resources{
		Memory:    int64(amount(d, "resources.memoryMb", maxMegabytes)) << 20,
		CPUs:      amount(d, "resources.cpus", maxCPUs),
		Processes: int64(amount(d, "resources.processes", maxProcesses)),
		Disk:      int64(amount(d, "resources.diskMb", maxMegabytes)) << 20,
	}
	return e
}

// Paths of a cache, without . and .. in them. * and ? of a file stand for other text.
var (
	cachePath = regexp.MustCompile(`^(~/)?` + strings.ReplaceAll(plainPath, "BUT", "~"))
	cacheFile = regexp.MustCompile(`^` + strings.ReplaceAll(plainPath, "BUT", `~\[\]\\`))
)

const plainPath = `([^/.BUT][^/BUT]*|\.[^/.BUT][^/BUT]*|\.\.[^/BUT]+)(/([^/.BUT][^/BUT]*|\.[^/.BUT][^/BUT]*|\.\.[^/BUT]+))*$`

// match finds the texts of a list that do not match.
func (d *document) match(list *schema.Node, pattern *regexp.Regexp, key, problem, advice string) {
	for i, item := range itemsOf(list) {
		if !pattern.MatchString(item.Text) {
			d.Error(item.At, schema.InvalidValue, advice, fmt.Sprintf("%s[%d]: %q %s", key, i, item.Text, problem))
		}
	}
}

func cache(d *document) *Cache {
	n := d.Root.Get("cache")
	if n == nil || n.Kind != schema.Mapping {
		return nil
	}
	if len(itemsOf(d.Root.Get("setupCommands"))) == 0 {
		d.Error(n.At, schema.InvalidValue, "add setupCommands, or take cache out", "cache: there are no setupCommands whose files it could keep")
	}
	d.match(n.Get("paths"), cachePath, "cache.paths", "is neither below the agent's working directory nor below its home", "write a path such as node_modules or ~/.npm")
	d.match(n.Get("files"), cacheFile, "cache.files", "names no files below the agent's working directory", "write a path such as package-lock.json or */go.sum")
	return &Cache{Paths: textsOf(n.Get("paths")), Files: textsOf(n.Get("files"))}
}

// IsolationNow is the present name of an isolation, for its present or its old name.
func IsolationNow(name string) string { return cmp.Or(schema.OldIsolations[name], name) }

// warnOfOldNames warns of values of an environment that have another name now.
func warnOfOldNames(d *document) {
	n := d.Root.Get("isolation")
	if name, now := textOf(n), IsolationNow(textOf(n)); now != name {
		d.Warn(n.At, schema.Deprecated, "write isolation: "+now, fmt.Sprintf("isolation %s is called %s now", name, now))
	}
}

func budget(d *document) Budget {
	return Budget{
		USD:          amount(d, "budget.usd", maxSpending),
		Tokens:       int64(amount(d, "budget.tokens", maxSpending)),
		Turns:        int64(amount(d, "budget.turns", maxSpending)),
		USDPerDay:    amount(d, "budget.usdPerDay", maxSpending),
		TokensPerDay: int64(amount(d, "budget.tokensPerDay", maxSpending)),
	}
}

// amount reads the number at a key, which may have a dot. The number is more than 0 and at
// most most; 0 means that the key is not set.
func amount(d *document, key string, most float64) float64 {
	n := d.Root
	for step := range strings.SplitSeq(key, ".") {
		n = n.Get(step)
	}
	value, set := numberOf(n)
	if set && !(value > 0 && value <= most) {
		d.Error(n.At, schema.InvalidValue, "leave the key out for the default", fmt.Sprintf("%s is %s where more than 0 and at most %.0f is expected", key, n.Text, most))
		return 0
	}
	return value
}

func minutes(d *document, key string, otherwise time.Duration) time.Duration {
	if m := amount(d, key, maxMinutes); m > 0 {
		return time.Duration(m * float64(time.Minute))
	}
	return otherwise
}

var webURL = regexp.MustCompile(`^https?://[^/]`)

// secretURL matches the addresses to which a credential may go: encrypted, or on this
// machine.
var secretURL = regexp.MustCompile(`^(https://|ssh://|[A-Za-z0-9_.-]+@[^/:]+:|http://(localhost|127\.0\.0\.1|\[::1\])[:/])`)

func repository(d *document, n *schema.Node, where string) Repository {
	r := Repository{URL: textOf(n.Get("url")), Ref: textOf(n.Get("ref")), Path: textOf(n.Get("path")), Secret: textOf(n.Get("secret")), Access: textOf(n.Get("access"))}
	owner, name := textOf(n.Get("owner")), textOf(n.Get("name"))
	switch {
	case r.URL == "" && (owner == "" || name == ""):
		d.Error(n.At, schema.MissingRequired, "write {url: …} or {owner: …, name: …}", where+" names no repository")
	case r.URL != "" && owner+name != "":
		d.Error(n.At, schema.InvalidValue, "keep one of them", where+" has both a url and an owner or name")
	case r.URL == "":
		r.URL, r.Forge = forgeURL(github, owner, name), github
	case strings.HasPrefix(r.URL, "-"):
		d.Error(n.Get("url").At, schema.InvalidValue, "write https://… or git@…", where+".url begins with a dash")
	default:
		if u, err := url.Parse(r.URL); err == nil && u.User != nil {
			if _, has := u.User.Password(); has {
				d.Error(n.Get("url").At, schema.InvalidValue,
					"take it out, keep the token as a managed secret (triphammer secrets set NAME), and write {url: …, secret: NAME}", where+".url holds a password")
			}
		}
	}
	if r.Secret != "" && r.URL != "" && !secretURL.MatchString(r.URL) {
		d.Error(n.Get("secret").At, schema.InvalidValue, "write an https:// or ssh address", where+".secret would go to an address that is neither https nor ssh")
	}
	if strings.HasPrefix(r.Ref, "-") {
		d.Error(n.Get("ref").At, schema.InvalidValue, "name a branch, a tag or a commit", where+".ref begins with a dash")
	}
	if r.Path != "" && (path.IsAbs(r.Path) || path.Clean(r.Path) != r.Path || r.Path == "." || strings.HasPrefix(r.Path, "..")) {
		d.Error(n.Get("path").At, schema.InvalidValue, "write such as libs/app", where+".path is not a plain path within the workspace")
	}
	return r
}

// outsideSecrets notes the secrets of an environment's repositories and services, and warns of a
// repository with access but without a secret.
func (l *loader) outsideSecrets(d *document) {
	for i, item := range itemsOf(d.Root.Get("services")) {
		if n := item.Get("secretName"); n != nil {
			l.deferSecrets(d, n.At, fmt.Sprintf("services[%d].secretName", i), []string{textOf(n)})
		}
	}
	for i, item := range itemsOf(d.Root.Get("repositories")) {
		where := fmt.Sprintf("repositories[%d]", i)
		if n := item.Get("secret"); n != nil {
			l.deferSecrets(d, n.At, where+".secret", []string{textOf(n)})
		} else if n := item.Get("access"); n != nil {
			d.Warn(n.At, schema.NoEffect, "add secret: NAME, or take access out", where+".access has no effect without a secret: it says what a run may do with that")
		}
	}
}

func network(d *document) Network {
	n := d.Root.Get("network")
	if n == nil {
		return Network{}
	}
	switch text := textOf(n); {
	case text == "on":
		return Network{On: true}
	case text == "off":
		return Network{Off: true}
	case n.Kind != schema.List || len(n.Items) == 0:
		d.Error(n.At, schema.InvalidValue, "write on, off or [api.example.com]", "network is on, off or a list of hosts")
	}
	out := Network{}
	for _, item := range itemsOf(n) {
		host := textOf(item)
		if _, err := hosts.Parse(host); err == nil {
			out.Hosts = append(out.Hosts, host)
		} else {
			d.Error(item.At, schema.InvalidValue, "such as api.example.com or *.example.com:443", "network lists something that is not a host")
		}
	}
	return out
}

// elsewhereEnvironment matches the identifiers of environments that are made in the web
// application of the service that the format comes from.
var elsewhereEnvironment = regexp.MustCompile(`^[A-Za-z0-9]{22}$`)

// ElsewhereEnvironment tells whether an environmentId without a file is an identifier from
// the service that the format comes from. A run that names it goes without an environment,
// because the trees of that service have no files for environments (SPEC 15.1).
func ElsewhereEnvironment(id string) bool { return elsewhereEnvironment.MatchString(id) }
