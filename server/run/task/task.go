// Package task has the types between a worker and an executor: what the worker asks for, and
// what it gets back. Executors and the code inside a run know nothing else about a run: no
// definitions and no store.
package task

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"triphammer/schema/frontmatter"
	"triphammer/schema/output"
	"triphammer/server/run/event"
	"triphammer/server/secret"
)

// Task is one attempt to execute a run, as an Executor gets it.
type Task struct {
	RunID   string
	Attempt int64

	// Workspace names the workspace. Runs of one conversation share a workspace. Empty
	// means RunID.
	Workspace string
	// Resume keeps the workspace and the home of an earlier run with the same Workspace,
	// and skips the repositories and the setup. If the workspace is gone, the attempt fails
	// with ErrNoWorkspace.
	Resume bool
	// Adopted tells that another worker has begun the attempt. Start does not begin it again:
	// it fails if nothing of the attempt is found.
	Adopted bool
	Timeout time.Duration // the worker stops the attempt after this time; 0: it does not

	Prompt      string       // complete, but for the text of Skills, which comes before it
	Skills      []AskedSkill // in the repositories
	Attachments []Attachment

	Vars    map[string]string       // variables that name the run, its cause and its factory
	Env     map[string]string       // plain values that the environment sets
	Secrets map[string]secret.Value // granted secrets, by the name of their variable
	Files   []File                  // settings of the harness, skills and the like

	Repositories []Repository
	Factory      string // the run's; what a worker keeps of the repositories serves no other factory (SPEC 15.10)
	// Pushes are what the run may push to those of its repositories that have a credential.
	Pushes Pushes
	// Credentials are secrets of the repositories, of the model and of services, by their names.
	// Only Start of package run puts one inside the walls: that of a model that no gateway carries.
	Credentials map[string]secret.Value
	// Mint makes the credential of a repository whose Secret is not in Credentials (SPEC 24.2).
	// It may be called at any time until the attempt has ended, and from several goroutines.
	Mint func(context.Context, Repository) (Minted, error)

	// Services are what the run reaches by its gateway, which adds their credentials (SPEC 25).
	Services []Service
	// Meter counts the requests to models among them, and holds them to the budgets; nil: nobody does.
	Meter Meter
	// Grants replace the Meter in a pod; nil: nobody counts there.
	Grants Grants

	// Outputs are what the agent may ask the server to do (SPEC 23); empty: nothing.
	Outputs output.Allowed

	Setup   []string // shell commands, before the agent
	Cache   *Cache   // what the setup keeps for later runs; nil: nothing
	Command []string // starts the agent; the prompt is on its standard input
	Program string   // the program that the harness starts with Command; empty: there is no harness

	Network     Network
	Limits      Limits
	Isolation   string // the weakest isolation that the environment accepts; empty: any
	DockerImage string

	// Foreign tells that the run works on code of another repository than the event's (SPEC 21.7). Its
	// setup commands get no secrets, and the files of Instructions are those of the base.
	Foreign bool
	// Instructions are the names of the files and folders of a repository that instruct agents, in any of
	// its folders, without regard to case.
	Instructions []string

	// TrustRepositorySettings makes the agent settings in the cloned repositories act (SPEC 14.8).
	TrustRepositorySettings bool

	// Lease tells until when the attempt may go on. The time moves as the lease of the run is
	// renewed. After it, no process of the attempt may be alive, even if this worker cannot
	// act: another worker may start the next attempt (SPEC 17.4). nil: there is no other worker.
	Lease func() time.Time
}

// Cache is what the setup commands of an environment keep for its later runs (SPEC 15.9).
type Cache struct {
	Scope string   // the factory and the environment, which nobody else shares it with
	Paths []string // below the agent's working directory, or with ~/ below its home
	Files []string // patterns of lock files below the working directory; the cache is of their content
}

// AskedSkill is a skill that a run must work by. If the definitions have the skill, the
// run's prompt has its text. If a repository has it, it is read after the clone.
type AskedSkill struct {
	Name string `json:"name"`
	Path string `json:"path"` // its file or folder, from the root of the repository or of the definitions; or its name

	Repository string `json:"repository,omitempty"` // OWNER/NAME; empty: the definitions
	Clone      int    `json:"clone,omitempty"`      // index of Repository among the run's repositories
}

// SkillPrompt tells an agent, in its prompt, to work by a skill. text is the SKILL.md of the skill.
func SkillPrompt(name string, text []byte) string {
	return fmt.Sprintf("Work by the skill %s:\n\n%s", name, strings.TrimSpace(frontmatter.Body(text)))
}

// ThisProgram is the word that, at the beginning of a command, means this program (SPEC 11).
const ThisProgram = "triphammer"

// OutputsURL stands for the address of the tools with which an agent asks the server to do something.
// The address is known only within the walls. OutputsToken is the variable with the token for it.
const (
	OutputsURL   = "http://outputs.triphammer.invalid/"
	OutputsToken = "TRIPHAMMER_OUTPUTS_TOKEN"
)

// GatewayURL stands for the address of the run's gateway, which only the executor knows. See Service.Address.
const GatewayURL = "http://gateway.triphammer.invalid"

// Service is an HTTP service that a run reaches by its gateway: the API of a model, a server of the
// Model Context Protocol, or another.
type Service struct {
	Name   string `json:"name"`             // unique in the task, and a part of Address; for people, too
	Token  string `json:"token"`            // a part of Address: who has it may use the service until the run ends
	URL    string `json:"url"`              // https, or http; its query is added to each request
	Secret string `json:"secret,omitempty"` // name of the secret in Header, for messages; empty: it is a variable of the worker
	// Header is what the gateway adds to each request, in place of what the run sends.
	Header map[string]secret.Value `json:"-"`

	Methods []string `json:"methods,omitempty"`
	// Paths are the paths below URL that the run may ask for. They begin with a slash, except that the
	// empty path is URL itself. * stands for a part of a path without a slash, and ** at the end for the rest.
	Paths []string `json:"paths,omitempty"`

	// Provider is the name of the provider whose models this is; empty: it is no model. Then Methods and
	// Paths are not used: the run may send what is for an answer of a model, and with Extras also what
	// package wire says of that.
	Provider string `json:"provider,omitempty"`
	Extras   bool   `json:"extras,omitempty"`
	// Models are lists of the models that the run may use; each list must have the model. * stands for any text.
	Models [][]string `json:"models,omitempty"`
}

// Address is the address of the service for a run, until the executor replaces GatewayURL.
func (s *Service) Address() string { return GatewayURL + ServicePath + s.Name + "/" + s.Token }

// ServicePath begins the paths of services on a gateway.
const ServicePath = "/-/"

// File is a file that an attempt finds in its home before the agent starts.
type File struct {
	Path string // below the home, with slashes
	Data []byte
	Mode uint32 // permissions; 0 means 0600
}

// Cluster is the isolation of runs in a cluster. Their attempts outlive their worker.
const Cluster = "kubernetes"

// Network is what a run may reach (SPEC 14.5).
type Network struct {
	On    bool // every host; a zero Network is the server's default
	Off   bool
	Hosts []string // the only hosts, if not empty: NAME, *.NAME or ADDRESS, with :PORT unless it is 443
}

// Limited tells whether some hosts are out of a run's reach.
func (n Network) Limited() bool { return n.Off || len(n.Hosts) > 0 }

// Or is the network, or other if the network is zero.
func (n Network) Or(other Network) Network {
	if n.On || n.Limited() {
		return n
	}
	return other
}

// Limits bound what a run may use (SPEC 14.6). Zero fields are the server's defaults.
type Limits struct {
	Memory    int64   // bytes
	CPUs      float64 // such as 1.5
	Processes int64
	Disk      int64 // bytes in the workspace, home and temporary folder
	Output    int64 // bytes that the agent prints
}

// Repository is a repository that the workspace holds.
type Repository struct {
	URL      string `json:"url"`
	Ref      string `json:"ref,omitempty"`    // empty: the branch that the repository names
	Path     string `json:"path,omitempty"`   // in the workspace; empty: the last part of the URL
	Secret   string `json:"secret,omitempty"` // name of the credential in Task.Credentials
	ReadOnly bool   `json:"read_only,omitempty"`

	Head *Head `json:"head,omitempty"` // what is checked out in place of Ref; nil: Ref
}

// PullBranch is the branch of the repository whose pull request the event of the run is about;
// empty: there is none.
func (r Repository) PullBranch() string {
	if r.Head == nil || r.Head.Foreign || r.Head.Base == "" {
		return ""
	}
	return r.Head.Branch
}

// ShownURL is the address of a repository without its user, who may be a token.
func ShownURL(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.User == nil {
		return address
	}
	u.User = nil
	return u.String()
}

// Head is the code that the event of a run is about (SPEC 21.7).
type Head struct {
	What    string `json:"what"`             // for people, such as pull request 12
	Fetch   string `json:"fetch"`            // a commit, or a ref such as refs/pull/12/head
	Branch  string `json:"branch,omitempty"` // the repository's own branch of the head; empty: no branch is made
	Base    string `json:"base,omitempty"`   // the branch that is there as origin/BASE; empty: only the head is fetched, and of a foreign head the default branch, as origin/HEAD
	Foreign bool   `json:"foreign,omitempty"`
}

// Minted is a credential that ends while a run goes on.
type Minted struct {
	Token  secret.Value
	Renew  time.Time // from then on Mint makes another one
	Forget func()    // makes Mint make another one: a forge does not take this one any more. nil: nobody can
}

// Mints tells whether the credential of a repository is minted.
func (t *Task) Mints(r Repository) bool {
	_, fixed := t.Credentials[r.Secret]
	return r.Secret != "" && !fixed && t.Mint != nil
}

// Pushes are the rules for what a run pushes (SPEC 23.3). Patterns match whole names of
// branches and tags; * in a pattern stands for any text.
type Pushes struct {
	Branches []string `json:"branches,omitempty"` // EventBranch among them stands for another branch
	Tags     []string `json:"tags,omitempty"`
	Max      int      `json:"max,omitempty"`       // branches and tags of an attempt
	MaxBytes int64    `json:"max_bytes,omitempty"` // in all pushes of an attempt

	// Earlier are pushes of runs of the same automation, whose values the run may replace.
	Earlier []event.Push `json:"earlier,omitempty"`

	// Outputs are those of the automation; pull requests obey them (SPEC 23.3). nil: it has no outputs, and any pull
	// request may be opened.
	Outputs output.Allowed   `json:"outputs,omitempty"`
	Opened  []output.Request `json:"opened,omitempty"` // pull requests of earlier attempts of the run
	Into    string           `json:"into,omitempty"`   // the repository in which the server opens what the agent asks for, such as acme/app

	// Waits is for how long what leaves the run waits for a person; 0: it does not. Then Stage keeps the pack of
	// a push, until its content ends with an error or without (SPEC 23.3).
	Waits time.Duration                                                  `json:"waits,omitempty"`
	Stage func(context.Context, io.Reader) (kept output.Pack, err error) `json:"-"`
}

// EventBranch among Pushes.Branches stands for Repository.PullBranch, as factory.RefEvent does.
const EventBranch = "event"

// Attachment is a file given to the agent.
type Attachment struct {
	Name string `json:"name"` // a plain file name
	Data []byte `json:"data"`
}

// Exit is how an agent ended.
type Exit struct {
	Code    int    // exit status; -1 if a signal ended it
	Signal  string // name of that signal, such as "SIGKILL"
	Stopped bool   // the agent ended because the context did
}

// Sink takes what an attempt produces. Its methods may be called from several goroutines.
type Sink interface {
	// Add takes an event of the transcript.
	Add(e event.Event)
	// Keep takes an artifact with its content, and adds its event. It may read only a part of
	// the content. The content of a link is empty.
	Keep(a event.Artifact, content io.Reader) error
}

// Place is where and how an executor executes a task.
type Place struct {
	Isolation string   // the walls around the run
	Elsewhere bool     // the programs are not on the server's machine, but for example in an image
	Warnings  []string // parts of the task that do not act, described for the definition's author

	Image string // the image with the programs; empty: there is none, or it is not known
	// Lacks returns which of the programs a run in the Image is known not to find. If here is
	// false, the image is not on this machine, and lacking are the programs that the image
	// itself must hold. nil: nobody can know.
	Lacks func(programs []string) (lacking []string, here bool)
}

// Executor executes tasks. Only its implementations differ between a process, a
// container and a cluster.
type Executor interface {
	// Isolation names the walls around the runs. The name is empty while no walls can be put
	// up; lacking says why.
	Isolation() (name string, lacking []error)

	// Preflight returns where this executor would execute the task. The error says, for the
	// definition's author, why the executor cannot do what the task demands.
	Preflight(t *Task) (Place, error)

	// Start executes the task and blocks until none of its processes is left. Run and number
	// name an attempt: an attempt in progress is not started again. When ctx ends, Start stops
	// the agent, first with SIGINT, then with SIGKILL. Events go to the sink in order, from
	// several goroutines; AgentStarted comes before the agent's own output.
	//
	// An error means that the agent did not run to its end, and is for the user. It is the
	// context's cause if that was the reason, and a *FinalError if every other attempt would
	// fail alike.
	Start(ctx context.Context, t *Task, sink Sink) (Exit, error)

	// Reap stops everything of the run that a dead worker left, on this machine or elsewhere.
	// Nothing can go on with it: an attempt ends with its worker, unless the executor is
	// Outliving.
	Reap(ctx context.Context, runID string) error

	// Sweep removes the expired workspaces that no run in progress uses. ended is when a
	// workspace was last in use. Sweep also removes other things of this executor, such as
	// containers, that no attempt in progress owns.
	Sweep(ctx context.Context, expired func(workspace string, ended time.Time) bool) error

	// Workspace is the folder of a workspace, if it is there.
	Workspace(name string) (path string, ok bool)

	// Reclaim removes workspaces that no run in progress uses and that may allows to remove,
	// the oldest first, until enough says that there is space. It returns their number.
	Reclaim(ctx context.Context, enough func() bool, may func(workspace string) bool) (int, error)

	// Size is how much of the disk a run in progress takes, in bytes and in files.
	Size(ctx context.Context, runID string) (bytes, files int64)
}

// Outliving is an Executor whose attempts outlive the worker that has begun them (SPEC 17.5).
// Start returns ErrLeft when the worker lets go of an attempt that goes on. If the task is
// Adopted, Start takes up an attempt that another worker has let go of.
type Outliving interface {
	Executor

	// Outlives tells that attempts outlive their worker.
	Outlives() bool

	// Ended removes everything that is left of an attempt whose end is recorded.
	Ended(ctx context.Context, runID string, attempt int64) error
}

// The reasons why the worker ends a task's context, as its context.Cause.
var (
	ErrCancelled   = errors.New("the run was cancelled")
	ErrTimeout     = errors.New("the run took longer than it may")
	ErrIdle        = errors.New("the agent was silent for longer than it may be")
	ErrStopped     = errors.New("the server was stopped while this run was in progress")
	ErrDisk        = errors.New("the run filled the disk, and was stopped")
	ErrInterrupted = errors.New("the run was interrupted")
	ErrBudget      = errors.New("the run used up its budget")
	ErrLost        = errors.New("the run belongs to another worker now")
)

// FinalError is an error that every further attempt would meet too, until somebody changes a
// definition or the machine. So the run is not tried again.
type FinalError struct{ Err error }

func (e *FinalError) Error() string { return e.Err.Error() }

// Unwrap returns the wrapped error.
func (e *FinalError) Unwrap() error { return e.Err }

// ErrNoWorkspace is the error of an attempt that should go on in a workspace that is gone.
var ErrNoWorkspace = errors.New("the workspace of this conversation was removed: start a new run")

// ErrLeft is the error of Start for an attempt that goes on without this worker.
var ErrLeft = errors.New("the attempt goes on without this worker")

// Leaves tells whether a worker that stops for this cause lets go of an attempt that can
// outlive the worker: the worker is being stopped, or another worker has the attempt.
func Leaves(cause error) bool { return errors.Is(cause, ErrStopped) || errors.Is(cause, ErrLost) }
