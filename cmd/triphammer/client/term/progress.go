package term

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"triphammer/server/inert"
	"triphammer/server/run/event"
)

// Long work is shown from progressDelay on: on a terminal
// as one line, which is written over every progressStep and removed at the end, and elsewhere
// as a plain line every progressSeldom.
const (
	progressDelay  = 300 * time.Millisecond
	progressStep   = 250 * time.Millisecond
	progressSeldom = 10 * time.Second
)

// Progress shows on standard error how far a command is. Until End, the command prints nothing.
type Progress struct {
	w     io.Writer
	line  bool // w is a terminal; otherwise it gets plain lines
	ask   func(ctx context.Context) string
	began time.Time
	stop  context.CancelFunc
	shown int // columns of the line

	showing sync.WaitGroup
	mu      sync.Mutex
	text    string
}

// ShowProgress shows what a command does until End is called. ask, which may be nil, tells how
// far it is before each line; an empty text says nothing new.
func ShowProgress(c *cobra.Command, what string, ask func(ctx context.Context) string) *Progress {
	w := c.ErrOrStderr()
	p := &Progress{w: w, line: TerminalOf(w) != nil && os.Getenv("TERM") != "dumb", ask: ask, began: time.Now(), text: what}
	ctx, stop := context.WithCancel(c.Context())
	p.stop = stop
	if p.line || IsTable(c) { // a program that reads both outputs as one gets nothing but what it asked for
		p.showing.Go(func() { p.show(ctx) })
	}
	return p
}

// show shows the line until ctx is done.
func (p *Progress) show(ctx context.Context) {
	first, step := progressSeldom, progressSeldom
	if p.line {
		first, step = progressDelay, progressStep
	}
	tick := time.NewTimer(first)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if p.ask != nil {
			if text := p.ask(ctx); text != "" && ctx.Err() == nil {
				p.Set(text)
			}
		}
		p.draw()
		tick.Reset(step)
	}
}

// draw shows the present text.
func (p *Progress) draw() {
	p.mu.Lock()
	text := OneLine.Replace(inert.Text(p.text))
	p.mu.Unlock()
	took := ""
	if d := time.Since(p.began).Truncate(time.Second); d > 0 {
		took = ", " + event.Took(d.Milliseconds())
	}
	if !p.line {
		fmt.Fprintln(p.w, text+took)
		return
	}
	most := terminalColumns(p.w) - 1 // in the last column, the terminal would begin another line
	text = shorten(shorten(text, max(1, most-len(took)))+took, most)
	width := columns(text)
	fmt.Fprintf(bare(p.w), "\r%s%s", text, strings.Repeat(" ", max(0, p.shown-width)))
	p.shown = width
}

// Set changes the text.
func (p *Progress) Set(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.text = text
}

// Counted changes the text to that of work with a known number of parts.
func (p *Progress) Counted(what string, done, of int64) {
	p.Set(fmt.Sprintf("%s: %d of %d", what, done, of))
}

// Reading is a reader that tells how much of a size is read; 0: it is not known.
func (p *Progress) Reading(r io.Reader, what string, size int64) io.Reader {
	return &progressReader{r, p, what, 0, size}
}

type progressReader struct {
	io.Reader
	progress   *Progress
	what       string
	done, size int64
}

func (r *progressReader) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	r.done += int64(n)
	text := r.what + ": " + event.Bytes(r.done)
	if r.size > 0 {
		text += " of " + event.Bytes(r.size)
	}
	r.progress.Set(text)
	return n, err
}

// End removes the line. A second call does nothing.
func (p *Progress) End() {
	p.stop()
	p.showing.Wait()
	if p.shown > 0 {
		fmt.Fprintf(bare(p.w), "\r%s\r", strings.Repeat(" ", p.shown))
		p.shown = 0
	}
}
