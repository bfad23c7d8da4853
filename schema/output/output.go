// Package output has what an agent may ask the server to do in its name: one table of kinds, from
// which the keys of definitions, the tools of agents, the reference and the checks are made
// (SPEC 23.1). It imports nothing, because the code inside a run needs it too.
package output

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
)

// Kind is something that an agent may ask for.
type Kind struct {
	Name   string
	Doc    string // what happens, for agents and for people
	Bounds []Bound
	Fields []Field
	On     string // what the event has to be about: onThread, onItem or onPull; empty: anything
	// Needs is the permission that the webhook's credential needs, by provider. A provider that is
	// missing has no such thing.
	Needs map[string]string
}

// Values of Kind.On.
const (
	onThread = "a thread"
	onItem   = "an issue or a pull request"
	onPull   = "a pull request"
)

// Fits tells whether a kind can be done where an event belongs: in a thread of a kind, as a place of answers has them;
// empty: there is no thread.
func (k *Kind) Fits(thread, kind string) bool {
	switch k.On {
	case onThread:
		return thread != ""
	case onItem:
		return thread != "" && kind != "commit"
	case onPull:
		return thread != "" && kind == "pull"
	}
	return true
}

// Bound is a key below the kind's key in outputs of an automation.
type Bound struct {
	Name     string
	Doc      string
	Type     Type
	Required bool
	Default  int // of a Count
	Most     int // of a Count; 0: MaxRequests
}

// Field is a part of a request.
type Field struct {
	Name     string
	Doc      string
	Type     Type // Text, Texts, Remarks or Branch
	Required bool
	Max      int    // bytes of a text
	Of       string // the bound that lists the values that may stand here; empty: any value may
}

// Type is what a bound or a field is.
type Type uint8

// The types.
const (
	Text Type = iota
	Texts
	Count
	Flag
	Remarks // comments on lines of code
	Branch  // the name of a branch of the repository itself, and not of a fork
)

// Ask is the kind with which an agent asks a person (SPEC 26.3). It ends what the run asks for.
const Ask = "ask"

// Limits of requests.
const (
	MaxBytes    = 60_000 // of one request: an event of a transcript holds no more
	MaxRequests = 100    // of one attempt
	MaxBody     = 24_000 // bytes of a text in Markdown
	MaxQuestion = 3_000  // bytes of a question: each sender shows it whole
	maxList     = 100    // entries of a list
	maxName     = 200    // bytes of a name or title
)

// Request is what an agent asks for. Which fields stand in it, the kind says.
type Request struct {
	Kind       string   `json:"kind"`
	Title      string   `json:"title,omitempty"`
	Body       string   `json:"body,omitempty"`
	Labels     []string `json:"labels,omitempty"`
	Assignees  []string `json:"assignees,omitempty"`
	Repository string   `json:"repository,omitempty"`
	Head       string   `json:"head,omitempty"`
	Base       string   `json:"base,omitempty"`
	Channel    string   `json:"channel,omitempty"`
	State      string   `json:"state,omitempty"`
	Comments   []Remark `json:"comments,omitempty"`
	Question   string   `json:"question,omitempty"`
	Push       *Push    `json:"push,omitempty"` // of PushKind alone
}

// PushKind is the kind of a push that waits for a person (SPEC 23.3). No table has it: an agent asks for it
// with Git, and the gateway of its run makes the request.
const PushKind = "push"

// Push is an update of a branch or tag that waits for a person.
type Push struct {
	Repository string   `json:"repository"` // its URL
	Secret     string   `json:"secret"`     // the name of its credential
	Ref        string   `json:"ref"`
	Old        string   `json:"old"` // object ids; only zeros: there is no such ref
	New        string   `json:"new"`
	Commits    int      `json:"commits"`            // how many come with it
	Subjects   []string `json:"subjects,omitempty"` // of the newest of them, the newest first
	Pack       Pack     `json:"pack"`
}

// Pack is what Git sends with a push, as an artifact of the run has it.
type Pack struct {
	Artifact string `json:"artifact"`
	SHA256   string `json:"sha256"` // in hexadecimal
	Bytes    int64  `json:"bytes"`
}

// Name is the branch or tag.
func (p *Push) Name() string {
	name := strings.TrimPrefix(p.Ref, "refs/heads/")
	if tag, is := strings.CutPrefix(p.Ref, "refs/tags/"); is {
		return "tag " + tag
	}
	return name
}

// Change is what becomes of the branch or tag, with the number of commits.
func (p *Push) Change() string {
	short := func(id string) string {
		if strings.Trim(id, "0") == "" {
			return "new"
		}
		return id[:min(len(id), 12)]
	}
	commits := fmt.Sprintf("%d commits", p.Commits)
	if p.Commits == 1 {
		commits = "1 commit"
	}
	return short(p.Old) + " → " + short(p.New) + ", " + commits
}

// Remark is a comment on a line of a pull request.
type Remark struct {
	Path string `json:"path"`
	Line int    `json:"line"` // of the new file, from 1
	Body string `json:"body"`
}

// Bounds are the bounds of one kind.
type Bounds struct {
	Max          int      `json:"max,omitempty"`
	Allowed      []string `json:"allowed,omitempty"`
	Repositories []string `json:"repositories,omitempty"`
	Channels     []string `json:"channels,omitempty"`
	Labels       []string `json:"labels,omitempty"`
	TitlePrefix  string   `json:"titlePrefix,omitempty"`
	Base         string   `json:"base,omitempty"`
	Draft        bool     `json:"draft,omitempty"`
	Comments     int      `json:"comments,omitempty"`
}

// Pull is the kind that opens a pull request. The gateway of a run to its repositories keeps its bounds, too.
const Pull = "createPullRequest"

// NotPushed is the error for a pull request of a branch that the run has not pushed.
func NotPushed(head string) error {
	return fmt.Errorf("%s: no run of this automation has pushed a branch %s: push it first", Pull, shown(head))
}

// Allowed is what the agent of a run may ask for: the bounds by the name of the kind.
type Allowed map[string]Bounds

var (
	body    = Field{Name: "body", Type: Text, Required: true, Max: MaxBody, Doc: "The text, in Markdown."}
	title   = Field{Name: "title", Type: Text, Required: true, Max: maxName, Doc: "The title, in one line."}
	most    = Bound{Name: "max", Type: Count, Default: 1, Doc: "How many the agent of a run may ask for."}
	prefix  = Bound{Name: "titlePrefix", Type: Text, Doc: "What each title begins with."}
	adds    = Bound{Name: "labels", Type: Texts, Doc: "Labels that the server adds."}
	allowed = Bound{Name: "allowed", Type: Texts, Required: true}
)

func (b Bound) with(doc string) Bound { b.Doc = doc; return b }

func (f Field) with(doc string) Field { f.Doc = doc; return f }

// Kinds are all kinds, in the order in which they are documented.
var Kinds = []*Kind{
	{
		Name: "comment", On: onThread, Doc: "Comments on what the event is about.",
		Bounds: []Bound{most}, Fields: []Field{body},
		Needs: map[string]string{
			"github": "write access to issues and pull requests", "gitlab": "the scope api and the role Reporter", "linear": "the scope comments:create",
			"jira": "Add comments", "azure_devops": "work items (write) and pull request threads", "slack": "the scope chat:write",
		},
	},
	{
		Name: "addLabels", On: onItem, Doc: "Adds labels to the issue or pull request that the event is about.",
		Bounds: []Bound{allowed.with("The labels that the agent may add."), {Name: "max", Type: Count, Default: 3, Doc: "How many labels the agent of a run may add."}},
		Fields: []Field{{Name: "labels", Type: Texts, Required: true, Max: maxName, Of: "allowed", Doc: "The labels to add."}},
		Needs:  map[string]string{"github": "write access to issues and pull requests", "gitlab": "the scope api and the role Reporter", "jira": "Edit issues"},
	},
	{
		Name: "removeLabels", On: onItem, Doc: "Removes labels from the issue or pull request that the event is about.",
		Bounds: []Bound{allowed.with("The labels that the agent may remove."), {Name: "max", Type: Count, Default: 3, Doc: "How many labels the agent of a run may remove."}},
		Fields: []Field{{Name: "labels", Type: Texts, Required: true, Max: maxName, Of: "allowed", Doc: "The labels to remove."}},
		Needs:  map[string]string{"github": "write access to issues and pull requests", "gitlab": "the scope api and the role Reporter", "jira": "Edit issues"},
	},
	{
		Name: "assign", On: onItem, Doc: "Assigns people to the issue or pull request that the event is about.",
		Bounds: []Bound{allowed.with("The logins of the people whom the agent may assign."), {Name: "max", Type: Count, Default: 3, Doc: "How many people the agent of a run may assign."}},
		Fields: []Field{{Name: "assignees", Type: Texts, Required: true, Max: maxName, Of: "allowed", Doc: "The logins to assign."}},
		Needs:  map[string]string{"github": "write access to issues and pull requests"},
	},
	{
		Name: "close", On: onItem, Doc: "Closes the issue or pull request that the event is about.",
		Needs: map[string]string{"github": "write access to issues and pull requests", "gitlab": "the scope api and the role Reporter"},
	},
	{
		Name: "createIssue", Doc: "Opens an issue.",
		Bounds: []Bound{most, prefix, adds, {Name: "repositories", Type: Texts, Doc: "Repositories besides the event's own in which the agent may open issues: OWNER/NAME."}},
		Fields: []Field{title, body, {Name: "repository", Type: Text, Max: maxName, Of: "repositories", Doc: "The repository, OWNER/NAME; without it, the event's own."}},
		Needs:  map[string]string{"github": "write access to issues", "gitlab": "the scope api and the role Reporter"},
	},
	{
		Name: Pull, Doc: "Opens a pull request for a branch that this run has pushed.",
		Bounds: []Bound{
			most, prefix, adds,
			{Name: "draft", Type: Flag, Doc: "The pull requests are drafts."},
			{Name: "base", Type: Text, Doc: "The branch into which each goes; without it, the default branch or the one that the agent names."},
		},
		Fields: []Field{
			title, body,
			{Name: "head", Type: Branch, Required: true, Max: maxName, Doc: "The branch that was pushed."},
			{Name: "base", Type: Branch, Max: maxName, Doc: "The branch into which it goes; without it, the default branch."},
		},
		Needs: map[string]string{"github": "write access to pull requests", "gitlab": "the scope api and the role Developer"},
	},
	{
		Name: "review", On: onPull, Doc: "Reviews the pull request that the event is about with comments. It never approves.",
		Bounds: []Bound{most, {Name: "comments", Type: Count, Default: 20, Doc: "How many comments on lines a review has at most."}},
		Fields: []Field{body.with("What the review says in all, in Markdown."), {Name: "comments", Type: Remarks, Max: MaxBody, Doc: "Comments on lines of the new code."}},
		Needs:  map[string]string{"github": "write access to pull requests"},
	},
	{
		Name: "message", Doc: "Sends a message to a channel.",
		Bounds: []Bound{{Name: "channels", Type: Texts, Required: true, Doc: "The identifiers of the channels."}, most},
		Fields: []Field{{Name: "channel", Type: Text, Required: true, Max: maxName, Of: "channels", Doc: "The identifier of the channel."}, body},
		Needs:  map[string]string{"slack": "the scope chat:write; the app must be in the channel"},
	},
	{
		Name: "setState", On: onItem, Doc: "Moves the issue that the event is about to another state.",
		Bounds: []Bound{allowed.with("The names of the states to which the agent may move it.")},
		Fields: []Field{{Name: "state", Type: Text, Required: true, Max: maxName, Of: "allowed", Doc: "The name of the state."}},
		Needs:  map[string]string{"linear": "the scope write", "jira": "Transition issues"},
	},
	{
		Name: Ask, On: onThread, Doc: "Asks a person a question, and ends the run with it. The reply starts the next run of the conversation.",
		Bounds: []Bound{{Name: "max", Type: Count, Default: 1, Most: 1, Doc: "How many questions a run may ask: one, which ends it."}},
		Fields: []Field{{Name: "question", Type: Text, Required: true, Max: MaxQuestion, Doc: "The question, in Markdown. Say all that the person needs to know to answer it."}},
		Needs: map[string]string{
			"github": "write access to issues and pull requests", "gitlab": "the scope api and the role Reporter", "linear": "the scope comments:create",
			"jira": "Add comments", "azure_devops": "work items (write) and pull request threads", "slack": "the scope chat:write",
			"teams": "the id and secret of a bot in the team",
		},
	},
}

// ByName finds a kind; nil: there is none of this name.
func ByName(name string) *Kind {
	for _, k := range Kinds {
		if k.Name == name {
			return k
		}
	}
	return nil
}

// list is the list of a bound that a field's Of names.
func (b Bounds) list(name string) []string {
	return map[string][]string{"allowed": b.Allowed, "repositories": b.Repositories, "channels": b.Channels}[name]
}

// most is how many requests of a kind, or values of its list, a run may make.
func (k *Kind) most(b Bounds) int {
	for _, bound := range k.Bounds {
		if bound.Name == "max" {
			if b.Max > 0 {
				return b.Max
			}
			return bound.Default
		}
	}
	return 1
}

// Wider tells whether bounds allow something that other bounds do not.
func (k *Kind) Wider(is, was Bounds) bool {
	for _, b := range k.Bounds {
		if b.Type == Texts && b.Name != "labels" && slices.ContainsFunc(is.list(b.Name), func(v string) bool { return !slices.Contains(was.list(b.Name), v) }) {
			return true
		}
	}
	return k.most(is) > k.most(was) || k.remarks(is) > k.remarks(was) || was.Draft && !is.Draft || was.Base != "" && is.Base != was.Base ||
		!strings.HasPrefix(is.TitlePrefix, was.TitlePrefix)
}

// remarks is how many comments on lines a review may have.
func (k *Kind) remarks(b Bounds) int {
	if b.Comments > 0 {
		return b.Comments
	}
	for _, bound := range k.Bounds {
		if bound.Name == "comments" {
			return bound.Default
		}
	}
	return 0
}

// Parse reads a request. Its error says to the agent what is wrong.
func Parse(data []byte) (r Request, err error) {
	if len(data) > MaxBytes {
		return r, fmt.Errorf("the request has %d bytes: a request has at most %d", len(data), MaxBytes)
	}
	if !utf8.Valid(data) {
		return r, errors.New("the request is not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return r, fmt.Errorf("the request is no JSON object of the known fields: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return r, errors.New("something follows the JSON object of the request: write each request to a file of its own")
	}
	return r, nil
}

// JSON is a request as it is kept: HTML in it is not escaped, so it is about as long as what was asked.
func (r Request) JSON() string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(r) // texts always encode
	return strings.TrimSuffix(b.String(), "\n")
}

// Check tells whether the agent may make a request after those that it has made. Its error says
// what is wrong, and what the agent may do instead.
func (a Allowed) Check(r Request, made []Request) error {
	k := ByName(r.Kind)
	b, may := a[r.Kind]
	switch {
	case r.Kind == "":
		return fmt.Errorf("the request has no kind: name %s", a.names())
	case r.Push != nil:
		return errors.New("the request has no push: push with Git")
	case k == nil || !may:
		return fmt.Errorf("the automation allows no %s: it allows %s", shown(r.Kind), a.names())
	case len(made) >= MaxRequests:
		return fmt.Errorf("this run has made %d requests, which is the most", MaxRequests)
	}
	if err := k.fields(r, b); err != nil {
		return fmt.Errorf("%s: %w", k.Name, err)
	}
	if n := len(r.JSON()); n > MaxBytes {
		return fmt.Errorf("%s: the request has %d bytes as JSON: a request has at most %d", k.Name, n, MaxBytes)
	}
	before := 0
	if slices.ContainsFunc(made, func(m Request) bool { return m.Kind == Ask }) {
		return errors.New("this run has asked a question, and asks for nothing else: end your turn, and the reply starts the next run")
	}
	for _, m := range made {
		if m.Kind == r.Kind {
			before += m.count()
		}
	}
	if most := k.most(b); before+r.count() > most {
		return fmt.Errorf("%s: the automation allows %d in a run, and %d came before", k.Name, most, before)
	}
	return nil
}

// count is what a request counts for the bound max: labels and people count one by one.
func (r Request) count() int { return max(1, len(r.Labels)+len(r.Assignees)) }

func (a Allowed) names() string {
	var names []string
	for _, k := range Kinds {
		if _, may := a[k.Name]; may {
			names = append(names, k.Name)
		}
	}
	if len(names) == 0 {
		return "nothing"
	}
	return strings.Join(names, ", ")
}

// values are the fields of a request that have a value.
func (r Request) values() map[string][]string {
	all := make(map[string][]string)
	for name, value := range map[string]string{"title": r.Title, "body": r.Body, "repository": r.Repository, "head": r.Head, "base": r.Base, "channel": r.Channel, "state": r.State, "question": r.Question} {
		if value != "" {
			all[name] = []string{value}
		}
	}
	for name, list := range map[string][]string{"labels": r.Labels, "assignees": r.Assignees} {
		if len(list) > 0 {
			all[name] = list
		}
	}
	for _, m := range r.Comments {
		all["comments"] = append(all["comments"], m.Body)
	}
	return all
}

func (k *Kind) fields(r Request, b Bounds) error {
	values := r.values()
	for _, f := range k.Fields {
		list := values[f.Name]
		delete(values, f.Name)
		if len(list) == 0 && f.Required {
			return fmt.Errorf("%s is missing", f.Name)
		}
		if err := f.check(list, b); err != nil {
			return err
		}
	}
	for name := range values {
		return fmt.Errorf("it has no %s", name)
	}
	if most := k.remarks(b); len(r.Comments) > most {
		return fmt.Errorf("it has %d comments on lines: the automation allows %d", len(r.Comments), most)
	}
	for _, m := range r.Comments {
		if m.Path == "" || len(m.Path) > 4096 || m.Line < 1 || strings.TrimSpace(m.Body) == "" {
			return errors.New("each of comments needs a path, a line from 1 and a body")
		}
	}
	return nil
}

func (f Field) check(list []string, b Bounds) error {
	if len(list) > maxList {
		return fmt.Errorf("%s has %d entries: at most %d may stand there", f.Name, len(list), maxList)
	}
	for _, value := range list {
		switch {
		case strings.TrimSpace(value) == "":
			return fmt.Errorf("%s is empty", f.Name)
		case len(value) > f.Max:
			return fmt.Errorf("%s has %d bytes: it may have %d", f.Name, len(value), f.Max)
		case f.Max == maxName && strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f }):
			return fmt.Errorf("%s has more than one line", f.Name)
		case f.Type == Branch && !branchName().MatchString(value):
			return fmt.Errorf("%s is no name of a branch of the repository: %s", f.Name, shown(value))
		case f.Of != "" && !slices.Contains(b.list(f.Of), value): // byte for byte: what only looks alike is something else
			return fmt.Errorf("%s may not be %s: the automation allows %s", f.Name, shown(value), listed(b.list(f.Of)))
		}
	}
	return nil
}

// branchName matches names of branches that are nothing else for a forge: OWNER:BRANCH is a branch of a fork.
var branchName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[\pL\pN_][\pL\pN_./+#@=-]*$`) })

// Unpointed is a text in which nothing mentions somebody or names an issue for a forge, not even in the message of a
// commit: a joiner of words that nobody sees stands where a name, a number or an address begins.
func Unpointed(text string) string { return pointing.ReplaceAllString(text, "$1\u2060") }

var pointing = regexp.MustCompile(`([@#!]|://|\b(?:[gG][hH]|[A-Z][A-Z0-9_]+)-)\b`)

func listed(values []string) string {
	if len(values) == 0 {
		return "none"
	}
	return strings.Join(values, ", ")
}

// shown is a value that an agent has said, in quotes and cut.
func shown(value string) string {
	const most = 60
	if runes := []rune(value); len(runes) > most {
		value = string(runes[:most]) + "…"
	}
	return fmt.Sprintf("%+q", value)
}

// Text is what a request asks for, as people read it; empty: its kind says all.
func (r Request) Text() string {
	switch {
	case r.Push != nil:
		return strings.TrimSuffix(r.Push.Name()+" ("+r.Push.Change()+"): "+strings.Join(r.Push.Subjects, "; "), ": ")
	case len(r.Labels)+len(r.Assignees) > 0:
		return strings.Join(append(r.Labels, r.Assignees...), ", ")
	case r.Head != "":
		return r.Title + " (" + r.Head + ")"
	case len(r.Comments) > 0:
		return fmt.Sprintf("%s (comments on lines: %d)", r.Body, len(r.Comments))
	case r.Title != "":
		return r.Title
	}
	return r.Body + r.State + r.Question
}

// Tool is the JSON Schema of a kind's fields, for the tool of an agent (MCP, inputSchema).
func (k *Kind) Tool(b Bounds) map[string]any {
	properties, required := make(map[string]any), []string{}
	for _, f := range k.Fields {
		one := map[string]any{"type": "string", "maxLength": f.Max} // a character has a byte at least
		if values := b.list(f.Of); f.Of != "" {
			one = map[string]any{"type": "string", "enum": values}
			if len(values) == 0 {
				continue
			}
		}
		s := map[string]any{"description": f.Doc}
		switch f.Type {
		case Texts:
			s["type"], s["items"] = "array", one
		case Remarks:
			s["type"], s["maxItems"] = "array", k.remarks(b)
			s["items"] = map[string]any{
				"type": "object", "required": []string{"path", "line", "body"}, "additionalProperties": false,
				"properties": map[string]any{"path": map[string]any{"type": "string"}, "line": map[string]any{"type": "integer", "minimum": 1}, "body": one},
			}
		default:
			for key, value := range one {
				s[key] = value
			}
		}
		properties[f.Name] = s
		if f.Required {
			required = append(required, f.Name)
		}
	}
	return map[string]any{"type": "object", "properties": properties, "required": required, "additionalProperties": false}
}

// Describe is what the tool of a kind says to an agent.
func (k *Kind) Describe(b Bounds) string {
	if k.Name == Ask {
		return k.Doc + " Call it only if you cannot go on without the answer, and then end your turn. Whatever else this run has asked the server for is discarded."
	}
	return fmt.Sprintf("%s The server does it after this run has succeeded, not now. At most %d in this run.", k.Doc, k.most(b))
}
