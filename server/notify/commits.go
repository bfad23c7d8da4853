package notify

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"triphammer/applier"
	"triphammer/server/store"
)

// Commits says where to report the outcomes of a factory's commits. Without Service, no commit
// status is written. Without URL, no message is sent.
type Commits struct {
	Factory   string
	Service   string // one of Forges
	Project   Project
	TokenFile string // a file with the token for Service; it is read for each status
	Branch    string // the followed branch, to log a warning if it is not protected; empty: no check
	Hook
	BaseURL string // address of this server, for links
}

const (
	// patience is how long a temporary problem must last before a message is sent.
	patience = 2 * time.Minute
	// again is the time after which a notice that was given up is sent again.
	again = 10 * time.Minute
	// sendTime limits one attempt to send something.
	sendTime = 30 * time.Second
)

// pauses are the times between the attempts to send one notice about a commit.
var pauses = []time.Duration{
	time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 32 * time.Second, 64 * time.Second,
}

// Types of an Event.
const (
	applyFailed    = "apply.failed"
	applyRecovered = "apply.recovered"
)

const protection = "protection of the branch"

// commits decides which notices are written about one factory.
type commits struct {
	Commits
	statuses, messages *queue // nil: not configured
	wake               chan struct{}

	mu     sync.Mutex
	latest *applier.State

	// Only run uses the fields below.
	since time.Time // the start of this server
	// The problems since the newest commit last served. One message is sent for each kind.
	refusal *problem
	passing map[applier.Reason]*problem // temporary problems since the repository was last read
	present *problem                    // the problem in passing that exists now; nil: none
	spoken  string                      // id of the last problem that was sent, even before a restart; empty: none
	over    string                      // subject of the message about the recovery, if it is the last message
}

// problem is the subject of a message. The id tells a receiver that a message arrived twice.
type problem struct {
	kind, id string
	began    time.Time
	seen     time.Time // when this was last the present problem
	told     bool
}

// Commits makes a Teller report the outcomes of commits. The returned function takes each
// new state, and does not block.
func (t *Teller) Commits(cfg Commits) (changed func(applier.State), err error) {
	if cfg.Service != "" && forges[cfg.Service] == nil {
		return nil, fmt.Errorf("there is no service %q; there are %s", cfg.Service, strings.Join(Forges(), ", "))
	}
	c := &commits{Commits: cfg, wake: make(chan struct{}, 1), passing: make(map[applier.Reason]*problem)}
	add := func(recipient string, send func(context.Context, store.Notice) (int, error)) *queue {
		return t.add(&queue{
			recipient: recipient, atOnce: 1, timeout: sendTime, pauses: pauses, send: send, final: hopeless,
			tried: func(n store.Notice, _ int, err error) {
				if n.Status == store.NoticeFailed {
					t.log.Warn("a request to another service was given up", "what", n.Subject, "error", err, "tries", n.Attempts)
					signal(c.wake)
				}
			},
		})
	}
	if cfg.Service != "" {
		c.statuses = add("statuses of "+cfg.Factory, c.sendStatus)
	}
	if cfg.URL != "" {
		c.messages = add("messages of "+cfg.Factory, func(ctx context.Context, n store.Notice) (int, error) {
			_, id, _ := strings.Cut(n.Subject, " ")
			return c.Post(ctx, id, "", t.now(), n.Body)
		})
	}
	t.workers = append(t.workers, func(ctx context.Context) { c.run(ctx, t) })
	return func(s applier.State) {
		c.mu.Lock()
		c.latest = &s
		c.mu.Unlock()
		signal(c.wake)
	}, nil
}

// run writes notices into the outbox, until ctx is done.
func (c *commits) run(ctx context.Context, t *Teller) {
	// Another server may have sent messages since this server last did.
	c.since, c.refusal, c.present, c.spoken, c.over = time.Time{}, nil, nil, "", ""
	clear(c.passing)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
		case <-timer.C:
		}
		now := t.now()
		next, err := c.consider(ctx, now)
		if err != nil && ctx.Err() == nil {
			t.log.Error("what became of a commit could not be written into the outbox", "factory", c.Factory, "error", err)
			next = now.Add(poll)
		}
		if timer.Stop(); !next.IsZero() {
			timer.Reset(max(next.Sub(now), time.Millisecond))
		}
	}
}

// consider writes the notices that the latest state calls for. It returns when to look at
// the state again even if it does not change; zero means never.
func (c *commits) consider(ctx context.Context, now time.Time) (next time.Time, err error) {
	if err := c.resume(ctx, now); err != nil {
		return next, err
	}
	c.mu.Lock()
	latest := c.latest
	c.mu.Unlock()
	if latest == nil {
		return next, nil
	}
	if c.statuses != nil {
		next, err = c.considerStatus(ctx, latest, now)
	}
	if c.messages != nil {
		at, failed := c.considerMessage(ctx, latest, now)
		next, err = sooner(next, at), errors.Join(err, failed)
	}
	return next, err
}

// resume continues where the server ended before a restart.
func (c *commits) resume(ctx context.Context, now time.Time) error {
	if !c.since.IsZero() {
		return nil
	}
	if c.statuses != nil && c.Branch != "" {
		if err := c.statuses.tell(ctx, protection, nil); err != nil {
			return err
		}
	}
	if c.messages != nil {
		switch last, err := c.messages.store.Notices.Last(ctx, c.messages.recipient, ""); {
		case err == nil:
			c.remember(last.Subject)
		case !errors.Is(err, store.ErrNotFound):
			return err
		}
	}
	c.since = now
	return nil
}

// say writes a notice, unless the last notice of the subject has the same body. A notice
// that was given up is written again after a start, or after the time again; say returns
// when that will be. A nil body means the body of the last notice.
func (c *commits) say(ctx context.Context, q *queue, subject string, body []byte, now time.Time) (next time.Time, err error) {
	n, err := q.store.Notices.Last(ctx, q.recipient, subject)
	switch missing := errors.Is(err, store.ErrNotFound); {
	case missing && body == nil:
		return next, nil // the outbox was full and has dropped the notice
	case missing || err == nil && body != nil && !bytes.Equal(n.Body, body):
		return next, q.tell(ctx, subject, body)
	case err != nil:
		return next, err
	case n.Status != store.NoticeFailed:
		return next, nil
	case !n.UpdatedAt.Before(c.since):
		if q == c.statuses && int(n.Attempts) <= len(pauses) {
			return next, nil // the service refused the notice, and would refuse it again
		}
		if next = n.UpdatedAt.Add(again); now.Before(next) {
			return next, nil
		}
	}
	return time.Time{}, q.tell(ctx, subject, n.Body)
}

// sooner is the earlier of two times. Zero means never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func (c *commits) considerStatus(ctx context.Context, s *applier.State, now time.Time) (next time.Time, err error) {
	say := func(name, commit string, state State, description string) {
		body := encode(commitStatus{c.Project, commit, Status{Context: name, State: state, Description: description, URL: c.BaseURL}})
		at, failed := c.say(ctx, c.statuses, "status "+name+" of "+commit, body, now)
		next, err = sooner(next, at), errors.Join(err, failed)
	}
	if last := s.LastApply; last != nil && last.Commit.Hash != "" {
		hash := last.Commit.Hash
		switch last.Outcome {
		case applier.Applied:
			say(Apply, hash, Success, "applied as "+last.ID)
		case applier.Refused:
			if s.NextAttempt.IsZero() { // otherwise Error is about a later failure
				say(Apply, hash, Failure, s.Error)
			}
		case applier.Failed:
			say(Apply, hash, Error, last.Error)
		}
		switch valid, known := last.Valid(); {
		case known && valid:
			_, warnings := last.Diagnostics.Counts()
			say(Validate, hash, Success, fmt.Sprintf("valid, warnings: %d", warnings))
		case known && s.NextAttempt.IsZero():
			say(Validate, hash, Failure, s.Error)
		}
	}
	if s.Pin != nil && s.Head != "" && s.Head != s.Pin.Commit {
		say(Apply, s.Head, Pending, fmt.Sprintf("waits: %.12s is pinned (%s)", s.Pin.Commit, s.Pin.Reason))
	}
	return next, err
}

// commitStatus is the body of a notice.
type commitStatus struct {
	Project Project // from the settings, so that changed settings change the body, and the status is sent again
	Commit  string
	Status  Status
}

func (c *commits) token() (string, error) {
	text, err := os.ReadFile(c.TokenFile)
	if err != nil {
		return "", fmt.Errorf("--commit-status-token-file: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// sendStatus asks the service to show a status, or whether the branch is protected.
func (c *commits) sendStatus(ctx context.Context, n store.Notice) (int, error) {
	token, err := c.token()
	if err != nil {
		return 0, err
	}
	if n.Subject == protection {
		return c.askProtection(ctx, token)
	}
	var s commitStatus
	if err := json.Unmarshal(n.Body, &s); err != nil {
		return 0, permanent{err}
	}
	method, address, header, body := forges[c.Service](c.Project, token, s.Commit, s.Status)
	answer, status, err := request(ctx, c.Client, method, address, header, encode(body))
	if status == http.StatusBadRequest && bytes.Contains(answer, []byte("Cannot transition status")) {
		err = nil // GitLab's answer if the commit already has this status
	}
	return status, err
}

// askProtection logs a warning if everybody who can write to the repository can push to
// the branch, because the content of the branch decides which programs run.
func (c *commits) askProtection(ctx context.Context, token string) (int, error) {
	safe, status, err := protected(ctx, c.Client, c.Service, c.Project, token, c.Branch)
	if err == nil && !safe {
		c.statuses.log.Warn("the branch is not protected: everybody who can write to the repository decides what this server runs",
			"project", c.Project.Path, "branch", c.Branch)
	}
	return status, err
}

// Event is a message: the newest commit does not serve, or it serves again.
type Event struct {
	Type      string    `json:"type"` // apply.failed, apply.recovered
	Timestamp time.Time `json:"timestamp"`
	Data      EventData `json:"data"`
}

// EventData describes the event and names the factory.
type EventData struct {
	Factory     string          `json:"factory"`
	Repository  string          `json:"repository"`
	Branch      string          `json:"branch"`
	Head        string          `json:"head"`    // the newest commit
	Applied     string          `json:"applied"` // the commit that serves
	Reason      applier.Reason  `json:"reason,omitempty"`
	Error       string          `json:"error,omitempty"`
	Since       *time.Time      `json:"since,omitempty"`
	Diagnostics json.RawMessage `json:"diagnostics,omitempty"`
	URL         string          `json:"url"`
}

// considerMessage writes a message when a problem begins, changes or ends, but not when
// the same problem is found again. A temporary problem must first last for patience. That
// time is counted for each kind separately, because a refused commit in between says
// nothing about the repository.
func (c *commits) considerMessage(ctx context.Context, s *applier.State, now time.Time) (next time.Time, err error) {
	if s.Error == "" && s.Head == "" {
		return next, nil // nobody looked yet
	}
	last := c.present
	if c.present = nil; last != nil {
		last.seen = now
	}
	if s.Error == "" {
		clear(c.passing)
		c.refusal = nil
		if c.spoken != "" {
			return next, c.tellEvent(ctx, applyRecovered, c.spoken+"_over", s, now)
		}
		if c.over == "" {
			return next, nil
		}
		return c.say(ctx, c.messages, c.over, nil, now)
	}
	var p *problem
	if s.NextAttempt.IsZero() {
		clear(c.passing) // the repository was read
		kind := strings.Join([]string{string(s.Reason), s.Head, s.Error}, "\x00")
		if c.refusal == nil || c.refusal.kind != kind {
			id := idOf(s.Factory, kind)
			c.refusal = &problem{kind: kind, id: id, began: now.Add(-patience), told: c.spoken == id}
		}
		p = c.refusal
	} else { // its kind is the reason only, because the text can differ at each attempt
		p = c.passing[s.Reason]
		if p == nil || p != last && now.Sub(p.seen) > patience {
			p = &problem{kind: string(s.Reason), id: idOf(s.Factory, string(s.Reason), now.UTC().Format(time.RFC3339Nano)), began: now}
			c.passing[s.Reason] = p
		}
		c.present = p
	}
	switch lasts := p.began.Add(patience); {
	case p.told:
		return c.say(ctx, c.messages, applyFailed+" "+p.id, nil, now)
	case now.Before(lasts):
		return lasts, nil
	}
	err = c.tellEvent(ctx, applyFailed, p.id, s, now)
	p.told = err == nil
	return next, err
}

func idOf(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return "apply_" + hex.EncodeToString(sum[:12])
}

// tellEvent writes a message and remembers it.
func (c *commits) tellEvent(ctx context.Context, kind, id string, s *applier.State, now time.Time) error {
	e := Event{Type: kind, Timestamp: now.UTC(), Data: EventData{
		Factory: s.Factory, Repository: s.Repository, Branch: s.Branch, Head: s.Head, Reason: s.Reason, Error: s.Error, URL: c.BaseURL,
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
	subject := kind + " " + id
	err := c.messages.tell(ctx, subject, encode(e))
	if err == nil {
		c.remember(subject)
	}
	return err
}

func (c *commits) remember(subject string) {
	if kind, id, _ := strings.Cut(subject, " "); kind == applyFailed {
		c.spoken, c.over = id, ""
	} else {
		c.spoken, c.over = "", subject
	}
}
