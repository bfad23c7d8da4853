package lookup

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"triphammer/factory/native"
	"triphammer/server/secret"
)

// TestDo: a request is sent as it is meant, and a failure says what is known of it.
func TestDo(t *testing.T) {
	status, answer := 200, `{"id":7}`
	var got *http.Request
	var sent string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got, sent = r, string(body)
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, answer)
	}))
	defer server.Close()
	api, c := API{URL: server.URL + "/", Secret: secret.New(token)}, NewClient(time.Now)
	var into struct{ ID int }
	do := func(r Request) *Failure {
		r.Path = "/a"
		err := c.Do(t.Context(), api, r)
		if err == nil {
			return nil
		}
		f, is := err.(*Failure)
		if !is {
			t.Fatalf("%T: %v", err, err)
		}
		return f
	}
	if f := do(Request{Method: http.MethodPut, Body: map[string]int{"a": 1}, Into: &into}); f != nil || into.ID != 7 || sent != `{"a":1}` || got.Header.Get("Content-Type") != "application/json" || got.URL.Path != "/a" {
		t.Errorf("%v, %v, %s, %v", f, into, sent, got.Header)
	}
	if f := do(Request{Method: http.MethodPost, Body: url.Values{"a": {"b c"}}}); f != nil || sent != "a=b+c" || got.Header.Get("Content-Type") != "application/x-www-form-urlencoded" {
		t.Errorf("%v, %s, %v", f, sent, got.Header)
	}
	if f := do(Request{Method: http.MethodPost, Body: make(chan int)}); f == nil || !f.Final() || f.Uncertain() {
		t.Errorf("what cannot be written: %+v", f)
	}
	if err := c.Do(t.Context(), API{}, Request{Method: http.MethodGet}); err == nil || !strings.Contains(err.Error(), "no apiURL") {
		t.Errorf("without an address: %v", err)
	}
	for _, s := range []struct {
		status           int
		answer           string
		reads            bool
		want             string
		final, uncertain bool
		after            time.Duration
	}{
		{201, "<p>", false, "other than the JSON", false, true, 0},
		{201, "<p>", true, "other than the JSON", false, false, 0},
		{203, "{}", false, "answered 203: it does not take the secret", false, false, 0},
		{401, "{}", false, "answered 401: it does not take the secret", false, false, 0},
		{403, "busy", false, "answered 403: too many requests", false, false, time.Minute},
		{403, "closed", false, "answered 403: it is closed", true, false, 0},
		{404, "", false, "answered 404", true, false, 0},
		{307, "", false, "answered 307, a redirect", true, false, 0},
		{408, "", false, "answered 408", false, true, 0},
		{502, "", false, "answered 502", false, true, 0},
		{502, "", true, "answered 502", false, false, 0},
		{502, "closed", false, "answered 502: it is closed", true, false, 0},
	} {
		status, answer = s.status, s.answer
		f := do(Request{Method: http.MethodPost, Into: &into, Reads: s.reads, Explain: func(code int, body []byte) (string, bool) {
			switch {
			case code != s.status:
				t.Errorf("explains %d", code)
			case string(body) == "closed":
				return "it is closed", false
			}
			return "", string(body) == "busy"
		}})
		if f == nil || !strings.Contains(f.Error(), s.want) || f.Final() != s.final || f.Uncertain() != s.uncertain || f.After() != s.after || f.Status() != s.status || f.Unwrap() != nil {
			t.Errorf("%d %q: %+v", s.status, s.answer, f)
		}
	}
}

// TestRememberOne: an account is asked for once, and a failure is not remembered.
func TestRememberOne(t *testing.T) {
	now := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	c, asked := NewClient(func() time.Time { return now }), 0
	var problem error
	ask := func() (string, error) { asked++; return "ada", problem }
	problem = Fail("away", false)
	if _, err := c.Remember("account", API{}, "self", ask); err == nil {
		t.Error("a failure is no answer")
	}
	problem = nil
	for range 3 {
		if who, err := c.Remember("account", API{}, "self", ask); who != "ada" || err != nil {
			t.Errorf("%s, %v", who, err)
		}
	}
	if now = now.Add(nameTime); asked != 2 {
		t.Errorf("asked %d times", asked)
	}
	if _, err := c.Remember("account", API{Secret: secret.New("another")}, "self", ask); err != nil || asked != 3 {
		t.Errorf("another credential has the same account: asked %d times, %v", asked, err)
	}
	if _, err := c.Remember("account", API{}, "self", ask); err != nil || asked != 4 {
		t.Errorf("asked %d times, %v", asked, err)
	}
}

// TestRoleIsKept: a person's role is asked for once a minute, for each repository, person and credential, and a failure is
// not kept (SPEC 24.1).
func TestRoleIsKept(t *testing.T) {
	now, asked, role := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC), 0, "write"
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		if role == "" {
			w.WriteHeader(http.StatusBadGateway)
		}
		id := map[bool]int{true: 1001, false: 1002}[strings.Contains(r.URL.Path, "/ada/")]
		_, _ = fmt.Fprintf(w, `{"permission":%q,"user":{"id":%d}}`, role, id)
	}))
	defer api.Close()
	c := NewClient(func() time.Time { return now })
	for i, step := range []struct {
		args, secret, role string // role: what the API says from now on
		later              time.Duration
		want               string
		asked              int
	}{
		{"acme/api ada 1001", "a", "write", 0, "[write]", 1},
		{"acme/api ada 1001", "a", "read", roleTime - time.Second, "[write]", 1},
		{"acme/api ada 1001", "a", "read", time.Second, "[read]", 2},
		{"acme/api bob 1002", "a", "write", 0, "[write]", 3},
		{"acme/web ada 1001", "a", "write", 0, "[write]", 4},
		{"acme/api ada 1001", "b", "write", 0, "[write]", 5},
		{"acme/api ada 1001", "a", "", 0, "[read]", 5},
		{"acme/api ada 1001", "a", "", roleTime, "[]", 6},
		{"acme/api ada 1001", "a", "write", 0, "[write]", 7},
	} {
		now, role = now.Add(step.later), step.role
		roles, err := c.Ask(t.Context(), API{URL: api.URL, Secret: secret.New(step.secret)}, native.Question{Provider: "github", Name: "sender_permission", Args: step.args})
		if got := fmt.Sprint(roles); got != step.want || asked != step.asked || (err != nil) != (step.want == "[]") {
			t.Errorf("%d: %s, %v, asked %d times", i, got, err, asked)
		}
	}
}
