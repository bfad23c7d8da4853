package run

import (
	"context"
	"errors"
	"time"

	"triphammer/factory"
	"triphammer/server/secret"
)

// Task is one attempt to execute a run, as an Executor gets it.
type Task struct {
	RunID   string
	Attempt int64

	Prompt      string // complete
	Attachments []Attachment

	Vars    map[string]string       // TRIPHAMMER_* that name the run and its cause
	Env     map[string]string       // plain values that the environment sets
	Secrets map[string]secret.Value // granted ones, by the name of their variable

	Repositories []Repository
	Setup        []string // shell commands, before the agent
	Command      []string // starts the agent; the prompt is on its standard input

	NetworkOff   bool
	NetworkHosts []string
	Isolation    string // the least that the environment accepts; empty: any
	DockerImage  string
}

// Repository is one that the workspace holds.
type Repository = factory.Repository

// Attachment is a file given to the agent.
type Attachment struct {
	Name string `json:"name"` // a plain file name
	Data []byte `json:"data"`
}

// Exit is how an agent ended.
type Exit struct {
	Code    int    // exit status; -1 if a signal ended it
	Signal  string // name of that signal, such as "SIGKILL"
	Stopped bool   // it ended because the context did
}

// Executor executes tasks. It is the one place where runs differ between a
// process, a container and a cluster.
type Executor interface {
	// Preflight returns why this executor cannot do what the task demands, in
	// words for whoever wrote the definition.
	Preflight(t *Task) error

	// Start executes the task and blocks until nothing of it is left running.
	// When ctx ends, it stops the agent: first politely, then for certain. Events
	// go to the sink in order, from several goroutines; AgentStarted comes before the agent's own output.
	// An error means that the agent did not run to an end, in words for the user;
	// it is the context's cause if that was the reason.
	Start(ctx context.Context, t *Task, sink func(Event)) (Exit, error)

	// Reap stops whatever a dead server left running of the run.
	Reap(ctx context.Context, runID string) error

	// Sweep removes what runs left that ended longer than age ago.
	Sweep(ctx context.Context, age time.Duration) error

	// Reclaim removes what runs left that have ended, the oldest first, until enough
	// says that there is room. It returns of how many.
	Reclaim(ctx context.Context, enough func() bool) (int, error)

	// Size is how much of the disk a run in progress takes, in bytes and in files.
	Size(ctx context.Context, runID string) (bytes, files int64)
}

// Why the manager ends a task's context: context.Cause is one of these.
var (
	ErrCancelled = errors.New("the run was cancelled")
	ErrTimeout   = errors.New("the run took longer than it may")
	ErrIdle      = errors.New("the agent was silent for longer than it may be")
	ErrStopped   = errors.New("the server was stopped while this run was in progress")
	ErrDisk      = errors.New("the run filled the disk, and was stopped")
	errLost      = errors.New("the run belongs to another worker now")
)
