package server

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"triphammer/server/api"
)

// author sends a request about definitions, and reads the answer.
func author[T any](f *fixture, key, method, path string, in any) (status int, out T, p api.Problem) {
	f.t.Helper()
	body := ""
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			f.t.Fatal(err)
		}
		body = string(text)
	}
	got := f.do(method, "/api/v1/factories/default/"+path, key, body)
	into := any(&p)
	if got.status < 300 {
		into = &out
		if rotated := strings.HasSuffix(path, "/rotate"); (rotated || method == http.MethodPost && path == "webhooks") && got.header.Get("Cache-Control") != "no-store" {
			f.t.Error("an answer with a secret may be kept")
		}
	}
	if err := json.Unmarshal(got.body, into); err != nil {
		f.t.Fatal(err, string(got.body))
	}
	return got.status, out, p
}

func (f *fixture) webhook(key, method, path string, in any) (int, api.WebhookChange, api.Problem) {
	f.t.Helper()
	return author[api.WebhookChange](f, key, method, path, in)
}

// deliver sends a delivery with a bearer token.
func (f *fixture) deliver(address, secret, body string) int {
	f.t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		f.t.Fatal(err)
	}
	return f.do(http.MethodPost, u.Path, secret, body).status
}

func ptr[T any](v T) *T { return &v }

// TestWebhookLife: create, rotate, disable, enable, delete (SPEC C3.2, C3.3, C4.5, 18.3).
func TestWebhookLife(t *testing.T) {
	f := newFixtureWith(t, options{hosted: true})
	manage := f.key("admin", "manage")
	status, made, p := f.webhook(manage, "POST", "webhooks", api.NewWebhook{Name: "ci"})
	if status != http.StatusCreated || !made.Live || made.UID == "" || made.SecretName != "CI_WEBHOOK_SECRET" || len(made.Secret) < 43 || made.SecretGeneration != 1 || !made.Enabled {
		t.Fatalf("%d %+v %+v", status, made, p)
	}
	if got := f.git("log", "-1", "--format=%H|%an|%s", "main"); got != made.Commit+"|ada|Create webhook ci" {
		t.Error(got)
	}
	if got := f.git("show", "main:webhooks/ci.yaml"); got != "secretName: CI_WEBHOOK_SECRET" {
		t.Error(got)
	}
	if shown := f.get("/api/v1/webhooks/ci", manage); strings.Contains(string(shown.body), made.Secret) {
		t.Error("the secret is shown again")
	}
	if got := f.deliver(made.URL, made.Secret, `{"n":1}`); got != http.StatusAccepted {
		t.Error("a delivery:", got)
	}
	status, rotated, p := f.webhook(manage, "POST", "webhooks/ci/rotate", nil)
	if status != http.StatusOK || rotated.Secret == "" || rotated.Secret == made.Secret || rotated.SecretGeneration != 2 || rotated.URL != made.URL || !rotated.Unchanged {
		t.Fatalf("%d %+v %+v", status, rotated, p)
	}
	if old, now := f.deliver(made.URL, made.Secret, `{"n":2}`), f.deliver(made.URL, rotated.Secret, `{"n":2}`); old != http.StatusUnauthorized || now != http.StatusAccepted {
		t.Error("after the rotation:", old, now)
	}
	for _, on := range []bool{false, true} {
		status, changed, p := f.webhook(manage, "PATCH", "webhooks/ci", api.WebhookPatch{WebhookKeys: api.WebhookKeys{Enabled: &on}})
		if status != http.StatusOK || changed.Enabled != on || changed.URL != made.URL || changed.Secret != "" {
			t.Fatalf("%d %+v %+v", status, changed, p)
		}
		want := map[bool]int{false: http.StatusNotFound, true: http.StatusAccepted}[on]
		if got := f.deliver(made.URL, rotated.Secret, `{"n":3}`); got != want {
			t.Error("enabled:", on, got)
		}
	}
	if got := f.git("log", "-2", "--format=%s", "main"); got != "Enable webhook ci\nDisable webhook ci" {
		t.Error(got)
	}
	status, same, _ := f.webhook(manage, "PATCH", "webhooks/ci", api.WebhookPatch{WebhookKeys: api.WebhookKeys{AuthMode: ptr("token")}})
	if status != http.StatusOK || !same.Unchanged || !same.Live || same.Commit != f.git("rev-parse", "main") {
		t.Errorf("a change that changes nothing: %d %+v", status, same)
	}
	status, changed, p := f.webhook(manage, "PATCH", "webhooks/ci", api.WebhookPatch{
		Commit:      api.Commit{Message: "Sign"},
		WebhookKeys: api.WebhookKeys{AuthMode: ptr("signature"), SignatureScheme: ptr("hmac"), Signature: map[string]any{"header": "X-Mine"}, DeliveryIDHeader: ptr("X-Id")},
	})
	if status != http.StatusOK || changed.SignatureScheme != "hmac" || changed.Signature.Header != "X-Mine" || f.git("log", "-1", "--format=%s", "main") != "Sign" {
		t.Errorf("%d %+v %+v", status, changed, p)
	}
	status, changed, p = f.webhook(manage, "PATCH", "webhooks/ci", api.WebhookPatch{WebhookKeys: api.WebhookKeys{AuthMode: ptr("url_token"), DeliveryIDHeader: ptr("")}})
	if got := f.git("show", "main:webhooks/ci.yaml"); status != http.StatusOK || !strings.HasSuffix(changed.URL, "/{token}") || strings.Contains(got, "signature") || strings.Contains(got, "Header") {
		t.Errorf("%d %s %+v %+v", status, got, changed, p)
	}
	status, rotated, p = f.webhook(manage, "POST", "webhooks/ci/rotate", nil)
	if status != http.StatusOK || !strings.HasSuffix(rotated.URLWithToken, "/"+rotated.Secret) || f.deliver(rotated.URLWithToken, "", `{"n":4}`) != http.StatusAccepted {
		t.Errorf("%d %+v %+v", status, rotated, p)
	}

	status, listening, p := author[api.DefinitionChange](f, manage, "PATCH", "automations/a", api.DefinitionPatch{
		Definition: json.RawMessage(`{"triggers":[{"provider":"webhook","event":"received","filter":{"webhooks":["ci"]}}]}`),
	})
	if status != http.StatusOK || !listening.Live {
		t.Fatalf("%d %+v %+v", status, listening, p)
	}
	status, gone, p := f.webhook(manage, "DELETE", "webhooks/ci", nil)
	if status != http.StatusOK || !slices.Equal(gone.Listeners, []string{"a"}) || !gone.Live {
		t.Fatalf("%d %+v %+v", status, gone, p)
	}
	if got := f.deliver(rotated.URLWithToken, "", `{"n":5}`); got != http.StatusNotFound {
		t.Error("after the deletion:", got)
	}
	if got := f.get("/api/v1/automations", manage); !strings.Contains(string(got.body), "there is no webhook ci") {
		t.Errorf("the automation does not say so: %s", got.body)
	}
	if status, _, _ := f.webhook(manage, "DELETE", "webhooks/ci", nil); status != http.StatusNotFound {
		t.Error("deleted twice:", status)
	}
	audit := string(f.get("/api/v1/audit?limit=100", manage).body)
	for _, action := range []string{"webhook.rotate", "secret.set", "Create webhook ci", "Delete webhook ci"} {
		if !strings.Contains(audit, action) {
			t.Error("the audit log lacks", action)
		}
	}
	for _, s := range []string{made.Secret, rotated.Secret} {
		if strings.Contains(audit, s) || strings.Contains(f.git("log", "-p", "main"), s) {
			t.Error("a secret is where it does not belong")
		}
	}
}

// TestWebhookSecrets: where the secret of a new webhook comes from, and that a refusal leaves
// nothing behind.
func TestWebhookSecrets(t *testing.T) {
	f := newFixtureWith(t, options{hosted: true})
	manage, limited := f.key("admin", "manage"), f.limitedKey("limited", "default", "manage")
	names := func() (all []string) {
		var list struct{ Secrets []api.Secret }
		if err := json.Unmarshal(f.get("/api/v1/secrets", manage).body, &list); err != nil {
			t.Fatal(err)
		}
		for _, s := range list.Secrets {
			all = append(all, s.Name)
		}
		return all
	}
	create := func(w api.NewWebhook) (int, api.WebhookChange, api.Problem) {
		t.Helper()
		return f.webhook(manage, "POST", "webhooks", w)
	}
	keys := func(scheme string) api.WebhookKeys {
		return api.WebhookKeys{AuthMode: ptr("signature"), SignatureScheme: &scheme}
	}
	before, tip := names(), f.git("rev-parse", "main")
	for name, w := range map[string]api.NewWebhook{
		"an unknown scheme":            {Name: "x", WebhookKeys: keys("nobody"), Secret: api.WebhookSecret{Generate: true}},
		"a header that cannot be":      {Name: "x", WebhookKeys: api.WebhookKeys{DeliveryIDHeader: ptr("a b")}},
		"no secret of the sender":      {Name: "x", WebhookKeys: keys("stripe")},
		"a key of the sender":          {Name: "x", WebhookKeys: keys("ed25519"), Secret: api.WebhookSecret{Generate: true}},
		"a value that does not suit":   {Name: "x", WebhookKeys: keys("standard_webhooks"), Secret: api.WebhookSecret{Value: "whsec_!"}},
		"a value that suits no URL":    {Name: "x", WebhookKeys: api.WebhookKeys{AuthMode: ptr("url_token")}, Secret: api.WebhookSecret{Value: "a/b"}},
		"two ways":                     {Name: "x", Secret: api.WebhookSecret{Generate: true, Later: true}},
		"a secret that is not there":   {Name: "x", Secret: api.WebhookSecret{Name: "NOBODY"}},
		"a secret that is there":       {Name: "x", WebhookKeys: api.WebhookKeys{SecretName: ptr("S")}},
		"a name of a secret":           {Name: "x", WebhookKeys: api.WebhookKeys{SecretName: ptr("a b")}},
		"a webhook that is there":      {Name: "hook"},
		"a path":                       {Name: "../x"},
		"YAML":                         {Name: "a: b"},
		"no name":                      {},
		"an option that nothing knows": {Name: "x", WebhookKeys: api.WebhookKeys{AuthMode: ptr("signature"), SignatureScheme: ptr("hmac"), Signature: map[string]any{"no": 1}}},
		"a base that is no commit":     {Name: "x", Commit: api.Commit{Base: "0123456789"}},
	} {
		if status, made, p := create(w); status < 400 || status >= 500 || p.Detail == "" {
			t.Errorf("%s: %d %+v %+v", name, status, made, p)
		}
		if now := names(); !slices.Equal(now, before) || f.git("rev-parse", "main") != tip {
			t.Errorf("%s left something behind: %v", name, now)
		}
	}
	status, made, p := create(api.NewWebhook{Name: "std", WebhookKeys: keys("standard_webhooks")})
	if status != http.StatusCreated || !strings.HasPrefix(made.Secret, "whsec_") || len(made.Secret) != len("whsec_")+44 {
		t.Errorf("%d %+v %+v", status, made, p)
	}
	status, made, p = create(api.NewWebhook{Name: "own", WebhookKeys: keys("stripe"), Secret: api.WebhookSecret{Value: "whsec_of_the_sender"}})
	if status != http.StatusCreated || made.Secret != "" || made.SecretGeneration != 1 {
		t.Errorf("%d %+v %+v", status, made, p)
	}
	status, made, p = create(api.NewWebhook{Name: "known", Secret: api.WebhookSecret{Name: "S"}})
	if status != http.StatusCreated || made.Secret != "" || made.SecretName != "S" || len(made.SharedWith) == 0 || f.deliver(made.URL, hookSecret, `{}`) != http.StatusAccepted {
		t.Errorf("%d %+v %+v", status, made, p)
	}
	status, made, p = create(api.NewWebhook{Name: "token", WebhookKeys: api.WebhookKeys{AuthMode: ptr("url_token")}})
	if status != http.StatusCreated || f.deliver(made.URLWithToken, "", `{}`) != http.StatusAccepted || !strings.HasSuffix(made.URL, "{token}") {
		t.Errorf("%d %+v %+v", status, made, p)
	}
	if status, _, p := f.webhook(limited, "POST", "webhooks", api.NewWebhook{Name: "mine"}); status != http.StatusForbidden {
		t.Errorf("a key of one factory made a secret for all: %d %+v", status, p)
	}
	if status, _, p := f.webhook(limited, "POST", "webhooks", api.NewWebhook{Name: "mine", Secret: api.WebhookSecret{Name: "S"}}); status != http.StatusCreated {
		t.Errorf("%d %+v", status, p)
	}

	// A sender that tells its secret only when it has the URL.
	status, made, p = create(api.NewWebhook{Name: "late", WebhookKeys: keys("stripe"), Secret: api.WebhookSecret{Later: true}})
	if status != http.StatusCreated || made.URL == "" || made.Enabled || made.SecretGeneration != 0 {
		t.Fatalf("%d %+v %+v", status, made, p)
	}
	on := api.WebhookPatch{WebhookKeys: api.WebhookKeys{Enabled: ptr(true)}}
	if status, _, p := f.webhook(manage, "PATCH", "webhooks/late", on); status != http.StatusUnprocessableEntity || !strings.Contains(p.Detail, "LATE_WEBHOOK_SECRET") {
		t.Errorf("enabled without a secret: %d %+v", status, p)
	}
	if status, _, p := f.webhook(manage, "POST", "webhooks/late/rotate", nil); status != http.StatusBadRequest {
		t.Errorf("a secret that the sender makes was generated: %d %+v", status, p)
	}
	status, now, p := f.webhook(manage, "POST", "webhooks/late/rotate", api.WebhookRotation{Value: "whsec_that_stripe_shows"})
	if status != http.StatusOK || !now.Enabled || now.SecretGeneration != 1 || now.URL != made.URL || now.Secret != "" {
		t.Errorf("%d %+v %+v", status, now, p)
	}

	// A value that does not suit all who use the secret changes nothing.
	if status, _, _ := create(api.NewWebhook{Name: "shared", WebhookKeys: api.WebhookKeys{AuthMode: ptr("url_token")}, Secret: api.WebhookSecret{Name: "S"}}); status != http.StatusCreated {
		t.Fatal(status)
	}
	if status, _, p := f.webhook(manage, "POST", "webhooks/hook/rotate", api.WebhookRotation{Value: "with/slash/and/more"}); status != http.StatusBadRequest || !strings.Contains(p.Detail, "shared") {
		t.Errorf("%d %+v", status, p)
	}
	if f.deliver("/webhooks/w/"+f.uids()["hook"], hookSecret, `{"still":1}`) != http.StatusAccepted {
		t.Error("the old secret is dead, and there is no new one")
	}
}

// TestAuthors: of two who create at once, both succeed; of two who change one file, the second
// is told.
func TestAuthors(t *testing.T) {
	f := newFixtureWith(t, options{hosted: true})
	manage := f.key("admin", "manage")
	var all sync.WaitGroup
	for _, name := range []string{"one", "two", "three"} {
		all.Go(func() {
			if status, made, p := f.webhook(manage, "POST", "webhooks", api.NewWebhook{Name: name}); status != http.StatusCreated || !made.Live {
				t.Errorf("%d %+v", status, p)
			}
		})
	}
	all.Wait()
	base := f.git("rev-parse", "main")
	patch := api.WebhookPatch{Commit: api.Commit{Base: base}, WebhookKeys: api.WebhookKeys{DeliveryIDHeader: ptr("X-One")}}
	if status, _, p := f.webhook(manage, "PATCH", "webhooks/one", patch); status != http.StatusOK {
		t.Fatalf("%d %+v", status, p)
	}
	patch.DeliveryIDHeader = ptr("X-Two")
	if status, _, p := f.webhook(manage, "PATCH", "webhooks/one", patch); status != http.StatusConflict || p.Moved == nil || p.Moved.Since[0].Author != "ada" {
		t.Errorf("%d %+v", status, p)
	}
	if status, _, p := f.webhook(manage, "PATCH", "webhooks/two", patch); status != http.StatusOK {
		t.Errorf("another file: %d %+v", status, p)
	}
	if status, _, p := f.webhook(manage, "DELETE", "webhooks/one?base="+base, nil); status != http.StatusConflict {
		t.Errorf("%d %+v", status, p)
	}
}

// TestDefinitionLife: the same for automations, environments and agents.
func TestDefinitionLife(t *testing.T) {
	f := newFixtureWith(t, options{hosted: true})
	manage := f.key("admin", "manage")
	send := func(method, path string, in api.DefinitionPatch) (int, api.DefinitionChange, api.Problem) {
		t.Helper()
		return author[api.DefinitionChange](f, manage, method, path, in)
	}
	triggers := `"triggers":[{"provider":"webhook","event":"received","filter":{"webhooks":["hook"]}}]`
	for _, one := range []struct{ kind, definition, prompt, patch, wants string }{
		{"environment", `{"env":{"A":"*x","B":"a: b"}}`, "", `{"env":{"A":null},"timeoutMinutes":5}`, `{"env":{"B":"a: b"},"timeoutMinutes":5}`},
		{"agent", `{"agentType":"FOREMAN","description":"&y"}`, "You are\n---\nmany", `{"description":"z"}`, `{"description":"z","agentType":"FOREMAN"}`},
		{"automation", `{"enabled":false,"environmentId":"e",` + triggers + `}`, "Do: it", `{"enabled":true}`, `{"environmentId":"e","enabled":true,` + triggers + `}`},
	} {
		in := api.DefinitionPatch{Name: "made", Definition: json.RawMessage(one.definition)}
		if one.prompt != "" {
			in.Prompt = &one.prompt
		}
		status, made, p := send("POST", one.kind+"s", in)
		if status != http.StatusCreated || !made.Live || made.Definition.Prompt != one.prompt || made.Definition.Commit != made.Commit {
			t.Fatalf("%s: %d %+v %+v", one.kind, status, made, p)
		}
		if status, _, _ := send("POST", one.kind+"s", in); status != http.StatusConflict {
			t.Errorf("%s made twice: %d", one.kind, status)
		}
		status, made, p = send("PATCH", one.kind+"s/made", api.DefinitionPatch{Definition: json.RawMessage(one.patch)})
		if status != http.StatusOK || string(made.Definition.Keys) != one.wants || made.Definition.Prompt != one.prompt {
			t.Errorf("%s: %d %s %+v", one.kind, status, made.Definition.Keys, p)
		}
		status, read, _ := author[api.Definition](f, manage, "GET", one.kind+"s/made", nil)
		if status != http.StatusOK || string(read.Keys) != one.wants || read.Path == "" {
			t.Errorf("%s: %d %+v", one.kind, status, read)
		}
		for _, bad := range []string{`{"nobody":1}`, `[]`, `"x"`} {
			if status, _, p := send("PATCH", one.kind+"s/made", api.DefinitionPatch{Definition: json.RawMessage(bad)}); status != http.StatusUnprocessableEntity && status != http.StatusBadRequest {
				t.Errorf("%s: %d %+v", bad, status, p)
			}
		}
		for _, path := range []string{"nobody", "..%2fmade", "made.yaml"} {
			if status, _, _ := send("PATCH", one.kind+"s/"+path, in); status != http.StatusNotFound {
				t.Errorf("%s: %d", path, status)
			}
		}
	}
	if status, _, p := send("DELETE", "agents/made", api.DefinitionPatch{}); status != http.StatusOK {
		t.Errorf("%d %+v", status, p) // without any agent, an automation needs none
	}
	for _, kind := range []string{"automation", "environment"} {
		status, gone, p := send("DELETE", kind+"s/made", api.DefinitionPatch{})
		if status != http.StatusOK || gone.Definition != nil || !gone.Live {
			t.Errorf("%s: %d %+v %+v", kind, status, gone, p)
		}
	}
	if status, _, p := send("PATCH", "environments/e", api.DefinitionPatch{Prompt: ptr("x")}); status != http.StatusBadRequest {
		t.Errorf("%d %+v", status, p)
	}
}

// TestAuthoringElsewhere: a factory whose repository is elsewhere says what to edit there.
func TestAuthoringElsewhere(t *testing.T) {
	f := newFixtureWith(t, options{files: fstest.MapFS{"webhooks/hook.yaml": {Data: []byte("# mine\nsecretName: S\nenabled: true\n")}}})
	manage := f.key("admin", "manage")
	for path, want := range map[string]string{
		"PATCH webhooks/hook":       "webhooks/hook.yaml:3",
		"DELETE webhooks/hook":      "webhooks/hook.yaml:1",
		"POST webhooks":             "webhooks/new.yaml",
		"POST environments":         "environments/new.yaml",
		"POST webhooks/hook/rotate": "triphammer secrets set S",
	} {
		method, path, _ := strings.Cut(path, " ")
		got := f.do(method, "/api/v1/factories/default/"+path, manage, `{"name":"new","enabled":false}`)
		if got.status != http.StatusConflict || !strings.Contains(string(got.body), want) {
			t.Errorf("%s %s: %d %s", method, path, got.status, got.body)
		}
	}
	if got := f.get("/api/v1/factories/default/webhooks/hook", manage); got.status != http.StatusOK || field(t, got, "definition", "secretName") != "S" {
		t.Errorf("%d %s", got.status, got.body)
	}
	if strings.Contains(string(f.get("/api/v1/secrets", manage).body), "NEW_WEBHOOK") {
		t.Error("a secret is left behind")
	}
}

// TestRotationFails: if the new secret cannot serve, the old one does as before.
func TestRotationFails(t *testing.T) {
	f := newFixtureWith(t, options{hosted: true})
	manage := f.key("admin", "manage")
	first := f.git("rev-parse", "main")
	_, made, _ := f.webhook(manage, "POST", "webhooks", api.NewWebhook{Name: "ci"})
	if got := f.do(http.MethodPost, "/api/v1/factories/default/pin", manage, `{"commit":"`+first+`","reason":"x"}`); got.status != http.StatusOK {
		t.Fatal(got.status)
	}
	status, _, p := f.webhook(manage, "POST", "webhooks/ci/rotate", nil)
	if status != http.StatusConflict || !strings.Contains(p.Detail, "does not serve") {
		t.Errorf("%d %+v", status, p)
	}
	if got := f.do(http.MethodDelete, "/api/v1/factories/default/pin", manage, ""); got.status != http.StatusOK {
		t.Fatal(got.status)
	}
	if got := f.deliver(made.URL, made.Secret, `{"n":1}`); got != http.StatusAccepted {
		t.Error("the old secret:", got)
	}
}
