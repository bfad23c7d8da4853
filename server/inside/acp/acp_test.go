package acp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	protocol "github.com/coder/acp-go-sdk"

	"triphammer/server/run/event"
)

// agentVariable makes this program an agent that behaves as its value says.
const agentVariable = "TRIPHAMMER_TEST_AGENT"

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	if kind := os.Getenv(agentVariable); kind != "" {
		a, made := &agent{kind: kind}, make(chan struct{})
		a.conn = protocol.NewAgentSideConnection(a, os.Stdout, reader(func(p []byte) (int, error) {
			<-made // the connection reads before it is there
			return os.Stdin.Read(p)
		}))
		close(made)
		<-a.conn.Done()
		os.Exit(0)
	}
	cancelTime, orderTime = time.Second, 10*time.Second
	os.Exit(m.Run())
}

// reader is an io.Reader.
type reader func([]byte) (int, error)

func (r reader) Read(p []byte) (int, error) { return r(p) }

// agent is a small agent of the protocol.
type agent struct {
	kind    string
	conn    *protocol.AgentSideConnection
	login   bool
	mode    string // that the client chose
	servers []protocol.McpServer
	stopped chan struct{}
}

func (a *agent) Initialize(context.Context, protocol.InitializeRequest) (protocol.InitializeResponse, error) {
	r := protocol.InitializeResponse{ProtocolVersion: protocol.ProtocolVersionNumber, AuthMethods: []protocol.AuthMethod{}}
	r.AgentCapabilities.LoadSession = a.kind != "forgetful"
	switch a.kind {
	case "newer":
		r.ProtocolVersion = 2
	case "login", "lost":
		r.AuthMethods = []protocol.AuthMethod{
			{Agent: &protocol.AuthMethodAgent{Id: "browser", Name: "A browser"}},
			{EnvVar: &protocol.AuthMethodEnvVarInline{Type: "env_var", Id: "key", Name: "A key", Vars: []protocol.AuthEnvVar{{Name: "ACP_TEST_KEY"}}}},
		}
	}
	return r, nil
}

func (a *agent) Authenticate(_ context.Context, q protocol.AuthenticateRequest) (protocol.AuthenticateResponse, error) {
	if q.MethodId != "key" || os.Getenv("ACP_TEST_KEY") == "" {
		return protocol.AuthenticateResponse{}, protocol.NewInvalidParams(nil)
	}
	a.login = true
	return protocol.AuthenticateResponse{}, nil
}

func (a *agent) NewSession(_ context.Context, q protocol.NewSessionRequest) (protocol.NewSessionResponse, error) {
	if (a.kind == "login" || a.kind == "lost") && !a.login {
		return protocol.NewSessionResponse{}, protocol.NewAuthRequired(nil)
	}
	a.servers = q.McpServers
	return protocol.NewSessionResponse{SessionId: "s1", Modes: modes, ConfigOptions: options}, nil
}

// modes and options are what the agent lets its client choose.
var (
	modes    = &protocol.SessionModeState{CurrentModeId: "ask", AvailableModes: []protocol.SessionMode{{Id: "ask", Name: "Ask"}, {Id: "yolo", Name: "Do not"}}}
	category = protocol.SessionConfigOptionCategoryModel
	options  = []protocol.SessionConfigOption{{Select: &protocol.SessionConfigOptionSelect{
		Type: "select", Id: "m", Name: "Model", Category: &category, CurrentValue: "small",
		Options: protocol.SessionConfigSelectOptions{Ungrouped: &protocol.SessionConfigSelectOptionsUngrouped{{Name: "Large", Value: "large"}}},
	}}}
)

func (a *agent) LoadSession(ctx context.Context, q protocol.LoadSessionRequest) (protocol.LoadSessionResponse, error) {
	if q.SessionId != "s1" {
		return protocol.LoadSessionResponse{}, &protocol.RequestError{Code: -32603, Message: "Internal error", Data: map[string]any{"details": "no such session"}}
	}
	a.tell(ctx, protocol.UpdateAgentMessageText("What I said before."))
	a.tell(ctx, protocol.SessionUpdate{UsageUpdate: &protocol.SessionUsageUpdate{SessionUpdate: "usage_update", Cost: &protocol.Cost{Amount: 2, Currency: "USD"}}})
	a.servers = q.McpServers
	return protocol.LoadSessionResponse{Modes: modes, ConfigOptions: options}, nil
}

func (a *agent) SetSessionConfigOption(_ context.Context, q protocol.SetSessionConfigOptionRequest) (protocol.SetSessionConfigOptionResponse, error) {
	if q.ValueId == nil || q.ValueId.Value != "large" {
		return protocol.SetSessionConfigOptionResponse{}, protocol.NewInvalidParams(map[string]any{"error": "no such model"})
	}
	return protocol.SetSessionConfigOptionResponse{ConfigOptions: []protocol.SessionConfigOption{}}, nil
}

func (a *agent) SetSessionMode(_ context.Context, q protocol.SetSessionModeRequest) (protocol.SetSessionModeResponse, error) {
	if q.ModeId != "yolo" {
		return protocol.SetSessionModeResponse{}, errors.New("the client chose the mode " + string(q.ModeId))
	}
	a.mode = string(q.ModeId)
	return protocol.SetSessionModeResponse{}, nil
}

func (a *agent) Cancel(context.Context, protocol.CancelNotification) error {
	if a.kind != "stubborn" {
		close(a.stopped)
	}
	return nil
}

func (a *agent) tell(ctx context.Context, u protocol.SessionUpdate) {
	if err := a.conn.SessionUpdate(ctx, protocol.SessionNotification{SessionId: "s1", Update: u}); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

func (a *agent) Prompt(ctx context.Context, q protocol.PromptRequest) (protocol.PromptResponse, error) {
	reason := protocol.StopReasonEndTurn
	switch a.kind {
	case "works":
		if err := a.work(ctx); err != nil {
			return protocol.PromptResponse{}, err
		}
	case "max_tokens", "max_turn_requests", "refusal", "boredom":
		reason = protocol.StopReason(a.kind)
	case "polite", "stubborn":
		a.stopped = make(chan struct{})
		// A child that outlives the agent, unless its whole group is ended.
		if err := exec.Command("sleep", "600").Start(); err != nil {
			return protocol.PromptResponse{}, err
		}
		a.tell(ctx, protocol.UpdateAgentMessageText("Waiting"))
		a.tell(ctx, protocol.UpdatePlan()) // so that the message is complete
		<-a.stopped
		return protocol.PromptResponse{StopReason: protocol.StopReasonCancelled}, nil
	case "dies":
		os.Exit(3)
	case "fails":
		return protocol.PromptResponse{}, &protocol.RequestError{Code: -32603, Message: "Internal error", Data: map[string]any{"details": "401 invalid API key"}}
	default:
		text, _ := json.Marshal(a.servers)
		a.tell(ctx, protocol.UpdateAgentMessageText(q.Prompt[0].Text.Text+string(text)+" in the mode "+a.mode))
	}
	return protocol.PromptResponse{StopReason: reason}, nil
}

// work does one of everything.
func (a *agent) work(ctx context.Context) error {
	a.tell(ctx, protocol.UpdateAgentThoughtText("I think"))
	a.tell(ctx, protocol.UpdateAgentThoughtText(" so."))
	a.tell(ctx, protocol.UpdateAgentMessageText("I will "))
	a.tell(ctx, protocol.UpdateAgentMessageText("make it."))
	a.tell(ctx, protocol.UpdatePlan(protocol.PlanEntry{Content: "make", Priority: "high", Status: "pending"}))
	// The input comes late, after a title that says nothing.
	a.tell(ctx, protocol.StartToolCall("1", "Terminal", protocol.WithStartKind(protocol.ToolKindExecute), protocol.WithStartStatus(protocol.ToolCallStatusPending)))
	input := map[string]any{"command": "make"}
	a.tell(ctx, protocol.UpdateToolCall("1", protocol.WithUpdateRawInput(input), protocol.WithUpdateContent([]protocol.ToolCallContent{protocol.ToolContent(protocol.TextBlock("what I am about to do"))})))
	answer, err := a.conn.RequestPermission(ctx, protocol.RequestPermissionRequest{
		SessionId: "s1", ToolCall: protocol.ToolCallUpdate{ToolCallId: "1", RawInput: input},
		Options: []protocol.PermissionOption{{Kind: "reject_once", Name: "No", OptionId: "n"}, {Kind: "allow_always", Name: "Always", OptionId: "a"}, {Kind: "allow_once", Name: "Yes", OptionId: "y"}},
	})
	if err != nil || answer.Outcome.Selected == nil || answer.Outcome.Selected.OptionId != "y" {
		return fmt.Errorf("asked for permission: %v, %v", answer, err)
	}
	a.tell(ctx, protocol.UpdateToolCall("1", protocol.WithUpdateStatus(protocol.ToolCallStatusCompleted), protocol.WithUpdateRawOutput(map[string]any{"exit_code": 2}),
		protocol.WithUpdateContent([]protocol.ToolCallContent{protocol.ToolContent(protocol.TextBlock("```console\nno rule\n```"))})))
	// All at once, and of a tool that runs no command.
	a.tell(ctx, protocol.StartToolCall("2", "notes: add", protocol.WithStartKind(protocol.ToolKindOther), protocol.WithStartStatus(protocol.ToolCallStatusFailed),
		protocol.WithStartRawInput(map[string]any{"n": 1}), protocol.WithStartRawOutput(map[string]any{"output": "no room"})))
	// A tool of an MCP server, as Codex tells it.
	a.tell(ctx, protocol.StartToolCall("4", "mcp.notes.add", protocol.WithStartKind(protocol.ToolKindExecute), protocol.WithStartStatus(protocol.ToolCallStatusCompleted),
		protocol.WithStartRawInput(map[string]any{"tool": "add"}), protocol.WithStartRawOutput(map[string]any{"result": map[string]any{"content": []any{map[string]any{"text": "added"}}}})))
	// With a terminal of the agent's own.
	a.tell(ctx, protocol.StartToolCall("3", "`date`", protocol.WithStartKind(protocol.ToolKindExecute), protocol.WithStartStatus(protocol.ToolCallStatusInProgress)))
	status := protocol.ToolCallStatusCompleted
	a.tell(ctx, protocol.SessionUpdate{ToolCallUpdate: &protocol.SessionToolCallUpdate{
		SessionUpdate: "tool_call_update", ToolCallId: "3", Status: &status,
		Meta: map[string]any{"terminal_output_delta": map[string]any{"data": "Monday\n"}, "terminal_exit": map[string]any{"exit_code": 0}},
	}})
	for _, cost := range []float64{0.25, 0.75} {
		a.tell(ctx, protocol.SessionUpdate{UsageUpdate: &protocol.SessionUsageUpdate{SessionUpdate: "usage_update", Cost: &protocol.Cost{Amount: cost, Currency: "USD"}}})
	}
	a.tell(ctx, protocol.UpdateAgentMessageText("Done."))
	return nil
}

func (*agent) CloseSession(context.Context, protocol.CloseSessionRequest) (r protocol.CloseSessionResponse, err error) {
	return r, protocol.NewMethodNotFound("session/close")
}

func (*agent) ListSessions(context.Context, protocol.ListSessionsRequest) (r protocol.ListSessionsResponse, err error) {
	return r, protocol.NewMethodNotFound("session/list")
}

func (*agent) ResumeSession(context.Context, protocol.ResumeSessionRequest) (r protocol.ResumeSessionResponse, err error) {
	return r, protocol.NewMethodNotFound("session/resume")
}

// play has one turn with an agent of that kind, and returns what was printed.
func play(ctx context.Context, t *testing.T, kind string, args ...string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return printed(ctx, t, slices.Concat(args, []string{"--", "env", "GORACE=atexit_sleep_ms=0", agentVariable + "=" + kind, self})...)
}

// printed is what a client prints, without the times that commands take.
func printed(ctx context.Context, t *testing.T, args ...string) string {
	t.Helper()
	var b bytes.Buffer
	out := &output{w: &b}
	result, err := drive(ctx, args, strings.NewReader("Do it."), out, os.Stderr)
	if err != nil {
		result = event.Result{Failed: true, Message: err.Error()}
	}
	out.add(result)
	var lines strings.Builder
	for text := range bytes.Lines(b.Bytes()) {
		events, ok := Read(text)
		if !ok || len(events) != 1 {
			t.Fatalf("the server does not read %s", text)
		}
		switch e := events[0].(type) {
		case event.Command:
			e.DurationMS = 0
			events[0] = e
		case event.Tool:
			e.DurationMS = 0
			events[0] = e
		}
		data, err := json.Marshal(events[0])
		if err != nil {
			t.Fatal(err)
		}
		lines.WriteString(events[0].Kind() + " " + string(data) + "\n")
	}
	return lines.String()
}

// TestTurn: everything that an agent tells in a turn is an event of the transcript.
func TestTurn(t *testing.T) {
	t.Parallel()
	const want = `session {"harness":"acp","id":"s1"}
message {"role":"reasoning","text":"I think so."}
message {"role":"assistant","text":"I will make it."}
tool {"name":"plan","input":"[{\"content\":\"make\",\"priority\":\"high\",\"status\":\"pending\"}]"}
command {"id":"1","phase":"agent","command":"make","started":true}
permission {"request":"make","decision":"Yes"}
command {"id":"1","phase":"agent","command":"make","exit_code":2,"failed":true,"output":"no rule"}
tool {"id":"2","name":"notes: add","started":true,"input":"{\"n\":1}"}
tool {"id":"2","name":"notes: add","output":"no room","failed":true}
tool {"id":"4","name":"mcp.notes.add","started":true,"input":"{\"tool\":\"add\"}"}
tool {"id":"4","name":"mcp.notes.add","output":"added"}
command {"id":"3","phase":"agent","command":"date","started":true}
command {"id":"3","phase":"agent","command":"date","exit_code":0,"output":"Monday\n"}
usage {"cost_usd":0.25}
usage {"cost_usd":0.5}
message {"role":"assistant","text":"Done."}
usage {"turns":1}
result {"turns":1}
`
	if got := play(t.Context(), t, "works"); got != want {
		t.Errorf("a turn is told as\n%s\nnot as\n%s", got, want)
	}
}

// TestEnds: however a turn ends, the last event says it, and why if it failed.
func TestEnds(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ kind, want string }{
		{"max_tokens", "the agent stopped at the limit of tokens of its model"},
		{"max_turn_requests", "the agent stopped at its own limit of requests to the model"},
		{"refusal", "the model refused to go on"},
		{"boredom", "the agent stopped: boredom"},
		{"dies", "the agent ended before its turn did (exit status 3): is env GORACE=atexit_sleep_ms=0 " + agentVariable + "=dies " + self + " an agent of the Agent Client Protocol?"},
		{"fails", "the agent failed: Internal error: 401 invalid API key"},
		{"newer", "the agent speaks version 2 of the Agent Client Protocol, and Triphammer version 1: use another version of the agent"},
		{"lost", "the agent is not logged in; it offers: A browser, A key (ACP_TEST_KEY)"},
	} {
		got := play(t.Context(), t, c.kind)
		last := strings.TrimSpace(got[strings.LastIndex(strings.TrimSpace(got), "\n")+1:])
		var r event.Result
		if err := json.Unmarshal([]byte(strings.TrimPrefix(last, "result ")), &r); err != nil || !r.Failed || r.Message != c.want {
			t.Errorf("%s ends with %s, not with %q", c.kind, last, c.want)
		}
	}
	for _, c := range []struct {
		command []string
		want    string
	}{
		{[]string{"--", "true"}, "the agent ended before its turn did (exit status 0): is true an agent"},
		{[]string{"--", "echo", "Hello"}, "the agent ended before its turn did (exit status 0): is echo Hello an agent"},
		{[]string{"--", "/nonexistent/agent"}, "the agent cannot be started: fork/exec /nonexistent/agent: no such file or directory"},
		{nil, "the harness acp has no command that starts the agent"},
		{[]string{"--mcp-servers", "no/such/file", "--", "true"}, "reading the list of MCP servers: "},
	} {
		if got := printed(t.Context(), t, c.command...); strings.Count(got, "\n") != 1 || !strings.HasPrefix(got, `result {"failed":true,"message":"`+c.want) {
			t.Errorf("%q ends with %s, not with %q", c.command, got, c.want)
		}
	}
}

// TestLogin: an agent that wants a login gets it, with a variable that the run has.
func TestLogin(t *testing.T) {
	t.Setenv("ACP_TEST_KEY", "k")
	if got := play(t.Context(), t, "login"); !strings.HasSuffix(got, "result {\"turns\":1}\n") {
		t.Error(got)
	}
}

// TestChoice: the model is the definition's, or a line says why not.
func TestChoice(t *testing.T) {
	t.Parallel()
	if got := play(t.Context(), t, "echo", "--model", "large"); strings.Contains(got, "status") {
		t.Errorf("a model that the agent has: %s", got)
	}
	got := play(t.Context(), t, "echo", "--model", "huge", "--reasoning", "high")
	for _, want := range []string{
		`status {"message":"the model \"huge\" is not used: the agent refused it: Invalid params: no such model; it offers large"}`,
		`status {"message":"the reasoningLevel \"high\" is not used: with this agent, its client does not choose"}`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%s\nhas no %s", got, want)
		}
	}
}

// TestConversation: an agent that keeps its conversations goes on with one, and what it
// repeats is not told twice. Another says that it cannot.
func TestConversation(t *testing.T) {
	t.Parallel()
	got := play(t.Context(), t, "works", "--session", "s1")
	if strings.Contains(got, "before") || strings.Count(got, "session {") != 1 || !strings.Contains(got, "Done.") || strings.Contains(got, "cost_usd") {
		t.Errorf("a conversation that goes on: %s", got)
	}
	if got := play(t.Context(), t, "works", "--session", "s2"); got != "result {\"failed\":true,\"message\":\"the agent did not find the conversation again: Internal error: no such session\"}\n" {
		t.Errorf("a conversation that is gone: %s", got)
	}
	if got := play(t.Context(), t, "forgetful"); strings.Contains(got, "session {") {
		t.Errorf("an agent without conversations names one: %s", got)
	}
	if got := play(t.Context(), t, "forgetful", "--session", "s1"); !strings.Contains(got, "does not keep its conversations") {
		t.Errorf("an agent without conversations: %s", got)
	}
}

// TestChoiceAgain: a conversation that goes on has the mode, the model and the servers of its
// run, as an agent need not keep them.
func TestChoiceAgain(t *testing.T) {
	t.Parallel()
	for session, args := range map[string][]string{"new": nil, "earlier": {"--session", "s1"}} {
		got := play(t.Context(), t, "echo", append(args, "--model", "huge")...)
		if !strings.Contains(got, `the model \"huge\" is not used`) || !strings.Contains(got, "Do it.[] in the mode yolo") {
			t.Errorf("the %s session: %s", session, got)
		}
	}
}

// TestServers: the agent gets the MCP servers of the run, with the values of variables in
// their places, and a line says which one it cannot use.
func TestServers(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("ACP_TEST_TOKEN", "tok")
	file := filepath.Join(home, filepath.FromSlash(ServersFile))
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(`[{"name":"notes","command":"notes","args":["-v"],"env":{"TOKEN":"${ACP_TEST_TOKEN}$HOME"}},{"name":"far","url":"https://example.com/mcp"}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	got := play(t.Context(), t, "echo", "--mcp-servers", ServersFile)
	for _, want := range []string{
		`status {"message":"the MCP server far is left out: this agent takes no server with a URL"}`,
		`Do it.[{\"args\":[\"-v\"],\"command\":\"notes\",\"env\":[{\"name\":\"TOKEN\",\"value\":\"tok$HOME\"}],\"name\":\"notes\"}]`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%s\nhas no %s", got, want)
		}
	}
}

// TestCancel: an agent that ends its turn when it is told to, and one that does not. Nothing
// of either is left.
func TestCancel(t *testing.T) {
	for _, kind := range []string{"polite", "stubborn"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			pids := filepath.Join(t.TempDir(), "group")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			out := &output{w: writer(func(text []byte) {
				if bytes.Contains(text, []byte("Waiting")) {
					cancel()
				}
			})}
			result, err := drive(ctx, []string{"--", "sh", "-c", "echo $$ > " + pids + "; exec env GORACE=atexit_sleep_ms=0 " + agentVariable + "=" + kind + " " + self}, strings.NewReader("Do it."), out, os.Stderr)
			if err != nil || !result.Failed || result.Message != "the turn was cancelled" {
				t.Errorf("%+v, %v", result, err)
			}
			text, err := os.ReadFile(pids)
			if err != nil {
				t.Fatal(err)
			}
			var group int
			if _, err := fmt.Sscan(string(text), &group); err != nil {
				t.Fatal(err)
			}
			// Processes that were killed take a moment to end.
			for deadline := time.Now().Add(5 * time.Second); syscall.Kill(-group, 0) == nil; {
				if time.Now().After(deadline) {
					t.Fatal("processes of the agent are left")
				}
				_ = exec.Command("sleep", "0.05").Run()
			}
		})
	}
}

type writer func([]byte)

func (w writer) Write(text []byte) (int, error) { w(text); return len(text), nil }

// TestArgs: the command line that the server makes is the one that the client reads.
func TestArgs(t *testing.T) {
	got := strings.Join(Options{Model: "large", Reasoning: "high", Session: "s1", Servers: true}.Args([]string{"agent", "--acp"}), " ")
	if want := "triphammer __acp --model large --reasoning high --session s1 --mcp-servers " + ServersFile + " -- agent --acp"; got != want {
		t.Errorf("%s, not %s", got, want)
	}
	if got := strings.Join(Options{}.Args([]string{"--odd"}), " "); got != "triphammer __acp -- --odd" {
		t.Error(got)
	}
}

// TestRead: an agent that prints a line itself cannot make an event of the server's.
func TestRead(t *testing.T) {
	for text, want := range map[string]string{
		`{"kind":"message","data":{"role":"assistant","text":"x"}}`:                                                "{assistant x}",
		`{"kind":"status","data":{"state":"SUCCEEDED","message":"ok","worker":"w","isolation":"none","head":"h"}}`: "{ ok     }",
		`{"kind":"file","data":{"path":"x"}}`:                                                                      "",
		`{"kind":"exit","data":{}}`:                                                                                "",
		`{"kind":"egress","data":{"host":"x"}}`:                                                                    "",
		`{"kind":"artifact","data":{}}`:                                                                            "",
		`{"kind":"phase","data":{}}`:                                                                               "",
		`{"kind":"started","data":{}}`:                                                                             "",
		`{"kind":"output","data":{"text":"x"}}`:                                                                    "",
		`{"kind":"message","data":7}`:                                                                              "",
		`{"kind":"newer","data":{}}`:                                                                               "",
		`{`:                                                                                                        "",
	} {
		events, ok := Read([]byte(text))
		got := ""
		if ok {
			got = fmt.Sprint(events[0])
		}
		if got != want {
			t.Errorf("%s is read as %q, not %q", text, got, want)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"kind":"command","data":{"id":"1","command":"make","exit_code":2}}`))
	f.Add([]byte(`{"kind":"result","data":{"failed":true}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if events, ok := Read(text); ok && len(events) != 1 {
			t.Errorf("%s is read as %v", text, events)
		}
	})
}

// FuzzUpdate: whatever an agent tells, the client does not panic, and prints what the server
// reads.
func FuzzUpdate(f *testing.F) {
	for _, text := range []string{
		`{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"x"}}`,
		`{"sessionUpdate":"tool_call","toolCallId":"1","title":"t","kind":"execute","status":"completed","rawInput":{"command":["a",1]},"rawOutput":{"exit_code":1e300}}`,
		`{"sessionUpdate":"tool_call_update","toolCallId":"1","status":"failed","rawOutput":["x"],"content":[{"type":"diff","path":"p","newText":""}],"_meta":{"terminal_exit":{"exit_code":"x"}}}`,
		`{"sessionUpdate":"usage_update","used":1,"size":2,"cost":{"amount":-1,"currency":"USD"}}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var u protocol.SessionUpdate
		if json.Unmarshal(text, &u) != nil {
			return
		}
		tr := turn{calls: make(map[string]*call), out: &output{w: writer(func(line []byte) {
			if _, ok := Read(line); !ok {
				t.Errorf("the server does not read %s", line)
			}
		})}}
		tr.update(u)
		tr.update(u)
		tr.flush()
	})
}
