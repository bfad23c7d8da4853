package native

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// sampleAccount stands for the factory in the samples.
var sampleAccounts = []string{"triphammer", "712020:triphammer"}

// sample is the delivery that the sender's sample of an event is.
func sample(t testing.TB, s *Sender, event string) Delivery {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "signature", "samples", s.Schemes[0]+"."+event+".json"))
	if err != nil {
		t.Fatalf("%s %s has no sample: %v", s.Provider, event, err)
	}
	var file struct {
		Headers map[string]string
		Body    json.RawMessage
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatalf("%s %s: %v", s.Provider, event, err)
	}
	d := Delivery{Header: map[string]string{}, Body: file.Body, Accounts: sampleAccounts}
	for name, value := range file.Headers {
		d.Header[http.CanonicalHeaderKey(name)] = value
	}
	return d
}

// together are the events that go with another one, as the rows say: in one delivery are both.
var together = map[string][]string{
	"github pull_request_review_submitted": {"pull_request_mentioned"}, // its text mentions somebody
	"linear issue_created":                 {"issue_labeled", "issue_assigned"},
	"jira issue_created":                   {"issue_labeled"},
	"slack message_dm":                     {"message_im"},
	"slack message_im":                     {"message_dm"},
	"slack message_mpim":                   {"message_dm"},
	"teams app_mention":                    {"message_posted"},
	"teams message_posted":                 {"app_mention"},
}

// TestSamples: the sample of each event has that event, and all that filters look at.
func TestSamples(t *testing.T) {
	for _, s := range Senders() {
		for _, e := range s.Events {
			t.Run(s.Provider+" "+e.Name, func(t *testing.T) {
				p := s.Read(sample(t, s, e.Name))
				var events []string
				for _, has := range p.Events() {
					events = append(events, has.Name)
				}
				want := append([]string{e.Name}, together[s.Provider+" "+e.Name]...)
				slices.Sort(events)
				if slices.Sort(want); !slices.Equal(events, want) {
					t.Fatalf("the sample has the events %v, want %v", events, want)
				}
				either := false // an event has one of several keys
				for i := range e.Keys {
					k := &e.Keys[i]
					for _, named := range []bool{false, true} {
						if named && k.Names == nil {
							continue
						}
						values, open := (&Filter{Key: k, Named: named}).values(p)
						either = either || k.Both && len(values) > 0
						if len(values) == 0 && open == nil && !k.Both {
							t.Errorf("%s (names: %v) has no value, and asks nobody", k.Name, named)
						}
						if open != nil && open.Args == "" {
							t.Errorf("%s asks about nothing", k.Name)
						}
						if k.Places(named) == "" {
							t.Errorf("nothing says where %s comes from", k.Name)
						}
					}
				}
				if slices.ContainsFunc(e.Keys, func(k Key) bool { return k.Both }) && !either {
					t.Error("no value of the keys that an event has one of")
				}
				if len(e.Same) == 0 {
					t.Error("nothing identifies it: two webhooks that report it would start a run each")
				}
				for _, src := range e.Same {
					if strings.TrimSpace(e.Identity(p)) == "" || src.Doc == "" {
						t.Errorf("identity %q of %q", e.Identity(p), src.Doc)
					}
				}
				if e.Doc == "" || !strings.HasSuffix(e.Doc, ".") || s.Docs == "" {
					t.Errorf("described by %q, at %q", e.Doc, s.Docs)
				}
				if e.Link.read != nil && s.Provider != "teams" && e.LinkOf(p) == "" {
					t.Errorf("no link by %s", e.Link.Doc)
				}
			})
		}
	}
}
