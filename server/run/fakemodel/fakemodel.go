// Package fakemodel is a model that plays scripts instead of thinking. It speaks the four
// wire formats that coding agents speak, so that tests run the real
// agents without a real model.
//
// The script is in the prompt: each line that begins with "MODEL: " is one answer of the
// model, in order. The newest message of the user with such lines counts, so each turn of
// a conversation has its own script.
//
//	MODEL: say TEXT         the model says the text, which ends the turn
//	MODEL: run COMMAND      the model asks the agent to run a shell command
//	MODEL: call TOOL JSON   the model asks the agent to call the tool whose name ends with TOOL
//	MODEL: repeat COMMAND   like run, again and again without end
//	MODEL: fail STATUS      the request fails with this HTTP status
//	MODEL: wait             no answer comes
//
// After the last line the model says "Done."
package fakemodel

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// Key is the only credential that the model accepts. To any other it answers 401.
const Key = "loopback-model-key"

// The usage that each answer reports.
const (
	InputTokens  = 1000
	OutputTokens = 50
)

// maxRequest bounds a request, in bytes. Agents send their whole conversation.
const maxRequest = 16 << 20

const marker = "MODEL: "

// codeTool is the tool of Codex that runs programs in JavaScript.
const codeTool = "exec"

// Handler answers requests of the Anthropic, OpenAI (responses and chat) and Gemini APIs.
// It keeps no state: everything is in the request.
func Handler() http.Handler {
	mux := http.NewServeMux()
	for path, w := range map[string]wire{
		"POST /v1/messages":               anthropic{},
		"POST /v1/responses":              responses{},
		"POST /v1/chat/completions":       chat{},
		"POST /v1beta/models/{operation}": gemini{},
	} {
		mux.HandleFunc(path, func(rw http.ResponseWriter, r *http.Request) { serve(rw, r, w) })
	}
	// Codex asks for a WebSocket first. This answer makes it go on without.
	mux.HandleFunc("GET /v1/responses", func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusUpgradeRequired) })
	return mux
}

// wire is one of the formats.
type wire interface {
	// read makes a conversation of a request.
	read(r *http.Request, body []byte) (conversation, error)
	// answer makes the events of the stream, or one value if the request wants no stream.
	answer(c conversation, a answer) []any
	// failure makes the body of an error.
	failure(status int, message string) any
}

// conversation is what a request asks to continue.
type conversation struct {
	model  string
	stream bool
	tools  []tool
	code   bool     // the agent offers one tool that runs programs, which call the other tools
	script []string // the lines after the marker, in the newest message that has it
	done   int      // number of tools' results since that message
}

// tool is a tool that the agent offers.
type tool struct {
	name       string
	space      string         // for Codex: the group of the tool
	parameters map[string]any // JSON Schemas of its parameters, by name
}

// said takes a text of the user.
func (c *conversation) said(text string) {
	var script []string
	for line := range strings.Lines(text) {
		if step, ok := strings.CutPrefix(strings.TrimSpace(line), marker); ok {
			script = append(script, step)
		}
	}
	if script != nil {
		c.script, c.done = script, 0
	}
}

// answer is the next answer of the model: a text or a call of a tool.
type answer struct {
	text  string
	tool  string
	space string // of the tool
	args  string // JSON, or a program if code is set
	code  bool
	id    string // of the call
}

func serve(rw http.ResponseWriter, r *http.Request, w wire) {
	body, err := io.ReadAll(http.MaxBytesReader(rw, r.Body, maxRequest))
	if err != nil {
		fail(rw, w, http.StatusBadRequest, err.Error())
		return
	}
	if !authorized(r) {
		fail(rw, w, http.StatusUnauthorized, "invalid API key")
		return
	}
	c, err := w.read(r, body)
	if err != nil {
		fail(rw, w, http.StatusBadRequest, err.Error())
		return
	}
	step := "say Done."
	if len(c.script) > 0 {
		last := len(c.script) - 1
		if c.done <= last {
			step = c.script[c.done]
		} else if strings.HasPrefix(c.script[last], "repeat ") {
			step = c.script[last]
		}
	}
	verb, rest, _ := strings.Cut(step, " ")
	// A number that no answer of this conversation had, without keeping any.
	a := answer{id: fmt.Sprintf("%d_%d", len(body), c.done+1)}
	switch verb {
	case "say":
		a.text = rest
	case "run", "repeat":
		c.shell(&a, rest)
	case "call":
		name, args, ok := strings.Cut(rest, " ")
		if !ok {
			args = "{}"
		}
		if !json.Valid([]byte(args)) {
			fail(rw, w, http.StatusBadRequest, "the script has arguments that are not JSON: "+args)
			return
		}
		c.call(&a, name, args)
	case "fail":
		status, err := strconv.Atoi(rest)
		if err != nil || status < 400 || status > 599 {
			fail(rw, w, http.StatusBadRequest, "the script has no such status: "+rest)
			return
		}
		fail(rw, w, status, "the script says so")
		return
	case "wait":
		<-r.Context().Done()
		return
	default:
		fail(rw, w, http.StatusBadRequest, "the script has an unknown step: "+step)
		return
	}
	if a.text == "" && a.tool == "" {
		// A request beside the conversation, such as one for a title, offers no tools.
		a.text = "The agent offers no such tool."
	}
	send(rw, c.stream, w.answer(c, a))
}

// authorized tells whether a request has the key, wherever its format puts it.
func authorized(r *http.Request) bool {
	bearer, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	for _, key := range []string{bearer, r.Header.Get("X-Api-Key"), r.Header.Get("X-Goog-Api-Key"), r.URL.Query().Get("key")} {
		if key == Key {
			return true
		}
	}
	return false
}

// shell makes the answer a call that runs a command. The answer stays empty if the agent
// offers no shell.
func (c *conversation) shell(a *answer, command string) {
	for _, known := range []string{"Bash", "bash", "run_shell_command", "exec_command", "shell_command", "shell"} {
		for _, t := range c.tools {
			if t.name == known {
				a.tool, a.args = t.name, t.arguments(command)
				return
			}
		}
	}
	if c.code {
		text, _ := json.Marshal(command) // a string
		a.tool, a.code = codeTool, true
		a.args = fmt.Sprintf("const r = await tools.exec_command({cmd: %s, yield_time_ms: 30000}); text(r.output + '\\nexit status ' + r.exit_code)", text)
	}
}

// arguments makes the arguments of a shell. Each agent chooses their names and types.
func (t tool) arguments(command string) string {
	args := make(map[string]any)
	for _, name := range []string{"command", "cmd"} {
		schema, ok := t.parameters[name].(map[string]any)
		switch {
		case !ok:
		case schema["type"] == "array":
			args[name] = []string{"/bin/sh", "-c", command}
		default:
			args[name] = command
		}
	}
	if _, ok := t.parameters["description"]; ok {
		args["description"] = "What the script says"
	}
	text, _ := json.Marshal(args) // of strings
	return string(text)
}

// call makes the answer a call of the tool whose name ends with suffix. Agents put the name of
// the server before the name of the tool.
func (c *conversation) call(a *answer, suffix, args string) {
	for _, t := range c.tools {
		if strings.HasSuffix(t.name, suffix) {
			a.tool, a.space, a.args = t.name, t.space, args
			return
		}
	}
	if c.code {
		text, _ := json.Marshal(suffix) // a string
		a.tool, a.code = codeTool, true
		a.args = fmt.Sprintf("const t = ALL_TOOLS.find(t => t.name.endsWith(%s)); text(t ? await tools[t.name](%s) : 'no such tool')", text, args)
	}
}

func fail(rw http.ResponseWriter, w wire, status int, message string) {
	rw.Header().Set("Content-Type", "application/json")
	rw.Header().Set("X-Should-Retry", "false") // clients of Anthropic and OpenAI heed it
	rw.WriteHeader(status)
	_ = json.NewEncoder(rw).Encode(w.failure(status, message)) // the client may have gone
}

// send writes the events. The type of an event is its name.
func send(rw http.ResponseWriter, stream bool, events []any) {
	if !stream {
		rw.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(rw).Encode(events[0]) // the client may have gone
		return
	}
	rw.Header().Set("Content-Type", "text/event-stream")
	for _, e := range events {
		if m, ok := e.(object); ok && m["type"] != nil {
			fmt.Fprintf(rw, "event: %s\n", m["type"])
		}
		if text, ok := e.(string); ok {
			fmt.Fprintf(rw, "data: %s\n\n", text)
			continue
		}
		text, _ := json.Marshal(e) // maps of strings and numbers
		fmt.Fprintf(rw, "data: %s\n\n", text)
	}
}

// object is a JSON object.
type object = map[string]any
