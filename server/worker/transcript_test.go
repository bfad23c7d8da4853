package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"triphammer/schema/output"
	"triphammer/server/run/event"
	"triphammer/server/run/task"
	"triphammer/server/secret"
	"triphammer/server/store"
	"triphammer/server/store/storetest"
	"triphammer/server/worker/harness"
)

// tape is a transcript whose events are kept.
type tape struct {
	*transcript
	events []store.Event
	fail   error
	lost   int
	give   func(try int) bool
}

func newTape(parse harness.Parser, limit int, hide ...secret.Value) *tape {
	t := &tape{}
	t.transcript = newTranscript(transcriptConfig{
		save: func(_ context.Context, events []store.Event, _ bool) error {
			if t.fail != nil {
				return t.fail
			}
			t.events = append(t.events, events...)
			return nil
		},
		lost: func() { t.lost++ }, give: func(try int, _ error) bool { return t.give(try) }, now: time.Now, hide: secret.NewRedactor(hide...), parse: parse, limit: limit, logger: slog.New(slog.DiscardHandler),
	})
	return t
}

func (t *tape) lines(ctx context.Context) []string {
	t.mu.Lock()
	t.drain(true)
	t.mu.Unlock()
	_ = t.flush(ctx)
	all := make([]string, len(t.events))
	for i, e := range t.events {
		all[i] = e.Kind + " " + string(e.Data)
	}
	return all
}

func TestOutputIsJoined(t *testing.T) {
	x := newTape(nil, DefaultTranscriptLimit, secret.New("topsecret"))
	for _, text := range []string{"a", "b\n", "\xc3", "\xa9 top", "sec", "ret \xff"} {
		x.add(event.Output{Stream: "stdout", Text: text})
		_ = x.flush(t.Context()) // what is not whole stays
	}
	x.add(event.Output{Stream: "stderr", Text: "x\nlast words\n\n"})
	if got := x.lastWords(); got != "last words" {
		t.Errorf("last words %q", got)
	}
	var text strings.Builder
	for _, line := range x.lines(t.Context()) {
		if data, ok := strings.CutPrefix(line, "output "); ok {
			var o event.Output
			if err := json.Unmarshal([]byte(data), &o); err != nil {
				t.Fatal(err)
			}
			text.WriteString(o.Text)
		}
	}
	if got, want := text.String(), "ab\né [redacted] \uFFFDx\nlast words\n\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestLimits: the beginning and the end of a long transcript are kept, what the
// run changed and pushed and how it ended always are, and what is left out is counted (SPEC 9.5).
func TestLimits(t *testing.T) {
	const limit, size, said = 10_000, 100, 1000
	for name, tt := range map[string]struct{ before, after int }{
		"short": {20, 0}, "long": {said, 0}, "just too long": {56, 5}, "setup was long": {said, said},
	} {
		x := newTape(nil, limit)
		text := func(i int) string { return fmt.Sprintf("%04d", i) + strings.Repeat("m", size) }
		for i := range tt.before {
			x.add(event.Message{Role: "assistant", Text: text(i)})
		}
		x.add(event.AgentStarted{Command: "agent"})
		x.add(event.Push{Ref: "refs/heads/x"})
		for i := range tt.after {
			x.add(event.Message{Role: "assistant", Text: text(tt.before + i)})
		}
		x.add(event.Ended{ExitCode: 3})
		for range 100 {
			x.add(event.File{Path: "f", Diff: strings.Repeat("d", size)})
		}
		x.close(event.Status{State: "FAILED"})
		if err := x.flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		var first, last, kept, bytes int
		var left event.Truncated
		counts := make(map[string]int)
		for i, e := range x.events {
			if e.Seq != int64(i+1) {
				t.Fatalf("%s: event %d has the number %d", name, i+1, e.Seq)
			}
			counts[e.Kind]++
			bytes += len(e.Data)
			var m event.Message
			switch {
			case e.Kind == event.KindMessage && json.Unmarshal(e.Data, &m) == nil:
				if kept++; last == kept-2 && m.Text == text(kept-1) {
					first = kept
				}
				fmt.Sscanf(m.Text, "%04d", &last)
			case e.Kind == event.KindTruncated && left.Events == 0 && json.Unmarshal(e.Data, &left) != nil:
				t.Errorf("%s: %s", name, e.Data)
			}
		}
		all := tt.before + tt.after
		want := map[string]int{"short": all, "just too long": all}
		if n, whole := want[name]; whole && kept != n || kept < min(all, 60) || last != all-1 || first < min(all, 40) || bytes > limit*5/4+2000 {
			t.Errorf("%s: %d of %d messages kept, %d of the beginning, the last is %d; %d bytes", name, kept, all, first, last, bytes)
		}
		gaps := map[bool]int{true: 1, false: 0}[kept < all] + 1 // and of the files
		if kept < all && left.Events != int64(all-kept) || left.Bytes == 0 || counts[event.KindTruncated] != gaps {
			t.Errorf("%s: %d of %d messages kept, and it says %+v, %d times", name, kept, all, left, counts[event.KindTruncated])
		}
		if counts[event.KindStarted] != 1 || counts[event.KindExit] != 1 || counts[event.KindFile] < 15 || counts[event.KindPush] != 1 || x.events[len(x.events)-1].Kind != event.KindStatus {
			t.Errorf("%s: %v", name, counts)
		}
	}
	if got := event.Clip(strings.Repeat("é", event.MaxText)); len(got) > event.MaxText+100 || !utf8.ValidString(got) || !strings.Contains(got, "bytes left out") {
		t.Errorf("%d bytes", len(got))
	}
}

// TestLastWords: of a transcript that the store cannot take when the run ends, its
// last words are offered, which the store takes on a full disk.
func TestLastWords(t *testing.T) {
	storetest.SQLite(t)
	synctest.Test(t, func(t *testing.T) {
		x, done, ended := newTape(nil, DefaultTranscriptLimit), make(chan struct{}), make(chan struct{})
		x.save = func(_ context.Context, events []store.Event, last bool) error {
			size := 0
			for _, e := range events {
				size += len(e.Data)
			}
			if !last || size > store.MaxLastEvents {
				return store.ErrFull
			}
			x.events = append(x.events, events...)
			return nil
		}
		x.give = func(try int) bool { return try == lastTries }
		go func() {
			x.run(t.Context(), done)
			close(ended)
		}()
		for range 20 {
			x.add(event.Output{Stream: "stdout", Text: strings.Repeat("o", maxChunk)})
		}
		x.add(event.Output{Stream: "stdout", Text: "last words"})
		x.close(event.Status{State: "FAILED", Message: "so it ended"})
		close(done)
		<-ended
		n := len(x.events)
		if n < 4 || x.events[0].Kind != event.KindTruncated || !strings.Contains(string(x.events[n-2].Data), "last words") || x.events[n-1].Kind != event.KindStatus {
			t.Fatalf("%d events: %v", n, x.events)
		}
		for i, e := range x.events {
			if e.Seq != int64(i+1) {
				t.Errorf("event %d has the number %d", i+1, e.Seq)
			}
		}
	})
}

func TestStoreFails(t *testing.T) {
	x := newTape(nil, DefaultTranscriptLimit)
	x.fail = errors.New("disk full")
	x.add(event.Status{Message: "one"})
	_ = x.flush(t.Context())
	x.add(event.Status{Message: "two"})
	x.fail = nil
	if got, want := x.lines(t.Context()), []string{`status {"message":"one"}`, `status {"message":"two"}`}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if x.events[0].Seq != 1 || x.events[1].Seq != 2 {
		t.Errorf("%+v", x.events)
	}
	x.fail = fmt.Errorf("run: %w", store.ErrFenced)
	for range 2 {
		x.add(event.Status{Message: "three"})
		_ = x.flush(t.Context())
	}
	if x.lost != 1 {
		t.Errorf("told %d times that the run is lost", x.lost)
	}
}

func TestEventsAreSeenSoon(t *testing.T) {
	storetest.SQLite(t)
	synctest.Test(t, func(t *testing.T) {
		x, done, ended := newTape(nil, DefaultTranscriptLimit), make(chan struct{}), make(chan struct{})
		go func() {
			x.run(t.Context(), done)
			close(ended)
		}()
		x.add(event.Status{Message: "one"})
		time.Sleep(flushEvery)
		synctest.Wait()
		if len(x.events) != 1 {
			t.Errorf("after %v: %d events", flushEvery, len(x.events))
		}
		for range maxBatchEvents {
			x.add(event.Status{Message: "more"})
		}
		synctest.Wait() // a full batch does not wait
		if len(x.events) != 1+maxBatchEvents {
			t.Errorf("%d events", len(x.events))
		}
		x.add(event.Output{Stream: "stdout", Text: "end"})
		close(done)
		<-ended
		if len(x.events) != 2+maxBatchEvents {
			t.Errorf("%d events at the end", len(x.events))
		}
	})
}

// TestFullDisk: what the store could not take when the run ended is stored when it
// can again, before the end is (SPEC 9.5); a stopping server does not wait for that.
func TestFullDisk(t *testing.T) {
	storetest.SQLite(t)
	for _, stopping := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			x, done, ended := newTape(nil, DefaultTranscriptLimit), make(chan struct{}), make(chan struct{})
			x.fail, x.give = store.ErrUnavailable, func(try int) bool {
				if try == 9 {
					x.fail = nil
				}
				return stopping && try == lastTries
			}
			go func() {
				x.run(t.Context(), done)
				close(ended)
			}()
			x.add(event.Output{Stream: "stdout", Text: "said"})
			close(done)
			<-ended
			if kept := len(x.events) == 1; kept == stopping {
				t.Errorf("stopping %v: events %v", stopping, x.events)
			}
		})
	}
}

func TestWatch(t *testing.T) { // SPEC 9.6
	for _, tt := range []struct {
		name          string
		timeout, idle time.Duration
		want          error
		after         time.Duration
	}{
		{"timeout", 90 * time.Second, time.Minute, task.ErrTimeout, 90 * time.Second},
		{"idle", time.Hour, 40 * time.Second, task.ErrIdle, 70 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x, stop, begin := newTape(nil, DefaultTranscriptLimit), make(chan struct{}), time.Now()
				ctx, cancel := context.WithCancelCause(t.Context())
				a := &attempt{beat: 10 * time.Second, cancel: cancel, logger: slog.New(slog.DiscardHandler)}
				a.renew = func(context.Context) (store.Stop, error) { return 0, errors.New("disk full") } // no reason to stop
				go a.watch(t.Context(), x.transcript, tt.timeout, tt.idle, stop)
				time.Sleep(30 * time.Second)
				x.add(event.Message{Text: "a sign of life"})
				if tt.want == task.ErrTimeout {
					time.Sleep(30 * time.Second)
					x.add(event.Message{Text: "another"})
				}
				<-ctx.Done()
				if got := context.Cause(ctx); got != tt.want || time.Since(begin) != tt.after {
					t.Errorf("%v after %v", got, time.Since(begin))
				}
				close(stop)
			})
		})
	}
}

func TestRenewal(t *testing.T) {
	for _, tt := range []struct {
		asked     store.Stop
		err, want error
	}{
		{store.StopCancel, nil, task.ErrCancelled},
		{store.StopInterrupt, nil, task.ErrInterrupted},
		{store.NoStop, store.ErrFenced, task.ErrLost},
	} {
		synctest.Test(t, func(t *testing.T) {
			stop := make(chan struct{})
			ctx, cancel := context.WithCancelCause(t.Context())
			a := &attempt{beat: 10 * time.Second, cancel: cancel, logger: slog.New(slog.DiscardHandler)}
			a.renew = func(context.Context) (store.Stop, error) { return tt.asked, tt.err }
			go a.watch(t.Context(), newTape(nil, 1).transcript, time.Hour, time.Hour, stop)
			<-ctx.Done()
			if got := context.Cause(ctx); got != tt.want {
				t.Errorf("%v, want %v", got, tt.want)
			}
			close(stop)
		})
	}
}

// TestHangingAgent: an agent whose process does not end after its result has some time for
// that. One that goes on after a result does not hang.
func TestHangingAgent(t *testing.T) { // SPEC 15.3
	storetest.SQLite(t)
	synctest.Test(t, func(t *testing.T) {
		parse := harness.Named("claude").Start(harness.Request{}).Parse
		x, hangs := newTape(parse, 1<<20), make(chan struct{})
		x.done = func() { close(hangs) }
		x.add(event.AgentStarted{})
		x.add(event.Output{Stream: "stdout", Text: `{"type":"result","subtype":"success"}` + "\n"})
		time.Sleep(finishTime - time.Second)
		x.add(event.Output{Stream: "stdout", Text: `{"type":"assistant","message":{"content":[{"type":"text","text":"One more thing."}]}}` + "\n"})
		time.Sleep(time.Hour)
		if x.verdict() != nil {
			t.Error("an agent that goes on has finished")
		}
		began := time.Now()
		x.add(event.Output{Stream: "stdout", Text: `{"type":"result","subtype":"success"}` + "\n"})
		<-hangs
		if took := time.Since(began); took != finishTime || x.verdict() == nil {
			t.Errorf("after %v, %+v", took, x.verdict())
		}
	})
}

func TestJudge(t *testing.T) { // SPEC 15.3
	done, refused := &event.Result{}, &event.Result{Failed: true, Message: "Not logged in"}
	stopped := task.Exit{Code: -1, Signal: "SIGKILL", Stopped: true}
	for name, tt := range map[string]struct {
		cause   error
		exit    task.Exit
		said    lastSaid
		state   store.RunState
		message string
	}{
		"finished":                  {nil, task.Exit{}, lastSaid{result: done, expected: true}, store.Succeeded, ""},
		"failed with status 0":      {nil, task.Exit{}, lastSaid{result: refused, expected: true, words: "noise"}, store.FailedRun, "Not logged in"},
		"said nothing":              {nil, task.Exit{}, lastSaid{expected: true}, store.FailedRun, "the agent ended with exit status 0, but did not say that it had finished"},
		"another program":           {nil, task.Exit{Code: 2}, lastSaid{expected: true, printed: "usage: claude FILE", tested: "claude 2.1"}, store.FailedRun, "the agent ended with exit status 2: usage: claude FILE; `triphammer doctor` says which version is installed, and claude 2.1 is tested"},
		"no harness":                {nil, task.Exit{}, lastSaid{}, store.Succeeded, ""},
		"status after success":      {nil, task.Exit{Code: 3}, lastSaid{result: done, expected: true, words: "why"}, store.FailedRun, "the agent ended with exit status 3: why"},
		"hung after success":        {errFinished, stopped, lastSaid{result: done, expected: true}, store.Succeeded, ""},
		"hung after failure":        {errFinished, stopped, lastSaid{result: refused, expected: true}, store.FailedRun, "Not logged in"},
		"cancelled after a success": {task.ErrCancelled, stopped, lastSaid{result: done, expected: true}, store.Cancelled, "cancelled while it was in progress"},
	} {
		v := judge(tt.cause, tt.exit, nil, time.Hour, time.Hour, tt.said)
		if v.state != tt.state || v.message != tt.message {
			t.Errorf("%s: %s %q", name, v.state, v.message)
		}
	}
}

// FuzzTranscript feeds a harness's transcript with anything, cut anywhere: no
// panic, no secret, valid JSON, and nothing over the limit.
func FuzzTranscript(f *testing.F) {
	f.Add([]byte(`{"type":"assistant","message":{"content":[{"type":"text","text":"topsecret"}]}}`+"\n"), 7)
	f.Add([]byte("{\"type\":\"item.completed\",\"item\":{\"type\":\"reasoning\",\"text\":\"\xff\"}}\ntops\xc3"), 1)
	f.Fuzz(func(t *testing.T, data []byte, cut int) {
		if cut < 1 {
			cut = 1
		}
		for _, name := range harness.Names() {
			x := newTape(harness.Named(name).Start(harness.Request{}).Parse, 5000, secret.New("topsecret"))
			x.add(event.AgentStarted{})
			for chunk := range slices.Chunk(data, cut) {
				x.add(event.Output{Stream: "stdout", Text: string(chunk)})
			}
			x.add(event.Ended{})
			size := 0
			for _, line := range x.lines(t.Context()) {
				if strings.Contains(line, "topsecret") {
					t.Errorf("%s: a secret in %s", name, line)
				}
			}
			for _, e := range x.events {
				if !json.Valid(e.Data) {
					t.Errorf("%s: %s", name, e.Data)
				}
				if e.Kind != event.KindStatus {
					size += len(e.Data)
				}
			}
			if size > 6000 {
				t.Errorf("%s: %d bytes", name, size)
			}
		}
	})
}

func BenchmarkTranscript(b *testing.B) {
	line := strings.Repeat("a line of output\n", 64)
	x := newTape(nil, 1<<62, secret.New("topsecret"), secret.New("another secret"))
	b.SetBytes(int64(len(line)))
	for b.Loop() {
		x.add(event.Output{Stream: "stdout", Text: line})
		if len(x.pending) > maxBatchEvents {
			x.pending = nil
		}
	}
}

// TestPullsCountBothWays: pull requests that the gateway opened, also in earlier attempts, and those that are asked for
// count together, in whatever order they come; and one is asked for a branch that was pushed (SPEC 23.3).
func TestPullsCountBothWays(t *testing.T) {
	ask := func(head, done string) event.Request {
		text, _ := json.Marshal(output.Request{Kind: output.Pull, Title: "T", Body: "B", Head: head})
		return event.Request{Name: output.Pull, Request: string(text), Done: done}
	}
	push := func(ref, refused string) event.Push { return event.Push{Repository: "r", Ref: ref, Refused: refused} }
	waits := func(branch, id string) event.Push {
		text, _ := json.Marshal(output.Request{Kind: output.PushKind, Push: &output.Push{Repository: "r", Ref: "refs/heads/" + branch, New: id}})
		return event.Push{Repository: "r", Ref: "refs/heads/" + branch, New: id, Waits: string(text)}
	}
	pull := func(head string) output.Request { return output.Request{Kind: output.Pull, Head: head} }
	for name, tt := range map[string]struct {
		opened []output.Request // by earlier attempts
		task   task.Task        // what else it says
		stored int              // pull requests of this attempt that another worker has stored
		told   []event.Event
		want   string // the heads of what is done
		not    string // part of a refusal
	}{
		"two asked for":                {told: []event.Event{push("refs/heads/a", ""), push("refs/heads/b", ""), ask("a", ""), ask("b", "")}, want: "a b"},
		"three":                        {told: []event.Event{push("refs/heads/a", ""), ask("a", ""), ask("a", ""), ask("a", "")}, want: "a a", not: "allows 2 in a run, and 2 came before"},
		"opened before":                {told: []event.Event{push("refs/heads/a", ""), ask("a", "https://x"), ask("a", ""), ask("a", "")}, want: "a", not: "allows 2"},
		"opened afterwards":            {told: []event.Event{push("refs/heads/a", ""), ask("a", ""), ask("a", ""), ask("a", "https://x")}, want: "a", not: "allows 2"},
		"opened by earlier attempts":   {opened: []output.Request{pull("a"), pull("a")}, told: []event.Event{push("refs/heads/a", ""), ask("a", "")}, not: "allows 2"},
		"taken up by another worker":   {opened: []output.Request{pull("a"), pull("a")}, stored: 2, told: []event.Event{push("refs/heads/a", ""), ask("a", "https://x"), ask("a", "")}, want: "a"},
		"pushed later":                 {told: []event.Event{ask("a", ""), push("refs/heads/a", "")}, want: "a"},
		"pushed by an earlier run":     {told: []event.Event{ask("earlier", "")}, want: "earlier"},
		"not pushed":                   {told: []event.Event{ask("theirs", "")}, not: `no run of this automation has pushed a branch \"theirs\"`},
		"a push that was refused":      {told: []event.Event{push("refs/heads/a", "no"), ask("a", "")}, not: "has pushed a branch"},
		"of another repository":        {task: task.Task{Pushes: task.Pushes{Into: "acme/app"}}, told: []event.Event{event.Push{Ref: "refs/heads/a", Repository: "https://x/acme/other.git"}, ask("a", ""), ask("earlier", "")}, not: "has pushed a branch"},
		"of the repository itself":     {task: task.Task{Pushes: task.Pushes{Into: "Acme/app"}}, told: []event.Event{event.Push{Ref: "refs/heads/a", Repository: "https://x/git/acme/App.git"}, ask("a", "")}, want: "a"},
		"a tag":                        {told: []event.Event{push("refs/tags/a", ""), ask("a", "")}, not: "has pushed a branch"},
		"a branch of a fork":           {told: []event.Event{push("refs/heads/a", ""), ask("evil:a", "")}, not: "is no name of a branch of the repository"},
		"code of a fork":               {task: task.Task{Foreign: true}, told: []event.Event{ask("theirs", "")}, not: "has pushed a branch"},
		"a run that waits":             {task: task.Task{Pushes: task.Pushes{Waits: time.Hour}}, told: []event.Event{ask("theirs", "")}, not: "has pushed a branch"},
		"a push that waits":            {told: []event.Event{ask("a", ""), waits("a", "1"), waits("b", "1"), waits("a", "2")}, want: "refs/heads/a:2 refs/heads/b:1 a"},
		"a push that cannot be read":   {told: []event.Event{event.Push{Ref: "refs/heads/a", Waits: "{"}, ask("a", "")}, not: "could not be kept"},
		"no gateway":                   {task: task.Task{Repositories: []task.Repository{{URL: "r"}}}, told: []event.Event{ask("theirs", "")}, want: "theirs"},
		"what the code inside refused": {told: []event.Event{event.Request{Name: output.Pull, Request: ask("a", "").Request, Refused: "no"}}, not: "no"},
	} {
		t.Run(name, func(t *testing.T) {
			tape := newTape(nil, 1<<20)
			tape.may = output.Allowed{output.Pull: {Max: 2}}
			if tt.task.Repositories == nil {
				tt.task.Repositories = []task.Repository{{URL: "r", Secret: "S", ReadOnly: tt.task.Foreign}}
			}
			tt.task.Pushes.Opened, tt.task.Pushes.Earlier = tt.opened, []event.Push{push("refs/heads/earlier", "")}
			tape.under(&tt.task, map[bool]*replayed{true: {opens: tt.stored}}[tt.stored > 0])
			for _, e := range tt.told {
				tape.add(e)
			}
			tape.close(event.Status{})
			var heads []string
			for _, o := range tape.outputs() {
				r, _ := output.Parse([]byte(o.Request))
				if r.Push != nil {
					r.Head = r.Push.Ref + ":" + r.Push.New
				}
				heads = append(heads, r.Head)
			}
			if got, lines := strings.Join(heads, " "), strings.Join(tape.lines(t.Context()), "\n"); got != tt.want || !strings.Contains(lines, tt.not) || strings.Contains(lines, `"refused"`) != (tt.not != "") {
				t.Errorf("%q is done, want %q: %s", got, tt.want, lines)
			}
		})
	}
}
