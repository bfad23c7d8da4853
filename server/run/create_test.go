package run

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"triphammer/applier"
	"triphammer/applier/gitrepo"
	"triphammer/factory"
	"triphammer/server/run/task"
	"triphammer/server/store"
)

// nursery is what runs are created from: a store and two factories.
type nursery struct {
	*clockworks
}

func newNursery(t *testing.T) *nursery {
	t.Helper()
	n := &nursery{newClockworks(t, time.Now)}
	n.live = &applier.Live{}
	n.live.Swap(&applier.Revision{Factory: "one", Commit: gitrepo.Commit{Hash: "c1"}, Definition: load(t, with(map[string]string{
		"runners/small.yaml": "platform: {linux: {dockerImage: debian}}\n", "environments/only.yaml": "command: [make]\n",
		"agents/fixer/agent.md": "---\nenvironmentId: bare\nharness: {type: claude, model: m0, auth: {source: managedSecret, secretName: KEY}}\n---\nYou fix.\n",
	}))})
	n.live.Swap(&applier.Revision{Factory: "two", Definition: load(t, tree)})
	return n
}

func (n *nursery) from(req Request) (store.NewRun, error) {
	return FromRequest(n.Context(), n.store, n.live, req)
}

// born is a stored run of a request.
func (n *nursery) born(req Request) store.RunID {
	n.Helper()
	r, err := n.from(req)
	if err != nil {
		n.Fatal(err)
	}
	made, _, err := n.store.Runs.Create(n.Context(), r, "", nil)
	if err != nil {
		n.Fatal(err)
	}
	return made.ID
}

// TestFromRequest: what a run is that was asked for (SPEC 9.7).
func TestFromRequest(t *testing.T) {
	n := newNursery(t)
	r, err := n.from(Request{
		Caller: Caller{CreatorKind: "user", CreatorName: "ada"}, Prompt: "Say hello.\nThen more.", BasePrompt: "Be brief.", Agent: "one/fixer",
		Environment: "web", Runner: "small", Config: json.RawMessage(`{"x":1}`), Metadata: map[string]string{"a": "1"},
		Harness: factory.Harness{Model: "m1"}, Attachments: []task.Attachment{{Name: "a.txt", Data: []byte("x")}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.Factory != "one" || r.Commit != "c1" || r.Source != store.SourceAPI || r.Title != "Say hello." || r.CreatorKind != "user" || r.CreatorName != "ada" ||
		r.SpecHash != sha256.Sum256(r.Spec) || r.Metadata["a"] != "1" || !slices.Equal(r.Search, []string{"Say hello.", "Say hello.\nThen more."}) {
		t.Errorf("%+v", r)
	}
	s, err := DecodeSpec(r.Spec)
	if err != nil || s.Agent != "fixer" || s.AgentPrompt != "You fix.\n\nBe brief." || s.Prompt != "Say hello.\nThen more." || s.Environment.Name != "web" ||
		s.Path != "environments/web.yaml" || string(s.Config) != `{"x":1}` || len(s.Attachments) != 1 || s.Problem != "" ||
		!reflect.DeepEqual(s.Harness, factory.Harness{Type: "claude", Model: "m1", AuthSecret: "KEY"}) {
		t.Errorf("%+v %v", s, err)
	}
}

// TestGrantsOfRequest: a request brings MCP servers and a worker, and chooses among the
// granted secrets; it grants none.
func TestGrantsOfRequest(t *testing.T) {
	n := newNursery(t)
	own := MCPServer{Name: "own", URL: "https://example.com/"}
	r, err := n.from(Request{Prompt: "x", Agent: "one/fixer", MCPServers: []MCPServer{own}, Worker: "attic", AuthSecrets: map[string]string{"claude": "KEY", "codex": "OTHER"}})
	if err != nil {
		t.Fatal(err)
	}
	if s, err := DecodeSpec(r.Spec); err != nil || s.WorkerHost != "attic" || !slices.ContainsFunc(s.MCPServers, func(m MCPServer) bool { return reflect.DeepEqual(m, own) }) || s.Harness.AuthSecret != "KEY" {
		t.Errorf("%+v, %v", s, err)
	}
	for want, req := range map[string]Request{
		"the definitions do not grant the secret ADMIN":                    {Agent: "one/fixer", AuthSecrets: map[string]string{"claude": "ADMIN"}},
		`they have none for the harness of this run, which is "claude"`:    {Agent: "one/fixer", AuthSecrets: map[string]string{"codex": "KEY"}},
		"config.mcp_servers is not supported here: environments/only.yaml": {Environment: "only", MCPServers: []MCPServer{own}},
		"config.harness_auth_secrets is not supported here: environments/": {Environment: "only", AuthSecrets: map[string]string{"claude": "KEY"}},
	} {
		req.Prompt = "x"
		refused := (*RefusedError)(nil)
		if _, err := n.from(req); !errors.As(err, &refused) || !refused.Unsupported || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}

// TestHarnessOfRequest: another harness does not inherit a model or a credential
// that are not its own.
func TestHarnessOfRequest(t *testing.T) {
	n := newNursery(t)
	for _, tt := range []struct{ asked, want factory.Harness }{
		{factory.Harness{}, factory.Harness{Type: "claude", Model: "m0", AuthSecret: "KEY"}},
		{factory.Harness{Type: "claude", ReasoningLevel: "high"}, factory.Harness{Type: "claude", Model: "m0", ReasoningLevel: "high", AuthSecret: "KEY"}},
		{factory.Harness{Type: "codex", Model: "m"}, factory.Harness{Type: "codex", Model: "m"}},
	} {
		r, err := n.from(Request{Prompt: "x", Agent: "one/fixer", Harness: tt.asked})
		if err != nil {
			t.Fatal(err)
		}
		if s, err := DecodeSpec(r.Spec); err != nil || !reflect.DeepEqual(s.Harness, tt.want) || s.Environment.Name != "bare" {
			t.Errorf("%+v is %+v, %v", tt.asked, s, err)
		}
	}
}

// TestWhoseNames: with several factories, an agent or an environment that is
// FACTORY/NAME, the request or the caller says whose names are meant.
func TestWhoseNames(t *testing.T) {
	n := newNursery(t)
	for _, tt := range []struct {
		req     Request
		factory string
		refused string
	}{
		{Request{}, "", "config.environment_id is missing, and there are several factories"},
		{Request{Environment: "web"}, "", `config.environment_id "web" is in several factories: write FACTORY/web`},
		{Request{Environment: "only"}, "one", ""},
		{Request{Environment: "two/web"}, "two", ""},
		{Request{Environment: "two/only"}, "", `config.environment_id "two/only" is no environment here; it can be bare, web`},
		{Request{Environment: "two/"}, "", `config.environment_id "two/" is not NAME or FACTORY/NAME`},
		{Request{Environment: "/web"}, "", `config.environment_id "/web" is not NAME or FACTORY/NAME`},
		{Request{Agent: "boss"}, "", "config.environment_id is missing, and there are several factories"},
		{Request{Agent: "two/boss"}, "two", ""},
		{Request{Agent: "two/boss", Environment: "web"}, "two", ""},
		{Request{Agent: "boss", Environment: "two/web"}, "two", ""},
		{Request{Agent: "two/boss", Environment: "one/web"}, "", "agent_identity_uid names no agent of the factory one"},
		{Request{Agent: "two/fixer"}, "", "agent_identity_uid names no agent of the factory two"},
		{Request{Agent: "three/boss"}, "", `config.environment_id is missing, and there is no factory "three"`},
		{Request{Factory: "two"}, "two", ""},
		{Request{Factory: "two", Environment: "web"}, "two", ""},
		{Request{Factory: "two", Environment: "one/web"}, "one", ""},
		{Request{Caller: Caller{Factory: "two"}}, "two", ""},
		{Request{Caller: Caller{Factory: "two"}, Environment: "one/web"}, "", `config.environment_id "one/web" is no environment here`},
		{Request{Caller: Caller{Factory: "none"}, Environment: "web"}, "", `config.environment_id "web" is no environment here`},
		{Request{Factory: "two", Runner: "small"}, "", "config.runner_id names no runner of the factory two"},
	} {
		tt.req.Prompt = "x"
		r, err := n.from(tt.req)
		if refused := fmt.Sprint(err); r.Factory != tt.factory || tt.refused != "" && refused != tt.refused || tt.refused == "" && err != nil {
			t.Errorf("%+v: %q, %v", tt.req, r.Factory, err)
		}
	}
	n.live = &applier.Live{}
	if _, err := n.from(Request{Prompt: "x"}); err == nil || err.Error() != "config.environment_id names nothing: no definitions serve yet (triphammer status)" {
		t.Error(err)
	}
	n.live.Swap(&applier.Revision{Factory: "f", Definition: &factory.Factory{Defaults: factory.Settings{EnvironmentID: "gone"}}})
	if _, err := n.from(Request{Prompt: "x"}); err == nil || err.Error() != `there is no environment "gone": the factory defines none; add environments/gone.yaml` {
		t.Error(err)
	}
	n.live.Swap(&applier.Revision{Factory: "f", Definition: &factory.Factory{
		Defaults: factory.Settings{EnvironmentID: "gone"}, Environments: []*factory.Environment{{Name: "bare"}, {Name: "web"}},
	}})
	if _, err := n.from(Request{Prompt: "x"}); err == nil || err.Error() != `there is no environment "gone": the factory has bare, web` {
		t.Error(err)
	}
}

// TestRefusedRequests: a request that asks for too much says which field does.
func TestRefusedRequests(t *testing.T) {
	n := newNursery(t)
	many := make(map[string]string)
	for i := range maxMetadata + 1 {
		many[fmt.Sprint(i)] = ""
	}
	files := func(names ...string) (all []task.Attachment) {
		for _, name := range names {
			all = append(all, task.Attachment{Name: name})
		}
		return all
	}
	const keys, value = "has keys of 1 to 64 of a-z, A-Z, 0-9, dot, _ and -", "has at most 256 bytes of UTF-8, without NUL"
	for _, tt := range []struct {
		req            Request
		field, message string
	}{
		{Request{Prompt: " \n"}, "prompt", "is required"},
		{Request{Metadata: many}, "metadata", "has at most 20 keys"},
		{Request{Metadata: map[string]string{"": ""}}, "metadata", keys},
		{Request{Metadata: map[string]string{"a b": ""}}, "metadata", keys},
		{Request{Metadata: map[string]string{strings.Repeat("a", 65): ""}}, "metadata", keys},
		{Request{Metadata: map[string]string{"a": strings.Repeat("x", 257)}}, "metadata.a", value},
		{Request{Metadata: map[string]string{"a": "\xff"}}, "metadata.a", value},
		{Request{Metadata: map[string]string{"a": "\x00"}}, "metadata.a", value},
		{Request{Attachments: files("1", "2", "3", "4", "5", "6")}, "attachments", "are at most 5"},
		{Request{Attachments: files("a", "")}, "attachments[1].file_name", "is a plain file name of at most 255 bytes"},
		{Request{Attachments: files("..")}, "attachments[0].file_name", "is a plain file name of at most 255 bytes"},
		{Request{Attachments: files("../a")}, "attachments[0].file_name", "is a plain file name of at most 255 bytes"},
		{Request{Attachments: files(`a\b`)}, "attachments[0].file_name", "is a plain file name of at most 255 bytes"},
		{Request{Attachments: files(strings.Repeat("a", 256))}, "attachments[0].file_name", "is a plain file name of at most 255 bytes"},
		{Request{Attachments: files("a", "a")}, "attachments[1].file_name", "is there twice"},
		{Request{Parent: 1}, "parent_run_id", "names no run"},
	} {
		if tt.field != "prompt" {
			tt.req.Prompt = "x"
		}
		tt.req.Factory = "one"
		_, err := n.from(tt.req)
		if refused := (*RefusedError)(nil); !errors.As(err, &refused) || refused.Field != tt.field || refused.Message != tt.message {
			t.Errorf("%+v: %v, want %s %s", tt.req, err, tt.field, tt.message)
		}
	}
	if _, err := n.from(Request{Factory: "one"}); err == nil || err.Error() != "prompt is missing" {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := FromRequest(ctx, n.store, n.live, Request{Prompt: "x", Factory: "one", Parent: 1})
	if refused := (*RefusedError)(nil); err == nil || errors.As(err, &refused) {
		t.Errorf("what could not be read is refused: %v", err)
	}
}

// TestChains: a run inherits its parent's metadata under its own; a chain of runs
// ends, and another factory's run is no parent.
func TestChains(t *testing.T) {
	n := newNursery(t)
	parent := n.born(Request{Prompt: "x", Factory: "one", Metadata: map[string]string{"a": "1", "b": "1"}})
	r, err := n.from(Request{Prompt: "x", Factory: "one", Parent: parent, Metadata: map[string]string{"b": "2"}})
	if err != nil || r.ParentID != parent || !maps.Equal(r.Metadata, map[string]string{"a": "1", "b": "2"}) {
		t.Errorf("%+v %v", r, err)
	}
	_, err = n.from(Request{Prompt: "x", Parent: parent, Caller: Caller{Factory: "two"}})
	if err == nil || err.Error() != "parent_run_id names no run" {
		t.Errorf("of another factory: %v", err)
	}
	more := make(map[string]string)
	for i := range maxMetadata - 1 {
		more[fmt.Sprint(i)] = ""
	}
	_, err = n.from(Request{Prompt: "x", Factory: "one", Parent: parent, Metadata: more})
	if err == nil || err.Error() != "metadata has at most 20 keys, with those of the parent" {
		t.Errorf("with the parent's: %v", err)
	}
	for range maxDepth - 1 {
		parent = n.born(Request{Prompt: "x", Factory: "one", Parent: parent})
	}
	_, err = n.from(Request{Prompt: "x", Factory: "one", Parent: parent})
	if err == nil || err.Error() != "parent_run_id would make a chain of more than 10 runs" {
		t.Errorf("a chain has no end: %v", err)
	}
}

// TestTitle: a title is the first line of the prompt, cut to what a list shows.
func TestTitle(t *testing.T) {
	for _, c := range []struct{ title, prompt, want string }{
		{"", "Say hello.\nThen more.", "Say hello."},
		{"Given", "Say hello.", "Given"},
		{"", strings.Repeat("é", MaxTitle+1), strings.Repeat("é", MaxTitle-1) + "…"},
	} {
		if got := (&Request{Title: c.title, Prompt: c.prompt}).title(); got != c.want {
			t.Errorf("%q", got)
		}
	}
}
