package gateway

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"triphammer/schema/output"
	"triphammer/server/run/event"
)

const (
	waitingNote  = "triphammer: this push waits until a person approves it, and is not at the forge before that.\n"
	maxSubjects  = 20
	maxStagedRef = 1000     // bytes of the name of a ref
	maxRefs      = 64 << 20 // bytes of a forge's list of refs
)

// stagePush keeps a push that waits for a person, in place of passing it on (SPEC 23.3). To Git it has
// succeeded. The forge does not list its branch, so the next push to the branch brings all commits again and
// stands for itself: it takes the place of the one before.
func (g *Gateway) stagePush(w http.ResponseWriter, r *http.Request, body io.Reader, s *served, head *push, unsure []command) {
	var sent *pack
	var reasons map[string]string
	from, to := io.Pipe()
	read := make(chan struct{})
	go func() {
		defer close(read)
		sent, reasons = g.sendPack(to, body, s, head, unsure, true)
	}()
	kept, err := g.pushes.rules.Stage(r.Context(), &judged{from, func() error {
		if <-read; reasons != nil {
			return errCut
		}
		return nil
	}})
	_ = from.CloseWithError(errCut)
	<-read
	switch {
	case reasons != nil:
	case err != nil || sent == nil:
		reasons = head.all("it could not be kept for a person: " + clip(fmt.Sprint(err)))
	default:
		reasons = g.tellStaged(s, head, sent, kept)
	}
	if reasons != nil {
		g.refusePush(w, body, s, head, reasons)
		return
	}
	w.Header().Set("Content-Type", "application/x-git-receive-pack-result")
	_, _ = w.Write(head.report(waitingNote, func(command) string { return "" }))
}

// tellStaged tells of each update of a push that it waits.
func (g *Gateway) tellStaged(s *served, head *push, sent *pack, kept output.Pack) (reasons map[string]string) {
	named := *s.url
	if given, err := url.Parse(s.URL); err == nil && given.User.Username() != "" {
		named.User = url.User(given.User.Username())
	}
	var all []event.Push
	for _, c := range head.commands {
		if len(c.Ref) > maxStagedRef {
			return head.all("the name of a branch is too long to be shown to a person")
		}
		p := &output.Push{Repository: named.String(), Secret: s.Secret, Ref: c.Ref, Old: c.Old, New: c.New, Pack: kept}
		p.Commits, p.Subjects = sent.newest(c.New)
		all = append(all, event.Push{Repository: s.url.String(), Ref: c.Ref, Old: c.Old, New: c.New, Waits: output.Request{Kind: output.PushKind, Push: p}.JSON()})
	}
	for _, e := range all {
		g.pushes.tell(e)
	}
	return nil
}

// newest counts the commits of a pack to which an object leads, and has the subjects of the newest.
func (p *pack) newest(id string) (commits int, subjects []string) {
	seen := map[string]bool{id: true}
	for queue := []string{id}; len(queue) > 0; queue = queue[1:] {
		content, here := p.id[queue[0]]
		if !here {
			continue
		}
		if commits++; len(subjects) < maxSubjects {
			_, message, _ := strings.Cut(string(content), "\n\n")
			subject, _, _ := strings.Cut(message, "\n")
			subjects = append(subjects, cmp.Or(clip(subject), "(no subject)"))
		}
		for _, parent := range p.parents[queue[0]] {
			if !seen[parent] {
				seen[parent] = true
				queue = append(queue, parent)
			}
		}
	}
	return commits, subjects
}

// judged reads to the end, which is an error if the push breaks a rule.
type judged struct {
	io.Reader
	end func() error
}

func (j *judged) Read(b []byte) (int, error) {
	n, err := j.Reader.Read(b)
	if errors.Is(err, io.EOF) {
		err = cmp.Or(j.end(), err)
	}
	return n, err
}

// PushError is why Send did not perform a push.
type PushError struct {
	text   string
	Final  bool // another attempt would fail, too
	Unsure bool // nobody knows whether the forge has done it
}

// Error implements error.
func (e *PushError) Error() string { return e.text }

// Send performs a push to the gateway's only repository that waited for a person. It is made once, however
// often Send is called: if the ref is as it should become, nothing is done, and if it is not as it was when
// the run pushed, the push is refused. Its errors are a *PushError.
func (g *Gateway) Send(ctx context.Context, p *output.Push, content io.Reader) error {
	s := g.served[0]
	c, err := s.current(ctx)
	if err != nil {
		return &PushError{text: fmt.Sprintf("there is no credential for %s: %v", s.url, err)}
	}
	now, capable, err := g.refAt(ctx, s, c, p.Ref)
	switch {
	case err != nil:
		return err
	case now == p.New:
		return nil
	case now != p.Old && !none(now+p.Old):
		is := "is at " + now
		if none(now) {
			is = "is not there any more"
		}
		return &PushError{text: fmt.Sprintf("%s of %s has moved since the run pushed: it %s", clip(p.Name()), s.url, is), Final: true}
	}
	head := &push{commands: []command{{p.Old, p.New, p.Ref}}, capable: []string{"report-status"}}
	for _, word := range capable {
		if word == "side-band-64k" || strings.HasPrefix(word, "object-format=") {
			head.capable = append(head.capable, word)
		}
	}
	begin := head.encode()
	resp, err := g.askGit(ctx, s, c, "/"+pushing, io.MultiReader(bytes.NewReader(begin), content), int64(len(begin))+p.Pack.Bytes)
	if err != nil {
		return &PushError{text: s.unreached(err).Error(), Unsure: true}
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return &PushError{text: s.refused(resp, pushing, c).Error(), Final: lasting(resp, c), Unsure: resp.StatusCode >= 500}
	}
	told := &results{banded: head.can("side-band-64k")}
	_, _ = io.Copy(told, io.LimitReader(resp.Body, maxResults))
	reason, said := told.outcomes()[p.Ref]
	switch {
	case !said:
		return &PushError{text: s.url.String() + " did not say whether it took the push", Unsure: true}
	case reason != "":
		return &PushError{text: "the forge refused it: " + clip(string(c.hide.Redact([]byte(reason)))), Final: true}
	}
	return nil
}

// Close ends the connections of a gateway that serves no run.
func (g *Gateway) Close() { g.transport.CloseIdleConnections() }

// refAt asks a forge for the object of a ref, and what it can do with a push. Without the ref, the object is
// only zeros.
func (g *Gateway) refAt(ctx context.Context, s *served, c *credential, ref string) (object string, capable []string, err error) {
	resp, err := g.askGit(ctx, s, c, "/info/refs?service="+pushing, nil, 0)
	if err != nil {
		return "", nil, &PushError{text: s.unreached(err).Error()}
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return "", nil, &PushError{text: s.refused(resp, pushing, c).Error(), Final: lasting(resp, c)}
	}
	object = strings.Repeat("0", 40)
	from := bufio.NewReader(io.LimitReader(resp.Body, maxRefs))
	for begun := false; ; {
		line, err := (&push{}).line(from)
		switch {
		case err != nil:
			return "", nil, &PushError{text: s.url.String() + " does not list its branches as Git does"}
		case line == nil && begun:
			return object, capable, nil
		case line == nil || bytes.HasPrefix(line, []byte("# ")): // a flush packet follows the name of the service
			continue
		}
		text, words, first := strings.Cut(strings.TrimSuffix(string(line), "\n"), "\x00")
		if begun = true; first {
			capable = strings.Fields(words)
		}
		if id, name, _ := strings.Cut(text, " "); name == ref {
			object = id
		}
	}
}

// lasting tells whether a forge would refuse another attempt, too. Of a credential that it does not take, there may
// be another by then.
func lasting(resp *http.Response, c *credential) bool {
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusRequestTimeout:
		return false
	case http.StatusUnauthorized:
		return c.forget == nil
	}
	return resp.StatusCode < 500
}

// askGit makes a request of Git. It follows no redirect.
func (g *Gateway) askGit(ctx context.Context, s *served, c *credential, rest string, body io.Reader, size int64) (*http.Response, error) {
	method := http.MethodGet
	if body != nil {
		method = http.MethodPost
	}
	req, err := http.NewRequestWithContext(ctx, method, s.url.String()+rest, body)
	if err != nil {
		return nil, err
	}
	req.ContentLength = size
	req.Header = http.Header{"Authorization": {c.basic}, "User-Agent": {"triphammer"}}
	if body != nil {
		req.Header.Set("Content-Type", "application/x-git-receive-pack-request")
		req.Header.Set("Accept", "application/x-git-receive-pack-result")
	}
	resp, err := g.transport.RoundTrip(req)
	if err == nil {
		c.took(resp)
	}
	return resp, err
}
