package answer

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const (
	credential = "a-credential-that-nobody-may-see"
	ownAccount = "54d125f7-0000-4000-8000-00000000000a"
	stranger   = "54d125f7-0000-4000-8000-00000000000b"
)

// stored is a text at a forge.
type stored struct{ id, author, body string }

// forge is a sender's service on this machine, as its API is described in public. It keeps the texts of
// one thread.
type forge struct {
	t   *testing.T
	mux *http.ServeMux
	// secret is what apiSecretName names, and header what the sender wants to see of it.
	secret, header string
	told           http.Header                 // of all answers
	granted        []string                    // what the credential may do; nil: it is not told
	wrong          func(w http.ResponseWriter) // what answers a credential that is not ours; nil: there is none

	mu    sync.Mutex
	texts []stored
	signs map[string]bool
	state map[string]string // of checks, by their names
	next  int
	asked []string // method and path of each request
}

func (f *forge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, r.Method+" "+r.URL.Path)
	if _, to := f.mux.Handler(r); to == "" {
		f.t.Errorf("the API has no %s %s", r.Method, r.URL.Path)
	}
	maps.Copy(w.Header(), f.told)
	if f.wrong != nil && r.Header.Get("Authorization") != f.header {
		f.wrong(w)
		return
	}
	if !strings.HasPrefix(r.URL.Path, "/login") && r.Header.Get("Authorization") != f.header {
		f.t.Errorf("%s %s with the credential %q", r.Method, r.URL.Path, r.Header.Get("Authorization"))
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	f.mux.ServeHTTP(w, r)
}

func (f *forge) on(pattern string, answer func(r *http.Request, body map[string]any) (int, any)) {
	f.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		var body map[string]any
		if r.Method != http.MethodGet && !strings.HasPrefix(r.URL.Path, "/login") {
			if err := json.NewDecoder(r.Body).Decode(&body); err != nil && err != io.EOF {
				f.t.Errorf("%s: %v", r.URL.Path, err)
			}
			if !strings.HasPrefix(r.Header.Get("Content-Type"), "application/json") {
				f.t.Errorf("%s has the type %q", r.URL.Path, r.Header.Get("Content-Type"))
			}
		}
		status, value := answer(r, body)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(value)
	})
}

func (f *forge) add(author, body string) stored {
	f.next++
	s := stored{strconv.Itoa(f.next), author, body}
	f.texts = append(f.texts, s)
	return s
}

func (f *forge) edit(id, body string) bool {
	i := slices.IndexFunc(f.texts, func(s stored) bool { return s.id == id })
	if i >= 0 {
		f.texts[i].body = body
	}
	return i >= 0
}

// page is a part of the texts, in the order that is asked for.
func (f *forge) page(newest bool, from, size int) []stored {
	all := slices.Clone(f.texts)
	if newest {
		slices.Reverse(all)
	}
	return all[min(from, len(all)):min(from+size, len(all))]
}

func count(r *http.Request, name string, least int) int {
	n, _ := strconv.Atoi(r.URL.Query().Get(name))
	return max(n, least)
}

func field(body map[string]any, name string) string { return fmt.Sprint(body[name]) }

func packedAny(value any) string {
	text, _ := json.Marshal(value)
	return string(text)
}

// wants are the paths to a place's thread at each forge, and the place.
var testPlaces = map[string]Place{
	"github":       {Provider: "github", Container: "acme/payments", Thread: "402", Kind: "pull", Item: "77", ItemKind: "issue comment", Link: "https://github.com/acme/payments/pull/402"},
	"gitlab":       {Provider: "gitlab", Container: "acme/payments", Thread: "41", Kind: "pull", Item: "1244", ItemKind: "note", Internal: true, Link: "https://gitlab.example.com/acme/payments/-/merge_requests/41"},
	"jira":         {Provider: "jira", Thread: "10042", Kind: "issue", Audience: `{"type":"role","value":"Developers"}`, Link: "https://acme.atlassian.net/browse/PAY-77"},
	"slack":        {Provider: "slack", Container: "C0DEPLOYS", Thread: "1.0", Item: "2.0", ItemKind: "message"},
	"linear":       {Provider: "linear", Thread: "i-1", Kind: "issue"},
	"teams":        {Provider: "teams", Container: "19:deploys@thread.tacv2", Thread: "19:deploys@thread.tacv2;messageid=17"},
	"azure_devops": {Provider: "azure_devops", Container: "p1/r1", Thread: "41", Kind: "pull", Link: "https://dev.azure.com/acme/p/_git/r/pullrequest/41"},
}

// further are other places of senders with several kinds of threads.
var further = map[string][]Place{
	"linear":       {{Provider: "linear", Thread: "s-1", Kind: "session", Item: "s-1", ItemKind: "session"}},
	"azure_devops": {{Provider: "azure_devops", Container: "p1", Thread: "77", Kind: "item"}},
	"gitlab": {
		{Provider: "gitlab", Container: "acme/payments", Thread: "4", Kind: "issue", Item: "4", ItemKind: "issue"},
		{Provider: "gitlab", Container: "acme/payments", Thread: testCommit, Kind: onCommit, Link: "https://gitlab.example.com/acme/payments/-/commit/" + testCommit},
	},
	"github": {{Provider: "github", Container: "acme/payments", Thread: "402", Kind: "issue", Item: "402", ItemKind: "issue"}},
}

// numbered is the number of an account, where accounts have numbers and names. A stranger takes the name
// of ours.
func numbered(author string) int {
	return map[string]int{ownAccount: 4711, stranger: 4712}[author]
}

// newForge starts a sender's service. Its texts begin with 250 of a stranger, the last with all markers of ours.
func newForge(t *testing.T, provider string) (*forge, *httptest.Server) {
	f := &forge{t: t, mux: http.NewServeMux(), secret: credential, header: "Bearer " + credential, signs: map[string]bool{}, state: map[string]string{}}
	for range 249 {
		f.add(stranger, "a word")
	}
	map[string]func(*forge){"github": githubForge, "gitlab": gitlabForge, "jira": jiraForge, "slack": slackForge, "linear": linearForge, "teams": teamsForge, "azure_devops": azureForge}[provider](f)
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	return f, server
}

func githubForge(f *forge) {
	f.add(stranger, "copied"+comment(Message{Marker: testMarker}))
	show := func(s stored) map[string]any {
		id, _ := strconv.Atoi(s.id)
		return map[string]any{"id": id, "body": s.body, "html_url": "https://github.com/acme/payments/pull/402#issuecomment-" + s.id, "user": map[string]any{"login": "hammer-bot", "id": numbered(s.author)}}
	}
	const repository = "/repos/acme/payments"
	f.on("GET /user", func(*http.Request, map[string]any) (int, any) {
		return 200, map[string]any{"login": "hammer-bot", "id": numbered(ownAccount)}
	})
	f.on("POST /graphql", func(*http.Request, map[string]any) (int, any) {
		return 200, map[string]any{"data": map[string]any{"viewer": map[string]any{"login": "hammer-bot", "databaseId": numbered(ownAccount)}}}
	})
	f.on("GET "+repository+"/issues/402/comments", func(r *http.Request, _ map[string]any) (int, any) {
		all := []any{}
		for _, s := range f.page(false, (count(r, "page", 1)-1)*count(r, "per_page", 30), count(r, "per_page", 30)) {
			all = append(all, show(s))
		}
		return 200, all
	})
	f.on("POST "+repository+"/issues/402/comments", func(_ *http.Request, body map[string]any) (int, any) {
		return 201, show(f.add(ownAccount, field(body, "body")))
	})
	f.on("PATCH "+repository+"/issues/comments/{id}", func(r *http.Request, body map[string]any) (int, any) {
		if !f.edit(r.PathValue("id"), field(body, "body")) {
			return 404, map[string]any{"message": "Not Found"}
		}
		return 200, map[string]any{"id": 1}
	})
	for _, path := range []string{"/issues/comments/77", "/issues/402"} {
		f.on("POST "+repository+path+"/reactions", func(r *http.Request, body map[string]any) (int, any) {
			if body["content"] != "eyes" {
				f.t.Errorf("the sign is %v", body)
			}
			f.signs[r.URL.Path] = true
			return 201, map[string]any{"id": 1}
		})
	}
	f.on("GET "+repository+"/pulls/402", func(*http.Request, map[string]any) (int, any) {
		return 200, map[string]any{"head": map[string]any{"sha": testCommit}}
	})
	f.on("POST "+repository+"/statuses/"+testCommit, func(_ *http.Request, body map[string]any) (int, any) {
		f.state[field(body, "context")] = field(body, "state") + " " + field(body, "description")
		return 201, map[string]any{"id": 9}
	})
	runs := map[string]map[string]any{}
	f.on("GET "+repository+"/commits/"+testCommit+"/check-runs", func(r *http.Request, _ map[string]any) (int, any) {
		all := []any{map[string]any{"id": 4, "external_id": "another", "name": r.URL.Query().Get("check_name")}}
		for _, run := range runs {
			all = append(all, run)
		}
		return 200, map[string]any{"total_count": len(all), "check_runs": all}
	})
	set := func(body map[string]any) {
		f.state[field(body, "name")+" run"] = fmt.Sprint(body["status"], " ", body["conclusion"])
	}
	f.on("POST "+repository+"/check-runs", func(_ *http.Request, body map[string]any) (int, any) {
		if body["head_sha"] != testCommit || len(runs) > 0 {
			f.t.Errorf("a new check run: %v", body)
		}
		body["id"], body["html_url"] = 5, "https://github.com/acme/payments/runs/5"
		runs["5"] = body
		set(body)
		return 201, body
	})
	f.on("PATCH "+repository+"/check-runs/5", func(_ *http.Request, body map[string]any) (int, any) {
		set(body)
		return 200, map[string]any{"id": 5}
	})
}

const testCommit = "77b20b8d5c6ff8d09518454d4dd8b7b30f095a00"

func gitlabForge(f *forge) {
	f.add(stranger, "copied"+comment(Message{Marker: testMarker}))
	show := func(s stored) map[string]any {
		id, _ := strconv.Atoi(s.id)
		return map[string]any{"id": id, "body": s.body, "author": map[string]any{"username": "hammer-bot", "id": numbered(s.author)}}
	}
	f.on("GET /api/v4/user", func(*http.Request, map[string]any) (int, any) {
		return 200, map[string]any{"username": "hammer-bot", "id": numbered(ownAccount)}
	})
	f.on("GET /api/v4/personal_access_tokens/self", func(*http.Request, map[string]any) (int, any) {
		if f.granted == nil {
			return 401, map[string]any{"message": "401 Unauthorized"}
		}
		return 200, map[string]any{"scopes": f.granted}
	})
	const project = "/api/v4/projects/acme%2Fpayments"
	for _, thread := range []string{"/merge_requests/41", "/issues/4"} {
		f.on("GET "+project+thread+"/notes", func(r *http.Request, _ map[string]any) (int, any) {
			all := []any{}
			for _, s := range f.page(r.URL.Query().Get("sort") != "asc", (count(r, "page", 1)-1)*count(r, "per_page", 20), count(r, "per_page", 20)) {
				all = append(all, show(s))
			}
			return 200, all
		})
		f.on("POST "+project+thread+"/notes", func(_ *http.Request, body map[string]any) (int, any) {
			if internal := strings.HasPrefix(thread, "/merge"); internal != (body["internal"] == true) {
				f.t.Errorf("%s: internal is %v", thread, body["internal"])
			}
			return 201, show(f.add(ownAccount, field(body, "body")))
		})
		f.on("PUT "+project+thread+"/notes/{id}", func(r *http.Request, body map[string]any) (int, any) {
			if !f.edit(r.PathValue("id"), field(body, "body")) {
				return 404, map[string]any{"message": "404 Not found"}
			}
			return 200, map[string]any{"id": 1}
		})
	}
	const commits = project + "/repository/commits/" + testCommit + "/discussions"
	talk := func(s stored) map[string]any { return map[string]any{"id": "d" + s.id, "notes": []any{show(s)}} }
	f.on("GET "+commits, func(r *http.Request, _ map[string]any) (int, any) {
		all := []any{}
		for _, s := range f.page(false, (count(r, "page", 1)-1)*count(r, "per_page", 20), count(r, "per_page", 20)) {
			all = append(all, talk(s))
		}
		return 200, all
	})
	f.on("POST "+commits, func(_ *http.Request, body map[string]any) (int, any) {
		return 201, talk(f.add(ownAccount, field(body, "body")))
	})
	f.on("PUT "+commits+"/{talk}/notes/{id}", func(r *http.Request, body map[string]any) (int, any) {
		if r.PathValue("talk") != "d"+r.PathValue("id") || !f.edit(r.PathValue("id"), field(body, "body")) {
			return 404, map[string]any{"message": "404 Not found"}
		}
		return 200, map[string]any{"id": 1}
	})
	for _, path := range []string{"/merge_requests/41/notes/1244", "/issues/4"} {
		f.on("POST "+project+path+"/award_emoji", func(r *http.Request, body map[string]any) (int, any) {
			if f.signs[r.URL.Path] {
				return 404, map[string]any{"message": "404 Award Emoji Name has already been taken Not Found"}
			}
			f.signs[r.URL.Path] = body["name"] == "eyes"
			return 201, map[string]any{"id": 1}
		})
	}
	f.on("GET "+project+"/merge_requests/41", func(*http.Request, map[string]any) (int, any) {
		return 200, map[string]any{"sha": testCommit}
	})
	f.on("POST "+project+"/statuses/"+testCommit, func(_ *http.Request, body map[string]any) (int, any) {
		name, state := field(body, "name"), field(body, "state")
		if strings.HasPrefix(f.state[name], state) {
			return 400, map[string]any{"message": "Cannot transition status via :run from :running"}
		}
		f.state[name] = state + " " + field(body, "description")
		return 201, map[string]any{"id": 9}
	})
}

func jiraForge(f *forge) {
	f.secret, f.header = "ada@example.com:"+credential, basic("ada@example.com:"+credential).Get("Authorization")
	f.add(stranger, packed(jiraComment{Properties: []jiraProperty{{"triphammer", map[string]string{"marker": mark(testMarker)}}}}))
	const comments = "/rest/api/3/issue/10042/comment"
	f.on("GET /rest/api/3/myself", func(*http.Request, map[string]any) (int, any) {
		return 200, map[string]any{"accountId": ownAccount, "displayName": "hammer-bot"}
	})
	f.on("GET /rest/api/3/mypermissions", func(r *http.Request, _ map[string]any) (int, any) {
		all := map[string]any{}
		for name := range strings.SplitSeq(r.URL.Query().Get("permissions"), ",") {
			all[name] = map[string]any{"havePermission": slices.Contains(f.granted, name)}
		}
		return 200, map[string]any{"permissions": all}
	})
	f.on("GET "+comments, func(r *http.Request, _ map[string]any) (int, any) {
		all := []any{}
		for _, s := range f.page(r.URL.Query().Get("orderBy") == "-created", count(r, "startAt", 0), count(r, "maxResults", 50)) {
			var c map[string]any
			if json.Unmarshal([]byte(s.body), &c) != nil {
				c = map[string]any{"body": map[string]any{"type": "doc"}}
			}
			c["id"], c["author"] = s.id, map[string]any{"accountId": s.author}
			if r.URL.Query().Get("expand") != "properties" {
				delete(c, "properties")
			}
			all = append(all, c)
		}
		return 200, map[string]any{"comments": all, "total": len(f.texts)}
	})
	write := func(body map[string]any) {
		if packedAny(body["visibility"]) != testPlaces["jira"].Audience || !strings.Contains(packedAny(body["properties"]), `{"key":"sd.public.comment","value":{"internal":true}}`) {
			f.t.Errorf("the comment is for %v and %v", body["visibility"], body["properties"])
		}
	}
	f.on("POST "+comments, func(_ *http.Request, body map[string]any) (int, any) {
		write(body)
		return 201, map[string]any{"id": f.add(ownAccount, packedAny(body)).id, "author": map[string]any{"accountId": ownAccount}}
	})
	f.on("PUT "+comments+"/{id}", func(r *http.Request, body map[string]any) (int, any) {
		if write(body); !f.edit(r.PathValue("id"), packedAny(body)) {
			return 404, map[string]any{"errorMessages": []string{"Can not find a comment"}}
		}
		return 200, map[string]any{"id": r.PathValue("id")}
	})
}

func slackForge(f *forge) {
	f.add(stranger, packed(slackPayload{Text: "copied", Metadata: &slackMetadata{slackEvent, map[string]string{"marker": mark(testMarker)}}}))
	ok := map[string]any{"ok": true}
	refused := func(code string) (int, any) { return 200, map[string]any{"ok": false, "error": code} }
	f.on("GET /auth.test", func(*http.Request, map[string]any) (int, any) {
		return 200, map[string]any{"ok": true, "user_id": ownAccount, "user": "hammer-bot", "bot_id": "B1"}
	})
	f.on("POST /reactions.add", func(_ *http.Request, body map[string]any) (int, any) {
		key := packedAny(body)
		if f.signs[key] {
			return refused("already_reacted")
		}
		f.signs[key] = field(body, "channel")+field(body, "timestamp")+field(body, "name") == "C0DEPLOYS2.0eyes"
		return 200, ok
	})
	write := func(body map[string]any) {
		if body["channel"] != "C0DEPLOYS" || body["unfurl_links"] != false || body["unfurl_media"] != false {
			f.t.Errorf("the message is %v", body)
		}
	}
	f.on("POST /chat.postMessage", func(_ *http.Request, body map[string]any) (int, any) {
		if write(body); body["thread_ts"] != "1.0" {
			return refused("thread_not_found")
		}
		return 200, map[string]any{"ok": true, "ts": f.add(ownAccount, packedAny(body)).id, "channel": "C0DEPLOYS"}
	})
	f.on("POST /chat.update", func(_ *http.Request, body map[string]any) (int, any) {
		if write(body); !f.edit(field(body, "ts"), packedAny(body)) {
			return refused("message_not_found")
		}
		return 200, ok
	})
	f.on("GET /conversations.replies", func(r *http.Request, _ map[string]any) (int, any) {
		from, _ := strconv.Atoi(r.URL.Query().Get("cursor"))
		size := count(r, "limit", 10)
		all := []any{}
		for _, s := range f.page(false, from, size) {
			var m map[string]any
			if json.Unmarshal([]byte(s.body), &m) != nil {
				m = map[string]any{"text": s.body}
			}
			m["ts"], m["user"] = s.id, s.author
			if r.URL.Query().Get("include_all_metadata") != "true" {
				delete(m, "metadata")
			}
			all = append(all, m)
		}
		next := ""
		if from+size < len(f.texts) {
			next = strconv.Itoa(from + size)
		}
		return 200, map[string]any{"ok": true, "messages": all, "response_metadata": map[string]any{"next_cursor": next}}
	})
}

func linearForge(f *forge) {
	f.add(stranger, "[copied](https://example.com/#"+mark(testMarker)+")")
	refused := func(code, message string) (int, any) {
		return 200, map[string]any{"data": nil, "errors": []any{map[string]any{"message": message, "extensions": map[string]any{"code": code}}}}
	}
	f.on("POST /graphql", func(_ *http.Request, body map[string]any) (int, any) {
		query := field(body, "query")
		variables, _ := body["variables"].(map[string]any)
		input, _ := variables["input"].(map[string]any)
		create := func(what, text string) (int, any) {
			id := field(input, "id")
			if slices.ContainsFunc(f.texts, func(s stored) bool { return s.id == id }) {
				return refused("INPUT_ERROR", "conflict on insert")
			}
			f.texts = append(f.texts, stored{id, ownAccount, text})
			return 200, map[string]any{"data": map[string]any{what + "Create": map[string]any{"success": true, what: map[string]any{"id": id, "url": "https://linear.app/c/" + id}}}}
		}
		switch {
		case strings.Contains(query, "agentActivityCreate"):
			content := input["content"].(map[string]any)
			if field(input, "agentSessionId") != "s-1" {
				return refused("INPUT_ERROR", "Entity not found: AgentSession")
			}
			f.signs[field(content, "type")] = true
			return create("agentActivity", field(content, "body"))
		case strings.Contains(query, "commentCreate"):
			if field(input, "issueId") != "i-1" {
				return refused("INPUT_ERROR", "Entity not found: Issue")
			}
			return create("comment", field(input, "body"))
		case strings.Contains(query, "commentUpdate"):
			if !f.edit(field(variables, "id"), field(input, "body")) {
				return refused("INPUT_ERROR", "Entity not found: Comment")
			}
			return 200, map[string]any{"data": map[string]any{"commentUpdate": map[string]any{"success": true}}}
		case strings.Contains(query, "viewer"):
			after, _ := variables["after"].(string)
			from, _ := strconv.Atoi(after)
			nodes := []any{}
			for _, s := range f.page(false, from, 100) {
				n := map[string]any{"id": s.id, "user": map[string]any{"id": s.author}}
				if strings.Contains(query, "agentSession(") {
					n["content"] = map[string]any{"body": s.body}
				} else {
					n["body"], n["url"] = s.body, "https://linear.app/c/"+s.id
				}
				nodes = append(nodes, n)
			}
			return 200, map[string]any{"data": map[string]any{"viewer": map[string]any{"id": ownAccount, "name": "hammer-bot"}, "thing": map[string]any{"texts": map[string]any{
				"nodes": nodes, "pageInfo": map[string]any{"hasNextPage": from+100 < len(f.texts), "endCursor": strconv.Itoa(from + 100)},
			}}}}
		}
		for _, what := range []string{"agentActivity", "comment"} {
			if strings.Contains(query, "{ "+what+"(id: $id)") {
				for _, s := range f.texts {
					if s.id == field(variables, "id") {
						return 200, map[string]any{"data": map[string]any{what: map[string]any{"id": s.id, "url": "https://linear.app/c/" + s.id}}}
					}
				}
			}
		}
		return refused("INPUT_ERROR", "Entity not found")
	})
}

func teamsForge(f *forge) {
	f.secret, f.header = "50612dbb-0000-4000-8000-000000000001/6ce954b1-0000-4000-8000-000000000009:"+credential, "Bearer a-token"
	f.mux.HandleFunc("POST /login/50612dbb-0000-4000-8000-000000000001", func(w http.ResponseWriter, r *http.Request) {
		if r.ParseForm() != nil || r.Form.Get("client_secret") != credential || r.Form.Get("client_id") != "6ce954b1-0000-4000-8000-000000000009" || r.Form.Get("grant_type") != "client_credentials" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = io.WriteString(w, `{"token_type":"Bearer","expires_in":3599,"access_token":"a-token"}`)
	})
	thread := "/v3/conversations/" + url.PathEscape(testPlaces["teams"].Thread) + "/activities"
	f.on("POST "+thread, func(_ *http.Request, body map[string]any) (int, any) {
		return 201, map[string]any{"id": f.add(ownAccount, field(body, "text")).id}
	})
	f.on("PUT "+thread+"/{id}", func(r *http.Request, body map[string]any) (int, any) {
		if !f.edit(r.PathValue("id"), field(body, "text")) {
			return 404, map[string]any{"error": map[string]any{"code": "NotFound"}}
		}
		return 200, map[string]any{"id": r.PathValue("id")}
	})
}

func azureForge(f *forge) {
	f.header = basic(":" + credential).Get("Authorization")
	f.add(stranger, "copied <a href=\"https://example.com/#"+mark(testMarker)+"\">x</a>"+comment(Message{Marker: testMarker}))
	show := func(s stored) map[string]any {
		id, _ := strconv.Atoi(s.id)
		return map[string]any{"id": id, "text": s.body, "createdBy": map[string]any{"id": s.author}}
	}
	talk := func(s stored) map[string]any {
		id, _ := strconv.Atoi(s.id)
		return map[string]any{"id": id, "comments": []any{map[string]any{"id": 1, "content": s.body, "author": map[string]any{"id": strings.ToUpper(s.author)}}}}
	}
	f.on("GET /_apis/connectionData", func(*http.Request, map[string]any) (int, any) {
		return 200, map[string]any{"authenticatedUser": map[string]any{"id": ownAccount, "providerDisplayName": "hammer-bot"}}
	})
	const item, pull = "/p1/_apis/wit/workItems/77/comments", "/p1/_apis/git/repositories/r1/pullRequests/41"
	f.on("GET "+item, func(r *http.Request, _ map[string]any) (int, any) {
		from, _ := strconv.Atoi(r.URL.Query().Get("continuationToken"))
		size := count(r, "$top", 100)
		all := []any{}
		for _, s := range f.page(r.URL.Query().Get("order") == "desc", from, size) {
			all = append(all, show(s))
		}
		answer := map[string]any{"comments": all}
		if from+size < len(f.texts) {
			answer["continuationToken"] = strconv.Itoa(from + size)
		}
		return 200, answer
	})
	f.on("POST "+item, func(_ *http.Request, body map[string]any) (int, any) {
		return 200, show(f.add(ownAccount, field(body, "text")))
	})
	f.on("PATCH "+item+"/{id}", func(r *http.Request, body map[string]any) (int, any) {
		if !f.edit(r.PathValue("id"), field(body, "text")) {
			return 404, map[string]any{"message": "no such comment"}
		}
		return 200, map[string]any{"id": 1}
	})
	f.on("GET "+pull+"/threads", func(*http.Request, map[string]any) (int, any) {
		all := []any{map[string]any{"id": 1, "comments": []any{}}}
		for _, s := range f.texts {
			all = append(all, talk(s))
		}
		return 200, map[string]any{"value": all}
	})
	f.on("POST "+pull+"/threads", func(_ *http.Request, body map[string]any) (int, any) {
		if body["status"] != "closed" {
			f.t.Errorf("the thread is %v, and keeps the pull request from being completed", body["status"])
		}
		return 200, talk(f.add(ownAccount, field(body["comments"].([]any)[0].(map[string]any), "content")))
	})
	f.on("PATCH "+pull+"/threads/{id}/comments/1", func(r *http.Request, body map[string]any) (int, any) {
		if !f.edit(r.PathValue("id"), field(body, "content")) {
			return 404, map[string]any{"message": "no such comment"}
		}
		return 200, map[string]any{"id": 1}
	})
	f.on("POST "+pull+"/statuses", func(_ *http.Request, body map[string]any) (int, any) {
		f.state[field(body["context"].(map[string]any), "name")] = field(body, "state") + " " + field(body, "description")
		return 200, map[string]any{"id": 9}
	})
}
