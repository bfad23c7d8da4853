package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/sync/errgroup"

	"triphammer/cmd/triphammer/client/exit"
	"triphammer/server/mcp"
)

// tools starts triphammer mcp and connects to it. The client takes nothing on standard output
// but messages.
func (w *world) tools(env string, args ...string) (*sdk.ClientSession, *exec.Cmd) {
	w.t.Helper()
	cmd := w.command(append([]string{"mcp"}, args...)...)
	cmd.Env = append(cmd.Env, env)
	if env != "" {
		cmd.Env = append(cmd.Env, "TRIPHAMMER_DATA=")
	}
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	c := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	s, err := c.Connect(w.t.Context(), &sdk.CommandTransport{Command: cmd}, nil)
	if err != nil {
		w.t.Fatalf("%v\n%s", err, &complaints)
	}
	w.t.Cleanup(func() {
		_ = s.Close()
		if complaints.Len() > 0 {
			w.t.Errorf("it complained: %s", &complaints)
		}
	})
	return s, cmd
}

func useTool(t *testing.T, s *sdk.ClientSession, name string, arguments map[string]any) (text string, failed bool) {
	t.Helper()
	got, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: name, Arguments: arguments})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return got.Content[0].(*sdk.TextContent).Text, got.IsError
}

// TestToolsByCommand: triphammer mcp has the tools while no server runs, while one runs, and when
// it has ended, in one session that keeps no server from starting. By the network it has those of
// its key.
func TestToolsByCommand(t *testing.T) {
	w := newWorld(t, map[string]string{
		"factory.yaml": factoryYAML, "environments/env.yaml": "command: ['true']\n", "webhooks/hook.yaml": "secretName: S\n", "automations/a.md": automationFile("hook", "{n: [1]}"),
	})
	s, cmd := w.tools("")
	check := func(when, name string, arguments map[string]any, want string) {
		t.Helper()
		if text, failed := useTool(t, s, name, arguments); failed || !strings.Contains(text, want) {
			t.Errorf("%s: %s: %t %s", when, name, failed, text)
		}
	}
	var together errgroup.Group // models call several tools at once
	for range 5 {
		together.Go(func() error {
			got, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: "get_status"})
			if err == nil && got.IsError {
				err = fmt.Errorf("%s", got.Content[0].(*sdk.TextContent).Text)
			}
			return err
		})
	}
	if err := together.Wait(); err != nil {
		t.Errorf("five at once, without a server: %v", err)
	}
	check("before", "get_status", nil, `"state":"waiting"`)
	w.start()
	check("while a server runs", "list_webhooks", nil, `"name":"hook"`)
	check("while a server runs", "send_test_delivery", map[string]any{"webhook": "hook", "payload": `{"n":1}`}, `"outcome":"accepted"`)
	reader := strings.TrimSpace(w.run("", "keys", "create", "reader", "--scope", "read"))
	remote, _ := w.tools("TRIPHAMMER_API_KEY="+reader, "--server", "http://"+w.addr)
	listed, err := remote.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range listed.Tools {
		if !tool.Annotations.ReadOnlyHint {
			t.Errorf("a key of scope read sees %s", tool.Name)
		}
	}
	if text, failed := useTool(t, remote, "list_deliveries", nil); failed || !strings.Contains(text, `"outcome":"accepted"`) {
		t.Errorf("by the network: %s", text)
	}
	if text, failed := useTool(t, remote, "cancel_run", map[string]any{"run_id": "run_x"}); !failed || !strings.Contains(text, "cancel_run needs a key with the scope runs; this one has read") {
		t.Errorf("by its name: %s", text)
	}
	if text, failed := useTool(t, remote, "get_run", map[string]any{"run_id": "run_0000000000000"}); !failed || !strings.Contains(text, "not found") {
		t.Errorf("a run that there is not: %s", text)
	}
	w.run("", "keys", "revoke", "reader")
	if text, failed := useTool(t, remote, "get_status", nil); !failed || !strings.Contains(text, "has no key of this server; make one there") {
		t.Errorf("with a revoked key: %s", text)
	}
	w.kill()
	if text, failed := useTool(t, remote, "get_status", nil); !failed || !strings.Contains(text, "the server cannot be reached") {
		t.Errorf("without its server: %s", text)
	}
	check("afterwards", "list_deliveries", nil, `"outcome":"accepted"`)
	all, err := s.ListTools(t.Context(), nil)
	if err != nil || len(all.Tools) != len(mcp.Tools) {
		t.Errorf("who owns the data directory has %d tools of %d, %v", len(all.Tools), len(mcp.Tools), err)
	}
	if err := s.Close(); err != nil || cmd.ProcessState == nil || !cmd.ProcessState.Success() {
		t.Errorf("its end: %v, %v", err, cmd.ProcessState)
	}
}

// TestToolsByCommandRefuse: what cannot be is said on standard error, with a status of its own.
func TestToolsByCommandRefuse(t *testing.T) {
	w := newWorld(t, map[string]string{"factory.yaml": factoryYAML})
	w.start()
	for _, tt := range []struct {
		env, in, want string
		args          []string
		status        int
	}{
		{"TRIPHAMMER_API_KEY=wrong", "", "make one there with: triphammer keys create NAME", []string{"--server", "http://" + w.addr}, exit.Auth},
		{"TRIPHAMMER_API_KEY=", "", "cannot be reached", []string{"--server", "http://127.0.0.1:1"}, exit.Unreachable},
		{"", "{\"jsonrpc\": \n", "unexpected EOF", nil, exit.Usage},
		{"", "hello\n", "standard input is not messages of the Model Context Protocol", nil, exit.Usage},
	} {
		cmd := w.command(append([]string{"mcp"}, tt.args...)...)
		if len(tt.args) > 0 {
			cmd.Env = append(cmd.Env, "TRIPHAMMER_DATA=")
		}
		cmd.Env = append(cmd.Env, tt.env)
		cmd.Stdin = strings.NewReader(tt.in)
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		err := cmd.Run()
		if exitStatus(err) != tt.status || !strings.Contains(stderr.String(), tt.want) {
			t.Errorf("%v: %v: %s", tt.args, err, &stderr)
		}
		if stdout.Len() > 0 && !json.Valid(stdout.Bytes()) {
			t.Errorf("%v writes %s", tt.args, &stdout)
		}
	}
}
