package executor

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"triphammer/server/run/event"
	"triphammer/server/run/task"
	"triphammer/server/secret"
)

const canary = "c4nary-of-the-model"

// model is an API of a model that wants the canary as its key. It answers what its key was.
func model(t *testing.T) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.Header.Get("X-Api-Key") != canary {
			http.Error(w, "no key", http.StatusUnauthorized)
			return
		}
		_, _ = io.WriteString(w, `{"type":"message","key":"`+r.Header.Get("X-Api-Key")+`","usage":{"input_tokens":1,"output_tokens":1}}`)
	}))
	t.Cleanup(s.Close)
	return s
}

// withModel is a run whose agent asks the model, and gathers what could hold the key.
func withModel(address string) *task.Task {
	to := task.Service{Name: "anthropic", Token: "t0ken", URL: address, Provider: "anthropic", Header: map[string]secret.Value{"X-Api-Key": secret.New(canary)}}
	t := sh(`curl -sS "$ANTHROPIC_BASE_URL/v1/messages" -H "X-Api-Key: $ANTHROPIC_API_KEY" -d '{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"x"}]}'
{ env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline; } 2>/dev/null | tr '\0' '\n' > hunted
curl -sS -o /dev/null -w ' %{http_code}' "${ANTHROPIC_BASE_URL%/*}/wrong/v1/messages" -d '{}'
curl -sS -o /dev/null -w ' %{http_code}' "$ANTHROPIC_BASE_URL/v1/files"
true`)
	t.Services = []task.Service{to}
	t.Secrets = map[string]secret.Value{"ANTHROPIC_BASE_URL": secret.New(to.Address()), "ANTHROPIC_API_KEY": secret.New(to.Token)}
	return t
}

// TestKeyOutside: a run reaches its model without the key, which is nowhere where the run looks, nor in
// what is collected of it. With the key inside, the same search finds it.
func TestKeyOutside(t *testing.T) {
	address := model(t).URL
	for _, inside := range []bool{false, true} {
		e, r := newExecutor(t, 0), newRecorder()
		work := withModel(address)
		if inside {
			work.Secrets["KEY"] = secret.New(canary)
		}
		exit, err := e.Start(t.Context(), work, r)
		said := r.said("stdout")
		if err != nil || exit.Code != 0 || said != `{"type":"message","key":"[redacted]","usage":{"input_tokens":1,"output_tokens":1}} 403 403` && said != `{"type":"message","key":"[redacted]","usage":{"input_tokens":1,"output_tokens":1}} 403 404` {
			t.Fatalf("%v %v %q %q", exit, err, said, r.said("stderr"))
		}
		found := 0
		err = filepath.WalkDir(filepath.Join(e.dir, "run_1"), func(name string, d os.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			text, err := os.ReadFile(name)
			found += strings.Count(string(text), canary)
			return err
		})
		if err != nil || (found > 0) != inside {
			t.Errorf("with the key inside: %v, it was found %d times, %v", inside, found, err)
		}
		if contacts := of[event.Egress](r); len(contacts) == 0 || !contacts[0].Allowed {
			t.Errorf("the transcript has the contacts %+v", contacts)
		}
	}
}

// TestServiceOfOwnAddress: no service leads to the server itself.
func TestServiceOfOwnAddress(t *testing.T) {
	s := model(t)
	e, r := newExecutor(t, 0), newRecorder()
	e.own = append(e.own, netip.MustParseAddrPort(s.Listener.Addr().String()))
	if _, err := e.Start(t.Context(), withModel(s.URL), r); err != nil || !strings.Contains(r.said("stdout"), "may not be reached") {
		t.Errorf("%v %q", err, r.said("stdout"))
	}
	if !slices.ContainsFunc(of[event.Status](r), func(e event.Status) bool { return strings.Contains(e.Message, "may not be reached") }) {
		t.Error("the transcript does not say so")
	}
}
