package factory

import (
	"fmt"
	"net/url"
	"path"
	"regexp"
	"strconv"
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
	Env                     map[string]string
	Secrets                 []string
	Command                 []string
	Timeout, Idle           time.Duration
	Network                 Network
	Budget                  Budget
	Isolation               string // the weakest that it accepts; empty: any
}

// Budget is what one run may use up; 0 means no limit.
type Budget struct {
	USD    float64
	Tokens int64
	Turns  int64
}

// Repository is a repository to clone into the workspace of a run.
type Repository struct {
	URL  string `json:"url"`
	Ref  string `json:"ref,omitempty"`
	Path string `json:"path,omitempty"` // in the workspace
}

// MCPServer is a server of the Model Context Protocol that the agent gets: a program with
// its arguments, or a URL. ${NAME} in a value of Env or Headers and in the URL stands for a
// variable of the run.
type MCPServer struct {
	Name    string            `json:"name"`
	Command string            `json:"command,omitempty"`
	Args    []string          `json:"args,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	URL     string            `json:"url,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
}

// Skill is a folder of files that an agent can read when it needs them.
type Skill struct {
	Name  string            `json:"name"`
	Files map[string][]byte `json:"files"` // by path below the skill's folder
}

// Network is what a run may reach.
type Network struct {
	Off   bool
	Hosts []string // the only ones, if any
}

// Defaults of an environment (SPEC 2.2a).
const (
	DefaultTimeout = 60 * time.Minute
	DefaultIdle    = 15 * time.Minute
)

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// maxMinutes bounds the times of an environment: one week.
const maxMinutes = 7 * 24 * 60

func (l *loader) environment(d *document) *Environment {
	n := d.Root
	e := &Environment{
		Name: d.name, Path: d.Path,
		Description:   textOf(n.Get("description")),
		DockerImage:   textOf(n.Get("dockerImage")),
		SetupCommands: textsOf(n.Get("setupCommands")),
		Secrets:       textsOf(n.Get("secrets")),
		Isolation:     textOf(n.Get("isolation")),
		Timeout:       minutes(d, "timeoutMinutes", DefaultTimeout),
		Idle:          minutes(d, "idleMinutes", DefaultIdle),
	}
	for _, item := range itemsOf(n.Get("command")) {
		e.Command = append(e.Command, textOf(item))
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
	e.Network = network(d)
	e.Budget = budget(d)
	return e
}

func budget(d *document) Budget {
	n := d.Root.Get("budget")
	amount := func(key string) float64 {
		v := n.Get(key)
		if v == nil || v.Kind != schema.Int && v.Kind != schema.Float {
			return 0
		}
		f, err := strconv.ParseFloat(v.Text, 64)
		if err != nil || f <= 0 || f > 1e15 {
			d.Error(v.At, schema.InvalidValue, "leave the key out for no limit", fmt.Sprintf("budget.%s is %s where more than 0 is expected", key, v.Text))
			return 0
		}
		return f
	}
	return Budget{USD: amount("usd"), Tokens: int64(amount("tokens")), Turns: int64(amount("turns"))}
}

func minutes(d *document, key string, otherwise time.Duration) time.Duration {
	n := d.Root.Get(key)
	if n == nil || n.Kind != schema.Int && n.Kind != schema.Float {
		return otherwise
	}
	m, err := strconv.ParseFloat(n.Text, 64)
	if err != nil || m <= 0 || m > maxMinutes {
		d.Error(n.At, schema.InvalidValue, "leave the key out for the default", fmt.Sprintf("%s is %s where more than 0 and at most %d is expected", key, n.Text, maxMinutes))
		return otherwise
	}
	return time.Duration(m * float64(time.Minute))
}

func repository(d *document, n *schema.Node, where string) Repository {
	r := Repository{URL: textOf(n.Get("url")), Ref: textOf(n.Get("ref")), Path: textOf(n.Get("path"))}
	owner, name := textOf(n.Get("owner")), textOf(n.Get("name"))
	switch {
	case r.URL == "" && (owner == "" || name == ""):
		d.Error(n.At, schema.MissingRequired, "write {url: …} or {owner: …, name: …}", where+" names no repository")
	case r.URL != "" && owner+name != "":
		d.Error(n.At, schema.InvalidValue, "keep one of them", where+" has both a url and an owner or name")
	case r.URL == "":
		r.URL = "https://github.com/" + url.PathEscape(owner) + "/" + url.PathEscape(name) + ".git"
	case strings.HasPrefix(r.URL, "-"):
		d.Error(n.Get("url").At, schema.InvalidValue, "write https://… or git@…", where+".url begins with a dash")
	default:
		if u, err := url.Parse(r.URL); err == nil && u.User != nil {
			if _, has := u.User.Password(); has {
				d.Error(n.Get("url").At, schema.InvalidValue, "grant a managed secret instead", where+".url holds a password")
			}
		}
	}
	if strings.HasPrefix(r.Ref, "-") {
		d.Error(n.Get("ref").At, schema.InvalidValue, "name a branch, a tag or a commit", where+".ref begins with a dash")
	}
	if r.Path != "" && (path.IsAbs(r.Path) || path.Clean(r.Path) != r.Path || r.Path == "." || strings.HasPrefix(r.Path, "..")) {
		d.Error(n.Get("path").At, schema.InvalidValue, "write such as libs/app", where+".path is not a plain path within the workspace")
	}
	return r
}

func network(d *document) Network {
	n := d.Root.Get("network")
	if n == nil {
		return Network{}
	}
	switch text := textOf(n); {
	case text == "on":
		return Network{}
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
