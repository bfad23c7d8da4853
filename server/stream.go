package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gin-gonic/gin"

	"triphammer/server/access"
	"triphammer/server/api"
	"triphammer/server/run"
	"triphammer/server/store"
	"triphammer/server/terms"
)

const (
	// quietTime is how often a quiet stream sends a sign of life, and checks that its key
	// still works.
	quietTime = 15 * time.Second
	// readTime is how long a reader of a stream may take to read a write.
	readTime = 30 * time.Second
)

// Reasons for which a stream ends before its run.
var (
	errRevoked  = errors.New("the key does not work any more")
	errStopping = errors.New("the server is stopping")
)

// streams are the open streams.
type streams struct {
	mu   sync.Mutex
	last int
	open map[int]stream
	over bool
}

type stream struct {
	by  *access.Caller
	end context.CancelCauseFunc
}

// add registers a stream. remove removes it.
func (s *streams) add(by *access.Caller, end context.CancelCauseFunc) (remove func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		end(errStopping)
	}
	if s.open == nil {
		s.open = make(map[int]stream)
	}
	s.last++
	id := s.last
	s.open[id] = stream{by, end}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.open, id)
	}
}

// revoke ends the streams of some callers.
func (s *streams) revoke(whose func(*access.Caller) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.open {
		if whose(st.by) {
			st.end(errRevoked)
		}
	}
}

// stop ends all streams, also later ones, because a stopping server does not wait for runs
// to end. Readers continue after the restart.
func (s *streams) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	for _, st := range s.open {
		st.end(errStopping)
	}
}

// runEvents streams a run as server-sent events of the kinds `state` and `transcript`, each
// once and in order, from Last-Event-ID on. It ends when the run ends. Ids are SEQ.STATE:
// the last event and the last state that were sent.
func (s *Server) runEvents(ctx context.Context, c *call, r access.Run) (done written, err error) {
	from, err := parsePosition(cmp.Or(c.GetHeader("Last-Event-ID"), c.Query("last_event_id")))
	if err != nil {
		return done, err
	}
	if from.State.Terminal() && !r.State.Terminal() {
		return done, invalid("Last-Event-ID", "is of another run: this one has not finished")
	}
	if from.State.Terminal() {
		c.Status(http.StatusNoContent) // tells a browser not to connect again
		return done, nil
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer s.streams.add(c.Caller, end)()
	if !c.stillMay() {
		end(errRevoked) // the key was revoked after the request began
	}
	if expires := c.Expires; !expires.IsZero() {
		defer time.AfterFunc(expires.Sub(s.cfg.Now()), func() { end(errRevoked) }).Stop()
	}
	h := c.Writer.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // a proxy must not buffer the stream
	w := &eventWriter{c: c.Context, control: http.NewResponseController(c.Writer)}
	if w.write(": "+r.ID.String()+"\n\n") != nil || w.flush() != nil {
		return done, nil
	}
	err = r.Follow(ctx, from, quietTime, func(news *run.News) error {
		if news == nil {
			if !c.stillMay() {
				return errRevoked
			}
			return errors.Join(w.write(": alive\n\n"), w.flush())
		}
		return w.tell(news)
	})
	if err == nil {
		err = w.flush()
	}
	if err != nil && ctx.Err() == nil && !errors.Is(err, errRevoked) {
		s.cfg.Logger.Debug("a stream of a run ended early", "run", r.ID, "error", err)
	}
	return done, nil
}

// stillMay tells whether the key of the request still works, or its session still goes on.
func (c *call) stillMay() bool {
	err := c.server.cfg.Data.Lives(c.Request.Context(), c.Caller)
	return !errors.Is(err, store.ErrKey)
}

// parsePosition reads an id of runEvents.
func parsePosition(id string) (run.Position, error) {
	if id == "" {
		return run.Position{}, nil
	}
	number, state, _ := strings.Cut(id, ".")
	seq, err := strconv.ParseInt(number, 10, 64)
	for _, known := range terms.RunStates {
		if err == nil && seq >= 0 && string(known) == state {
			return run.Position{Seq: seq, State: known}, nil
		}
	}
	return run.Position{}, invalid("Last-Event-ID", "is not an id of these events")
}

// eventWriter writes server-sent events.
type eventWriter struct {
	c       *gin.Context
	control *http.ResponseController
	waiting int // bytes that are written and not flushed
}

// maxUnflushed is how many bytes may wait for a flush while there is more to write.
const maxUnflushed = 32 << 10

func (w *eventWriter) tell(n *run.News) error {
	kind, data := "transcript", any(nil)
	if n.Event != nil {
		data = api.Event(*n.Event)
	} else {
		kind = "state"
		e := api.StateEvent{RunID: n.Run.ID.String(), ID: n.Run.ID.String(), State: string(n.State)}
		switch {
		case n.State.Terminal():
			e.At, e.StatusMessage, e.ExitCode = api.Time(n.Run.FinishedAt), n.Run.StatusMessage, n.Run.ExitCode
		case n.State == store.InProgress:
			e.At = api.Time(n.Run.StartedAt)
		default:
			e.At = api.Time(n.Run.CreatedAt)
		}
		data = e
	}
	text, err := json.Marshal(data)
	if err != nil {
		return err
	}
	err = w.write(fmt.Sprintf("id: %d.%s\nevent: %s\ndata: %s\n\n", n.Position.Seq, n.Position.State, kind, text))
	if err == nil && (n.Last || w.waiting > maxUnflushed) {
		err = w.flush()
	}
	return err
}

func (w *eventWriter) write(text string) error {
	_ = w.control.SetWriteDeadline(time.Now().Add(readTime)) // fails without a connection
	n, err := w.c.Writer.WriteString(text)
	w.waiting += n
	return err
}

func (w *eventWriter) flush() error {
	w.waiting = 0
	return w.control.Flush()
}
