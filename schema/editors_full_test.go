//go:build full

package schema

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// languageServer is yaml-language-server, which VS Code and Neovim run, spoken to
// as an editor speaks to it.
type languageServer struct {
	t        *testing.T
	in       io.Writer
	out      *bufio.Reader
	settings any // section yaml
	last     int
}

type message struct {
	ID     json.RawMessage `json:"id,omitempty"`
	Method string          `json:"method,omitempty"`
	Params json.RawMessage `json:"params,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
}

func startLanguageServer(t *testing.T, root string, settings any) *languageServer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	cmd := exec.CommandContext(ctx, "yaml-language-server", "--stdio")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("%v; npm install -g yaml-language-server", err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it was killed
	})
	s := &languageServer{t: t, in: in, out: bufio.NewReader(out), settings: settings}
	uri := "file://" + root
	s.call("initialize", map[string]any{
		"rootUri": uri, "workspaceFolders": []any{map[string]any{"uri": uri, "name": "factory"}},
		"capabilities": map[string]any{"workspace": map[string]any{"configuration": true}},
	})
	s.send(map[string]any{"method": "initialized", "params": map[string]any{}})
	s.send(map[string]any{"method": "workspace/didChangeConfiguration", "params": map[string]any{"settings": map[string]any{"yaml": settings}}})
	return s
}

func (s *languageServer) send(m map[string]any) {
	s.t.Helper()
	m["jsonrpc"] = "2.0"
	text, err := json.Marshal(m)
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := fmt.Fprintf(s.in, "Content-Length: %d\r\n\r\n%s", len(text), text); err != nil {
		s.t.Fatal(err)
	}
}

// next reads one message, and answers it if it is a question.
func (s *languageServer) next() message {
	s.t.Helper()
	length := 0
	for {
		line, err := s.out.ReadString('\n')
		if err != nil {
			s.t.Fatalf("the language server says no more: %v", err)
		}
		if line = strings.TrimSpace(line); line == "" {
			break
		}
		if value, ok := strings.CutPrefix(line, "Content-Length: "); ok {
			length, _ = strconv.Atoi(value)
		}
	}
	text := make([]byte, length)
	var m message
	if _, err := io.ReadFull(s.out, text); err != nil {
		s.t.Fatal(err)
	}
	if err := json.Unmarshal(text, &m); err != nil {
		s.t.Fatal(err)
	}
	if m.Method != "" && len(m.ID) > 0 {
		var asked struct{ Items []struct{ Section string } }
		_ = json.Unmarshal(m.Params, &asked) // other questions have no items
		var answer []any
		for _, item := range asked.Items {
			if item.Section == "yaml" {
				answer = append(answer, s.settings)
			} else {
				answer = append(answer, nil)
			}
		}
		s.send(map[string]any{"id": m.ID, "result": answer})
	}
	return m
}

func (s *languageServer) call(method string, params any) string {
	s.t.Helper()
	s.last++
	s.send(map[string]any{"id": s.last, "method": method, "params": params})
	for {
		if m := s.next(); m.Method == "" && string(m.ID) == strconv.Itoa(s.last) {
			return string(m.Result)
		}
	}
}

// findings waits until the findings about a file are those wanted, as
// "line:column message" or the beginning of it. It gives up with the server.
func (s *languageServer) findings(uri string, want ...string) {
	s.t.Helper()
	var got []string
	defer func() {
		if s.t.Failed() {
			s.t.Errorf("%s: found %q, want %q", uri, got, want)
		}
	}()
	for {
		m := s.next()
		if m.Method != "textDocument/publishDiagnostics" {
			continue
		}
		var p struct {
			URI         string
			Diagnostics []struct {
				Message string
				Range   struct{ Start struct{ Line, Character int } }
			}
		}
		if err := json.Unmarshal(m.Params, &p); err != nil {
			s.t.Fatal(err)
		}
		if p.URI != uri {
			continue
		}
		got = nil
		for _, d := range p.Diagnostics {
			got = append(got, fmt.Sprintf("%d:%d %s", d.Range.Start.Line+1, d.Range.Start.Character+1, d.Message))
		}
		if sameFindings(got, want) {
			return
		}
	}
}

func sameFindings(got, want []string) bool {
	for _, w := range want {
		found := false
		for _, g := range got {
			found = found || strings.HasPrefix(g, w)
		}
		if !found {
			return false
		}
	}
	return len(got) == len(want)
}

// TestEditors: what docs/editors.md says of editors that run
// yaml-language-server.
func TestEditors(t *testing.T) {
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		one, ok := LookupJSONSchema(path.Base(r.URL.Path))
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(one.Text)
	}))
	defer endpoint.Close()
	root := t.TempDir()
	for _, name := range JSONSchemaNames() {
		one, _ := LookupJSONSchema(name)
		writeFile(t, filepath.Join(root, ".schema", name+jsonSchemaExt), string(one.Text))
	}
	s := startLanguageServer(t, root, map[string]any{
		"validate": true, "hover": true, "completion": true, "schemaStore": map[string]any{"enable": false},
		"schemas": map[string]any{"./.schema/environment.schema.json": "environments/*.yaml"},
	})
	trigger := "triggers:\n  - provider: webhook\n    event: received\n    filter: {webhooks: [hello]}\n"
	for _, c := range []struct {
		name, file, bad string
		want            []string
		good            string
	}{
		{
			"modeline with a path", "webhooks/hello.yaml",
			"# yaml-language-server: $schema=../.schema/webhook.schema.json\nsecretname: X\nsignatureScheme: stripe\n",
			[]string{`2:1 Missing property "secretName"`, "2:1 Property secretname is not allowed", "3:1 signatureScheme, signature and replayWindow need authMode: signature"},
			"# yaml-language-server: $schema=../.schema/webhook.schema.json\nsecretName: X\nsignatureScheme: stripe\nauthMode: signature\n",
		},
		{
			"modeline with a server's address", "factory.yaml",
			"# yaml-language-server: $schema=" + endpoint.URL + "/api/v1/factory-files/schemas/v1alpha1/factory\nschemaVersion: v1alpha1\nname: x\nagentDefaults: {harness: {type: clade}}\n",
			[]string{"4:33 Value is not accepted"},
			"# yaml-language-server: $schema=" + endpoint.URL + "/api/v1/factory-files/schemas/v1alpha1/factory\nschemaVersion: v1alpha1\nname: x\nagentDefaults: {harness: {type: claude}}\n",
		},
		{
			"settings", "environments/app.yaml",
			"timeoutMinutes: 0\n",
			[]string{"1:17 Value is below the exclusive minimum of 0"},
			"timeoutMinutes: 1\n",
		},
		{
			"front matter, opened as YAML", "automations/hello/automation.md",
			"---\n# yaml-language-server: $schema=../../.schema/automation.schema.json\nenabeld: true\n" + trigger + "---\nGreet them.\n",
			[]string{"3:1 Property enabeld is not allowed"},
			"---\n# yaml-language-server: $schema=../../.schema/automation.schema.json\nenabled: true\n" + trigger + "---\nGreet them.\n",
		},
		{
			"a body that is no YAML", "automations/list/automation.md",
			"---\n# yaml-language-server: $schema=../../.schema/automation.schema.json\n" + trigger + "---\nGreet whoever: the payload names.\n\n- a list\n",
			[]string{"9:1 ", "10:1 ", "10:1 "},
			"---\n# yaml-language-server: $schema=../../.schema/automation.schema.json\n" + trigger + "---\n",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s.t = t
			uri := "file://" + root + "/" + c.file
			writeFile(t, filepath.Join(root, c.file), c.bad)
			document := map[string]any{"uri": uri, "languageId": "yaml", "version": 1, "text": c.bad}
			s.send(map[string]any{"method": "textDocument/didOpen", "params": map[string]any{"textDocument": document}})
			s.findings(uri, c.want...)
			s.send(map[string]any{"method": "textDocument/didChange", "params": map[string]any{
				"textDocument": map[string]any{"uri": uri, "version": 2}, "contentChanges": []any{map[string]any{"text": c.good}},
			}})
			s.findings(uri)
		})
	}
	at := func(file string, line, column int) map[string]any {
		return map[string]any{
			"textDocument": map[string]any{"uri": "file://" + root + "/" + file}, "position": map[string]any{"line": line - 1, "character": column - 1},
		}
	}
	s.t = t
	if hover := s.call("textDocument/hover", at("automations/hello/automation.md", 6, 8)); !strings.Contains(hover, "depends on the provider") || strings.Contains(hover, "push") {
		t.Errorf("hover of event: %s", hover)
	}
	if list := s.call("textDocument/completion", at("webhooks/hello.yaml", 3, 18)); !strings.Contains(list, `"standard_webhooks"`) {
		t.Errorf("completion of signatureScheme: %s", list)
	}
}

func writeFile(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
