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

// Executor executes tasks. Only its implementations differ between a process, a
// container and a cluster.
type Executor interface {
	// Preflight returns why this executor cannot do what the task demands, in
	// words for whoever wrote the definition.
	Preflight(t *Task) error

	// Start executes the task and blocks until none of its processes is left. When ctx
	// ends, it stops the agent: first with SIGINT, then with SIGKILL. Events go to the
	// sink in order, from several goroutines; AgentStarted comes before the agent's own
	// output. An error means that the agent did not run to its end, and is for the user.
	// It is the context's cause if that was the reason.
	Start(ctx context.Context, t *Task, sink func(Event)) (Exit, error)

	// Reap stops every process of the run that a dead server left.
	Reap(ctx context.Context, runID string) error

	// Sweep removes the files of runs that ended longer than age ago.
	Sweep(ctx context.Context, age time.Duration) error

	// Reclaim removes the files of ended runs, the oldest first, until enough says that
	// there is space. It returns the number of runs.
	Reclaim(ctx context.Context, enough func() bool) (int, error)

	// Size is how much of the disk a run in progress takes, in bytes and in files.
	Size(ctx context.Context, runID string) (bytes, files int64)
}

// The reasons for which the manager ends a task's context, as its context.Cause.
var (
	ErrCancelled = errors.New("the run was cancelled")
	ErrTimeout   = errors.New("the run took longer than it may")
	ErrIdle      = errors.New("the agent was silent for longer than it may be")
	ErrStopped   = errors.New("the server was stopped while this run was in progress")
	ErrDisk      = errors.New("the run filled the disk, and was stopped")
	errLost      = errors.New("the run belongs to another worker now")
)
