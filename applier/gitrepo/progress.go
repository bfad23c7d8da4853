package gitrepo

import (
	"strings"
	"sync"
	"unicode"
)

// Progress tells how far a look at a remote repository is.
type Progress struct {
	Received int64  // bytes
	Said     string // the last line of the server about its work; empty if it has said nothing
}

// Progress returns the progress of the present look, or of the last look.
func (r *Remote) Progress() Progress {
	return Progress{r.received.Load() - r.before.Load(), r.telling.last()}
}

// telling keeps the last line of what a server says of its work. A stranger may choose the
// text, so telling removes invisible characters and credentials.
type telling struct {
	mu    sync.Mutex
	hide  *strings.Replacer
	begun []byte // the present line, which has not ended
	said  string
}

// maxTold is the length of the longest line that is kept, in bytes. Lines of Git are far
// shorter.
const maxTold = 200

// begin forgets what was said. From now on, telling hides the secrets.
func (t *telling) begin(secrets ...string) {
	var hide []string
	for _, s := range secrets {
		if s != "" {
			hide = append(hide, s, "…")
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hide, t.begun, t.said = strings.NewReplacer(hide...), nil, ""
}

// Write implements io.Writer. A line ends with a line feed, or with a carriage return if the
// next line replaces it.
func (t *telling) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, b := range p {
		switch {
		case b != '\r' && b != '\n':
			if len(t.begun) <= maxTold {
				t.begun = append(t.begun, b)
			}
		default:
			if line := t.visible(); line != "" {
				t.said = line
			}
			t.begun = t.begun[:0]
		}
	}
	return len(p), nil
}

// visible is the line that has just ended, or empty if the line is longer than maxTold: a part
// of a secret could be at the end of a line that was cut.
func (t *telling) visible() string {
	if len(t.begun) > maxTold {
		return ""
	}
	words := strings.FieldsFunc(strings.ToValidUTF8(string(t.begun), "?"), func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) })
	return t.hide.Replace(strings.Join(words, " "))
}

func (t *telling) last() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.said
}
