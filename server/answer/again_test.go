package answer

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"triphammer/server/store"
)

// TestAgain: a person sends again what was given up. A text that arrived after all is found, and not there
// twice (SPEC 22.3, 22.5).
func TestAgain(t *testing.T) {
	for name, arrived := range map[string]bool{"refused": false, "arrived": true} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			id := f.deliver("1", thread("7", "issue", ""))
			if err := f.store.Answers.Again(t.Context(), id); !errors.Is(err, store.ErrConflict) {
				t.Errorf("of an answer that waits: %v", err)
			}
			f.end(f.start())
			if arrived { // and nobody can look for it for a day
				f.forge.set(func() {
					f.forge.lose = func(method string) bool { return method == http.MethodPost }
					f.forge.refuse = func(method string) int {
						if method == http.MethodGet {
							return http.StatusBadGateway
						}
						return 0
					}
				})
			} else {
				f.forge.set(func() { f.forge.refuse = func(string) int { return http.StatusForbidden } })
			}
			for range 60 {
				f.turns(t.Context())
				f.pass(30 * time.Minute)
			}
			if a := f.answer(id); a.Status != store.AnswerFailed || a.Uncertain != arrived {
				t.Fatalf("%+v", a)
			}
			f.forge.set(func() { f.forge.refuse, f.forge.lose = nil, nil })
			f.turns(t.Context())
			if a := f.answer(id); a.Status != store.AnswerFailed {
				t.Errorf("it was sent by itself: %+v", a)
			}
			f.check(f.store.Answers.Again(t.Context(), id))
			f.turns(t.Context())
			if got := f.forge.texts(); len(got) != 1 || !strings.HasPrefix(got[0], "ended") {
				t.Errorf("%q", got)
			}
			if a := f.answer(id); a.Status != store.AnswerDelivered || a.Detail != "" || a.Uncertain {
				t.Errorf("%+v", a)
			}
			if err := f.store.Answers.Again(t.Context(), id); !errors.Is(err, store.ErrConflict) {
				t.Errorf("of an answer that was told: %v", err)
			}
		})
	}
}
