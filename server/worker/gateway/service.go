package gateway

import (
	"bytes"
	"cmp"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	"golang.org/x/sync/semaphore"

	"triphammer/server/run/event"
	"triphammer/server/run/task"
	"triphammer/server/secret"
	"triphammer/server/worker/gateway/wire"
)

// maxBodies bounds the bodies of requests to models that a gateway holds at one time, in bytes.
const maxBodies = 4 * wire.MaxBody

// services are the services of a gateway.
type services struct {
	all       []*service
	transport *http.Transport
	meter     task.Meter // nil: nobody counts
	bodies    *semaphore.Weighted
	told      *tellings
}

// service is one of them.
type service struct {
	task.Service
	url    *url.URL
	format *wire.Format     // nil: it is no model
	hide   *secret.Redactor // the credential
}

func newService(s task.Service) (*service, error) {
	u, err := url.Parse(s.URL)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.User != nil {
		return nil, fmt.Errorf("the address of the service %s is not such as https://HOST/PATH", s.Name)
	}
	if s.Token == "" {
		return nil, fmt.Errorf("the service %s has no token", s.Name)
	}
	own := &service{Service: s, url: u}
	if s.Provider != "" {
		own.format = wire.Named(s.Provider)
	}
	var values []secret.Value
	for name, v := range s.Header {
		text := v.Reveal()
		if strings.TrimSpace(text) == "" || strings.ContainsFunc(text, unicode.IsControl) {
			return nil, fmt.Errorf("the secret %s is not one line of text, as the header %s of %s needs it: set it again with `triphammer secrets set %s`", s.Secret, name, own.shown(), s.Secret)
		}
		values = append(values, v, secret.New(text[strings.LastIndexByte(text, ' ')+1:])) // after such as Bearer
	}
	own.hide = secret.NewExact(values...)
	return own, nil
}

// shown names a service for people.
func (s *service) shown() string {
	if s.format != nil {
		return "the model provider " + s.Provider
	}
	return "the service " + s.Name
}

// find returns the service that a path names, with the rest of the path as it was sent.
func (g *services) find(escaped string) (_ *service, rest string) {
	name, rest, _ := strings.Cut(strings.TrimPrefix(escaped, task.ServicePath), "/")
	token, below, more := strings.Cut(rest, "/")
	if more {
		below = "/" + below
	}
	for _, s := range g.all {
		if s.Name == name && subtle.ConstantTimeCompare([]byte(token), []byte(s.Token)) == 1 {
			return s, below
		}
	}
	return nil, ""
}

// ServeHTTP implements http.Handler, for a path that begins with task.ServicePath.
func (g *services) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s, rest := g.find(r.URL.EscapedPath())
	if s == nil {
		w.Header().Set("Connection", "close")
		answer(w, http.StatusForbidden, errors.New("this gateway has no such service: a run finds the addresses of its services in its variables"))
		return
	}
	x := &exchange{services: g, service: s, w: w, r: r}
	plain, err := plainPath(rest)
	if err != nil {
		x.refuse(&wire.Refusal{Status: http.StatusForbidden, Reason: err.Error()})
		return
	}
	if s.format != nil {
		x.model(plain)
		return
	}
	if err := s.allows(r.Method, plain); err != nil {
		x.refuse(err)
		return
	}
	to := *s.url
	to.RawQuery = r.URL.RawQuery
	to.Path, to.RawPath = strings.TrimSuffix(s.url.Path, "/")+plain, ""
	if rest == "" {
		to.Path = s.url.Path
	} else if u, err := url.Parse(strings.TrimSuffix(s.url.EscapedPath(), "/") + rest); err == nil {
		to.Path, to.RawPath = u.Path, u.RawPath // escaped as the run sent it
	}
	x.pass(&to, r.Body, r.ContentLength)
}

// plainPath is a path without escapes. It refuses a path that different programs understand
// differently, so that what is checked is what the service understands.
func plainPath(escaped string) (string, error) {
	plain, err := url.PathUnescape(escaped)
	odd := func(c rune) bool {
		return unicode.IsControl(c) || c == unicode.ReplacementChar || strings.ContainsRune(`\;%?#`, c)
	}
	switch {
	case escaped == "":
		return "", nil
	case err != nil, strings.ContainsFunc(plain, odd), strings.Count(plain, "/") != strings.Count(escaped, "/"), strings.Count(plain, ".") != strings.Count(escaped, "."):
		return "", errors.New("the path has characters that programs do not all understand alike (a backslash, a semicolon, or an escaped slash, dot, percent or question mark)")
	case !strings.HasPrefix(plain, "/"), strings.Contains(plain, "//"), path.Clean(plain) != plain && path.Clean(plain)+"/" != plain:
		return "", errors.New("the path has empty parts, or dots for a folder above or for itself")
	}
	return plain, nil
}

// allows tells why a run may not send a request; nil: it may. The path is plain.
func (s *service) allows(method, plain string) *wire.Refusal {
	if !slices.Contains(s.Methods, method) {
		return &wire.Refusal{Status: http.StatusMethodNotAllowed, Reason: fmt.Sprintf("%s takes %s from this run, not %s (methods of the service in its environment)", s.shown(), strings.Join(s.Methods, ", "), clip(method))}
	}
	if slices.ContainsFunc(s.Paths, func(pattern string) bool {
		return pathMatches(pattern, plain) || plain == "" && pathMatches(pattern, "/")
	}) {
		return nil
	}
	return &wire.Refusal{Status: http.StatusForbidden, Reason: fmt.Sprintf("%s takes requests for %s from this run, not for %s (paths of the service in its environment)", s.shown(), strings.Join(s.Paths, ", "), clip(cmp.Or(plain, "its own address")))}
}

// pathMatches tells whether a path is one of those that a pattern of task.Service.Paths means.
func pathMatches(pattern, plain string) bool {
	front, deep := strings.CutSuffix(pattern, "/**")
	if !deep {
		ok, err := path.Match(pattern, plain)
		return ok && err == nil
	}
	parts := strings.SplitAfterN(plain, "/", strings.Count(front, "/")+2)
	if len(parts) < strings.Count(front, "/")+2 {
		return false
	}
	ok, err := path.Match(front, strings.TrimSuffix(strings.Join(parts[:len(parts)-1], ""), "/"))
	return ok && err == nil
}

// Headers that are not passed on. Those of one connection and of proxies are not the run's business;
// the others could change what a request means after it was checked, or whose it is.
var (
	notSent = []string{
		"Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Expect", "Accept-Encoding", "Content-Length",
		"Authorization", "Cookie", "X-Api-Key", "Api-Key", "X-Goog-Api-Key", "Forwarded", "Via", "X-Real-Ip",
		"X-Http-Method", "X-Http-Method-Override", "X-Method-Override", "X-Original-Url", "X-Rewrite-Url", "X-Original-Method",
	}
	notAnswered = []string{
		"Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Content-Length", "Content-Encoding",
		"Set-Cookie", "Alt-Svc", "Strict-Transport-Security",
	}
)

// exchange is one request of a run to a service, with the answer.
type exchange struct {
	*services
	*service
	w http.ResponseWriter
	r *http.Request

	// These belong to a request to a model.
	request   *wire.Request
	reserved  task.Reservation // nil: nobody counts
	counter   *wire.Counter    // nil: there is no answer of the model
	call      task.Call
	sent      time.Time
	connected atomic.Bool
}

// refuse answers a request that is not passed on. However many the run sends, there is room to tell of its providers.
func (x *exchange) refuse(no *wire.Refusal) {
	x.told.upTo(mostTold/2, fmt.Sprintf("the gateway does not pass on a request to %s: %s", x.shown(), no.Reason))
	x.fail(no.Status, no.Reason)
}

// fail answers in place of the service, in the form of an error of the service.
func (x *exchange) fail(status int, reason string) {
	if x.format == nil {
		answer(x.w, status, errors.New(reason))
		return
	}
	x.w.Header().Set("Content-Type", "application/json")
	x.w.WriteHeader(status)
	_, _ = x.w.Write(x.format.Error(status, "triphammer: "+reason))
}

// model passes on a request to a model.
func (x *exchange) model(plain string) {
	size := x.r.ContentLength
	if size < 0 || size > wire.MaxBody {
		size = wire.MaxBody
	}
	if err := x.bodies.Acquire(x.r.Context(), size); err != nil {
		return // the run is gone
	}
	defer x.bodies.Release(size)
	var read bytes.Buffer
	if x.r.ContentLength > 0 {
		read.Grow(int(size) + bytes.MinRead)
	}
	_, err := read.ReadFrom(http.MaxBytesReader(x.w, x.r.Body, wire.MaxBody))
	body := read.Bytes()
	if err != nil {
		x.fail(http.StatusRequestEntityTooLarge, fmt.Sprintf("the request could not be read: it may have %d MiB", wire.MaxBody>>20))
		return
	}
	query := x.r.URL.Query()
	if x.format.KeyQuery != "" {
		query.Del(x.format.KeyQuery)
	}
	x.request, err = x.format.Read(x.r.Method, plain, query, x.r.Header, body, wire.Options{Extras: x.Extras})
	if err == nil {
		err = x.permitted()
	}
	if err == nil {
		err = x.reserve()
	}
	if err != nil {
		no := &wire.Refusal{Status: http.StatusForbidden, Reason: err.Error()}
		_ = errors.As(err, &no)
		x.refuse(no)
		return
	}
	defer x.settle()
	to := *x.url
	base := strings.TrimSuffix(to.Path, "/")
	if last := base[strings.LastIndexByte(base, '/')+1:]; last != "" && strings.HasPrefix(x.request.Path, "/"+last+"/") {
		base = strings.TrimSuffix(base, "/"+last) // the version is in both
	}
	to.Path, to.RawPath, to.RawQuery = base+x.request.Path, "", query.Encode()
	ctx := httptrace.WithClientTrace(x.r.Context(), &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { x.connected.Store(true) }})
	x.r, x.sent = x.r.WithContext(ctx), time.Now()
	x.pass(&to, bytes.NewReader(x.request.Body), int64(len(x.request.Body)))
}

// settle gives back what the request has reserved and not used, however it ended.
func (x *exchange) settle() {
	if x.reserved == nil {
		return
	}
	if x.counter != nil {
		x.call.Used, x.call.Complete = x.counter.Usage(), x.counter.Complete()
	}
	x.call.Unsent = !x.connected.Load() || x.call.Status >= http.StatusMultipleChoices
	x.reserved.Settle(x.call)
}

// reserve takes from the budgets what the request may use at most.
func (x *exchange) reserve() (err error) {
	if x.meter == nil || x.request.Free {
		return nil
	}
	x.reserved, err = x.meter.Reserve(x.r.Context(), task.Ask{Model: x.request.Model, Input: x.request.Input, Output: x.request.Limit})
	if err != nil {
		return err
	}
	if most := x.reserved.Output(); most >= 0 && (x.request.Limit < 0 || x.request.Limit > most) {
		x.request.SetLimit(most)
	}
	return nil
}

// count takes a part of an answer of a model. The error is why the answer is cut off.
func (x *exchange) count(part []byte) error {
	if x.counter == nil {
		return nil
	}
	_, _ = x.counter.Write(part) // never fails
	if x.call.First == 0 && x.counter.Began() {
		x.call.First = time.Since(x.sent)
	}
	if used := x.counter.Usage(); x.reserved != nil && used != x.call.Used {
		x.call.Used = used
		return x.reserved.Used(x.r.Context(), used)
	}
	return nil
}

// permitted refuses a model that the run may not use.
func (x *exchange) permitted() error {
	name := x.request.Model
	if name == "" && x.request.Free {
		return nil
	}
	for _, list := range x.Models {
		if !slices.ContainsFunc(list, func(p string) bool { return matches(p, name) || matches(p, x.Provider+"/"+name) }) {
			return &wire.Refusal{Status: http.StatusForbidden, Reason: fmt.Sprintf("this run may not use the model %s, only %s (models of its environment, or --models of the server)", clip(name), strings.Join(list, ", "))}
		}
	}
	return nil
}

// matches tells whether a pattern means a text; * stands for any text.
func matches(pattern, text string) bool {
	first, rest, any := strings.Cut(pattern, "*")
	if !any {
		return pattern == text
	}
	if !strings.HasPrefix(text, first) {
		return false
	}
	text = text[len(first):]
	for i := range len(text) + 1 {
		if matches(rest, text[i:]) {
			return true
		}
	}
	return false
}

// pass sends the request to the service, and its answer to the run.
func (x *exchange) pass(to *url.URL, body io.Reader, size int64) {
	to.RawQuery = joinQuery(x.url.Query(), to.RawQuery)
	out, err := http.NewRequestWithContext(x.r.Context(), x.r.Method, to.String(), body)
	if err != nil {
		x.fail(http.StatusBadRequest, "the request cannot be passed on")
		return
	}
	if out.ContentLength = size; size == 0 {
		out.Body = http.NoBody
	}
	out.Header = kept(x.r.Header, notSent)
	maps.DeleteFunc(out.Header, func(name string, _ []string) bool {
		same := http.CanonicalHeaderKey(strings.ReplaceAll(name, "_", "-")) // for a service that gets headers as variables
		own := func(not string) bool { return strings.EqualFold(strings.ReplaceAll(not, "_", "-"), same) }
		return strings.HasPrefix(same, "X-Forwarded-") || slices.ContainsFunc(slices.AppendSeq(slices.Clip(notSent), maps.Keys(x.Header)), own)
	})
	if x.format != nil {
		for _, name := range x.format.Keys {
			out.Header.Del(name)
		}
		if size > 0 { // in another charset, such as utf-7, the body would say something else
			out.Header.Set("Content-Type", "application/json")
		}
	}
	for name, v := range x.Header {
		out.Header.Set(name, v.Reveal())
	}
	out.Header.Set("Accept-Encoding", "identity")
	if out.Header.Get("User-Agent") == "" {
		out.Header.Set("User-Agent", "triphammer")
	}
	resp, err := x.transport.RoundTrip(out) // it follows no redirect
	switch {
	case err == nil:
		x.call.Status = resp.StatusCode
		x.answered(resp)
		_ = resp.Body.Close()
	case x.r.Context().Err() == nil:
		x.failed(x.unreached(err))
	}
}

// failed tells the run and its transcript that the service gave no answer that can be passed on.
func (x *exchange) failed(err error) {
	x.told.add(err.Error())
	x.fail(http.StatusBadGateway, err.Error())
}

// joinQuery is the query of a request: that of the address of the service, which wins, and the run's.
func joinQuery(own url.Values, asked string) string {
	if len(own) == 0 {
		return asked
	}
	both, _ := url.ParseQuery(asked) // what cannot be read is left out
	maps.Copy(both, own)
	return both.Encode()
}

// kept are the headers without some, and without those that Connection names.
func kept(all http.Header, without []string) http.Header {
	some := all.Clone()
	for _, line := range all.Values("Connection") {
		for name := range strings.SplitSeq(line, ",") {
			some.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range without {
		some.Del(name)
	}
	return some
}

// unreached says why the service gave no answer.
func (s *service) unreached(err error) error {
	if no := (*refusal)(nil); errors.As(err, &no) {
		return fmt.Errorf("%s may not be reached: %s", s.shown(), no.reason)
	}
	return fmt.Errorf("%s at %s cannot be reached: %s", s.shown(), s.url.Host, s.hidden(plain(err).Error()))
}

func (s *service) hidden(text string) string { return string(s.hide.Redact([]byte(text))) }

// answered passes on an answer.
func (x *exchange) answered(resp *http.Response) {
	status := resp.StatusCode
	if encoded := resp.Header.Get("Content-Encoding"); encoded != "" && encoded != "identity" {
		x.failed(fmt.Errorf("%s compresses its answer (%s), though it was asked not to, so the gateway cannot read it", x.shown(), clip(encoded)))
		return
	}
	switch {
	case x.format == nil:
	case status >= http.StatusBadRequest:
		x.told.add(x.trouble(resp))
	case status >= http.StatusMultipleChoices || status < http.StatusOK:
		x.failed(fmt.Errorf("%s answers with the status %d, which is no answer of a model (no redirect is followed): the operator can give another address with --model-provider", x.shown(), status))
		return
	default:
		x.counter = x.request.Counter()
	}
	header := x.w.Header()
	for name, values := range kept(resp.Header, notAnswered) {
		for _, v := range values {
			header.Add(name, x.hidden(v))
		}
	}
	if x.r.Method == http.MethodHead && resp.ContentLength >= 0 {
		header.Set("Content-Length", strconv.FormatInt(resp.ContentLength, 10))
	}
	x.w.WriteHeader(status)
	x.stream(resp)
}

// trouble tells of an answer of a provider that is an error.
func (x *exchange) trouble(resp *http.Response) string {
	said := fmt.Sprintf("%s answers %d %s", x.shown(), resp.StatusCode, http.StatusText(resp.StatusCode))
	if resp.StatusCode == overloaded {
		said += "(overloaded)"
	}
	if wait := resp.Header.Get("Retry-After"); wait != "" {
		said += fmt.Sprintf("; it says to wait (Retry-After: %s)", clip(x.hidden(wait)))
	}
	return said
}

// overloaded is Anthropic's status for that, which HTTP does not know.
const overloaded = 529

// stream passes on the body of an answer as it comes.
func (x *exchange) stream(resp *http.Response) {
	flushing := http.NewResponseController(x.w)
	masked := x.hide.Writer(x.w)
	buffer := make([]byte, 32<<10)
	for {
		n, err := resp.Body.Read(buffer)
		if n > 0 {
			if over := x.count(buffer[:n]); over != nil {
				x.broken(resp, masked, over)
				return
			}
			if _, err := masked.Write(buffer[:n]); err != nil || flushing.Flush() != nil {
				return // the run does not want more
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			_ = masked.Flush() // of a run that may be gone
			x.ended()
			return
		case err != nil && x.r.Context().Err() != nil:
			panic(http.ErrAbortHandler)
		case err != nil:
			x.broken(resp, masked, fmt.Errorf("%s broke off its answer: %s", x.shown(), x.hidden(plain(err).Error())))
			return
		}
	}
}

// ended tells the transcript of an answer of a model that came to its end and is none.
func (x *exchange) ended() {
	switch {
	case x.counter == nil || x.request.Free:
	case x.counter.Trouble() != "":
		x.told.add(fmt.Sprintf("%s reports an error in its answer: %s", x.shown(), clip(x.hidden(x.counter.Trouble()))))
	case !x.counter.Complete():
		x.told.add(x.shown() + " ended its answer before it was whole, or gave an answer of another form")
	}
}

// broken ends an answer that does not come whole. A reader of a stream of a model is told why; another
// must see that there is no end.
func (x *exchange) broken(resp *http.Response, masked *secret.RedactWriter, err error) {
	x.told.add(err.Error())
	if x.format == nil || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		panic(http.ErrAbortHandler) // closes the connection without an end of the answer
	}
	_ = masked.Flush()
	_, _ = fmt.Fprintf(x.w, "\n\nevent: error\ndata: %s\n\n", x.format.Error(http.StatusBadGateway, "triphammer: "+err.Error()))
}

// tellings tell the transcript what went wrong with services. The same text is told the first, the
// tenth, the hundredth time and so on.
type tellings struct {
	tell func(event.Status)

	mu    sync.Mutex
	known map[string]int
}

// mostTold is how many different texts of a run are told.
const mostTold = 256

func (t *tellings) add(text string) { t.upTo(mostTold, text) }

// upTo is add while so many different texts are not told yet. Then it tells once that there are more.
func (t *tellings) upTo(most int, text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := t.known[text]; !known && len(t.known) >= most {
		text = fmt.Sprintf("the transcript leaves out further messages of the gateway, after %d different ones", most)
	}
	t.known[text]++
	switch n := t.known[text]; n {
	case 1:
		t.tell(event.Status{Message: text})
	case 10, 100, 1000, 10000:
		t.tell(event.Status{Message: fmt.Sprintf("%s (for the %dth time)", text, n)})
	}
}

// connect makes the services connect by a transport like another.
func (g *services) connect(like *http.Transport) {
	g.transport = like.Clone()
	g.transport.ForceAttemptHTTP2 = true
	// A connection whose other end is gone is noticed though an answer takes long.
	g.transport.HTTP2 = &http.HTTP2Config{SendPingTimeout: time.Minute, PingTimeout: 15 * time.Second}
	g.transport.MaxIdleConnsPerHost = 64
}

// newServices makes the services of a gateway. They must be connected before they serve.
func newServices(cfg GatewayConfig) (*services, error) {
	if cfg.Tell == nil {
		cfg.Tell = func(event.Status) {}
	}
	g := &services{meter: cfg.Meter, bodies: semaphore.NewWeighted(maxBodies), told: &tellings{tell: cfg.Tell, known: make(map[string]int)}}
	for _, s := range cfg.Services {
		own, err := newService(s)
		if err != nil {
			return nil, err
		}
		g.all = append(g.all, own)
	}
	return g, nil
}
