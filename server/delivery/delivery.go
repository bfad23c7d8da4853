// Package delivery turns a webhook request into queued runs, in one transaction, and later
// explains the outcome.
//
// [Service.Receive] keeps the order of SPEC 5.1: webhook, credential, size, rate,
// JSON, identity, commit. It never parses the body of an unauthenticated sender, and
// answers 202 only when the delivery and its runs are durable (SPEC 5.4).
//
// [Service.Show] is the belt of SPEC 7. It derives the trace of a delivery from the
// record and from the revision that decided the delivery. The ingress decides by an
// index over all filters of a webhook; the belt evaluates filter by filter. Tests of
// package filter hold the two to the same verdicts.
//
// The package does not order deliveries. It enqueues runs, and package worker starts them.
package delivery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"triphammer/applier"
	"triphammer/factory"
	"triphammer/factory/jsonscan"
	"triphammer/factory/match"
	"triphammer/factory/native"
	"triphammer/factory/signature"
	"triphammer/schema/output"
	"triphammer/server/answer"
	"triphammer/server/lookup"
	"triphammer/server/run"
	"triphammer/server/store"
)

// MaxBody is the largest accepted body in bytes (SPEC C8.1: 256 KB).
const MaxBody = 262144

// Reasons that do not come from a verifier (SPEC 7.2).
const (
	ReasonInvalidJSON = "invalid_json"
	ReasonTooLarge    = "too_large"
	ReasonUnavailable = "unavailable"
	ReasonRate        = "rate_limited"
	ReasonFailures    = "authentication_budget"
	ReasonNotFound    = "not_found"
	ReasonNoMemory    = "no_memory"
	ReasonDuplicate   = "duplicate" // the delivery was accepted before

	// Reasons of a BodyError.
	ReasonIncomplete = "body_incomplete"
	ReasonTooSlow    = "body_too_slow"
	ReasonMalformed  = "body_malformed"
)

// Errors of Request.ReadBody, besides a BodyError.
var (
	// ErrTooLarge says that the body is above the limit.
	ErrTooLarge = errors.New("the body is larger than 262,144 bytes")
	// ErrNoMemory says that the body was dropped in favour of others, or found no memory.
	ErrNoMemory = errors.New("the memory for bodies is full")
)

// BodyRetry is the Retry-After of a request whose body found no memory, in seconds.
const BodyRetry = 5

// BodyError is the error for an incomplete body.
type BodyError struct {
	Reason string // ReasonIncomplete and the like: cut off, too slow, malformed
	Detail string
	Got    int64 // bytes that arrived
}

func (e *BodyError) Error() string { return e.Reason + ": " + e.Detail }

// Config is what a Service needs. Live and Store are required.
type Config struct {
	Live  *applier.Live
	Store *store.Store
	// Wake tells the worker that runs were enqueued.
	Wake func()
	// Stopped tells that runs were cancelled or asked to stop, in favour of runs about the same
	// subjects (SPEC 21.3).
	Stopped func(ctx context.Context, runs []store.RunID)
	// KeepSessions is how long after the end of a conversation's last run an event can go on with
	// the conversation.
	KeepSessions time.Duration
	// RateLimit is how many authenticated deliveries one webhook accepts in any 60 s.
	// AuthFailures is how many failed authentications are answered in any 60 s for one
	// webhook and one client (see Network). 0 means no limit (SPEC 5.8, 13.3).
	RateLimit, AuthFailures int
	// Shared counts RateLimit over all servers of the store, in the delivery's transaction.
	Shared bool
	// Load rebuilds the revision of an apply, to explain deliveries that older definitions
	// decided.
	Load func(ctx context.Context, id store.ApplyID) (*applier.Revision, error)
	// Follow loads the store's live revision of a factory into Live. It is called if the live
	// revision changed between a decision and its record; nil: Live follows by itself soon.
	Follow func(ctx context.Context, factory string) error
	// Sign asks for the first sign of what is told of new runs (SPEC 22.2).
	Sign func(runs []store.RunID)
	// ApproveOutputs makes what agents ask for wait for a person, whatever automations say (SPEC 26.1).
	ApproveOutputs bool
	// Ask tells that questions to senders' APIs were recorded.
	Ask func()
	// API asks senders for filter tests; nil: lookup.NewClient.
	API *lookup.Client
	// Observe, if set, is called with the outcome of each request.
	Observe func(Observation)
	Now     func() time.Time
	Logger  *slog.Logger
}

// Observation is one answered request, for metrics.
type Observation struct {
	Factory, Webhook string // empty for an unknown webhook
	Status           int
	Outcome          store.Outcome // in the log; empty: nothing was recorded
	Reason           string
	Took             time.Duration
}

// Service receives deliveries. It is safe for concurrent use.
type Service struct {
	cfg      Config
	rates    rates
	asks     rates // of filter tests
	failures failures
}

// New makes a Service.
func New(cfg Config) *Service {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Wake == nil {
		cfg.Wake = func() {}
	}
	if cfg.Stopped == nil {
		cfg.Stopped = func(context.Context, []store.RunID) {}
	}
	cfg.KeepSessions = cmp.Or(cfg.KeepSessions, run.DefaultKeepWorkspaces)
	if cfg.API == nil {
		cfg.API = lookup.NewClient(cfg.Now)
	}
	if cfg.Sign == nil {
		cfg.Sign = func([]store.RunID) {}
	}
	if cfg.Ask == nil {
		cfg.Ask = func() {}
	}
	if cfg.Observe == nil {
		cfg.Observe = func(Observation) {}
	}
	s := &Service{cfg: cfg}
	s.rates = rates{limit: cfg.RateLimit, restore: s.recentTimes, logs: make(map[string]*rateLog)}
	s.asks = rates{limit: askLimit, restore: func(string) []time.Time { return nil }, logs: make(map[string]*rateLog)}
	s.failures = failures{limit: cfg.AuthFailures, logs: make(map[failureKey]*slidingLog)}
	return s
}

// Request is one POST to an ingress URL.
type Request struct {
	UID string
	// PathToken is the path segment after the UID. HasPathToken tells whether there is one.
	PathToken     string
	HasPathToken  bool
	URL           string // as the sender wrote it, because some schemes sign it
	Header        http.Header
	ContentLength int64 // -1 if unknown
	Client        netip.Addr
	Connected     bool   // it came over a connection that the webhook opens, which authenticates the sender (SPEC 29.1)
	TestBy        string // the person for whom the server sends a test; empty: a sender sends the request
	// ReadBody reads at most limit bytes, and buffers nothing above the limit (SPEC 5.3).
	// Its error is ErrTooLarge, ErrNoMemory or a *BodyError. Receive does not use the bytes
	// after it has returned.
	ReadBody func(limit int64) ([]byte, error)
}

// Answer is the answer to the sender. The server renders it with fixed bodies.
type Answer struct {
	Status     int              // 202 400 401 404 408 413 429 503, or the status of Reply; 0: the sender went away
	DeliveryID store.DeliveryID // only with 202
	Entry      store.DeliveryID // the entry in the log; 0: nothing was recorded
	Outcome    store.Outcome    // of the entry
	RetryAfter int              // seconds, with 429 and 503
	Reason     string           // why the request was refused or is not new, for logs and metrics; never secret
	// Decided says what a person has decided with the delivery, or why nothing (SPEC 26.2); empty: it decides nothing,
	// or the sender's API is asked before.
	Decided string
	// Reply, if set, is the answer to a question of the sender. It replaces the fixed
	// bodies.
	Reply *signature.Reply
}

// Receive decides one request (SPEC 5.1) and answers after the commit.
func (s *Service) Receive(ctx context.Context, req *Request) Answer {
	a := &incoming{Request: req, at: s.cfg.Now()}
	answer, ok := s.decide(ctx, a)
	for try := 1; a.stale; try++ {
		if try == maxDecisions {
			answer = s.unrecorded(ctx, store.ErrStale)
			break
		}
		if err := s.follow(ctx, a.hook.Factory); err != nil {
			answer = s.unrecorded(ctx, err)
			break
		}
		a.stale, a.kept = false, nil
		answer, ok = s.decide(ctx, a)
	}
	if a.counted && answer.Entry == 0 { // nothing was taken: whoever sends it again finds the rate as it was
		s.rates.refund(a.hook.UID)
	}
	seen := Observation{Status: answer.Status, Outcome: answer.Outcome, Reason: answer.Reason, Took: s.cfg.Now().Sub(a.at)}
	if ok {
		seen.Factory, seen.Webhook = a.hook.Factory, a.hook.Def.Name
	}
	s.cfg.Observe(seen)
	if ok && answer.Status >= http.StatusBadRequest {
		// The log joins equal lines (SPEC 12.6), so a flood fills no disk. The line holds nothing from the sender.
		s.cfg.Logger.Warn("a delivery was refused", "factory", seen.Factory, "webhook", seen.Webhook, "status", seen.Status, "reason", seen.Reason)
	}
	return answer
}

// maxDecisions bounds how often a request is decided. A request is decided again if other
// definitions became live before the decision was recorded (SPEC 17.2).
const maxDecisions = 5

// follow waits until Live has the store's live revision.
func (s *Service) follow(ctx context.Context, factory string) error {
	if s.cfg.Follow == nil {
		return nil
	}
	return s.cfg.Follow(ctx, factory)
}

// decide decides a request by the live definitions. found is false if they lack the webhook. If
// other definitions became live meanwhile, decide sets a.stale.
func (s *Service) decide(ctx context.Context, a *incoming) (answer Answer, found bool) {
	hook, ok := s.cfg.Live.Webhook(a.UID)
	if !ok || !hook.Def.Enabled || (a.HasPathToken && hook.Def.AuthMode != factory.URLToken) || s.paused(hook) {
		return notFound, false
	}
	if a.Connected && hook.Def.AppTokenName == "" || !a.Connected && hook.Def.SecretName == "" {
		return notFound, false // what the webhook takes comes the other way
	}
	a.hook = hook
	return s.receive(ctx, a), true
}

// notFound is the answer for a webhook that does not exist, is disabled or is paused.
var notFound = Answer{Status: http.StatusNotFound, Reason: ReasonNotFound}

// paused tells whether a webhook is paused (SPEC 18.2). A pause that begins later is found
// when the delivery is recorded.
func (s *Service) paused(hook *applier.Webhook) bool {
	return s.isPaused(store.KindWebhook, hook.Factory, hook.Def.Name)
}

func (s *Service) isPaused(kind, factory, name string) bool {
	_, paused := s.cfg.Store.Pauses.Of(store.Pausable{Kind: kind, Factory: factory, Name: name})
	return paused
}

// incoming is a request that Receive is deciding.
type incoming struct {
	*Request
	hook *applier.Webhook
	at   time.Time
	body []byte
	kept map[string]string // see keptHeaders

	// The other fields are for a second decision.
	stale   bool  // other definitions became live before the decision was recorded
	read    bool  // the body was read
	unread  error // why reading failed
	counted bool  // the request counts for the rate
	charged *failureKey
}

func (s *Service) receive(ctx context.Context, a *incoming) Answer {
	bring := (*Service).identify
	if a.Connected {
		bring = (*Service).readBody
	}
	if answer, ok := bring(s, ctx, a); !ok {
		return answer
	}
	if answer, ok := s.count(a); !ok {
		return answer
	}
	matched, open, err := a.hook.Index.Match(match.Delivery{Headers: a.keptHeaders(), Body: a.body}, nil)
	if err != nil {
		return s.rejectJSON(ctx, a, err)
	}
	return s.accept(ctx, a, matched, open)
}

// identify authenticates the sender of a request, and reads the body. It answers a question of
// the sender.
func (s *Service) identify(ctx context.Context, a *incoming) (Answer, bool) {
	verifier := a.hook.Verifier
	if !verifier.NeedsBody() {
		if err := a.authenticate(); err != nil {
			return s.rejectCredential(ctx, a, err), false
		}
	}
	if answer, ok := s.readBody(ctx, a); !ok {
		return answer, false
	}
	if verifier.NeedsBody() {
		if err := a.authenticate(); err != nil {
			if answer, ok := s.greet(ctx, a); ok {
				return answer, false
			}
			return s.rejectCredential(ctx, a, err), false
		}
	}
	answer, asked := s.challenge(ctx, a)
	return answer, !asked
}

// count counts the request for the rate of its webhook, once. It gives back the charge that an
// earlier decision made for a failed authentication.
func (s *Service) count(a *incoming) (Answer, bool) {
	if a.charged != nil {
		s.failures.refund(*a.charged)
		a.charged = nil
	}
	if a.counted {
		return Answer{}, true
	}
	wait, ok := s.rates.admit(a.hook.UID, a.at)
	a.counted = ok
	return Answer{Status: http.StatusTooManyRequests, RetryAfter: retryAfter(wait), Reason: ReasonRate}, ok
}

// charge spends the budget of failed authentications for the request, once (SPEC 5.8).
func (s *Service) charge(a *incoming) (Answer, bool) {
	if a.charged != nil {
		return Answer{}, true
	}
	key := a.failureKey()
	wait, ok := s.failures.admit(key, a.at)
	if ok {
		a.charged = &key
	}
	return Answer{Status: http.StatusTooManyRequests, RetryAfter: retryAfter(wait), Reason: ReasonFailures}, ok
}

func (s *Service) accept(ctx context.Context, a *incoming, matched []match.Match, open []native.Question) Answer {
	d := a.entry(store.Accepted)
	d.Identity = a.identity()
	recorded, err := s.record(ctx, a.hook, d, a.body, matched, open)
	if again := (*store.ReplayError)(nil); errors.As(err, &again) {
		return s.rejectReplay(ctx, a, again)
	}
	if answer, ok := s.recorded(ctx, a, err); !ok {
		return answer
	}
	if recorded.Duplicate {
		return Answer{Status: http.StatusAccepted, DeliveryID: recorded.DuplicateOf, Entry: recorded.ID, Outcome: store.Duplicate, Reason: ReasonDuplicate}
	}
	return Answer{Status: http.StatusAccepted, DeliveryID: recorded.ID, Entry: recorded.ID, Outcome: store.Accepted, Decided: recorded.Decided}
}

// record stores the delivery with the runs of the matched automations in one transaction. If
// there are runs, it wakes the worker. It records the open questions if the webhook has a
// secret for the sender's API.
func (s *Service) record(ctx context.Context, hook *applier.Webhook, d store.Delivery, body []byte, matched []match.Match, open []native.Question) (store.Recorded, error) {
	item := &store.NewDelivery{Delivery: d, Payload: body}
	reply, asks := s.commanded(ctx, hook, &d, match.Delivery{Headers: d.Headers, Body: body})
	if item.Reply = reply; reply != nil {
		matched, open = nil, asks // it fires nothing else
	} else {
		item.Runs, item.AnswerOf = s.runs(ctx, hook, &d, body, matched)
	}
	if d.ReplayOf == 0 {
		item.RateLimit = s.sharedLimit()
	}
	if hook.Def.ReplayWindow > 0 && replayable(hook.Def, &d) {
		item.ReplayWindow = hook.Def.ReplayWindow
	}
	if hook.Def.APISecretName != "" && item.AnswerOf == 0 {
		for _, q := range open {
			item.Waiting = append(item.Waiting, store.Lookup{Provider: q.Provider, Name: q.Name, Args: q.Args})
		}
	}
	if hook.Def.APISecretName != "" && reply == nil {
		unnamed(hook, item, len(matched)+len(open) == 0)
	}
	recorded, err := s.cfg.Store.Deliveries.Record(ctx, item)
	if err == nil {
		if len(recorded.RunIDs) > 0 && slices.ContainsFunc(item.Runs, func(r store.NewRun) bool { return len(r.Answers) > 0 }) {
			s.cfg.Sign(recorded.RunIDs) // ahead of everything else (SPEC 22.2)
		}
		s.follows(ctx, recorded.RunIDs, recorded.Stopped)
		if recorded.Decided != "" {
			s.cfg.Wake()
		}
	}
	if err == nil && len(item.Waiting) > 0 {
		s.cfg.Ask()
	}
	return recorded, err
}

// follows does what follows from the start of runs, and from the end of others.
func (s *Service) follows(ctx context.Context, started, stopped []store.RunID) {
	if len(started) > 0 {
		s.cfg.Wake()
	}
	if len(stopped) > 0 {
		s.cfg.Stopped(context.WithoutCancel(ctx), stopped)
	}
}

// runs are the runs that a delivery starts. If it is about an answer of this server, there are none
// (SPEC 22.4), and of is the run that was answered.
func (s *Service) runs(ctx context.Context, hook *applier.Webhook, d *store.Delivery, body []byte, matched []match.Match) (runs []store.NewRun, of store.RunID) {
	if of = s.answerOf(ctx, hook, body); of != 0 {
		return nil, of
	}
	for _, m := range matched {
		r := run.FromAutomation(hook.Revision, hook.Automations[m.Candidate], store.SourceWebhook)
		r.Webhook, r.Subject, r.Person = hook.Def.Name, m.Subject, m.Person
		r.EndedAfter = s.cfg.Now().Add(-s.cfg.KeepSessions)
		if m.Outsider {
			r.Approval = &store.NewApproval{For: hook.Automations[m.Candidate].Def.Approval.Timeout, Outsider: true}
		}
		if m.Event != nil {
			r.Source = m.Event.Sender.Source
			if m.Reply || len(hook.Revision.Raising(m.Event.Sender)) > 1 {
				r.Event = m.Identity
			}
			r.Outputs = s.outputsOf(hook, hook.Automations[m.Candidate], m.Event, d, body)
		}
		_, asks := hook.Automations[m.Candidate].Def.Outputs[output.Ask]
		r.Asks = asks && !m.Outsider // who waits to be let in neither answers a question nor ends it
		r.Answers = answersOf(hook, hook.Automations[m.Candidate], m.Event, d, body)
		if m.Event != nil && s.mayWait(hook.Automations[m.Candidate]) {
			answer.Approvable(r.Answers, hook.Automations[m.Candidate].Def.Approval.By(m.Event.Sender), hook.Def.AppTokenName != "")
		}
		if m.Reply {
			r.Thread, r.OnlyReply, r.ToQuestion = cmp.Or(threadOf(r.Answers), r.Outputs.Thread()), m.Event.IsReply(), m.ToQuestion
		}
		if !r.OnlyReply || r.Thread != "" {
			runs = append(runs, r)
		}
	}
	runs = answerers(runs)
	if len(runs) > 0 {
		s.loops(ctx, body, runs)
	}
	return runs, 0
}

func (s *Service) readBody(ctx context.Context, a *incoming) (Answer, bool) {
	if a.ContentLength > MaxBody {
		return s.rejectSize(ctx, a), false
	}
	if !a.read {
		a.body, a.unread = a.ReadBody(MaxBody)
		a.read = true
	}
	err, broken := a.unread, (*BodyError)(nil)
	switch {
	case errors.Is(err, ErrTooLarge):
		return s.rejectSize(ctx, a), false
	case errors.As(err, &broken):
		return s.rejectBroken(ctx, a, broken), false
	case err != nil:
		return Answer{Status: http.StatusServiceUnavailable, RetryAfter: BodyRetry, Reason: ReasonNoMemory}, false
	}
	return Answer{}, true
}

// spendUnverified spends the budget of failed authentications for a body that cannot be
// authenticated, because the verifier needs the whole body (SPEC 5.8). What came over a connection
// is authenticated, so it counts for the rate.
func (s *Service) spendUnverified(a *incoming) (Answer, bool) {
	if a.Connected {
		return s.count(a)
	}
	if !a.hook.Verifier.NeedsBody() {
		return Answer{}, true
	}
	return s.charge(a)
}

// rejectBroken records an incomplete body, even if the sender has disconnected, as is often the
// case.
func (s *Service) rejectBroken(ctx context.Context, a *incoming, failure *BodyError) Answer {
	if answer, ok := s.spendUnverified(a); !ok {
		return answer
	}
	d := a.entry(store.RejectedInvalidJSON)
	d.Reason, d.Detail, d.Size = failure.Reason, failure.Detail, failure.Got
	status := http.StatusRequestTimeout
	if failure.Reason == ReasonMalformed {
		status = http.StatusBadRequest
	}
	return s.reject(context.WithoutCancel(ctx), a, d, status)
}

func (s *Service) rejectSize(ctx context.Context, a *incoming) Answer {
	if answer, ok := s.spendUnverified(a); !ok {
		return answer
	}
	d := a.entry(store.RejectedTooLarge)
	d.Reason, d.Size = ReasonTooLarge, max(a.ContentLength, MaxBody+1)
	if a.ContentLength < 0 {
		d.Detail = "sent without a length: read no further than the limit"
	}
	return s.reject(ctx, a, d, http.StatusRequestEntityTooLarge)
}

func (s *Service) rejectCredential(ctx context.Context, a *incoming, failure error) Answer {
	if answer, ok := s.charge(a); !ok {
		return answer
	}
	d := a.entry(store.RejectedAuth)
	d.Reason = "credential_mismatch"
	if reason := (*signature.Error)(nil); errors.As(failure, &reason) {
		d.Reason, d.Detail = reason.Reason, reason.Detail
	}
	if a.body == nil {
		d.Size = max(a.ContentLength, 0)
	}
	return s.reject(ctx, a, d, http.StatusUnauthorized)
}

// rejectReplay refuses a signed body that came as another delivery within the replayWindow of the webhook
// (SPEC 5.13). It spends the budget of failed authentications, and not the rate of the webhook: whoever has
// captured a delivery takes nothing from the genuine sender, and learns no more than who has a wrong signature.
func (s *Service) rejectReplay(ctx context.Context, a *incoming, again *store.ReplayError) Answer {
	s.rates.refund(a.hook.UID)
	a.counted = false
	if answer, ok := s.charge(a); !ok {
		return answer
	}
	d := a.entry(store.RejectedAuth)
	d.Identity, d.SameBodyAs = a.identity(), again.Of
	d.Reason, d.Detail = store.ReasonReplayed, fmt.Sprintf("same signed body as %s, within replayWindow %s", again.Of, factory.ShortDuration(a.hook.Def.ReplayWindow))
	return s.reject(ctx, a, d, http.StatusUnauthorized)
}

func (s *Service) rejectJSON(ctx context.Context, a *incoming, failure error) Answer {
	d := a.entry(store.RejectedInvalidJSON)
	d.Reason, d.Detail = ReasonInvalidJSON, failure.Error()
	if syntax := (*jsonscan.SyntaxError)(nil); errors.As(failure, &syntax) {
		d.Detail = "offset " + strconv.FormatInt(syntax.Offset, 10) + ": " + syntax.Msg
	}
	if cure := cureOf(a.Header, a.body); cure != "" {
		d.Detail = cure + " (" + d.Detail + ")"
	}
	return s.reject(ctx, a, d, http.StatusBadRequest)
}

// sharedLimit is the rate that the store counts; 0: only this server counts.
func (s *Service) sharedLimit() int {
	if !s.cfg.Shared {
		return 0
	}
	return s.cfg.RateLimit
}

// recorded tells whether a decision was recorded. If not, it returns the answer, or sets
// a.stale.
func (s *Service) recorded(ctx context.Context, a *incoming, err error) (Answer, bool) {
	fast := (*store.RateError)(nil)
	switch {
	case err == nil:
		return Answer{}, true
	case errors.Is(err, store.ErrStale):
		a.stale = true
		return Answer{}, false
	case errors.As(err, &fast):
		return Answer{Status: http.StatusTooManyRequests, RetryAfter: retryAfter(fast.Wait), Reason: ReasonRate}, false
	}
	return s.unrecorded(ctx, err), false
}

// reject records a refused delivery, without its payload (SPEC C2.3).
func (s *Service) reject(ctx context.Context, a *incoming, d store.Delivery, status int) Answer {
	item := &store.NewDelivery{Delivery: d}
	if a.counted {
		item.RateLimit = s.sharedLimit()
	}
	recorded, err := s.cfg.Store.Deliveries.Record(ctx, item)
	if answer, ok := s.recorded(ctx, a, err); !ok {
		return answer
	}
	return Answer{Status: status, Reason: d.Reason, Entry: recorded.ID, Outcome: d.Outcome}
}

// unrecorded is the answer if nothing was stored, because the webhook has been paused meanwhile,
// or because the store failed (SPEC 5.4).
func (s *Service) unrecorded(ctx context.Context, err error) Answer {
	if errors.Is(err, store.ErrPaused) {
		return notFound
	}
	if ctx.Err() == nil {
		s.cfg.Logger.Error("a delivery could not be stored", "error", err)
	}
	return Answer{Status: http.StatusServiceUnavailable, RetryAfter: 5, Reason: ReasonUnavailable}
}

// entry is the delivery to record for a request. accept adds the identity.
func (a *incoming) entry(outcome store.Outcome) store.Delivery {
	apply, _ := store.ParseID[store.Apply](a.hook.Revision.ApplyID) // valid, because the store made it
	generation := a.hook.SecretGeneration
	if a.Connected {
		generation = 0 // no secret has verified it
	}
	return store.Delivery{
		Factory:          a.hook.Factory,
		Webhook:          a.hook.Def.Name,
		WebhookUID:       a.hook.UID,
		Outcome:          outcome,
		Size:             int64(len(a.body)),
		ReceivedAt:       a.at,
		ClientAddr:       clientAddr(a.Client),
		TestBy:           a.TestBy,
		ApplyID:          apply,
		SecretGeneration: generation,
		Headers:          a.keptHeaders(),
	}
}

func (s *Service) recentTimes(uid string) []time.Time {
	// It has its own short deadline, so that a sender that disconnects does not lose the
	// window of all other senders.
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	// If the clock was set back while the server was off, the time that passed is not
	// known. It then counts as zero, so that senders gain no extra deliveries.
	latest, now := s.cfg.Store.Latest(), s.cfg.Now()
	times, err := s.cfg.Store.Deliveries.RecentTimes(ctx, uid, latest.Add(-window))
	if err != nil {
		s.cfg.Logger.Warn("the rate window could not be restored, it starts empty", "webhook_uid", uid, "error", err)
	}
	if back := latest.Sub(now); back > 0 {
		for i := range times {
			times[i] = times[i].Add(-back)
		}
	}
	return times
}
