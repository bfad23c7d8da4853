// Package event has the events of a run's transcript, which tells in order what happened
// in the run (SPEC 9.5, 15.3).
//
// An executor and the parsers of the harnesses make events. The transcript numbers them,
// hides granted secrets in them and stores them as JSON. The API, the command line and
// the pages read that JSON by [Decode]. A stored event outlives the program that wrote
// it, so fields may only be added.
package event

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

	KindPhase      = "phase"      // Phase
	KindEgress     = "egress"     // Egress
	KindPush       = "push"       // Push
	KindPermission = "permission" // Permission
	KindSession    = "session"    // Session
	KindResult     = "result"     // Result
	KindArtifact   = "artifact"   // Artifact
	KindRequest    = "request"    // Request
)

// Event is one entry of a transcript before it is numbered, redacted and stored. Each Event
// is a flat struct, because Redact looks only at its fields.
type Event interface {
	// Kind is one of the Kind constants.
	Kind() string
}

// decoders read the stored form of each kind.
var decoders = map[string]func([]byte) (Event, error){
	KindStatus: decode[Status], KindMessage: decode[Message], KindCommand: decode[Command], KindTool: decode[Tool], KindOutput: decode[Output],
	KindFile: decode[File], KindUsage: decode[Usage], KindExit: decode[Ended], KindStarted: decode[AgentStarted], KindTruncated: decode[Truncated],
	KindPhase: decode[Phase], KindEgress: decode[Egress], KindPush: decode[Push], KindPermission: decode[Permission], KindSession: decode[Session],
	KindResult: decode[Result], KindArtifact: decode[Artifact], KindRequest: decode[Request],
}

// Decode reads an event from its stored form, which the API uses too. It fails for a kind
// that this program does not know, for example because a newer server wrote it.
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
	State     string `json:"state,omitempty" redact:"never"` // of the run, if the state changed
	Message   string `json:"message,omitempty"`
	Worker    string `json:"worker,omitempty" redact:"never"`    // the worker that started the run: host and process
	Isolation string `json:"isolation,omitempty" redact:"never"` // the walls around the run
	ModelKey  string `json:"model_key,omitempty"`                // whether the key of the model is outside the run or inside, and why
	Head      string `json:"head,omitempty"`                     // what the run is not given, because it works on another repository's code

	// Trouble says why the agent does not reach its model at the moment, and what to do.
	Trouble string `json:"-"`
}

// Message is a text in the conversation with the model.
type Message struct {
	Role string `json:"role" redact:"words"` // assistant, reasoning, user, system
	Text string `json:"text"`
}

// Command is a command that ended, or that the agent has started.
//
// If the harness tells when a command starts, the command is two events with the same ID.
// The first is Started. The second repeats the command.
type Command struct {
	ID         string `json:"id,omitempty"`         // the harness's id, unique in a run; empty: there is only this event
	Phase      string `json:"phase" redact:"words"` // clone, setup or agent
	Command    string `json:"command"`
	Dir        string `json:"dir,omitempty"`       // the working directory, if it is known
	Started    bool   `json:"started,omitempty"`   // the command has not ended yet
	ExitCode   *int   `json:"exit_code,omitempty"` // nil if the harness does not tell
	Signal     string `json:"signal,omitempty"`
	Failed     bool   `json:"failed,omitempty"`
	Output     string `json:"output,omitempty"` // of the agent's commands; output of other commands is streamed
	DurationMS int64  `json:"duration_ms,omitempty"`
}

// Tool is a use of a tool that is not a Command. If the harness tells when the use starts, it
// is two events with the same ID. The second repeats the name, but not the input.
type Tool struct {
	ID         string `json:"id,omitempty"`
	Name       string `json:"name"`
	Started    bool   `json:"started,omitempty"`
	Input      string `json:"input,omitempty"` // JSON
	Output     string `json:"output,omitempty"`
	Failed     bool   `json:"failed,omitempty"`
	DurationMS int64  `json:"duration_ms,omitempty"`
}

// Names of phases.
const (
	PhasePull    = "pull" // of the image
	PhaseClone   = "clone"
	PhaseSetup   = "setup"
	PhaseAgent   = "agent"
	PhaseCollect = "collect" // changed files and artifacts are found
)

// Phase is a phase of the run that ended.
type Phase struct {
	Name       string `json:"name" redact:"words"`
	DurationMS int64  `json:"duration_ms"`
}

// Egress is a connection that the run asked for. Several connections to the same host may be
// one event.
type Egress struct {
	Host    string `json:"host"` // as the run named it: a name or an address
	Port    int    `json:"port"`
	Allowed bool   `json:"allowed"`
	Reason  string `json:"reason,omitempty"` // why the connection was refused, or failed
	Count   int64  `json:"count,omitempty"`  // number of connections; 0 means 1
}

// Push is an update of a branch or tag that the run asked for (SPEC 23.3).
type Push struct {
	Repository string `json:"repository"`
	Ref        string `json:"ref"`
	Old        string `json:"old"` // object ids; only zeros: there was no such ref
	New        string `json:"new"`
	Refused    string `json:"refused,omitempty"` // why it was not made
	Waits      string `json:"waits,omitempty"`   // the output.Request about which a person decides, as JSON; empty: it is made
}

// Permission is a question of the agent whether it may do something.
type Permission struct {
	Request  string `json:"request"`
	Decision string `json:"decision"` // as the harness names it
}

// Session is the conversation that a harness keeps, so that another run can resume it.
type Session struct {
	Harness string `json:"harness"`
	ID      string `json:"id"`
}

// Result is the harness's own report of its end. Together with the exit status, it decides
// whether the run has SUCCEEDED (SPEC 15.3).
type Result struct {
	Failed   bool   `json:"failed,omitempty"`
	Message  string `json:"message,omitempty"` // why the agent failed, and what to do if that is known
	Final    bool   `json:"final,omitempty"`   // every further attempt fails too until somebody changes something
	Turns    int64  `json:"turns,omitempty"`
	Hopeless bool   `json:"-"` // the agent goes on but cannot succeed, so the worker must stop it
}

// Types of artifacts, by the published API.
const (
	ArtifactFile        = "FILE"
	ArtifactScreenshot  = "SCREENSHOT"
	ArtifactPullRequest = "PULL_REQUEST"
	ArtifactReference   = "EXTERNAL_REFERENCE"
)

// Artifact is something that the agent left for people (SPEC 15.6).
type Artifact struct {
	ID      string `json:"id,omitempty"` // for the download
	Type    string `json:"type" redact:"words"`
	Name    string `json:"name"`              // file name, or title of the link
	URL     string `json:"url,omitempty"`     // only of a link
	Size    int64  `json:"size,omitempty"`    // bytes; only of a file
	Omitted string `json:"omitted,omitempty"` // why the file is not kept
}

// Request is something that the agent asks the server to do after the run (SPEC 23).
type Request struct {
	Name    string `json:"name"`              // of the kind
	Request string `json:"request"`           // JSON
	Refused string `json:"refused,omitempty"` // why it is not taken
	// Done is what the gateway of the run has made of it at once: the address of a pull request, or that its outcome
	// is not known. It is empty if the server does it after the run.
	Done string `json:"done,omitempty"`
}

// Verdict says what has become of the request so far; empty: the server does it after the run.
func (r Request) Verdict() string {
	switch {
	case r.Refused != "":
		return "refused: " + r.Refused
	case r.Done != "":
		return "opened by the gateway: " + r.Done
	}
	return ""
}

// The streams of an Output.
const (
	Stdout = "stdout"
	Stderr = "stderr"
)

// Output is text that a process printed.
type Output struct {
	Stream string `json:"stream" redact:"words"` // stdout or stderr
	Text   string `json:"text"`
}

// The changes of a File.
const (
	FileCreated  = "created"
	FileModified = "modified"
	FileDeleted  = "deleted"
	FileIgnored  = "ignored" // written, but ignored by Git
)

// File is a file of the workspace that the agent changed. The workspace is compared to find
// it, whatever the agent reports (SPEC 9.5).
type File struct {
	Path    string `json:"path"`
	Change  string `json:"change" redact:"words"`
	Size    int64  `json:"size"`           // bytes after the change
	Diff    string `json:"diff,omitempty"` // unified
	Omitted string `json:"diff_omitted,omitempty"`
	Files   int64  `json:"files,omitempty"` // number of files at or below Path, which are not listed
}

// Usage is what a harness says that it used since the last Usage. Zero fields are not known.
type Usage struct {
	Model           string  `json:"model,omitempty"`
	InputTokens     int64   `json:"input_tokens,omitempty"`     // includes CachedTokens
	CachedTokens    int64   `json:"cached_tokens,omitempty"`    // part of the input, read from the provider's cache
	OutputTokens    int64   `json:"output_tokens,omitempty"`    // includes ReasoningTokens
	ReasoningTokens int64   `json:"reasoning_tokens,omitempty"` // part of the output
	CostUSD         float64 `json:"cost_usd,omitempty"`
	Turns           int64   `json:"turns,omitempty"`
}

// Ended is how the agent's process ended.
type Ended struct {
	ExitCode int    `json:"exit_code"`
	Signal   string `json:"signal,omitempty"`
	Stopped  bool   `json:"stopped,omitempty"`
}

// AgentStarted tells that setup is over. From this event on, standard output is the agent's,
// and the parser of a harness may have to read it.
type AgentStarted struct {
	Command string `json:"command"`
}

// Truncated marks a place where events are left out, because the transcript reached its
// limit, or because the store could not take more events when the run ended.
type Truncated struct {
	Limit   int    `json:"limit_bytes"`
	Message string `json:"message"`
	Bytes   int64  `json:"left_out_bytes"`
	Events  int64  `json:"left_out_events"`
}

// Count counts an event of a number of bytes that is left out.
func (e *Truncated) Count(bytes int) {
	e.Events++
	e.Bytes += int64(bytes)
}

// Says returns the event with its text: the limit in bytes, and why events are left out.
func (e Truncated) Says(limit int, why string) Truncated {
	e.Limit, e.Message = limit, fmt.Sprintf("%s: %d, with %d bytes", why, e.Events, e.Bytes)
	return e
}

func (Status) Kind() string       { return KindStatus }
func (Message) Kind() string      { return KindMessage }
func (Command) Kind() string      { return KindCommand }
func (Tool) Kind() string         { return KindTool }
func (Output) Kind() string       { return KindOutput }
func (File) Kind() string         { return KindFile }
func (Usage) Kind() string        { return KindUsage }
func (Ended) Kind() string        { return KindExit }
func (AgentStarted) Kind() string { return KindStarted }
func (Truncated) Kind() string    { return KindTruncated }
func (Phase) Kind() string        { return KindPhase }
func (Egress) Kind() string       { return KindEgress }
func (Push) Kind() string         { return KindPush }
func (Permission) Kind() string   { return KindPermission }
func (Session) Kind() string      { return KindSession }
func (Result) Kind() string       { return KindResult }
func (Artifact) Kind() string     { return KindArtifact }
func (Request) Kind() string      { return KindRequest }

// MaxText bounds one text of one event, in bytes.
const MaxText = 64 << 10

// Clip cuts a text to MaxText bytes. It keeps the head and the tail, because the cause of a
// failure is usually at one of them.
func Clip(s string) string {
	if len(s) <= MaxText {
		return s
	}
	head, tail := s[:MaxText/2], s[len(s)-MaxText/2:]
	for !utf8.RuneStart(tail[0]) && len(tail) > MaxText/2-utf8.UTFMax {
		tail = tail[1:]
	}
	head = strings.ToValidUTF8(head, "")
	return fmt.Sprintf("%s\n… %d bytes left out …\n%s", head, len(s)-len(head)-len(tail), tail)
}
