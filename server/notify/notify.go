// Package notify tells others what became of a commit: the service that hosts the
// repository by a commit status, and one address by a signed message. It hears
// every state of a factory and speaks when something has changed. Statuses and
// messages wait in a queue each, so that neither service holds back the other.
// What was given up is told anew while it is still so, and after a restart: under
// the same id.
package notify

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"triphammer/applier"
	"triphammer/factory/signature"
)

// Config is what a Notifier needs. Without Service no status is written, without
// URL no message is sent.
type Config struct {
	Service   string // one of Forges
	Project   Project
	TokenFile string // read for each status
	Branch    string // that is followed, to ask whether it is protected; empty: nobody asks

	URL string
	// Secret is the key that signs messages, as Standard Webhooks want it.
	Secret func(context.Context) (string, error)

	BaseURL string // of this server, to point at
	Client  *http.Client
	Logger  *slog.Logger
}

const (
	// patience is how long a problem that may heal by itself is kept quiet.
	patience = 2 * time.Minute
	// again is the time from giving something up to telling it anew.
	again = 10 * time.Minute
	// maxSaid bounds what is remembered of commits.
	maxSaid = 100
)

// Notifier speaks for one factory.
type Notifier struct {
	cfg                Config
	wake               chan struct{}
	statuses, messages *queue

	mu     sync.Mutex
	latest *applier.State
	said   map[string]*telling // a status of a commit to what it is

	// What is wrong since all was well. Of each kind one is told.
	refusal *problem
	passing map[applier.Reason]*problem // what may heal by itself, since the repository was last read
	present *problem                    // one of passing, or nil
	spoken  string                      // id of the last that was told, or empty
	over    *telling                    // that all is well again
}

// telling is something that was said, or is to be.
type telling struct {
	message
	key    string    // what it says
	commit string    // of a status
	gaveUp time.Time // zero: it has arrived, is on its way, or is not to be said again
}

// problem is what a message is about. The id is how a receiver knows a message
// that comes twice.
type problem struct {
	kind, id string
	began    time.Time
	seen     time.Time // when it was the present one for the last time
	told     *telling
}

// New makes a Notifier; Run starts it.
func New(cfg Config) (*Notifier, error) {
	if cfg.Service != "" && forges[cfg.Service] == nil {
		return nil, fmt.Errorf("there is no service %q; there are %s", cfg.Service, strings.Join(Forges(), ", "))
	}
	return &Notifier{
		cfg: cfg, wake: make(chan struct{}, 1), statuses: newQueue(cfg.Logger), messages: newQueue(cfg.Logger),
		said: make(map[string]*telling), passing: make(map[applier.Reason]*problem),
	}, nil
}

// Changed notes a state; it does not wait.
func (n *Notifier) Changed(s applier.State) {
	n.mu.Lock()
	n.latest = &s
	n.mu.Unlock()
	n.look()
}

func (n *Notifier) look() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// Run sends what is to be said until ctx is done.
func (n *Notifier) Run(ctx context.Context) error {
	var senders sync.WaitGroup
	defer senders.Wait()
	for _, q := range []*queue{n.statuses, n.messages} {
		senders.Go(func() { q.run(ctx) })
	}
	if n.cfg.Service != "" && n.cfg.Branch != "" {
		n.statuses.add(message{what: "protection of the branch", send: n.askProtection})
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-n.wake:
		case <-timer.C:
		}
		now := time.Now()
		if next := n.consider(now); !next.IsZero() {
			timer.Reset(max(next.Sub(now), time.Millisecond))
		} else {
			timer.Stop()
		}
	}
}

// consider turns the latest state into what is to be said, and tells when to look
// at it again though nothing changes; zero: never.
func (n *Notifier) consider(now time.Time) (next time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.latest == nil {
		return next
	}
	if n.cfg.Service != "" {
		n.considerStatus(n.latest)
	}
	if n.cfg.URL != "" {
		next = n.considerMessage(n.latest, now)
	}
	for _, t := range n.said {
		if current(n.latest, t.commit) && !t.gaveUp.IsZero() {
			next = sooner(next, n.retell(n.statuses, t, now))
		}
	}
	return next
}

// sooner is the first of two times, of which zero is never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func (n *Notifier) considerStatus(s *applier.State) {
	if last := s.LastApply; last != nil && last.Commit.Hash != "" {
		hash := last.Commit.Hash
		switch last.Outcome {
		case applier.Applied:
			n.setStatus(Apply, hash, Success, "applied as "+last.ID)
		case applier.Refused:
			if s.NextAttempt.IsZero() { // else Error is about something else
				n.setStatus(Apply, hash, Failure, s.Error)
			}
		case applier.Failed:
			n.setStatus(Apply, hash, Error, last.Error)
		}
		switch valid, known := last.Valid(); {
		case known && valid:
			_, warnings := last.Diagnostics.Counts()
			n.setStatus(Validate, hash, Success, fmt.Sprintf("valid, warnings: %d", warnings))
		case known && s.NextAttempt.IsZero():
			n.setStatus(Validate, hash, Failure, s.Error)
		}
	}
	if s.Pin != nil && s.Head != "" && s.Head != s.Pin.Commit {
		n.setStatus(Apply, s.Head, Pending, fmt.Sprintf("waits: %.12s is pinned (%s)", s.Pin.Commit, s.Pin.Reason))
	}
}

// current tells whether a state is about a commit.
func current(s *applier.State, commit string) bool {
	return commit == s.Head || s.LastApply != nil && commit == s.LastApply.Commit.Hash
}

func (n *Notifier) setStatus(name, commit string, state State, description string) {
	about, key := name+" "+commit, string(state)+"\x00"+description
	if t := n.said[about]; t != nil && t.key == key {
		return
	}
	if len(n.said) >= maxSaid { // of old ones nothing new is to be expected
		clear(n.said)
	}
	status := Status{Context: name, State: state, Description: description, URL: n.cfg.BaseURL}
	n.said[about] = n.tell(n.statuses, &telling{key: key, commit: commit}, "status "+name+" of "+commit, func(ctx context.Context) error {
		token, err := n.token()
		if err != nil {
			return err
		}
		method, address, header, body := forges[n.cfg.Service](n.cfg.Project, token, commit, status)
		_, err = send(ctx, n.cfg.Client, method, address, header, encode(body))
		return err
	})
}

// tell puts something into a queue, and notes if it could not be said.
func (n *Notifier) tell(q *queue, t *telling, what string, send func(context.Context) error) *telling {
	t.message = message{what: what, send: send, gaveUp: func(refused bool) {
		if refused && t.commit != "" {
			return // a service knows what it does not want
		}
		n.mu.Lock()
		t.gaveUp = time.Now()
		n.mu.Unlock()
		n.look()
	}}
	q.add(t.message)
	return t
}

// retell says once more what was given up, when its time has come, which is else
// returned.
func (n *Notifier) retell(q *queue, t *telling, now time.Time) (next time.Time) {
	if next = t.gaveUp.Add(again); now.Before(next) {
		return next
	}
	t.gaveUp = time.Time{}
	q.add(t.message)
	return time.Time{}
}

func (n *Notifier) token() (string, error) {
	text, err := os.ReadFile(n.cfg.TokenFile)
	if err != nil {
		return "", fmt.Errorf("--commit-status-token-file: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// askProtection warns of a branch to which everybody who can write to the
// repository can push: what is pushed decides which programs run.
func (n *Notifier) askProtection(ctx context.Context) error {
	token, err := n.token()
	if err != nil {
		return err
	}
	safe, err := protected(ctx, n.cfg.Client, n.cfg.Service, n.cfg.Project, token, n.cfg.Branch)
	if err == nil && !safe {
		n.cfg.Logger.Warn("the branch is not protected: everybody who can write to the repository decides what this server runs",
			"project", n.cfg.Project.Path, "branch", n.cfg.Branch)
	}
	return err
}

// Event is a message: that the newest commit does not serve, or that the newest
// serves again.
type Event struct {
	Type      string    `json:"type"` // apply.failed, apply.recovered
	Timestamp time.Time `json:"timestamp"`
	Data      EventData `json:"data"`
}

// EventData says what of which factory.
type EventData struct {
	Factory     string          `json:"factory"`
	Repository  string          `json:"repository"`
	Branch      string          `json:"branch"`
	Head        string          `json:"head"`    // the newest commit
	Applied     string          `json:"applied"` // what serves
	Reason      applier.Reason  `json:"reason,omitempty"`
	Error       string          `json:"error,omitempty"`
	Since       *time.Time      `json:"since,omitempty"`
	Diagnostics json.RawMessage `json:"diagnostics,omitempty"`
	URL         string          `json:"url"`
}

// considerMessage speaks when a problem begins, becomes another one, or ends: not
// when it is only found again. What may heal by itself has to last, each kind for
// itself: a commit that is refused meanwhile says nothing about the repository.
func (n *Notifier) considerMessage(s *applier.State, now time.Time) (next time.Time) {
	last := n.present
	if n.present = nil; last != nil {
		last.seen = now
	}
	if s.Error == "" {
		clear(n.passing)
		switch {
		case n.spoken != "":
			n.over = n.event("apply.recovered", s, n.spoken+"_over", now)
		case n.over != nil && !n.over.gaveUp.IsZero():
			next = n.retell(n.messages, n.over, now)
		}
		n.refusal, n.spoken = nil, ""
		return next
	}
	var p *problem
	if s.NextAttempt.IsZero() {
		clear(n.passing) // the repository was read
		kind := strings.Join([]string{string(s.Reason), s.Head, s.Error}, "\x00")
		if n.refusal == nil || n.refusal.kind != kind {
			n.refusal = &problem{kind: kind, id: idOf(s.Factory, kind), began: now.Add(-patience)}
		}
		p = n.refusal
	} else { // its words can differ at each attempt
		p = n.passing[s.Reason]
		if p == nil || p != last && now.Sub(p.seen) > patience {
			p = &problem{kind: string(s.Reason), id: idOf(s.Factory, string(s.Reason), now.UTC().Format(time.RFC3339Nano)), began: now}
			n.passing[s.Reason] = p
		}
		n.present = p
	}
	switch lasts := p.began.Add(patience); {
	case p.told == nil && now.Before(lasts):
		return lasts
	case p.told == nil:
		p.told, n.spoken, n.over = n.event("apply.failed", s, p.id, now), p.id, nil
	case !p.told.gaveUp.IsZero():
		return n.retell(n.messages, p.told, now)
	}
	return next
}

func idOf(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return "apply_" + hex.EncodeToString(sum[:12])
}

func (n *Notifier) event(kind string, s *applier.State, id string, now time.Time) *telling {
	e := Event{Type: kind, Timestamp: now.UTC(), Data: EventData{
		Factory: s.Factory, Repository: s.Repository, Branch: s.Branch, Head: s.Head, Reason: s.Reason, Error: s.Error, URL: n.cfg.BaseURL,
	}}
	if s.Applied != nil {
		e.Data.Applied = s.Applied.Commit.Hash
	}
	if s.Error != "" {
		since := s.Since.UTC()
		e.Data.Since = &since
		if s.LastApply != nil && len(s.LastApply.Diagnostics) > 0 {
			e.Data.Diagnostics = encode(s.LastApply.Diagnostics[:min(len(s.LastApply.Diagnostics), 20)])
		}
	}
	body := encode(e)
	return n.tell(n.messages, &telling{}, kind, func(ctx context.Context) error {
		secret, err := n.cfg.Secret(ctx)
		if err != nil {
			return err
		}
		standard, _ := signature.Lookup("standard_webhooks")
		request := signature.Request{Method: http.MethodPost, URL: n.cfg.URL, Header: http.Header{"Webhook-Id": {id}}, Body: body, Now: time.Now()}
		if err := standard.Sign(secret, &request); err != nil {
			return permanent{err}
		}
		_, err = send(ctx, n.cfg.Client, http.MethodPost, n.cfg.URL, request.Header, body)
		return err
	})
}
