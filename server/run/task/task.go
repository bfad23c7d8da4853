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
	// Credentials are the credentials of the repositories, by the names of their secrets. They
	// never get inside the walls.
	Credentials map[string]secret.Value
	// Mint makes the credential of a repository whose Secret is not in Credentials (SPEC 24.2).
	// It may be called at any time until the attempt has ended, and from several goroutines.
	Mint func(context.Context, Repository) (Minted, error)

	Setup   []string // shell commands, before the agent
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
	Token secret.Value
	Renew time.Time // from then on Mint makes another one
}

// Mints tells whether the credential of a repository is minted.
func (t *Task) Mints(r Repository) bool {
	_, fixed := t.Credentials[r.Secret]
	return r.Secret != "" && !fixed && t.Mint != nil
}

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
