package host

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"triphammer/cmd/triphammer/client/settings"
	"triphammer/server/inert"
	"triphammer/server/run/event"
	"triphammer/server/run/task"
	"triphammer/server/worker/executor"
	"triphammer/server/worker/harness"
)

// versionTime is how long doctor waits for a harness. Some take 10 seconds to start on a busy
// machine.
const versionTime = 30 * time.Second

// doctorHarnesses tells of each harness that is a program of its own name (SPEC 15.8). One
// that is not there is no problem, because perhaps nobody uses it.
func doctorHarnesses(c *cobra.Command, r *findings, isolation string) error {
	if err := settings.FromEnvironment(c.Flags(), nil, "run-read"); err != nil {
		return err
	}
	read, _ := c.Flags().GetStringSlice("run-read")
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
	for _, name := range DefaultHarnesses() {
		if c.Context().Err() != nil {
			return context.Cause(c.Context())
		}
		path, err := exec.LookPath(name)
		if err != nil {
			r.note(name, "not found in PATH: install it where the server runs, if definitions use it. The PATH is that of this terminal; --data or --server asks a server, which can have another")
			continue
		}
		version, err := versionOf(c.Context(), e, name)
		if err != nil {
			if _, hidden := e.LookPath(name); hidden != nil { // which says more
				err = hidden
			}
			r.note(name, fmt.Sprintf("found at %s, but runs cannot start it: %v", path, err))
			continue
		}
		detail := "isolation " + isolation
		if isolation == "" {
			detail = "no isolation works here, so no run starts"
		}
		r.say(isolation != "", name, fmt.Sprintf("version %s, at %s; %s", version, path, detail))
		doctorCredential(r, harness.Named(name))
	}
	return nil
}

// outside says where the key of a run's model is.
const outside = "A key stays outside the run, at its gateway; a login of a subscription is inside"

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
			"and say harness.auth: {source: managedSecret, secretName: NAME}. "+outside)
		return
	}
	r.say(true, h.Name, fmt.Sprintf("credential in this environment: %s; runs get it if the server has --agent-env %s "+
		"and they say harness.auth: {source: workerEnvironment}. %s",
		strings.Join(set, ", "), strings.Join(set, ","), outside))
}

// versionOf is what a harness says of its version, where runs are. Some write into their
// home even then.
func versionOf(ctx context.Context, e *executor.Executor, name string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, versionTime, fmt.Errorf("it has not ended after %v", versionTime))
	defer cancel()
	out := &heard{}
	exit, err := e.Start(ctx, &task.Task{RunID: "run_doctor", Command: []string{name, "--version"}}, out)
	if err == nil && exit.Stopped {
		err = context.Cause(ctx)
	}
	if err != nil {
		return "", err
	}
	first, _, _ := strings.Cut(strings.TrimSpace(out.stdout.String()), "\n")
	switch {
	case exit.Code != 0:
		return "", fmt.Errorf("%s --version ends with exit status %d%s", name, exit.Code, out.last())
	case first == "":
		return "", fmt.Errorf("%s --version prints nothing", name)
	}
	return short(first), nil
}

// heard is what a program printed, as far as it matters.
type heard struct {
	mu             sync.Mutex
	stdout, stderr strings.Builder
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
