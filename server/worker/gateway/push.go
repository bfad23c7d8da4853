package gateway

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httputil"
	"regexp"
	"slices"
	"strings"

	"triphammer/schema/output"
	"triphammer/server/run/event"
	"triphammer/server/run/task"
)

// pushes holds an attempt of a run to what it may push.
type pushes struct {
	rules task.Pushes
	tell  func(event.Push)
	asked func(event.Request)

	// turn is held by the push that is under way. So two pushes at once cannot get past a limit
	// together, and one does not change what the other was judged by.
	turn chan struct{}

	// made is what runs of this automation pushed, repository, ref and object, with the objects that it replaced.
	made map[string][]string
	// parents are those of the commits of the attempt's packs. They hold whatever became of a push,
	// because a commit's identifier is a digest of its parents, too.
	parents map[string][]string
	taken   map[string]bool  // the repositories and refs that count for rules.Max
	left    int64            // bytes of rules.MaxBytes
	opened  []output.Request // the pull requests of the run that count for their bounds
}

func newPushes(cfg GatewayConfig) *pushes {
	rules := cfg.Pushes
	p := &pushes{
		rules: rules, tell: cfg.Pushed, asked: cfg.Pulled, turn: make(chan struct{}, 1), made: make(map[string][]string), parents: make(map[string][]string),
		taken: make(map[string]bool), left: rules.MaxBytes, opened: rules.Opened,
	}
	if p.tell == nil {
		p.tell = func(event.Push) {}
	}
	if p.asked == nil {
		p.asked = func(event.Request) {}
	}
	for _, e := range rules.Earlier {
		p.note(e)
	}
	return p
}

// note remembers a push that was made.
func (p *pushes) note(e event.Push) {
	at := place(e.Repository, e.Ref) + " " + e.New
	p.made[at] = append(p.made[at], e.Old)
}

// pushed tells whether a run of the automation has pushed a branch.
func (p *pushes) pushed(s *served, branch string) bool {
	for made := range p.made {
		if strings.HasPrefix(made, place(s.url.String(), "refs/heads/"+branch)+" ") {
			return true
		}
	}
	return false
}

// learn remembers the parents of a pack's commits: the attempt may push the commits to another branch,
// and then they do not come again. pack is nil if it was not understood.
func (p *pushes) learn(pack *pack) {
	if pack != nil && len(p.parents)+len(pack.parents) <= maxKnown {
		maps.Copy(p.parents, pack.parents)
	}
}

// maxKnown is of how many commits the parents are remembered.
const maxKnown = 1 << 20

// place is a ref of a repository.
func place(repository, ref string) string { return repository + " " + ref }

// below are the objects that a command replaces and that no run of the automation pushed: its own, or those that runs
// pushed over. None: runs of the automation made the ref.
func (p *pushes) below(s *served, c command) (all []string) {
	at, created := place(s.url.String(), c.Ref)+" ", false
	seen := map[string]bool{c.Old: true}
	for queue := []string{c.Old}; len(queue) > 0; queue = queue[1:] {
		replaced, ours := p.made[at+queue[0]]
		switch {
		case none(queue[0]):
			created = true
		case !ours:
			all = append(all, queue[0])
		}
		for _, id := range replaced {
			if !seen[id] {
				seen[id] = true
				queue = append(queue, id)
			}
		}
	}
	if len(all) == 0 && !created { // runs went there and back, and nobody knows from where
		all = []string{c.Old}
	}
	return all
}

// keeps tells whether an update keeps what no run of the automation pushed, as far as parents are known.
func (p *pushes) keeps(s *served, c command) bool {
	return leads(p.parents, c.New, c.Old) || !slices.ContainsFunc(p.below(s, c), func(id string) bool { return c.New != id && !leads(p.parents, c.New, id) })
}

// branches are the patterns of branches for a repository.
func (p *pushes) branches(s *served) (patterns []string) {
	for _, pattern := range p.rules.Branches {
		if pattern == task.EventBranch {
			pattern = s.Branch
		}
		if pattern != "" {
			patterns = append(patterns, pattern)
		}
	}
	return patterns
}

// named tells whether a name matches one of the patterns, in which * stands for any text.
func named(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		re := "^" + strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, ".*") + "$"
		ok, err := regexp.MatchString(re, name)
		return ok && err == nil
	})
}

// judge says why commands may not be passed on, by ref, and which of the commands need a look
// at the pack: no run of the automation pushed all that they replace. main is the default branch.
// If there are no reasons, the commands count from now on, whatever becomes of them.
func (p *pushes) judge(s *served, commands []command, main string) (reasons map[string]string, unsure []command) {
	reasons = make(map[string]string)
	seen, taken := make(map[string]bool), maps.Clone(p.taken)
	for _, c := range commands {
		if seen[c.Ref] {
			reasons[c.Ref] = "it is pushed twice at once"
		}
		seen[c.Ref] = true
		if reason := p.reason(s, c, main); reason != "" {
			reasons[c.Ref] = reason
			continue
		}
		if taken[place(s.url.String(), c.Ref)] = true; len(taken) > p.rules.Max {
			reasons[c.Ref] = fmt.Sprintf("a run pushes to no more branches and tags than push.max of the automation: %d", p.rules.Max)
		}
		if len(p.below(s, c)) > 0 {
			unsure = append(unsure, c)
		}
	}
	return reasons, unsure
}

// take makes commands count for rules.Max.
func (p *pushes) take(s *served, commands []command) {
	for _, c := range commands {
		p.taken[place(s.url.String(), c.Ref)] = true
	}
}

// reason says why a command breaks the rules, whatever its pack holds; empty: it does not.
func (p *pushes) reason(s *served, c command, main string) string {
	branch, isBranch := strings.CutPrefix(c.Ref, "refs/heads/")
	tag, isTag := strings.CutPrefix(c.Ref, "refs/tags/")
	allowed := p.branches(s)
	switch {
	case none(c.New):
		return "a run deletes nothing"
	case isTag && !named(p.rules.Tags, tag):
		return "a run pushes no tag that push.tags of the automation does not name"
	case isTag && len(p.below(s, c)) > 0:
		return "a run moves no tag that its automation did not push"
	case isTag:
		return ""
	case !isBranch:
		return "a run pushes branches"
	case strings.EqualFold(branch, main) && (branch == task.EventBranch || !slices.Contains(p.rules.Branches, branch)):
		return "a run pushes to the default branch only if push.branches of the automation names it, without *"
	case !named(allowed, branch):
		return "a run pushes to " + cmp.Or(strings.Join(allowed, ", "), "no branch of this repository") + ": push.branches of the automation"
	}
	return ""
}

// reserve takes bytes of what the run may push in all. It returns how many it got, at most n.
func (p *pushes) reserve(n int64) int64 {
	n = min(n, p.left)
	p.left -= n
	return n
}

// done records what a forge made of commands.
func (p *pushes) done(s *served, c *credential, commands []command, told map[string]string) {
	for _, cmd := range commands {
		e := event.Push{Repository: s.url.String(), Ref: cmd.Ref, Old: cmd.Old, New: cmd.New}
		switch reason, said := told[cmd.Ref]; {
		case !said:
			e.Refused = "the forge did not say whether it took it"
		case reason != "":
			e.Refused = "the forge refused it: " + clip(string(c.hide.Redact([]byte(reason))))
		default:
			p.note(e)
		}
		p.tell(e)
	}
}

// anyway records what a forge made of commands although the push did not reach it whole: a run
// can send something behind a pack.
func (p *pushes) anyway(s *served, c *credential, commands []command, told, reasons map[string]string) {
	for _, cmd := range commands {
		if reason, said := told[cmd.Ref]; said && reason == "" {
			p.done(s, c, []command{cmd}, told)
			delete(reasons, cmd.Ref)
		}
	}
}

// refused records that commands were not passed on.
func (p *pushes) refused(s *served, commands []command, reasons map[string]string) {
	for _, c := range commands {
		if reason := reasons[c.Ref]; reason != "" {
			p.tell(event.Push{Repository: s.url.String(), Ref: c.Ref, Old: c.Old, New: c.New, Refused: reason})
		}
	}
}

// push passes on a push if the rules allow it. Commands stand before the pack, so most pushes
// are decided before a byte of their pack is passed on. A command that replaces what its automation
// did not push is decided by the commits of the pack: until they are known, the end of the
// pack is held back. A forge does nothing with a pack whose end is missing or wrong.
func (g *Gateway) push(w http.ResponseWriter, r *http.Request, s *served, c *credential, proxy *httputil.ReverseProxy) {
	if r.Header.Get("Content-Encoding") != "" {
		answer(w, http.StatusUnsupportedMediaType, errors.New("a push is not compressed as a whole"))
		return
	}
	body := bufio.NewReader(r.Body)
	head, err := readPush(body)
	if err != nil {
		answer(w, http.StatusForbidden, err)
		return
	}
	if len(head.commands) == 0 && !head.signed { // Git asks whether a push is possible, before it sends a long one
		probe := head.encode()
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(probe)), int64(len(probe))
		proxy.ServeHTTP(w, r)
		return
	}
	select {
	case g.pushes.turn <- struct{}{}:
		defer func() { <-g.pushes.turn }()
	case <-r.Context().Done():
		return
	}
	main, err := g.defaultBranch(r.Context(), s, c)
	if err != nil {
		answer(w, http.StatusBadGateway, err)
		return
	}
	reasons, unsure := g.pushes.judge(s, head.commands, main)
	tooLarge := r.ContentLength > int64(head.size)+g.pushes.left
	for _, c := range head.commands {
		switch {
		case head.signed:
			reasons[c.Ref] = "a run signs no push"
		case len(head.options) > 0:
			reasons[c.Ref] = cmp.Or(reasons[c.Ref], "a run sends no options of a push: POST to /pulls opens a pull request")
		case tooLarge:
			reasons[c.Ref] = cmp.Or(reasons[c.Ref], g.pushes.tooLarge())
		}
	}
	if len(reasons) > 0 || head.signed {
		g.refusePush(w, body, s, head, reasons)
		return
	}
	g.pushes.take(s, head.commands)
	if g.pushes.rules.Waits > 0 {
		g.stagePush(w, r, body, s, head, unsure)
		return
	}
	g.passPush(w, r, body, s, c, head, unsure, proxy)
}

// refusePush answers a push that is not passed on. It reads the pack first, because Git does
// not look for an answer before it has sent the pack.
func (g *Gateway) refusePush(w http.ResponseWriter, body io.Reader, s *served, head *push, reasons map[string]string) {
	g.pushes.refused(s, head.commands, reasons)
	_, _ = io.Copy(io.Discard, body)
	if len(head.commands) == 0 || !head.can("report-status") && !head.can("report-status-v2") {
		answer(w, http.StatusForbidden, errors.New(cmp.Or(firstOf(head.commands, reasons), "a run signs no push")))
		return
	}
	w.Header().Set("Content-Type", "application/x-git-receive-pack-result")
	_, _ = w.Write(head.refuse(reasons))
}

func firstOf(commands []command, reasons map[string]string) string {
	for _, c := range commands {
		if reasons[c.Ref] != "" {
			return reasons[c.Ref]
		}
	}
	return ""
}

// passPush passes on a push, counts its bytes, and holds back its end until unsure commands are
// decided.
func (g *Gateway) passPush(w http.ResponseWriter, r *http.Request, body io.Reader, s *served, c *credential, head *push, unsure []command, proxy *httputil.ReverseProxy) {
	from, to := io.Pipe()
	var reasons map[string]string // why the push was spoiled
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, reasons = g.sendPack(to, body, s, head, unsure, false)
	}()
	sent := func() {
		_ = from.Close()
		<-read
	}
	defer sent() // also if the proxy panics because the run has gone
	told := &results{banded: head.can("side-band-64k")}
	checked := *proxy
	checked.ModifyResponse = func(resp *http.Response) error {
		if err := proxy.ModifyResponse(resp); err != nil {
			return err
		}
		if <-read; reasons != nil {
			_, _ = io.Copy(told, io.LimitReader(resp.Body, maxResults))
			return errCut
		}
		resp.Body = &passing{resp.Body, told}
		return nil
	}
	checked.ErrorHandler = func(w http.ResponseWriter, r *http.Request, err error) {
		if sent(); reasons != nil {
			g.pushes.anyway(s, c, head.commands, told.outcomes(), reasons)
			g.refusePush(w, body, s, head, reasons)
			return
		}
		proxy.ErrorHandler(w, r, err)
	}
	r.Body = from
	if r.ContentLength >= 0 {
		r.ContentLength += int64(len(head.encode()) - head.size)
	}
	checked.ServeHTTP(w, r)
	if sent(); reasons == nil {
		g.pushes.done(s, c, head.commands, told.outcomes())
	}
}

// passing reads a body, and shows what it reads to a writer.
type passing struct {
	io.ReadCloser
	to io.Writer
}

func (p *passing) Read(b []byte) (int, error) {
	n, err := p.ReadCloser.Read(b)
	_, _ = p.to.Write(b[:n])
	return n, err
}

// errCut ends the body of a push that breaks a rule.
var errCut = errors.New("the push breaks a rule")

// sendPack sends the head and the pack of a push, or to a person the pack alone, and closes to. It returns the
// reasons for which it did not send the end as it is. sent is nil if nobody had to understand it.
func (g *Gateway) sendPack(to *io.PipeWriter, body io.Reader, s *served, head *push, unsure []command, person bool) (sent *pack, reasons map[string]string) {
	if !person {
		if _, err := to.Write(head.encode()); err != nil {
			return nil, nil
		}
	}
	counted := &quota{r: body, pushes: g.pushes}
	if len(unsure) == 0 && !person {
		pack, _ := readPack(io.TeeReader(counted, to), head.commands[0].New) // a bad pack is the forge's to refuse
		g.pushes.learn(pack)
		_, err := io.Copy(to, counted)
		if counted.over { // the forge gets the beginning alone, with a proper end
			_ = to.Close()
			return nil, head.all(g.pushes.tooLarge())
		}
		_ = to.CloseWithError(err)
		return nil, nil
	}
	held := &withheld{to: to}
	sent, err := readPack(io.TeeReader(counted, held), head.commands[0].New)
	switch {
	case counted.over || held.err != nil:
	case err != nil:
		reasons = head.all(clip(err.Error()))
	default:
		reasons = make(map[string]string)
		g.pushes.learn(sent)
		for _, c := range unsure {
			if !g.pushes.keeps(s, c) {
				reasons[c.Ref] = "a run does not rewrite what its automation did not push: begin with the newest commit of the branch"
			}
		}
	}
	if len(reasons) > 0 {
		// A request that is cut off makes git-http-backend wait for ever (as of Git 2.39), so it
		// goes on to its end. Nobody can foresee the bytes with which the pack ends, so its
		// checksum is wrong for sure.
		_, _ = rand.Read(held.end)
	}
	if !counted.over && held.err == nil {
		if _, held.err = to.Write(held.end); held.err == nil {
			_, held.err = io.Copy(to, counted)
		}
	}
	if counted.over {
		_ = to.Close()
		return nil, head.all(g.pushes.tooLarge())
	}
	_ = to.CloseWithError(held.err)
	if len(reasons) > 0 {
		return nil, reasons
	}
	return sent, nil
}

func (p *pushes) tooLarge() string {
	return fmt.Sprintf("a run pushes at most %d bytes: push.maxBytes of the automation", p.rules.MaxBytes)
}

// quota reads as long as the run may push more bytes.
type quota struct {
	r      io.Reader
	pushes *pushes
	over   bool
}

func (q *quota) Read(b []byte) (int, error) {
	n, err := q.r.Read(b)
	if got := q.pushes.reserve(int64(n)); got < int64(n) {
		q.over = true
		return 0, errCut
	}
	return n, err
}

// heldBack is how many bytes withheld keeps: what readPack reads ahead, the checksum, and a bit of
// the last object.
const heldBack = packAhead + 64

// withheld writes all but the last heldBack bytes.
type withheld struct {
	to  io.Writer
	end []byte
	err error
}

func (h *withheld) Write(b []byte) (int, error) {
	h.end = append(h.end, b...)
	if over := len(h.end) - heldBack; over > 0 {
		if _, h.err = h.to.Write(h.end[:over]); h.err != nil {
			return 0, h.err
		}
		h.end = append(h.end[:0], h.end[over:]...)
	}
	return len(b), nil
}

// maxAdvertised is how much of a forge's list of refs is read for the default branch, in
// bytes: the name of the branch is in the first line.
const maxAdvertised = 64 << 10

// defaultBranch asks the forge for the default branch of a repository; empty: the repository
// is empty. Its caller has the turn.
func (g *Gateway) defaultBranch(ctx context.Context, s *served, c *credential) (string, error) {
	if s.main != "" {
		return s.main, nil
	}
	resp, err := g.askGit(ctx, s, c, "/info/refs?service="+fetching, nil, 0)
	if err != nil {
		return "", s.unreached(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return "", s.refused(resp, fetching, c)
	}
	first := ""
	err = (&push{}).eachLine(io.LimitReader(resp.Body, maxAdvertised), func(line string) error {
		if !strings.HasPrefix(line, "# service=") {
			first = line
			return io.EOF
		}
		return nil
	})
	if first == "" { // a flush packet follows the name of the service
		err = (&push{}).eachLine(io.LimitReader(resp.Body, maxAdvertised), func(line string) error {
			first = line
			return io.EOF
		})
	}
	if err != nil && first == "" {
		return "", fmt.Errorf("%s does not say its default branch", s.url)
	}
	head, capable, _ := strings.Cut(first, "\x00")
	main := ""
	for _, capability := range strings.Fields(capable) {
		if branch, ok := strings.CutPrefix(capability, "symref=HEAD:refs/heads/"); ok {
			main = branch
		}
	}
	if strings.HasSuffix(head, " HEAD") && main == "" {
		return "", fmt.Errorf("%s does not say its default branch, so a run cannot push there", s.url)
	}
	s.main = main
	return main, nil
}
