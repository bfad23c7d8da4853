// Package notify tells others what became of a commit: the service that hosts the
// repository by a commit status, and one address by a signed message. It hears
// every state of a factory and speaks when something has changed; what it says is
// sent in order, and again if need be, but not after a restart: a state that
// lasts is told anew then, under the same id.
package notify

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
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
	// tries is how often something is sent, firstPause the time after the first
	// time, which doubles.
	tries      = 8
	firstPause = time.Second
	// maxWaiting bounds what waits to be sent; the oldest goes.
	maxWaiting = 100
)

// Notifier speaks for one factory.
type Notifier struct {
	cfg  Config
	wake chan struct{}

	mu     sync.Mutex
	latest *applier.State
	queue  []message

	said  map[string]string // a status of a commit to what it is
	began time.Time         // of the present problem; zero: none
	quiet bool              // it is not told yet
	told  problem           // zero: none
}

// problem is what a message was about. One of the same kind is not told again;
// the id is how a receiver knows a message that comes twice.
type problem struct{ kind, id string }

// message is something to send. send is called until it succeeds.
type message struct {
	what string
	send func(context.Context) error
}

// New makes a Notifier; Run starts it.
func New(cfg Config) (*Notifier, error) {
	if cfg.Service != "" && forges[cfg.Service] == nil {
		return nil, fmt.Errorf("there is no service %q; there are %s", cfg.Service, strings.Join(Forges(), ", "))
	}
	return &Notifier{cfg: cfg, wake: make(chan struct{}, 1), said: make(map[string]string)}, nil
}

// Changed notes a state; it does not wait.
func (n *Notifier) Changed(s applier.State) {
	n.mu.Lock()
	n.latest = &s
	n.mu.Unlock()
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// Run sends what is to be said until ctx is done.
func (n *Notifier) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	if n.cfg.Service != "" && n.cfg.Branch != "" {
		n.enqueue(message{what: "protection of the branch", send: n.askProtection})
	}
	for attempt := 0; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-n.wake:
		case <-timer.C:
		}
		n.consider(time.Now())
		wait := time.Hour
		for len(n.queue) > 0 {
			next := n.queue[0]
			err := next.send(ctx)
			if ctx.Err() != nil {
				return nil
			}
			if final := (permanent{}); err != nil && !errors.As(err, &final) && attempt+1 < tries {
				wait = firstPause << attempt
				attempt++
				break
			}
			if err != nil {
				n.cfg.Logger.Warn("a request to another service was given up", "what", next.what, "error", err.Error(), "tries", attempt+1)
			}
			n.queue, attempt = n.queue[1:], 0
		}
		if n.quiet {
			wait = min(wait, time.Until(n.began.Add(patience)))
		}
		timer.Reset(max(wait, time.Millisecond))
	}
}

// consider turns the latest state into what is to be said.
func (n *Notifier) consider(now time.Time) {
	n.mu.Lock()
	latest := n.latest
	n.mu.Unlock()
	if latest == nil {
		return
	}
	if n.cfg.Service != "" {
		n.considerStatus(latest)
	}
	if n.cfg.URL != "" {
		n.considerMessage(latest, now)
	}
}

func (n *Notifier) considerStatus(s *applier.State) {
	if last := s.LastApply; last != nil && last.Commit.Hash != "" {
		hash := last.Commit.Hash
		switch last.Outcome {
		case applier.Applied:
			n.setStatus(Apply, hash, Success, "applied as "+last.ID)
		case applier.Refused:
			n.setStatus(Apply, hash, Failure, s.Error)
		case applier.Failed:
			n.setStatus(Apply, hash, Error, last.Error)
		}
		switch valid, known := last.Valid(); {
		case known && valid:
			_, warnings := last.Diagnostics.Counts()
			n.setStatus(Validate, hash, Success, fmt.Sprintf("valid, warnings: %d", warnings))
		case known:
			n.setStatus(Validate, hash, Failure, s.Error)
		}
	}
	if s.Pin != nil && s.Head != "" && s.Head != s.Pin.Commit {
		n.setStatus(Apply, s.Head, Pending, fmt.Sprintf("waits: %.12s is pinned (%s)", s.Pin.Commit, s.Pin.Reason))
	}
}

func (n *Notifier) setStatus(name, commit string, state State, description string) {
	about, key := name+" "+commit, string(state)+"\x00"+description
	if n.said[about] == key {
		return
	}
	if len(n.said) >= maxWaiting { // of old ones nothing new is to be expected
		clear(n.said)
	}
	n.said[about] = key
	status := Status{Context: name, State: state, Description: description, URL: n.cfg.BaseURL}
	n.enqueue(message{what: "status " + name + " of " + commit, send: func(ctx context.Context) error {
		token, err := n.token()
		if err != nil {
			return err
		}
		method, address, header, body := forges[n.cfg.Service](n.cfg.Project, token, commit, status)
		_, err = send(ctx, n.cfg.Client, method, address, header, encode(body))
		return err
	}})
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
// when it is only found again. What may heal by itself has to last.
func (n *Notifier) considerMessage(s *applier.State, now time.Time) {
	n.quiet = false
	if s.Error == "" {
		if n.told.id != "" {
			n.event("apply.recovered", s, n.told.id+"_over", now)
		}
		n.began, n.told = time.Time{}, problem{}
		return
	}
	if n.began.IsZero() {
		n.began = now
	}
	var p problem
	if s.NextAttempt.IsZero() {
		p.kind = strings.Join([]string{string(s.Reason), s.Head, s.Error}, "\x00")
		p.id = idOf(s.Factory, p.kind)
	} else { // its words can differ at each attempt
		p.kind = string(s.Reason)
		p.id = idOf(s.Factory, p.kind, n.began.UTC().Format(time.RFC3339Nano))
		n.quiet = p.kind != n.told.kind && now.Sub(n.began) < patience
	}
	if n.quiet || p.kind == n.told.kind {
		return
	}
	n.event("apply.failed", s, p.id, now)
	n.told = p
}

func idOf(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return "apply_" + hex.EncodeToString(sum[:12])
}

func (n *Notifier) event(kind string, s *applier.State, id string, now time.Time) {
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
	n.enqueue(message{what: kind, send: func(ctx context.Context) error {
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
	}})
}

func (n *Notifier) enqueue(m message) {
	if len(n.queue) >= maxWaiting {
		n.queue = n.queue[1:]
	}
	n.queue = append(n.queue, m)
}
