package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"triphammer/schema/output"
	"triphammer/server/run/event"
	"triphammer/server/run/task"
	"triphammer/server/secret"
	"triphammer/server/store"
	"triphammer/server/worker/harness"
)

// Limits of a transcript.
const (
	// DefaultTranscriptLimit is how many bytes of a run's output are kept: of the beginning
	// and of the end.
	DefaultTranscriptLimit = 8 << 20
	// endShare is the share of the limit that is reserved for the end.
	endShare = 4
	// eventSize is the memory of an event of the end, besides its data.
	eventSize = 64
	// fileShare is the share of the limit that is reserved for changed files and pushes, so that an
	// agent with much output cannot hide what it changed.
	fileShare = 4
	// flushEvery is the longest delay with which a reader sees an event.
	flushEvery = 200 * time.Millisecond
	// finishTime is how long a harness has for its end after its result.
	finishTime = 10 * time.Second
	// maxBatchEvents is the size of a batch that does not wait for the next tick.
	maxBatchEvents = 256
	maxBatchBytes  = 256 << 10
	// maxChunk bounds one output event.
	maxChunk = 16 << 10
	// maxLine limits a line of a harness. Harnesses put whole files into one line.
	maxLine = 4 << 20
)

type transcriptConfig struct {
	save   func(_ context.Context, _ []store.Event, last bool) error
	lost   func()                             // called when the lease of the run is lost
	done   func()                             // called when the harness has finished and its process does not end
	give   func(try int, err error) (up bool) // tells whether to give up storing the last batch
	now    func() time.Time
	hide   *secret.Redactor
	parse  harness.Parser                     // reads the agent's standard output; nil: it is plain text
	err    func(line string) (trouble string) // reads the agent's standard error, if parse is set
	after  int64                              // the number of the last event of earlier attempts
	again  *replayed                          // the part of this attempt that another worker has stored; nil: nothing
	limit  int
	may    output.Allowed // what the agent may ask the server to do
	logger *slog.Logger
}

// transcript numbers, redacts and stores the events of one attempt as they
// happen. Its methods may be called from several goroutines.
type transcript struct {
	transcriptConfig

	mu       sync.Mutex
	seq      int64
	pending  []store.Event
	waiting  int             // bytes in pending
	said     int             // bytes of the agent's output in the beginning
	changed  int             // bytes of changed files and pushes
	unlisted event.Truncated // changed files and pushes beyond their limit
	end      *ending         // nil until the beginning is full
	ended    bool
	parsing  bool   // the output is the agent's own from now on
	line     []byte // the unfinished line of a harness
	streams  []*stream
	words    string    // the last line on standard error
	printed  string    // the last line on standard output that is no event
	last     time.Time // when the agent last gave a sign of life
	fenced   bool
	used     event.Usage // total
	session  event.Session
	asked    []output.Request // what the agent has asked for, as far as it may
	staged   []output.Request // its pushes that wait for a person, at most one to a branch
	waits    time.Duration    // task.Pushes.Waits
	opened   []output.Request // the pull requests of the run that its gateway has opened
	pushed   map[string]bool  // the branches of into that runs of the automation have pushed; nil: nobody knows
	into     string           // task.Pushes.Into
	result   *event.Result    // the harness's report of its end, unless it has gone on
	trouble  string           // why the agent does not reach its model, unless it has gone on
	hangs    *time.Timer      // runs from the result on

	full  chan struct{} // tells that a batch is full
	spent chan struct{} // tells that the harness reported usage
}

func newTranscript(c transcriptConfig) *transcript {
	return &transcript{transcriptConfig: c, seq: c.after, last: time.Now(), full: make(chan struct{}, 1), spent: make(chan struct{}, 1)}
}

// stream joins the output of one stream to events.
type stream struct {
	name   string
	redact *secret.RedactWriter
	buf    bytes.Buffer
}

// silence is how long the agent has given no sign of life.
func (t *transcript) silence() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return time.Since(t.last)
}

// lastWords is the last line that the agent wrote to standard error.
func (t *transcript) lastWords() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drain(true)
	return t.words
}

// lastPrinted is the last line on standard output that is no event.
func (t *transcript) lastPrinted() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drain(true)
	return t.printed
}

// usage is the total usage that the harness reported.
func (t *transcript) usage() event.Usage {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.used
}

// verdict is the harness's report of its end; nil: there is none.
func (t *transcript) verdict() *event.Result {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.result
}

// finish takes the harness's report of its end; nil means that the harness goes on. From the
// report on, the process has finishTime to end, because some processes never do.
func (t *transcript) finish(r *event.Result) {
	repeats := r != nil && t.result != nil
	t.result = r
	if r == nil {
		t.trouble = ""
	}
	if repeats && !r.Hopeless || t.done == nil {
		return // the timer runs already
	}
	if t.hangs != nil {
		t.hangs.Stop()
	}
	switch {
	case r == nil:
	case r.Hopeless:
		t.hangs = time.AfterFunc(0, t.done)
	default:
		t.hangs = time.AfterFunc(finishTime, t.done)
	}
}

// troubled is why the agent did not reach its model in the end; empty: it reached the model.
func (t *transcript) troubled() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drain(true)
	return t.trouble
}

// conversation is the session that the harness named last.
func (t *transcript) conversation() event.Session {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.session
}

// hidden is the text with secrets redacted.
func (t *transcript) hidden(s string) string {
	return strings.ToValidUTF8(string(t.hide.Redact([]byte(s))), "\uFFFD")
}

func (t *transcript) add(e event.Event) {
	t.mu.Lock()
	t.last = time.Now()
	switch e := e.(type) {
	case event.Output:
		if t.parse != nil && t.parsing && e.Stream == event.Stdout {
			t.read(e.Text)
		} else {
			t.output(e)
		}
	default:
		t.put(e)
		if _, agent := e.(event.AgentStarted); agent {
			t.parsing = true
		}
	}
	_, enough := e.(event.Ended) // store it soon: without it, the agent would begin again if the server died
	enough = enough || len(t.pending) >= maxBatchEvents || t.waiting >= maxBatchBytes
	t.mu.Unlock()
	if enough {
		select {
		case t.full <- struct{}{}:
		default:
		}
	}
}

// put numbers an event that is not part of a stream.
func (t *transcript) put(e event.Event) {
	switch e := e.(type) {
	case event.Usage:
		t.used.InputTokens += e.InputTokens
		t.used.OutputTokens += e.OutputTokens
		t.used.CostUSD += e.CostUSD
		t.used.Turns += e.Turns
		select {
		case t.spent <- struct{}{}:
		default:
		}
		t.drain(false)
	case event.Session:
		t.session = e
		t.drain(false)
	case event.Push:
		if e.Waits != "" {
			e = t.stage(e)
		}
		if branch, is := strings.CutPrefix(e.Ref, "refs/heads/"); is && t.pushed != nil && e.Refused == "" && isOf(e.Repository, t.into) {
			t.pushed[branch] = true
		}
		t.drain(false)
		t.append(event.Redact(e, t.hidden))
		return
	case event.Request:
		t.drain(false)
		t.append(event.Redact(t.ask(e), t.hidden))
		return
	case event.Status:
		t.drain(false)
		if e.Trouble != "" {
			t.trouble = e.Trouble
		}
	case event.Result:
		t.finish(&e)
		t.drain(false)
	case event.Message, event.Tool:
		t.finish(nil)
		t.drain(false)
	case event.Command, event.AgentStarted, event.Ended:
		if _, command := e.(event.Command); command {
			t.finish(nil)
		}
		t.drain(true) // the process is gone, so a held back value stays incomplete
	default:
		t.drain(false)
	}
	t.append(event.Redact(e, t.hidden))
}

// stage takes a push that waits for a person. It replaces an earlier one to the same place, which it holds, too.
func (t *transcript) stage(e event.Push) event.Push {
	r, err := output.Parse([]byte(t.hidden(e.Waits)))
	if err != nil || r.Push == nil {
		e.Refused, e.Waits = "it could not be kept for a person", ""
		return e
	}
	at := slices.IndexFunc(t.staged, func(s output.Request) bool { return s.Push.Repository == r.Push.Repository && s.Push.Ref == r.Push.Ref })
	if at < 0 {
		t.staged = append(t.staged, r)
	} else {
		t.staged[at] = r
	}
	return e
}

// ask checks what the agent asks for, whatever the code within the walls said of it. Secrets are
// hidden before, so that nothing that leaves has them.
func (t *transcript) ask(e event.Request) event.Request {
	r, err := output.Parse([]byte(t.hidden(e.Request)))
	if e.Refused == "" && e.Done == "" && err == nil {
		err = t.may.Check(r, slices.Concat(t.opened, t.asked))
	}
	switch {
	case e.Refused != "":
	case e.Done != "":
		t.opened = append(t.opened, r)
	case err != nil:
		e.Refused = err.Error()
	default:
		t.asked = append(t.asked, r)
	}
	return e
}

// under holds the transcript to the rules of a task for pull requests; nil: there is none. before is what another
// worker has stored of the attempt.
func (t *transcript) under(work *task.Task, before *replayed) *transcript {
	if work == nil {
		return t
	}
	t.opened, t.waits, t.into = work.Pushes.Opened, work.Pushes.Waits, work.Pushes.Into
	if before != nil { // they come again
		t.opened = t.opened[:max(0, len(t.opened)-before.opens)]
	}
	if !pushes(work) && !work.Foreign { // whoever may push nothing at all has pushed nothing
		return t
	}
	t.pushed = make(map[string]bool)
	for _, p := range work.Pushes.Earlier {
		if isOf(p.Repository, t.into) {
			t.pushed[strings.TrimPrefix(p.Ref, "refs/heads/")] = true
		}
	}
	return t
}

// isOf tells whether an address is of a repository, such as acme/app; empty: of any.
func isOf(address, repository string) bool {
	return repository == "" || strings.HasSuffix(strings.ToLower(strings.TrimSuffix(address, ".git")), "/"+strings.ToLower(repository))
}

// settle checks once more what the agent has asked for: the gateway may have opened pull requests meanwhile, and
// every push is known now.
func (t *transcript) settle() {
	all := t.asked
	t.asked = nil
	for _, r := range all {
		err := t.may.Check(r, slices.Concat(t.opened, t.asked))
		if err == nil && r.Kind == output.Pull && t.pushed != nil && !t.pushed[r.Head] {
			err = output.NotPushed(r.Head)
		}
		if err == nil {
			t.asked = append(t.asked, r)
			continue
		}
		t.append(event.Request{Name: r.Kind, Request: r.JSON(), Refused: err.Error()})
	}
}

// outputs are what the agent has asked for: pushes first, because the rest may be about their branches.
func (t *transcript) outputs() (all []store.NewOutput) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range slices.Concat(t.staged, t.asked) {
		bounds, _ := json.Marshal(t.may[r.Kind])
		all = append(all, store.NewOutput{Kind: r.Kind, Request: r.JSON(), Bounds: string(bounds), Wait: t.waits})
	}
	return all
}

// append encodes and counts an event whose secrets are redacted.
func (t *transcript) append(e event.Event) {
	data, err := json.Marshal(e)
	if err != nil {
		t.logger.Error("an event of a transcript cannot be encoded", "kind", e.Kind(), "error", err)
		return
	}
	entry, needed := store.Event{At: t.now(), Kind: e.Kind(), Data: data}, true
	switch kept, changed := lasts(e); {
	case kept:
	case changed:
		if t.changed+len(data) > t.limit/fileShare {
			t.unlisted.Count(len(data))
			return
		}
		t.changed += len(data)
	default:
		if needed = false; t.end == nil && t.said+len(data) > t.limit-t.limit/endShare {
			t.append(event.Status{Message: "the transcript is long: what comes now is shown when the run has ended, and then its end alone"})
			t.end = &ending{limit: t.limit / endShare}
		}
		t.said += len(data)
	}
	if t.end != nil {
		t.end.add(entry, needed)
		return
	}
	t.number(entry)
}

// lasts tells whether an event is kept however long the transcript is, and whether it is kept as a
// change that the run made, up to a limit of its own.
func lasts(e event.Event) (kept, changed bool) {
	switch e := e.(type) {
	case event.Status, event.AgentStarted, event.Ended, event.Truncated:
		return true, false
	case event.Push:
		return false, e.Refused == "" // a run can have any number refused
	case event.File:
		return false, true
	}
	return false, false
}

func (t *transcript) number(e store.Event) {
	if t.again != nil {
		var ok bool
		if e, ok = t.again.left(e); !ok {
			return
		}
	}
	t.seq++
	e.Seq = t.seq
	t.waiting += len(e.Data)
	t.pending = append(t.pending, e)
}

// close takes the last event. Nothing may be added after it.
func (t *transcript) close(last event.Status) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = time.Now()
	if t.hangs != nil {
		t.hangs.Stop()
	}
	t.drain(true)
	if t.parsing && t.parse != nil {
		t.parsed(nil)
	}
	t.settle()
	if t.unlisted.Events > 0 {
		t.append(t.unlisted.Says(t.limit, "changed files and pushes are not listed"))
	}
	t.append(event.Redact(last, t.hidden))
	end := t.end
	if t.ended, t.end = true, nil; end == nil {
		return
	}
	for _, e := range end.passed {
		t.number(e)
	}
	if end.left.Events > 0 {
		t.append(end.left.Says(t.limit, "the transcript is too long: events are left out here"))
	}
	for _, e := range end.events {
		t.number(e.Event)
	}
}

// ending holds the newest events of a transcript whose beginning is full. Its size is
// limited, so it drops the oldest events.
type ending struct {
	limit  int
	events []endEvent
	bytes  int             // of the events that may be dropped
	passed []store.Event   // events of the dropped part that must stay
	left   event.Truncated // counts the dropped events
}

type endEvent struct {
	store.Event
	needed bool
}

func (n *ending) add(e store.Event, needed bool) {
	n.events = append(n.events, endEvent{e, needed})
	if !needed {
		n.bytes += len(e.Data) + eventSize
	}
	for n.bytes > n.limit {
		first := n.events[0]
		n.events[0] = endEvent{} // append reallocates from time to time
		n.events = n.events[1:]
		if first.needed {
			n.passed = append(n.passed, first.Event)
			continue
		}
		n.bytes -= len(first.Data) + eventSize
		n.left.Count(len(first.Data))
	}
}

// cut drops all but the end of the waiting events. The store takes the end even on a full disk.
func (t *transcript) cut() {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := t.pending
	keep, size := len(all), 1<<10 // the size of the events about the gap
	for keep > 0 && size+len(all[keep-1].Data) <= store.MaxLastEvents {
		keep--
		size += len(all[keep].Data)
	}
	if keep == 0 {
		return
	}
	var left event.Truncated
	for _, e := range all[:keep] {
		left.Count(len(e.Data))
	}
	t.pending, t.waiting, t.seq = nil, 0, all[0].Seq-1
	t.append(left.Says(t.limit, "the store could not take more when the run ended: events are left out here"))
	for _, e := range all[keep:] {
		t.number(e)
	}
}

// output joins the output of a process. drain makes events of the joined output.
func (t *transcript) output(e event.Output) {
	s := t.stream(e.Stream)
	if _, err := s.redact.Write([]byte(e.Text)); err != nil {
		t.logger.Error("redacting output", "error", err) // a bytes.Buffer does not fail
	}
	if s.buf.Len() >= maxChunk {
		t.drain(false)
	}
}

func (t *transcript) stream(name string) *stream {
	for _, s := range t.streams {
		if s.name == name {
			return s
		}
	}
	s := &stream{name: name}
	s.redact = t.hide.Writer(&s.buf)
	t.streams = append(t.streams, s)
	return s
}

// drain makes events of the joined output. Unless the streams have ended, it keeps back a
// character whose bytes have not all arrived.
func (t *transcript) drain(ended bool) {
	if ended {
		t.parseLine()
	}
	for _, s := range t.streams {
		if ended {
			_ = s.redact.Flush() // into a bytes.Buffer
		}
		text := s.buf.Bytes()
		whole := len(text)
		if !ended {
			whole = wholeRunes(text)
		}
		for rest := text[:whole]; len(rest) > 0; {
			n := len(rest)
			if n > maxChunk {
				n = max(wholeRunes(rest[:maxChunk]), 1)
			}
			said := string(rest[:n])
			if !utf8.ValidString(said) {
				said = string([]rune(said)) // each bad byte becomes a character, wherever the text is cut
			}
			if s.name == event.Stderr && t.parsing && t.err != nil {
				for line := range strings.Lines(said) {
					if trouble := t.err(line); trouble != "" {
						t.trouble = trouble
					}
				}
			}
			if last := lastLine(said); s.name == event.Stderr && last != "" {
				t.words = last
				if len(last) > maxWords {
					t.words = strings.ToValidUTF8(last[:maxWords], "") + "…"
				}
			} else if s.name == event.Stdout && last != "" {
				t.printed = last
			}
			t.append(event.Output{Stream: s.name, Text: said})
			rest = rest[n:]
		}
		s.buf.Next(whole)
	}
}

// maxWords limits how much of standard error a status_message quotes.
const maxWords = 300

// lastLine is the last line of a text that is not blank.
func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:])
}

// wholeRunes is the length of text without an incomplete character at its end.
func wholeRunes(text []byte) int {
	for i := 1; i < utf8.UTFMax && i <= len(text); i++ {
		if b := text[len(text)-i]; utf8.RuneStart(b) {
			if !utf8.FullRune(text[len(text)-i:]) {
				return len(text) - i
			}
			break
		}
	}
	return len(text)
}

// read feeds the harness's parser with whole lines.
func (t *transcript) read(text string) {
	for text != "" {
		line, rest, complete := strings.Cut(text, "\n")
		if len(t.line)+len(line) <= maxLine {
			t.line = append(t.line, line...)
		} else {
			// The line is too long to hold: keep what is there as plain output.
			t.output(event.Output{Stream: event.Stdout, Text: string(t.line) + line})
			t.line = t.line[:0]
		}
		if complete {
			t.parseLine()
		}
		text = rest
	}
}

// parseLine makes events of the harness's line. An unknown line is kept unchanged, and is no
// error.
func (t *transcript) parseLine() {
	line := t.line
	t.line = nil
	if len(bytes.TrimSpace(line)) == 0 {
		return
	}
	t.parsed(line)
}

// parsed makes events of a line of the harness, or of the end of its output.
func (t *transcript) parsed(line []byte) {
	events, ok := t.parse(line)
	if !ok && len(line) > 0 {
		t.output(event.Output{Stream: event.Stdout, Text: string(line) + "\n"})
		return
	}
	for _, e := range events {
		t.drain(false)
		t.put(e)
	}
}

// run stores batches until done is closed, and then the rest. Call close before that.
func (t *transcript) run(ctx context.Context, done <-chan struct{}) {
	ticker := time.NewTicker(flushEvery)
	defer ticker.Stop()
	for {
		select {
		case <-done:
			for try := 1; ; try++ {
				err := t.flush(ctx)
				if err == nil {
					return
				}
				if t.give(try, err) {
					t.cut()
					_ = t.flush(ctx) // it is logged
					return
				}
				time.Sleep(retryTime)
			}
		case <-ticker.C:
		case <-t.full:
		}
		_ = t.flush(ctx) // it is logged, and tried again
	}
}

// flush stores the waiting events. If storing fails, the events wait for the next flush; the
// limit of the transcript limits how many can wait.
func (t *transcript) flush(ctx context.Context) error {
	t.mu.Lock()
	t.drain(false)
	batch, last := t.pending, t.ended
	t.pending, t.waiting = nil, 0
	fenced := t.fenced
	t.mu.Unlock()
	if len(batch) == 0 || fenced {
		return nil
	}
	err := t.save(ctx, batch, last)
	if err == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if errors.Is(err, store.ErrFenced) {
		t.fenced = true
		t.lost()
		return nil
	}
	t.logger.Warn("the transcript cannot be stored; it will be tried again", "error", err)
	t.pending = append(batch, t.pending...)
	return err
}
