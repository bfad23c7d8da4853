package acp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	protocol "github.com/coder/acp-go-sdk"

	"triphammer/server/run/event"
)

// Tests make them shorter.
var (
	// cancelTime is how long an agent may take to end a turn that was cancelled. The client
	// itself has a little longer before the server kills both.
	cancelTime = 5 * time.Second
	// endTime is how long an agent may take to end after its input has ended.
	endTime = 2 * time.Second
	// orderTime is how long a question waits for notifications that the agent sent before it.
	orderTime = 250 * time.Millisecond
)

// client is one turn with one agent.
type client struct {
	options Options
	servers []mcpServer
	prompt  string
	stderr  io.Writer

	conn  *protocol.ClientSideConnection
	agent protocol.InitializeResponse

	mu   sync.Mutex // the connection calls the handlers from its own goroutines
	turn turn
}

// run starts the agent, has the turn, and ends the agent with its whole process group.
func (c *client) run(ctx context.Context, command []string) (event.Result, error) {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stderr = c.stderr
	// The agent has its own process group, because only the client may get SIGINT. It cancels the
	// turn by the protocol.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = endTime
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return event.Result{}, err
	}
	stdout, feed := io.Pipe() // so that Wait may be called while the connection reads
	cmd.Stdout = feed
	if err := cmd.Start(); err != nil {
		return event.Result{}, fmt.Errorf("the agent cannot be started: %w", err)
	}
	var ended error
	gone := make(chan struct{})
	go func() {
		ended = cmd.Wait()
		_ = feed.Close() // never fails
		close(gone)
	}()
	in := &input{w: stdin}
	c.conn = protocol.NewClientSideConnection(c, in, stdout)

	result, err := c.converse(ctx)

	early := in.broken.Load()
	select {
	case <-c.conn.Done():
		early = true
	default:
	}
	_ = stdin.Close() // the agent may have closed it
	select {
	case <-gone:
	case <-time.After(endTime):
	}
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // nothing may be left of the group
	<-gone
	<-c.conn.Done()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.turn.flush()
	if err != nil && early && ctx.Err() == nil {
		if ended == nil {
			ended = errors.New("exit status 0")
		}
		return event.Result{}, fmt.Errorf("the agent ended before its turn did (%w): is %s an agent of the Agent Client Protocol?", ended, strings.Join(command, " "))
	}
	return result, err
}

// input is the agent's standard input.
type input struct {
	w      io.Writer
	broken atomic.Bool // the agent no longer reads it
}

func (i *input) Write(data []byte) (int, error) {
	n, err := i.w.Write(data)
	if err != nil {
		i.broken.Store(true)
	}
	return n, err
}

func (c *client) converse(ctx context.Context) (event.Result, error) {
	var err error
	c.agent, err = c.conn.Initialize(ctx, protocol.InitializeRequest{
		ProtocolVersion: protocol.ProtocolVersionNumber,
		ClientInfo:      &protocol.Implementation{Name: "triphammer", Version: "1"},
	})
	if err != nil {
		return event.Result{}, failure{"the agent did not accept the protocol", err}
	}
	if v := c.agent.ProtocolVersion; v != protocol.ProtocolVersionNumber {
		return event.Result{}, fmt.Errorf("the agent speaks version %d of the Agent Client Protocol, and Triphammer version %d: use another version of the agent", v, protocol.ProtocolVersionNumber)
	}
	session, err := c.open(ctx)
	var refused *protocol.RequestError
	if errors.As(err, &refused) && refused.Code == authRequired {
		if err = c.authenticate(ctx); err == nil {
			session, err = c.open(ctx)
		}
	}
	if err != nil {
		return event.Result{}, err
	}
	c.mu.Lock()
	c.turn.silent = false
	if c.agent.AgentCapabilities.LoadSession {
		c.turn.out.add(event.Session{Harness: "acp", ID: string(session)})
	}
	c.mu.Unlock()
	return c.ask(ctx, session)
}

// ask sends the prompt and waits for the end of the turn.
func (c *client) ask(ctx context.Context, session protocol.SessionId) (event.Result, error) {
	// The end of ctx cancels the turn and not the request, so that the agent can tell its end.
	asking, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	stop := context.AfterFunc(ctx, func() {
		_ = c.conn.Cancel(asking, protocol.CancelNotification{SessionId: session}) // the agent may be gone
		select {
		case <-asking.Done():
		case <-time.After(cancelTime):
			giveUp()
		}
	})
	defer stop()
	answer, err := c.conn.Prompt(asking, protocol.PromptRequest{SessionId: session, Prompt: []protocol.ContentBlock{protocol.TextBlock(c.prompt)}})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.turn.flush()
	if ctx.Err() != nil {
		return event.Result{Failed: true, Message: "the turn was cancelled"}, nil
	}
	if err != nil {
		return event.Result{}, failure{"the agent failed", err}
	}
	c.turn.used(answer)
	switch answer.StopReason {
	case protocol.StopReasonEndTurn:
		return event.Result{Turns: 1}, nil
	case protocol.StopReasonMaxTokens:
		return event.Result{Failed: true, Turns: 1, Message: "the agent stopped at the limit of tokens of its model"}, nil
	case protocol.StopReasonMaxTurnRequests:
		return event.Result{Failed: true, Turns: 1, Message: "the agent stopped at its own limit of requests to the model"}, nil
	case protocol.StopReasonRefusal:
		return event.Result{Failed: true, Turns: 1, Message: "the model refused to go on"}, nil
	}
	return event.Result{Failed: true, Turns: 1, Message: fmt.Sprintf("the agent stopped: %s", answer.StopReason)}, nil
}

// open makes a session or takes up an earlier session. It sets the run's mode, model and level in
// both cases, because an agent need not keep them with the conversation.
func (c *client) open(ctx context.Context) (protocol.SessionId, error) {
	session, err := c.session(ctx)
	if err != nil {
		return "", err
	}
	if mode := unconfined(session); mode != "" {
		if err := c.choose(ctx, session, string(protocol.SessionConfigOptionCategoryMode), mode); err != nil {
			c.status("the agent keeps the mode in which it asks: %v", err)
		}
	}
	for _, set := range []struct{ what, category, value string }{
		{"model", string(protocol.SessionConfigOptionCategoryModel), c.options.Model},
		{"reasoningLevel", string(protocol.SessionConfigOptionCategoryThoughtLevel), c.options.Reasoning},
	} {
		if set.value == "" {
			continue
		}
		if err := c.choose(ctx, session, set.category, set.value); err != nil {
			c.status("the %s %q is not used: %v", set.what, set.value, err)
		}
	}
	return session.SessionId, nil
}

// session is a new or an earlier session, with the agent's options for it.
func (c *client) session(ctx context.Context) (protocol.NewSessionResponse, error) {
	dir, err := os.Getwd()
	if err != nil {
		return protocol.NewSessionResponse{}, err
	}
	servers := c.mcpServers()
	id := protocol.SessionId(c.options.Session)
	if id == "" {
		made, err := c.conn.NewSession(ctx, protocol.NewSessionRequest{Cwd: dir, McpServers: servers})
		if err != nil {
			return made, failure{"the agent made no session", err}
		}
		return made, nil
	}
	if !c.agent.AgentCapabilities.LoadSession {
		return protocol.NewSessionResponse{}, errors.New("this agent does not keep its conversations: start a new run")
	}
	// The agent tells the whole conversation again, which the transcript of the earlier run has.
	found, err := c.conn.LoadSession(ctx, protocol.LoadSessionRequest{SessionId: id, Cwd: dir, McpServers: servers})
	if err != nil {
		return protocol.NewSessionResponse{}, failure{"the agent did not find the conversation again", err}
	}
	return protocol.NewSessionResponse{SessionId: id, ConfigOptions: found.ConfigOptions, Models: found.Models, Modes: found.Modes}, nil
}

// choose sets an option of the session, in either of the ways in which agents offer it.
func (c *client) choose(ctx context.Context, s protocol.NewSessionResponse, category, value string) error {
	var err error
	if o := optionOf(s, category); o != nil {
		_, err = c.conn.SetSessionConfigOption(ctx, protocol.SetSessionConfigOptionRequest{ValueId: &protocol.SetSessionConfigOptionValueId{
			SessionId: s.SessionId, ConfigId: o.Id, Value: protocol.SessionConfigValueId(value),
		}})
	} else if category == string(protocol.SessionConfigOptionCategoryModel) && s.Models != nil {
		_, err = c.conn.UnstableSetSessionModel(ctx, protocol.UnstableSetSessionModelRequest{SessionId: s.SessionId, ModelId: protocol.UnstableModelId(value)})
	} else if category == string(protocol.SessionConfigOptionCategoryMode) && s.Modes != nil {
		_, err = c.conn.SetSessionMode(ctx, protocol.SetSessionModeRequest{SessionId: s.SessionId, ModeId: protocol.SessionModeId(value)})
	} else {
		return errors.New("with this agent, its client does not choose")
	}
	if err == nil {
		return nil
	}
	if offers := offered(s, category); len(offers) > 0 {
		return fmt.Errorf("%w; it offers %s", failure{"the agent refused it", err}, strings.Join(offers[:min(len(offers), maxOffered)], ", "))
	}
	return failure{"the agent refused it", err}
}

// maxOffered is how many values of an option a message names.
const maxOffered = 20

// optionOf is the option of a category, or nil.
func optionOf(s protocol.NewSessionResponse, category string) *protocol.SessionConfigOptionSelect {
	for _, o := range s.ConfigOptions {
		if o.Select != nil && o.Select.Category != nil && string(*o.Select.Category) == category {
			return o.Select
		}
	}
	return nil
}

// offered are the values that the agent offers in a category.
func offered(s protocol.NewSessionResponse, category string) (values []string) {
	if o := optionOf(s, category); o != nil {
		var all []protocol.SessionConfigSelectOption
		if o.Options.Ungrouped != nil {
			all = *o.Options.Ungrouped
		}
		if o.Options.Grouped != nil {
			for _, group := range *o.Options.Grouped {
				all = append(all, group.Options...)
			}
		}
		for _, choice := range all {
			values = append(values, string(choice.Value))
		}
		return values
	}
	switch {
	case category == string(protocol.SessionConfigOptionCategoryModel) && s.Models != nil:
		for _, m := range s.Models.AvailableModels {
			values = append(values, string(m.ModelId))
		}
	case category == string(protocol.SessionConfigOptionCategoryMode) && s.Modes != nil:
		for _, m := range s.Modes.AvailableModes {
			values = append(values, string(m.Id))
		}
	}
	return values
}

// unconfined is the session's mode without a sandbox of the agent; empty: the agent offers no such
// mode. A sandbox inside the walls of the run does not work, and adds nothing.
func unconfined(s protocol.NewSessionResponse) string {
	for _, mode := range offered(s, string(protocol.SessionConfigOptionCategoryMode)) {
		switch mode {
		case "agent-full-access", "full-access", "bypassPermissions", "yolo":
			return mode
		}
	}
	return ""
}

// mcpServers are the MCP servers that the agent can use.
func (c *client) mcpServers() []protocol.McpServer {
	all := []protocol.McpServer{} // never null
	for _, m := range c.servers {
		if m.URL == "" {
			env := []protocol.EnvVariable{}
			for _, name := range slices.Sorted(maps.Keys(m.Env)) {
				env = append(env, protocol.EnvVariable{Name: name, Value: m.Env[name]})
			}
			command := m.Command
			if path, err := exec.LookPath(command); err == nil { // the protocol wants the path
				command = path
			}
			all = append(all, protocol.McpServer{Stdio: &protocol.McpServerStdio{Name: m.Name, Command: command, Args: append([]string{}, m.Args...), Env: env}})
			continue
		}
		if !c.agent.AgentCapabilities.McpCapabilities.Http {
			c.status("the MCP server %s is left out: this agent takes no server with a URL", m.Name)
			continue
		}
		headers := []protocol.HttpHeader{}
		for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
			headers = append(headers, protocol.HttpHeader{Name: name, Value: m.Headers[name]})
		}
		all = append(all, protocol.McpServer{Http: &protocol.McpServerHttpInline{Type: "http", Name: m.Name, Url: m.URL, Headers: headers}})
	}
	return all
}

// authRequired is the code of the protocol for a request before a login.
const authRequired = -32000

// authenticate logs in by a method that asks nobody: with variables of the run, or with a key that
// the agent itself finds in a variable.
func (c *client) authenticate(ctx context.Context) error {
	var offered []string
	for _, m := range c.agent.AuthMethods {
		id := ""
		switch {
		case m.EnvVar != nil:
			offered = append(offered, m.EnvVar.Name)
			if !slices.ContainsFunc(m.EnvVar.Vars, func(v protocol.AuthEnvVar) bool { return os.Getenv(v.Name) == "" }) {
				id = m.EnvVar.Id
			}
			for _, v := range m.EnvVar.Vars {
				offered[len(offered)-1] += " (" + v.Name + ")"
			}
		case m.Agent != nil:
			offered = append(offered, m.Agent.Name)
			if strings.Contains(m.Agent.Id, "api-key") {
				id = m.Agent.Id
			}
		}
		if id == "" {
			continue
		}
		if _, err := c.conn.Authenticate(ctx, protocol.AuthenticateRequest{MethodId: id}); err == nil {
			return nil
		}
	}
	return fmt.Errorf("the agent is not logged in; it offers: %s", strings.Join(offered, ", "))
}

// failure is an error that the agent answered, or that kept the agent from answering.
type failure struct {
	what string
	err  error
}

func (f failure) Unwrap() error { return f.err }

// Error is one sentence. It looks for the details in several places, because the protocol does
// not say where an error has them.
func (f failure) Error() string {
	var refused *protocol.RequestError
	if !errors.As(f.err, &refused) {
		return f.what + ": " + f.err.Error()
	}
	text := f.what + ": " + refused.Message
	if data, ok := refused.Data.(map[string]any); ok {
		for _, key := range []string{"details", "message", "error"} {
			if detail, ok := data[key].(string); ok {
				return text + ": " + detail
			}
		}
	}
	return text
}

func (c *client) status(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.turn.out.add(event.Status{Message: fmt.Sprintf(format, args...)})
}

// SessionUpdate implements protocol.Client.
func (c *client) SessionUpdate(_ context.Context, n protocol.SessionNotification) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.turn.update(n.Update)
	return nil
}

// RequestPermission implements protocol.Client. It allows everything: the walls of the run
// decide what an agent can do.
func (c *client) RequestPermission(_ context.Context, q protocol.RequestPermissionRequest) (protocol.RequestPermissionResponse, error) {
	c.await(string(q.ToolCall.ToolCallId))
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, kind := range []protocol.PermissionOptionKind{protocol.PermissionOptionKindAllowOnce, protocol.PermissionOptionKindAllowAlways} {
		for _, o := range q.Options {
			if o.Kind == kind {
				c.turn.allowed(q.ToolCall, o.Name)
				return protocol.RequestPermissionResponse{Outcome: protocol.NewRequestPermissionOutcomeSelected(o.OptionId)}, nil
			}
		}
	}
	c.turn.allowed(q.ToolCall, "none, because the agent offers no way to allow it")
	return protocol.RequestPermissionResponse{Outcome: protocol.NewRequestPermissionOutcomeCancelled()}, nil
}

// await waits until the call is known, but at most orderTime: the connection hands over questions
// before earlier notifications, and some agents never tell of a call before they ask about it.
func (c *client) await(call string) {
	late := time.NewTimer(orderTime)
	defer late.Stop()
	tick := time.NewTicker(orderTime / 50)
	defer tick.Stop()
	for {
		c.mu.Lock()
		known := c.turn.calls[call] != nil
		c.mu.Unlock()
		if known {
			return
		}
		select {
		case <-late.C:
			return
		case <-tick.C:
		}
	}
}

// The agent works on files and commands itself, inside the same walls. So the client offers
// neither.

// ReadTextFile implements protocol.Client.
func (*client) ReadTextFile(context.Context, protocol.ReadTextFileRequest) (a protocol.ReadTextFileResponse, err error) {
	return a, protocol.NewMethodNotFound(protocol.ClientMethodFsReadTextFile)
}

// WriteTextFile implements protocol.Client.
func (*client) WriteTextFile(context.Context, protocol.WriteTextFileRequest) (a protocol.WriteTextFileResponse, err error) {
	return a, protocol.NewMethodNotFound(protocol.ClientMethodFsWriteTextFile)
}

// CreateTerminal implements protocol.Client.
func (*client) CreateTerminal(context.Context, protocol.CreateTerminalRequest) (a protocol.CreateTerminalResponse, err error) {
	return a, protocol.NewMethodNotFound(protocol.ClientMethodTerminalCreate)
}

// KillTerminal implements protocol.Client.
func (*client) KillTerminal(context.Context, protocol.KillTerminalRequest) (a protocol.KillTerminalResponse, err error) {
	return a, protocol.NewMethodNotFound(protocol.ClientMethodTerminalKill)
}

// ReleaseTerminal implements protocol.Client.
func (*client) ReleaseTerminal(context.Context, protocol.ReleaseTerminalRequest) (a protocol.ReleaseTerminalResponse, err error) {
	return a, protocol.NewMethodNotFound(protocol.ClientMethodTerminalRelease)
}

// TerminalOutput implements protocol.Client.
func (*client) TerminalOutput(context.Context, protocol.TerminalOutputRequest) (a protocol.TerminalOutputResponse, err error) {
	return a, protocol.NewMethodNotFound(protocol.ClientMethodTerminalOutput)
}

// WaitForTerminalExit implements protocol.Client.
func (*client) WaitForTerminalExit(context.Context, protocol.WaitForTerminalExitRequest) (a protocol.WaitForTerminalExitResponse, err error) {
	return a, protocol.NewMethodNotFound(protocol.ClientMethodTerminalWaitForExit)
}
