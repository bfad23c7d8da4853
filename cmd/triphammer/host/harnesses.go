package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"triphammer/cmd/triphammer/client/settings"
	"triphammer/server/inert"
	"triphammer/server/run/event"
	"triphammer/server/run/fakemodel"
	"triphammer/server/run/task"
	"triphammer/server/secret"
	"triphammer/server/worker/executor"
	"triphammer/server/worker/harness"
)

// How long doctor waits for a harness. Some take 10 seconds to start on a busy machine.
const (
	versionTime = 30 * time.Second
	answerTime  = 2 * time.Minute
)

// OpencodeProvider is the configuration of opencode for a model at MODEL.
const OpencodeProvider = `{"model":"loop/m","autoupdate":false,"provider":{"loop":{"npm":"@ai-sdk/openai-compatible",` +
	`"options":{"baseURL":"MODEL/v1","apiKey":"{env:LOOP_KEY}"},"models":{"m":{}}}}}`

// loopback is what points each harness at the model at a URL.
func loopback(name, url string) (r harness.Request, known bool) {
	key := secret.New(fakemodel.Key)
	r.Auth = key
	switch name {
	case "claude":
		r.Env = map[string]string{"ANTHROPIC_BASE_URL": url}
	case "codex":
		r.Env = map[string]string{"OPENAI_BASE_URL": url + "/v1"}
	case "gemini":
		r.Env = map[string]string{"GOOGLE_GEMINI_BASE_URL": url}
	case "opencode":
		r = harness.Request{
			Model: "loop/m", Env: map[string]string{"OPENCODE_CONFIG_CONTENT": strings.ReplaceAll(OpencodeProvider, "MODEL", url)},
			Secrets: map[string]secret.Value{"LOOP_KEY": key},
		}
	default:
		return r, false
	}
	return r, true
}

// doctorHarnesses tells of each harness that is a program of its own name (SPEC 15.8). One
// that is not there is no problem, because perhaps nobody uses it. With try, each that is
// there has to answer.
func doctorHarnesses(c *cobra.Command, r *findings, isolation string) error {
	if err := settings.FromEnvironment(c.Flags(), nil, "run-read"); err != nil {
		return err
	}
	read, _ := c.Flags().GetStringSlice("run-read")
	try, _ := c.Flags().GetBool("try")
	dir, err := os.MkdirTemp("", "triphammer-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	walls := isolation
	if walls == "" { // no run starts here then, but a version can be told
		walls = executor.None
	}
	e, err := executor.New(executor.Config{Dir: dir, Isolation: walls, Read: read, Grace: time.Second})
	if err != nil {
		return err
	}
	defer func() {
		_, _ = e.Reclaim(context.WithoutCancel(c.Context()), func() bool { return false }, func(string) bool { return true })
	}()
	model := "" // its URL
	if try {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		server := &http.Server{Handler: fakemodel.Handler(), ReadHeaderTimeout: versionTime}
		var serving sync.WaitGroup
		serving.Go(func() { _ = server.Serve(l) }) // until it is closed
		defer func() {
			_ = server.Close()
			serving.Wait()
		}()
		model = "http://" + l.Addr().String()
	}
	for _, name := range DefaultHarnesses() {
		if c.Context().Err() != nil {
			return context.Cause(c.Context())
		}
		path, err := exec.LookPath(name)
		if err != nil {
			r.note(name, "not found in PATH: install it where the server runs, if definitions use it. The PATH is that of this terminal; --data or --server asks a server, which can have another one")
			continue
		}
		version, err := versionOf(c.Context(), e, name)
		if err != nil {
			if _, hidden := e.LookPath(name); hidden != nil { // which says more
				err = hidden
			}
			problem := fmt.Sprintf("found at %s, but runs cannot start it: %v", path, err)
			if try {
				r.say(false, name, problem)
			} else {
				r.note(name, problem)
			}
			continue
		}
		h := harness.Named(name)
		detail := "isolation " + isolation
		if isolation == "" {
			detail = "no isolation works here, so no run starts"
		}
		r.say(isolation != "", name, fmt.Sprintf("version %s, at %s; %s", version, path, detail))
		doctorCredential(r, h)
		if !try || isolation == "" {
			continue
		}
		if err := answers(c.Context(), e, h, model); err != nil {
			r.say(false, name, "does not answer: "+err.Error())
		} else {
			r.say(true, name, "answers, with a model on this machine in place of its own")
		}
	}
	return nil
}

// doctorCredential tells which variables with a credential are set. Their values are
// nobody's business.
func doctorCredential(r *findings, h *harness.Harness) {
	var set []string
	for _, name := range h.Variables {
		if os.Getenv(name) != "" {
			set = append(set, name)
		}
	}
	if len(set) == 0 {
		r.note(h.Name, "no credential in this environment: store one with triphammer secrets set NAME, "+
			"and say harness.auth: {source: managedSecret, secretName: NAME}")
		return
	}
	r.say(true, h.Name, fmt.Sprintf("credential in this environment: %s; runs get it if the server has --agent-env %s "+
		"and they say harness.auth: {source: workerEnvironment}",
		strings.Join(set, ", "), strings.Join(set, ",")))
}

// versionOf is what a harness says of its version, where runs are. Some write into their
// home even then.
func versionOf(ctx context.Context, e *executor.Executor, name string) (string, error) {
	out, err := tryRun(ctx, e, versionTime, &task.Task{Command: []string{name, "--version"}})
	if err != nil {
		return "", err
	}
	first, _, _ := strings.Cut(strings.TrimSpace(out.stdout.String()), "\n")
	switch {
	case out.exit.Code != 0:
		return "", fmt.Errorf("%s --version ends with exit status %d%s", name, out.exit.Code, out.last())
	case first == "":
		return "", fmt.Errorf("%s --version prints nothing", name)
	}
	return short(first), nil
}

// answers starts a harness as a run does, with the model at a URL. It returns why no answer
// comes back.
func answers(ctx context.Context, e *executor.Executor, h *harness.Harness, model string) error {
	request, known := loopback(h.Name, model)
	if !known {
		return errors.New("doctor does not know how to give it another model")
	}
	agent := h.Start(request)
	out, err := tryRun(ctx, e, answerTime, &task.Task{
		Prompt:  "This is a test of your installation.\n\nMODEL: say It works.\n",
		Command: agent.Command, Env: agent.Env, Secrets: agent.Secrets, Files: agent.Files, Network: task.Network{On: true},
	})
	if err != nil {
		return err
	}
	var result *event.Result
	for line := range strings.Lines(out.stdout.String()) {
		events, _ := agent.Parse([]byte(strings.TrimSpace(line)))
		for _, e := range events {
			if told, is := e.(event.Result); is {
				result = &told
			}
		}
	}
	switch {
	case result == nil:
		said := strings.TrimPrefix(out.last(), ": ")
		if text, _ := agent.Explain(said); text != "" {
			return errors.New(text)
		}
		return fmt.Errorf("it ended with exit status %d before it said that it had finished%s", out.exit.Code, out.last())
	case result.Failed:
		return errors.New(short(result.Message))
	}
	return nil
}

// tryRun executes a task that doctor made up.
func tryRun(ctx context.Context, e *executor.Executor, limit time.Duration, t *task.Task) (*heard, error) {
	late := fmt.Errorf("it has not ended after %v", limit)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, late)
	defer cancel()
	t.RunID = "run_doctor"
	out := &heard{}
	var err error
	if out.exit, err = e.Start(ctx, t, out); err == nil && out.exit.Stopped {
		err = context.Cause(ctx)
	}
	return out, err
}

// heard is what a program printed, as far as it matters.
type heard struct {
	mu             sync.Mutex
	stdout, stderr strings.Builder
	exit           task.Exit
}

// maxHeard bounds each output of a program, in bytes.
const maxHeard = 1 << 20

// Add implements task.Sink.
func (h *heard) Add(e event.Event) {
	o, is := e.(event.Output)
	if !is {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	to := &h.stdout
	if o.Stream == event.Stderr {
		to = &h.stderr
	}
	to.WriteString(o.Text[:min(len(o.Text), maxHeard-to.Len())])
}

// Keep implements task.Sink: doctor keeps nothing.
func (h *heard) Keep(event.Artifact, io.Reader) error { return nil }

// last is the last line on standard error, to be added to a sentence.
func (h *heard) last() string {
	said := strings.TrimSpace(h.stderr.String())
	if said = short(said[strings.LastIndexByte(said, '\n')+1:]); said != "" {
		said = ": " + said
	}
	return said
}

// short is what fits on a line of doctor.
func short(text string) string {
	text = strings.ToValidUTF8(strings.Join(strings.Fields(text), " "), "\uFFFD")
	if runes := []rune(text); len(runes) > 300 {
		text = string(runes[:300]) + "…"
	}
	return inert.Text(text)
}
