package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"triphammer/server/secret"
	"triphammer/server/store"
)

// NotifierConfig is what a Notifier needs. Store, URL, Body and Sign
// are required.
type NotifierConfig struct {
	Store *store.Store
	URL   string // that is POSTed to
	// Body is what is told of a run.
	Body func(ctx context.Context, r *store.Run) ([]byte, error)
	// Sign proves where a body comes from.
	Sign    func(ctx context.Context, id string, at time.Time, body []byte) (http.Header, error)
	Wanted  NoticeFilter
	Client  *http.Client    // nil: a plain one
	Retries []time.Duration // from a failed attempt to the next; nil means DefaultRetries
	Now     func() time.Time
	Logger  *slog.Logger
}

// NoticeFilter is whose ends are told: all of these states and automations, none
// of either meaning all.
type NoticeFilter struct{ States, Automations []string }

func (f NoticeFilter) wants(r *store.Run) bool {
	return (len(f.States) == 0 || slices.Contains(f.States, string(r.State))) && (len(f.Automations) == 0 || slices.Contains(f.Automations, r.Automation))
}

// DefaultRetries are the times between attempts to tell that a run ended: ten
// attempts within a day and a half.
var DefaultRetries = []time.Duration{
	5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour, 12 * time.Hour,
}

const (
	noticeTime  = 15 * time.Second // for one attempt
	noticePoll  = time.Second
	noticeBatch = 16 // attempts at once
)

// Notifier tells an address when a run has ended: signed, with an id that stays
// the same over attempts, at least once, and in no order.
type Notifier struct {
	cfg    NotifierConfig
	client *http.Client
}

// NewNotifier makes a Notifier. The ends of runs from now on are kept for it.
func NewNotifier(cfg NotifierConfig) *Notifier {
	if cfg.Retries == nil {
		cfg.Retries = DefaultRetries
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	cfg.Store.KeepNotices()
	client := http.Client{}
	if cfg.Client != nil {
		client = *cfg.Client
	}
	client.Timeout = noticeTime
	// A redirect would carry the body and its signature elsewhere.
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Notifier{cfg: cfg, client: &client}
}

// Run tells what there is to tell until ctx is done.
func (n *Notifier) Run(ctx context.Context) error {
	poll := time.NewTicker(noticePoll)
	defer poll.Stop()
	for {
		due, err := n.cfg.Store.DueNotices(ctx, noticeBatch)
		if err != nil && ctx.Err() == nil {
			n.cfg.Logger.Error("reading which ends of runs are to be told", "error", err)
		}
		var attempts sync.WaitGroup
		for _, notice := range due {
			attempts.Go(func() {
				if err := n.attempt(ctx, notice); err != nil && ctx.Err() == nil {
					n.cfg.Logger.Error("recording that the end of a run was told", "run", notice.RunID, "error", err)
				}
			})
		}
		attempts.Wait()
		if len(due) == noticeBatch && ctx.Err() == nil {
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-poll.C:
		}
	}
}

// attempt tells the end of one run, and records how that went.
func (n *Notifier) attempt(ctx context.Context, notice store.Notice) error {
	r, err := n.cfg.Store.Run(ctx, notice.RunID)
	if errors.Is(err, store.ErrNotFound) || err == nil && !n.cfg.Wanted.wants(r) {
		return n.cfg.Store.DropNotice(ctx, notice.RunID)
	}
	status := 0
	if err == nil {
		status, err = n.post(ctx, r)
	}
	if ctx.Err() != nil {
		return ctx.Err() // the next server tries again
	}
	notice.Attempts++
	notice.DueAt, notice.Status, notice.Detail = time.Time{}, store.NoticeDelivered, fmt.Sprintf("answered %d", status)
	if err != nil {
		notice.Status, notice.Detail = store.NoticeFailed, err.Error()
		if tried := int(notice.Attempts); tried <= len(n.cfg.Retries) && status != http.StatusGone {
			notice.Status, notice.DueAt = store.NoticePending, n.cfg.Now().Add(n.cfg.Retries[tried-1])
		}
		next := "never"
		if notice.Status == store.NoticePending {
			next = notice.DueAt.Format(time.RFC3339)
		}
		n.cfg.Logger.Warn("the end of a run could not be told", "run", r.ID, "attempt", notice.Attempts, "error", err, "next", next)
	} else {
		n.cfg.Logger.Info("the end of a run was told", "run", r.ID, "attempt", notice.Attempts, "status", status)
	}
	return n.cfg.Store.SaveNotice(ctx, notice)
}

func (n *Notifier) post(ctx context.Context, r *store.Run) (status int, err error) {
	body, err := n.cfg.Body(ctx, r)
	if err != nil {
		return 0, err
	}
	header, err := n.cfg.Sign(ctx, "msg_"+r.ID.String(), n.cfg.Now(), body)
	if err != nil {
		return 0, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, n.cfg.URL, bytes.NewReader(body))
	if err != nil {
		return 0, errors.New("its address cannot be used") // which the error repeats
	}
	req.Header = header
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "triphammer")
	resp, err := n.client.Do(req)
	if err != nil {
		if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
			err = fmt.Errorf("%s: %w", secret.Origin(n.cfg.URL), wrapped.Err) // not the whole address, which is a credential
		}
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10) // so that the connection is used again
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return resp.StatusCode, fmt.Errorf("answered %d", resp.StatusCode)
	}
	return resp.StatusCode, nil
}
