package run

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Kinds of events. Each has one type for its data.
const (
	KindStatus    = "status"    // Status
	KindMessage   = "message"   // Message
	KindCommand   = "command"   // Command
	KindTool      = "tool"      // Tool
	KindOutput    = "output"    // Output
	KindFile      = "file"      // File
	KindUsage     = "usage"     // Usage
	KindExit      = "exit"      // Ended
	KindStarted   = "started"   // AgentStarted
	KindTruncated = "truncated" // Truncated
)

// Event is one entry of a transcript before it is numbered, redacted and stored.
type Event interface {
	// Kind is one of the Kind constants.
	Kind() string
	// redacted returns the event with hide applied to every text.
	redacted(hide func(string) string) Event
}

// decoders read the stored form of each kind.
var decoders = map[string]func([]byte) (Event, error){
	KindStatus: decode[Status], KindMessage: decode[Message], KindCommand: decode[Command], KindTool: decode[Tool], KindOutput: decode[Output],
	KindFile: decode[File], KindUsage: decode[Usage], KindExit: decode[Ended], KindStarted: decode[AgentStarted], KindTruncated: decode[Truncated],
}

// Decode reads an event from its stored form, which is also that of the API. It
// fails for a kind that this program does not know, such as a newer server's.
func Decode(kind string, data []byte) (Event, error) {
	if known := decoders[kind]; known != nil {
		return known(data)
	}
	return nil, fmt.Errorf("a transcript has an event of the unknown kind %q", kind)
}

func decode[E Event](data []byte) (Event, error) {
	var e E
	if err := json.Unmarshal(data, &e); err != nil {
		return nil, fmt.Errorf("the event %s: %w", e.Kind(), err)
	}
	return e, nil
}

// Status tells what happens to the run.
type Status struct {
	State   string `json:"state,omitempty"` // of the run, where it changed
	Message string `json:"message,omitempty"`
}

// Message is what somebody said in the conversation with the model.
type Message struct {
	Role string `json:"role"` // assistant, reasoning, user, system
	Text string `json:"text"`
}

// Command is a command that ended.
type Command struct {
	Phase    string `json:"phase"` // clone, setup or agent
	Command  string `json:"command"`
	ExitCode *int   `json:"exit_code,omitempty"` // nil if the harness does not tell
	Signal   string `json:"signal,omitempty"`
	Failed   bool   `json:"failed,omitempty"`
	Output   string `json:"output,omitempty"` // of the agent's commands; output of other commands is streamed
}

// Tool is another use of a tool by the agent.
type Tool struct {
	Name   string `json:"name"`
	Input  string `json:"input,omitempty"` // JSON
	Output string `json:"output,omitempty"`
	Failed bool   `json:"failed,omitempty"`
}

// Output is text that a process printed.
type Output struct {
	Stream string `json:"stream"` // stdout or stderr
	Text   string `json:"text"`
}

// What happened to a File.
const (
	FileCreated  = "created"
	FileModified = "modified"
	FileDeleted  = "deleted"
)

// File is a file of the workspace that the agent changed. It is found by comparing the
// workspace, whatever the agent reports (SPEC 9.5).
type File struct {
	Path    string `json:"path"`
	Change  string `json:"change"`
	Size    int64  `json:"size"`           // bytes after the change
	Diff    string `json:"diff,omitempty"` // unified
	Omitted string `json:"diff_omitted,omitempty"`
}

// Usage is what a harness says it used. Zero fields are not known.
type Usage struct {
	Model        string  `json:"model,omitempty"`
	InputTokens  int64   `json:"input_tokens,omitempty"`
	CachedTokens int64   `json:"cached_tokens,omitempty"`
	OutputTokens int64   `json:"output_tokens,omitempty"`
	CostUSD      float64 `json:"cost_usd,omitempty"`
	Turns        int64   `json:"turns,omitempty"`
}

// Ended is how the agent's process ended.
type Ended struct {
	ExitCode int    `json:"exit_code"`
	Signal   string `json:"signal,omitempty"`
	Stopped  bool   `json:"stopped,omitempty"`
}

// AgentStarted tells that setup is over. From here on, standard output is the agent's,
// which the parser of a harness may have to read.
type AgentStarted struct {
	Command string `json:"command"`
}

// Truncated marks a place where events are left out, because the transcript reached its
// limit, or because the store could not take more when the run ended.
type Truncated struct {
	Limit   int    `json:"limit_bytes"`
	Message string `json:"message"`
	Bytes   int64  `json:"left_out_bytes"`
	Events  int64  `json:"left_out_events"`
}

// Kind implements Event.
func (Status) Kind() string { return KindStatus }

// Kind implements Event.
func (Message) Kind() string { return KindMessage }

// Kind implements Event.
func (Command) Kind() string { return KindCommand }

// Kind implements Event.
func (Tool) Kind() string { return KindTool }

// Kind implements Event.
func (Output) Kind() string { return KindOutput }

// Kind implements Event.
func (File) Kind() string { return KindFile }

// Kind implements Event.
func (Usage) Kind() string { return KindUsage }

// Kind implements Event.
func (Ended) Kind() string { return KindExit }

// Kind implements Event.
func (AgentStarted) Kind() string { return KindStarted }

// Kind implements Event.
func (Truncated) Kind() string { return KindTruncated }

func (e Status) redacted(hide func(string) string) Event {
	e.Message = hide(e.Message)
	return e
}

func (e Message) redacted(hide func(string) string) Event {
	e.Text = clip(hide(e.Text))
	return e
}

func (e Command) redacted(hide func(string) string) Event {
	e.Command, e.Output = clip(hide(e.Command)), clip(hide(e.Output))
	return e
}

func (e Tool) redacted(hide func(string) string) Event {
	e.Name, e.Input, e.Output = hide(e.Name), clip(hide(e.Input)), clip(hide(e.Output))
	return e
}

func (e Output) redacted(hide func(string) string) Event {
	e.Text = hide(e.Text)
	return e
}

func (e File) redacted(hide func(string) string) Event {
	e.Path, e.Diff = hide(e.Path), hide(e.Diff)
	return e
}

func (e Usage) redacted(hide func(string) string) Event {
	e.Model = hide(e.Model)
	return e
}

func (e AgentStarted) redacted(hide func(string) string) Event {
	e.Command = clip(hide(e.Command))
	return e
}

func (e Ended) redacted(func(string) string) Event     { return e }
func (e Truncated) redacted(func(string) string) Event { return e }

// maxText bounds one text of one event, in bytes.
const maxText = 64 << 10

// clip keeps the head and the tail of a long text: the cause of a failure is
// usually at one of them.
func clip(s string) string {
	if len(s) <= maxText {
		return s
	}
	head, tail := s[:maxText/2], s[len(s)-maxText/2:]
	for !utf8.RuneStart(tail[0]) && len(tail) > maxText/2-utf8.UTFMax {
		tail = tail[1:]
	}
	head = strings.ToValidUTF8(head, "")
	return fmt.Sprintf("%s\n… %d bytes left out …\n%s", head, len(s)-len(head)-len(tail), tail)
}
