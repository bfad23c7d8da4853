package gateway

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Limits of what is read of a push before its pack.
const (
	maxLine     = 65520     // bytes of a packet line, by Git's protocol
	maxCommands = 256 << 10 // bytes of all commands and options
)

// command is one update of a push: a ref is to become New, which was Old.
type command struct{ Old, New, Ref string }

// push is the head of a request for git-receive-pack, which stands before the pack
// (https://git-scm.com/docs/pack-protocol, Reference Update Request).
type push struct {
	size     int // bytes, as it came
	commands []command
	shallow  []string // commits that have no parents in the client's repository
	options  []string // push options
	capable  []string // what the client can do, of passedOn
	more     bool     // options follow the commands
	signed   bool     // the commands are a push certificate
}

// passedOn are the capabilities that a forge is told of. Others change what the rest of the
// request means.
var passedOn = []string{"report-status", "report-status-v2", "side-band-64k", "quiet", "atomic", "ofs-delta", "object-format", "agent", "session-id"}

func (p *push) can(capability string) bool { return slices.Contains(p.capable, capability) }

// encode is the head as the forge gets it. It is written anew, so that a forge reads in it what
// was read here, however strangely a run has written it. A refused push is not passed on, so
// there are neither options nor a certificate.
func (p *push) encode() []byte {
	var b bytes.Buffer
	for _, boundary := range p.shallow {
		b.WriteString(packet("shallow " + boundary))
	}
	capable := "\x00 " + strings.Join(p.capable, " ")
	for _, c := range p.commands {
		b.WriteString(packet(c.Old + " " + c.New + " " + c.Ref + capable))
		capable = ""
	}
	b.WriteString(flush)
	return b.Bytes()
}

var errPush = errors.New("the request is no push of Git")

var objectID = regexp.MustCompile(`^(?:[0-9a-f]{40}|[0-9a-f]{64})$`)

func unprintable(r rune) bool { return r <= ' ' || r > '~' }

// none tells whether an object id stands for no object.
func none(id string) bool { return strings.Trim(id, "0") == "" }

// readPush reads the head of a push, and nothing behind it.
func readPush(r io.Reader) (*push, error) {
	p := &push{}
	if err := p.eachLine(r, p.command); err != nil {
		return nil, err
	}
	if !p.more {
		return p, nil
	}
	return p, p.eachLine(r, func(line string) error {
		p.options = append(p.options, line)
		return nil
	})
}

// eachLine reads the packet lines up to a flush packet.
func (p *push) eachLine(r io.Reader, take func(string) error) error {
	for {
		line, err := p.line(r)
		if err != nil || line == nil {
			return err
		}
		if err := take(strings.TrimSuffix(string(line), "\n")); err != nil {
			return err
		}
	}
}

// line is the content of the next packet line; nil is a flush packet.
func (p *push) line(r io.Reader) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, fmt.Errorf("%w: %w", errPush, err)
	}
	n, err := strconv.ParseUint(string(size[:]), 16, 16)
	switch {
	case err != nil || n > maxLine || 0 < n && n < 4:
		return nil, errPush
	case p.size+max(4, int(n)) > maxCommands:
		return nil, fmt.Errorf("a push has at most %d bytes of commands", maxCommands)
	}
	if p.size += max(4, int(n)); n == 0 {
		return nil, nil
	}
	line := make([]byte, n-4)
	if _, err := io.ReadFull(r, line); err != nil {
		return nil, fmt.Errorf("%w: %w", errPush, err)
	}
	return line, nil
}

// command reads a line before the pack.
func (p *push) command(line string) error {
	line, capable, first := strings.Cut(line, "\x00")
	if first {
		if p.capable != nil || len(p.commands) > 0 {
			return errPush
		}
		p.capable = []string{}
		for _, word := range strings.Fields(capable) {
			name, _, valued := strings.Cut(word, "=")
			if p.more = p.more || name == "push-options"; !slices.Contains(passedOn, name) || strings.ContainsFunc(word, unprintable) {
				continue
			}
			if !valued || name != "object-format" && name != "agent" && name != "session-id" {
				word = name
			}
			p.capable = append(p.capable, word)
		}
	}
	if line == "push-cert" || p.signed {
		p.signed = true
		return nil
	}
	if boundary, ok := strings.CutPrefix(line, "shallow "); ok && objectID.MatchString(boundary) {
		p.shallow = append(p.shallow, boundary)
		return nil
	}
	oldID, rest, _ := strings.Cut(line, " ")
	newID, ref, _ := strings.Cut(rest, " ")
	if !objectID.MatchString(oldID) || !objectID.MatchString(newID) || len(oldID) != len(newID) || len(p.commands) > 0 && len(oldID) != len(p.commands[0].Old) {
		return errPush
	}
	if !refName(ref) {
		return fmt.Errorf("%w: %s is no name of a branch or tag", errPush, clip(ref))
	}
	p.commands = append(p.commands, command{oldID, newID, ref})
	return nil
}

// refName tells whether a text is the name of a ref by the rules of git-check-ref-format.
func refName(ref string) bool {
	if !strings.HasPrefix(ref, "refs/") || strings.HasSuffix(ref, ".") || !utf8.ValidString(ref) ||
		strings.ContainsAny(ref, " ~^:?*[\\\x7f") || strings.Contains(ref, "..") || strings.Contains(ref, "@{") ||
		strings.ContainsFunc(ref, func(r rune) bool { return r < ' ' }) {
		return false
	}
	for part := range strings.SplitSeq(ref, "/") {
		if part == "" || part[0] == '.' || strings.HasSuffix(part, ".lock") {
			return false
		}
	}
	return true
}

// packet is a packet line with a content.
func packet(content string) string { return fmt.Sprintf("%04x%s", 4+len(content), content) }

const flush = "0000"

// all gives all commands of a push the same reason.
func (p *push) all(reason string) map[string]string {
	reasons := make(map[string]string)
	for _, c := range p.commands {
		reasons[c.Ref] = reason
	}
	return reasons
}

// refuse is the answer to a push that is not passed on. reasons are those of the commands that break a rule,
// by ref.
func (p *push) refuse(reasons map[string]string) []byte {
	return p.report("", func(c command) string { return cmp.Or(reasons[c.Ref], "it came with an update that is refused") })
}

// report is the answer to a push. Git shows the note, and beside each ref why it is refused; empty: it is not.
func (p *push) report(note string, why func(command) string) []byte {
	var b bytes.Buffer
	b.WriteString(packet("unpack ok\n"))
	for _, c := range p.commands {
		if reason := why(c); reason != "" {
			b.WriteString(packet("ng " + c.Ref + " " + reason + "\n"))
		} else {
			b.WriteString(packet("ok " + c.Ref + "\n"))
		}
	}
	b.WriteString(flush)
	if !p.can("side-band-64k") {
		return b.Bytes()
	}
	var banded bytes.Buffer
	if note != "" {
		banded.WriteString(packet("\x02" + note))
	}
	for chunk := range slices.Chunk(b.Bytes(), maxLine-5) {
		banded.WriteString(packet("\x01" + string(chunk)))
	}
	banded.WriteString(flush)
	return banded.Bytes()
}

// maxResults is how much of a forge's report on a push is read, in bytes.
const maxResults = 1 << 20

// results reads the report of a forge on a push, as it passes by. Zero is ready.
type results struct {
	banded bool   // the report is on the first band
	report []byte // without bands
	rest   []byte // of a packet that has not come whole
}

// Write implements io.Writer. It never fails.
func (r *results) Write(b []byte) (int, error) {
	if !r.banded {
		r.report = append(r.report, b[:min(len(b), maxResults-len(r.report))]...)
		return len(b), nil
	}
	r.rest = append(r.rest, b...)
	for len(r.rest) >= 4 {
		n, err := strconv.ParseUint(string(r.rest[:4]), 16, 16)
		if err != nil {
			r.rest = nil
			break
		}
		size := max(4, int(n))
		if len(r.rest) < size {
			break
		}
		if line := r.rest[4:size]; len(line) > 0 && line[0] == 1 && len(r.report)+len(line) <= maxResults {
			r.report = append(r.report, line[1:]...)
		}
		r.rest = r.rest[size:]
	}
	return len(b), nil
}

// outcomes are what the forge says of each ref: why it did not update the ref; empty: it did.
func (r *results) outcomes() map[string]string {
	told := make(map[string]string)
	_ = (&push{}).eachLine(bytes.NewReader(r.report), func(line string) error {
		kind, rest, _ := strings.Cut(line, " ")
		ref, reason, _ := strings.Cut(rest, " ")
		switch kind {
		case "ok":
			told[ref] = ""
		case "ng":
			told[ref] = cmp.Or(reason, "without a reason")
		}
		return nil
	})
	return told
}
