package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"triphammer/server/api"
	"triphammer/server/inert"
	"triphammer/server/store"
)

// reader is a peer with the scope read whose API is a function.
func reader(ask API) *Peer {
	return &Peer{API: ask, Caller: api.Caller{Scopes: []string{store.ScopeRead}}, Version: "test", Logger: slog.New(slog.DiscardHandler)}
}

const (
	callStatus = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get_status"}}`
	newMeta    = `{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"x","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`
)

// TestClientGoesAway: a call ends with the request that asked for it, in every version of the
// protocol, and leaves no goroutine behind.
func TestClientGoesAway(t *testing.T) {
	for version, message := range map[string]string{
		"2025-06-18": callStatus, "2025-11-25": callStatus, "2026-07-28": strings.Replace(callStatus, `"get_status"`, `"get_status","_meta":`+newMeta, 1),
	} {
		t.Run(version, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var ended error
				p := reader(func(ctx context.Context, _, _ string, _ []byte) (int, []byte, error) {
					<-ctx.Done()
					ended = ctx.Err()
					return 0, nil, ended
				})
				ctx, leave := context.WithCancel(t.Context())
				r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/mcp", nil)
				for name, value := range map[string]string{
					"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Mcp-Protocol-Version": version,
					"Mcp-Method": "tools/call", "Mcp-Name": "get_status",
				} {
					r.Header.Set(name, value)
				}
				done := make(chan string)
				go func() {
					w := httptest.NewRecorder()
					p.ServeHTTP(w, r, []byte(message))
					done <- w.Body.String()
				}()
				synctest.Wait()
				select {
				case text := <-done:
					t.Fatalf("it did not wait: %s", text)
				default:
				}
				leave()
				<-done
				if !errors.Is(ended, context.Canceled) {
					t.Errorf("the call ended with %v", ended)
				}
				for open := range p.server().Sessions() {
					t.Errorf("its session stays: %v", open.ID())
				}
				synctest.Wait() // and the test fails if a goroutine stays
			})
		})
	}
}

// connected is a client of a peer over a pair of pipes.
func connected(t *testing.T, p *Peer) *sdk.ClientSession {
	t.Helper()
	in, toIn := io.Pipe()
	fromOut, out := io.Pipe()
	ended := make(chan error)
	go func() { ended <- p.Serve(t.Context(), in, out) }()
	c := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	s, err := c.Connect(t.Context(), &sdk.IOTransport{Reader: fromOut, Writer: toIn}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.Close()
		<-ended
	})
	return s
}

func textOf(t *testing.T, got *sdk.CallToolResult, err error) string {
	t.Helper()
	if err != nil || len(got.Content) != 1 {
		t.Fatal(got, err)
	}
	return got.Content[0].(*sdk.TextContent).Text
}

// TestFaults: whatever the API does, the tool fails, and the next call works.
func TestFaults(t *testing.T) {
	var answers API
	s := connected(t, reader(func(ctx context.Context, method, path string, body []byte) (int, []byte, error) {
		return answers(ctx, method, path, body)
	}))
	problem := func(p api.Problem) []byte {
		text, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	for want, ask := range map[string]API{
		"the server cannot be reached": func(context.Context, string, string, []byte) (int, []byte, error) {
			return 0, nil, errors.New("the server cannot be reached")
		},
		"its log says where": func(context.Context, string, string, []byte) (int, []byte, error) { panic("secret") },
		"status 502":         func(context.Context, string, string, []byte) (int, []byte, error) { return 502, []byte("<html>"), nil },
		"not JSON":           func(context.Context, string, string, []byte) (int, []byte, error) { return 200, []byte("<html>"), nil },
		"triphammer keys create NAME": func(context.Context, string, string, []byte) (int, []byte, error) {
			return 401, problem(api.NewProblem(api.AuthenticationRequired, "send a key")), nil
		},
		"may succeed later": func(context.Context, string, string, []byte) (int, []byte, error) {
			return 503, problem(api.NewProblem(api.Unavailable, "the store cannot commit")), nil
		},
		`a \u202e b`: func(context.Context, string, string, []byte) (int, []byte, error) {
			return 404, problem(api.NewProblem(api.NotFound, "a \u202e b")), nil
		},
		`"field":"limit"`: func(context.Context, string, string, []byte) (int, []byte, error) {
			return 400, problem(api.NewProblem(api.InvalidRequest, "wrong", api.FieldProblem{Field: "limit", Message: "x"})), nil
		},
		"ask for fewer": func(context.Context, string, string, []byte) (int, []byte, error) {
			return 200, []byte("[" + strings.Repeat("1234567890,", 10_000) + "1]"), nil
		},
	} {
		answers = ask
		got, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: "get_status"})
		if text := textOf(t, got, err); !got.IsError || !strings.Contains(text, want) || strings.Contains(text, "secret") {
			t.Errorf("want %s: %+v", want, text)
		}
	}
	answers = func(context.Context, string, string, []byte) (int, []byte, error) { return 200, []byte(`{"a":1}`), nil }
	got, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: "get_status"})
	if text := textOf(t, got, err); got.IsError || !strings.HasSuffix(text, `"result":{"a":1}}`) {
		t.Errorf("afterwards: %s", text)
	}
}

// TestPages: a list of any length is read to its end, whole entry after whole entry, whether the API has
// pages of it or not, and of get_delivery all lists go on.
func TestPages(t *testing.T) {
	const entries = 400
	entry := func(n int) string {
		return fmt.Sprintf(`{"name":"a%d","run_id":"run_%d","text":%q}`, n, n, strings.Repeat("é\u202e", 150))
	}
	var all []string
	for n := range entries {
		all = append(all, entry(n))
	}
	s := connected(t, reader(func(_ context.Context, _, path string, _ []byte) (int, []byte, error) {
		at, err := url.Parse(path)
		if err != nil {
			return 0, nil, err
		}
		switch from, list := 0, all; at.Path {
		case "/automations":
			return 200, fmt.Appendf(nil, `{"automations":[%s],"page_info":{"has_next_page":false}}`, strings.Join(all, ",")), nil
		case "/deliveries/dlv_1":
			return 200, fmt.Appendf(nil, `{"id":"dlv_1","belt":[{"stage":"x"}],"matches":[%s],"disabled":[],"run_belts":[%s]}`, strings.Join(all, ","), strings.Join(all[:300], ",")), nil
		default:
			limit := 20
			_, _ = fmt.Sscan(at.Query().Get("limit"), &limit)
			_, _ = fmt.Sscan(at.Query().Get("cursor"), &from)
			list = list[from:min(from+limit, entries)]
			return 200, fmt.Appendf(nil, `{%q:[%s],"page_info":{"has_next_page":%t,"next_cursor":"%d"}}`, strings.Trim(strings.TrimPrefix(at.Path, "/agent"), "/"), strings.Join(list, ","), from+limit < entries, from+limit), nil
		}
	}))
	for name, tt := range map[string]struct {
		arguments map[string]any
		lists     map[string]int
	}{
		"list_automations": {map[string]any{}, map[string]int{"automations": entries}},
		"list_deliveries":  {map[string]any{"limit": 300}, map[string]int{"deliveries": entries}},
		"list_runs":        {map[string]any{"limit": 200}, map[string]int{"runs": entries}},
		"get_delivery":     {map[string]any{"delivery_id": "dlv_1"}, map[string]int{"matches": entries, "run_belts": 300, "disabled": 0}},
	} {
		got, calls := make(map[string]int), 0
		for more := true; more; calls++ {
			result, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: name, Arguments: tt.arguments})
			var shown struct {
				Cut    string
				Result map[string]json.RawMessage
			}
			text := textOf(t, result, err)
			if err := json.Unmarshal([]byte(text), &shown); err != nil || result.IsError || len(text) > maxAnswer || calls > entries || shown.Cut != "" {
				t.Fatalf("%s: %v, %d bytes: %.300s", name, err, len(text), text)
			}
			for list := range tt.lists {
				var entries []struct {
					RunID string `json:"run_id"`
				}
				if json.Unmarshal(shown.Result[list], &entries) != nil {
					t.Fatalf("%s: %.300s", name, text)
				}
				for _, e := range entries {
					if name != "list_deliveries" && e.RunID != fmt.Sprintf("run_%d", got[list]) {
						t.Fatalf("%s: entry %d of %s is %s", name, got[list], list, e.RunID)
					}
					got[list]++
				}
			}
			var info api.PageInfo
			if err := json.Unmarshal(shown.Result["page_info"], &info); err != nil {
				t.Fatal(name, err)
			}
			more, tt.arguments["cursor"] = info.HasNextPage, info.NextCursor
		}
		for list, want := range tt.lists {
			if got[list] != want {
				t.Errorf("%s: %d of %d %s in %d answers", name, got[list], want, list, calls)
			}
		}
	}
	for _, wrong := range []map[string]any{{"cursor": "x"}, {"cursor": "-1"}, {"cursor": "401"}, {"limit": -1}} {
		result, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: "list_automations", Arguments: wrong})
		if text := textOf(t, result, err); !result.IsError {
			t.Errorf("%v: %.300s", wrong, text)
		}
	}
}

// TestNames: no name that a model gives leads to another route than that of the tool.
func TestNames(t *testing.T) {
	var asked string
	s := connected(t, reader(func(_ context.Context, method, path string, _ []byte) (int, []byte, error) {
		asked = method + " " + path
		return 200, []byte(`{}`), nil
	}))
	for id, want := range map[string]string{
		"run_1/events": "run_1%252Fevents", "run_1?after=1": "run_1%3Fafter=1", "run_1#": "run_1%23", "a b\u202e%2F": "a%20b%E2%80%AE%252F", "../x": "..%252Fx",
	} {
		got, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: "get_run", Arguments: map[string]any{"run_id": id}})
		if text := textOf(t, got, err); asked != "GET /agent/runs/"+want {
			t.Errorf("%q asks for %s: %s", id, asked, text)
		}
	}
}

// FuzzShow: of any JSON, an answer is JSON of limited size in which nothing is invisible.
func FuzzShow(f *testing.F) {
	for _, seed := range []string{`{"a":"\u202e","b":[1,2.50,1e400,true,null,{}]}`, `"` + strings.Repeat("é", 500) + `"`, `[]`, `{"a":1,"a":2}`, "\"\u2028\U000e0041\"", `"\ud800"`, `{`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		shown, err := show(json.RawMessage(text), "notice")
		if err != nil {
			if json.Valid([]byte(text)) && len(text) < maxAnswer/8 {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		if !json.Valid(shown) || len(shown) > maxAnswer {
			t.Fatalf("%q: %d bytes: %s", text, len(shown), shown)
		}
		var inside any
		if json.Unmarshal(shown, &inside) == nil && visible(inside) != nil {
			t.Errorf("%q: %v", text, visible(inside))
		}
	})
}

// visible is an error if a string is not as it looks.
func visible(value any) error {
	switch value := value.(type) {
	case string:
		if inert.Text(value) != value {
			return fmt.Errorf("%q", value)
		}
	case []any:
		for _, one := range value {
			if err := visible(one); err != nil {
				return err
			}
		}
	case map[string]any:
		for name, one := range value {
			if err := errors.Join(visible(name), visible(one)); err != nil {
				return err
			}
		}
	}
	return nil
}

// FuzzPieces: the pieces of any text are the whole text.
func FuzzPieces(f *testing.F) {
	f.Add("aé😀\xff\xfe\r\n", 4)
	f.Add("", 7)
	f.Fuzz(func(t *testing.T, text string, length int) {
		length = 4 + abs(length)%100
		whole, offset := "", 0
		for {
			p, err := pieceOf(text, offset, length)
			if err != nil || p.NextOffset != 0 && p.NextOffset <= offset || p.TotalBytes != len(text) {
				t.Fatalf("%q at %d: %+v %v", text, offset, p, err)
			}
			end := p.NextOffset
			if end == 0 {
				end = len(text)
			}
			if whole += text[offset:end]; p.Text != inert.Text(text[offset:end]) {
				t.Errorf("%q at %d: %q", text, offset, p.Text)
			}
			if offset = p.NextOffset; offset == 0 {
				break
			}
		}
		if whole != text {
			t.Errorf("%q: %q", text, whole)
		}
	})
}

func abs(n int) int {
	if n < 0 {
		return -(n + 1)
	}
	return n
}

// BenchmarkMessage is what a message costs besides the request to the API.
func BenchmarkMessage(b *testing.B) {
	p := reader(func(context.Context, string, string, []byte) (int, []byte, error) { return 200, []byte(`{"a":1}`), nil })
	for b.Loop() {
		r := httptest.NewRequest(http.MethodPost, "/mcp", nil)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		w := httptest.NewRecorder()
		if p.ServeHTTP(w, r, []byte(callStatus)); w.Code != 200 {
			b.Fatal(w.Body)
		}
	}
}
