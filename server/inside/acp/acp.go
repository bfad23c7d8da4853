// Package acp drives an agent of the Agent Client Protocol (SPEC 15.1).
//
// The client of the protocol runs beside the agent, inside the walls of a run, as
// `triphammer __acp -- COMMAND…` ([Main]). It gets the prompt on standard input, has one
// turn with the agent, allows everything that the agent asks for, and prints events of the
// transcript, one JSON value per line. The server reads these lines with [Read]. So the
// server itself never talks to an agent.
//
// SIGINT cancels the turn. The agent then has a few seconds to end it before it is killed.
package acp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"

	"triphammer/server/run/event"
)

// Command is the hidden command of the program that is the client.
const Command = "__acp"

// ServersFile is the file below the home that lists the MCP servers, as JSON.
const ServersFile = ".triphammer/mcp-servers.json"

// Options are the arguments of a client besides the agent's command.
type Options struct {
	Model     string
	Reasoning string // level
	Session   string // the conversation that goes on; empty: a new one
	Servers   bool   // ServersFile lists servers
}

// Args is the command line of a client that starts the agent with command.
func (o Options) Args(command []string) []string {
	args := []string{"triphammer", Command}
	if o.Model != "" {
		args = append(args, "--model", o.Model)
	}
	if o.Reasoning != "" {
		args = append(args, "--reasoning", o.Reasoning)
	}
	if o.Session != "" {
		args = append(args, "--session", o.Session)
	}
	if o.Servers {
		args = append(args, "--mcp-servers", ServersFile)
	}
	return slices.Concat(args, []string{"--"}, command)
}

// line is a line of the client's output.
type line struct {
	Kind string          `json:"kind"`
	Data json.RawMessage `json:"data"`
}

// Read parses a line of a client's output. It accepts any line; false: the line is no event. It
// ignores parts that only the server may write, because an agent could have printed the line.
func Read(text []byte) ([]event.Event, bool) {
	var l line
	if json.Unmarshal(text, &l) != nil {
		return nil, false
	}
	switch l.Kind {
	case event.KindMessage, event.KindCommand, event.KindTool, event.KindUsage, event.KindPermission, event.KindSession, event.KindResult, event.KindStatus:
	default:
		return nil, false
	}
	e, err := event.Decode(l.Kind, l.Data)
	if err != nil {
		return nil, false
	}
	if s, ok := e.(event.Status); ok {
		s = event.Status{Message: s.Message} // only the server may write the other fields
		e = s
	}
	return []event.Event{e}, true
}

// Main is the client. It returns the exit status: 0 if the agent ended its turn well.
func Main(args []string) int {
	// A second signal ends the program at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))) // the connection logs to it
	out := &output{w: os.Stdout}
	result, err := drive(ctx, args, os.Stdin, out, os.Stderr)
	if err != nil {
		result = event.Result{Failed: true, Message: err.Error()}
	}
	out.add(result)
	if result.Failed || out.err != nil {
		return 1
	}
	return 0
}

// drive has one turn with the agent. The error says why there was no turn, or why it did not end.
func drive(ctx context.Context, args []string, stdin io.Reader, out *output, stderr io.Writer) (event.Result, error) {
	flags := flag.NewFlagSet(Command, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	var o Options
	var file string
	flags.StringVar(&o.Model, "model", "", "")
	flags.StringVar(&o.Reasoning, "reasoning", "", "")
	flags.StringVar(&o.Session, "session", "", "")
	flags.StringVar(&file, "mcp-servers", "", "")
	if err := flags.Parse(args); err != nil {
		return event.Result{}, err
	}
	if flags.NArg() == 0 {
		return event.Result{}, errors.New("the harness acp has no command that starts the agent")
	}
	prompt, err := io.ReadAll(stdin)
	if err != nil {
		return event.Result{}, fmt.Errorf("reading the prompt: %w", err)
	}
	servers, err := readServers(file)
	if err != nil {
		return event.Result{}, err
	}
	c := client{
		options: o, servers: servers, prompt: string(prompt), stderr: stderr,
		turn: turn{out: out, calls: make(map[string]*call), silent: o.Session != ""},
	}
	return c.run(ctx, flags.Args())
}

// mcpServer is a server of the list: a program or a URL.
type mcpServer struct {
	Name    string            `json:"name"`
	Command string            `json:"command,omitempty"`
	Args    []string          `json:"args,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	URL     string            `json:"url,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
}

// readServers reads the list of servers. It replaces references to variables by their values, so
// that no file holds a secret.
func readServers(file string) ([]mcpServer, error) {
	if file == "" {
		return nil, nil
	}
	data, err := os.ReadFile(filepath.Join(os.Getenv("HOME"), filepath.FromSlash(file)))
	if err != nil {
		return nil, fmt.Errorf("reading the list of MCP servers: %w", err)
	}
	var servers []mcpServer
	if err := json.Unmarshal(data, &servers); err != nil {
		return nil, fmt.Errorf("reading the list of MCP servers: %w", err)
	}
	for i := range servers {
		servers[i].URL = expand(servers[i].URL)
		for _, values := range []map[string]string{servers[i].Env, servers[i].Headers} {
			for name, value := range values {
				values[name] = expand(value)
			}
		}
	}
	return servers, nil
}

// reference matches a reference to a variable in a value of a definition.
var reference = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)\}`)

func expand(value string) string {
	return reference.ReplaceAllStringFunc(value, func(m string) string { return os.Getenv(m[2 : len(m)-1]) })
}

// output prints events. It is used by one goroutine at a time.
type output struct {
	w   io.Writer
	err error // the first error
}

func (o *output) add(e event.Event) {
	// This only clips texts. The server, which knows the secrets, hides them.
	e = event.Redact(e, func(s string) string { return s })
	data, err := json.Marshal(e)
	if err == nil {
		data, err = json.Marshal(line{e.Kind(), data})
	}
	if err == nil {
		_, err = o.w.Write(append(bytes.TrimSpace(data), '\n'))
	}
	if o.err == nil {
		o.err = err
	}
}
