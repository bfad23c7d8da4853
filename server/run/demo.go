package run

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// greetingFile is what the demonstration agent leaves in its workspace.
const greetingFile = "GREETING.md"

// DemoAgent is the demonstration agent: a real process that needs no account
// (SPEC 11). It reads its prompt and the payload as any agent would, changes a
// file in its working directory, and says what it did.
func DemoAgent(stdin io.Reader, stdout io.Writer, getenv func(string) string) error {
	prompt, err := io.ReadAll(io.LimitReader(stdin, 1<<20))
	if err != nil {
		return fmt.Errorf("reading the prompt: %w", err)
	}
	work, _, _ := strings.Cut(strings.TrimSpace(string(prompt)), "\n")
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(stdout, format+"\n", args...) }
	say("I read my prompt (%d bytes). It begins: %s", len(prompt), work)

	payload, err := os.ReadFile(filepath.Join(getenv("TRIPHAMMER_ATTACHMENTS"), PayloadFile))
	switch {
	case errors.Is(err, os.ErrNotExist):
		say("No delivery started this run, so there is no payload.")
	case err != nil:
		return fmt.Errorf("reading the payload: %w", err)
	default:
		say("I read %s (%d bytes) of delivery %s to the webhook %s.", PayloadFile, len(payload), getenv("TRIPHAMMER_DELIVERY_ID"), getenv("TRIPHAMMER_WEBHOOK"))
	}

	var b strings.Builder
	fmt.Fprintf(&b, "# Hello, %s\n\n", greeted(payload))
	fmt.Fprintf(&b, "This file was written by the demonstration agent in run `%s`.\n", getenv("TRIPHAMMER_RUN_ID"))
	if id := getenv("TRIPHAMMER_DELIVERY_ID"); id != "" {
		fmt.Fprintf(&b, "\n- Automation: %s\n- Webhook: %s\n- Delivery: `%s`\n", getenv("TRIPHAMMER_AUTOMATION"), getenv("TRIPHAMMER_WEBHOOK"), id)
	}
	if len(payload) > 0 {
		fmt.Fprintf(&b, "\nThe payload that it was given:\n\n%s\n", indented(payload))
	}
	if err := os.WriteFile(greetingFile, []byte(b.String()), 0o644); err != nil {
		return fmt.Errorf("writing the greeting: %w", err)
	}
	say("I wrote %s.", greetingFile)
	return nil
}

// greeted is the name in the payload, or else "world".
func greeted(payload []byte) string {
	var fields map[string]json.RawMessage
	if json.Unmarshal(payload, &fields) != nil {
		return "world"
	}
	for _, key := range []string{"who", "name", "title", "message"} {
		var s string
		if json.Unmarshal(fields[key], &s) == nil && s != "" {
			line, _, _ := strings.Cut(s, "\n")
			return line
		}
	}
	return "world"
}

// indented is JSON as an indented Markdown code block, which a payload cannot end early.
func indented(payload []byte) string {
	var out bytes.Buffer
	if json.Indent(&out, payload, "", "  ") != nil {
		out.Reset()
		out.Write(payload)
	}
	lines := slices.Collect(strings.Lines(out.String()))
	return "    " + strings.Join(lines, "    ")
}
