// Package metrics counts what a process does, for Prometheus (SPEC 12.6).
package metrics

import (
	"context"
	"net/http"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"triphammer/applier"
	"triphammer/server/delivery"
	"triphammer/server/disk"
	"triphammer/server/listen"
	"triphammer/server/run"
	"triphammer/server/store"
)

// scrapeTime is how long a request for the metrics waits for the store.
const scrapeTime = 5 * time.Second

// maxNamed is how many automations, and how many webhooks, have series of their own in one
// process. Further ones share the series of "other" in no factory, so that whoever can change
// definitions cannot fill the memory of the server, or that of who reads the metrics.
const maxNamed = 500

// ownSeries are the automations or webhooks that have series of their own.
type ownSeries struct {
	mu    sync.Mutex
	names map[[2]string]bool
}

// labels are the labels of what has the name in the factory.
func (n *ownSeries) labels(factory, name string) (string, string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	key := [2]string{factory, name}
	if !n.names[key] && factory+name != "" {
		if len(n.names) >= maxNamed {
			return "", "other"
		}
		n.names[key] = true
	}
	return factory, name
}

// Metrics are the metrics of /metrics. Labels are names from the definitions and fixed
// words. No label holds a URL, a header or an identity.
//
// Counters and histograms have what this process did since it started: the sum over all
// processes is what happened. Gauges about runs are read from the store, and are the same on
// each server.
type Metrics struct {
	automations, webhooks ownSeries
	ended, tokens, cost   *prometheus.CounterVec
	took, waited, first   prometheus.Histogram

	modelRequests, modelTokens, modelCost *prometheus.CounterVec

	registry *prometheus.Registry
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	applied  *prometheus.GaugeVec
	closed   *prometheus.CounterVec
	dropped  *prometheus.CounterVec
	asked    *prometheus.CounterVec
	told     *prometheus.CounterVec
}

// New makes a Metrics with its own registry. The version is that of the program.
func New(version string) *Metrics {
	ofAutomation := []string{"factory", "automation"}
	m := &Metrics{
		automations: ownSeries{names: make(map[[2]string]bool)}, webhooks: ownSeries{names: make(map[[2]string]bool)},
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "triphammer_runs_ended_total", Help: "Runs that this process ended, by automation and result: SUCCEEDED, FAILED, CANCELLED. Sum over all servers and workers.",
		}, append(ofAutomation, "result")),
		tokens: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "triphammer_run_tokens_total", Help: "Tokens that runs of this process used, as far as their agents tell. Sum over all servers and workers.",
		}, ofAutomation),
		cost: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "triphammer_run_cost_usd_total", Help: "US dollars that runs of this process cost, as far as their agents tell. Sum over all servers and workers.",
		}, ofAutomation),
		took: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "triphammer_run_duration_seconds", Help: "How long the last attempts of runs took that this process ended.", Buckets: prometheus.ExponentialBuckets(1, 2, 15),
		}),
		waited: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "triphammer_run_wait_seconds", Help: "How long runs waited until this process began their first attempt.", Buckets: prometheus.ExponentialBuckets(0.125, 4, 10),
		}),
		first: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "triphammer_model_first_token_seconds", Help: "Time from a request to a model, which the gateway of a run of this process carried, to its first token.", Buckets: prometheus.ExponentialBuckets(0.125, 2, 12),
		}),
		modelRequests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "triphammer_model_requests_total", Help: "Requests to models that the gateways of runs of this process carried, by model and result: answered, failed. A model without a price is other.",
		}, []string{"model", "result"}),
		modelTokens: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "triphammer_model_tokens_total", Help: "Tokens of these requests, by model and kind: input, cache_read, cache_write, output.",
		}, []string{"model", "kind"}),
		modelCost: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "triphammer_model_cost_usd_total", Help: "US dollars that these requests cost by the table of prices, by model.",
		}, []string{"model"}),
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "triphammer_ingress_requests_total", Help: "Answered ingress requests, by webhook, outcome in the log (empty: nothing was recorded), status and reason.",
		}, []string{"factory", "webhook", "outcome", "status", "reason"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "triphammer_ingress_seconds", Help: "Time from the request's headers to the answer, by outcome in the log.", Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
		}, []string{"outcome"}),
		applied: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "triphammer_definitions_current", Help: "1 if the newest commit serves, 0 if something keeps it from serving.",
		}, []string{"factory"}),
		closed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "triphammer_connections_closed_total", Help: "Connections that were closed in favour of others, by cause: full, address, descriptors.",
		}, []string{"cause"}),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "triphammer_bodies_dropped_total",
			Help: "Request bodies that were dropped in favour of others because the memory for bodies was full: known, strangers, pushes, trees.",
		}, []string{"of"}),
	}
	m.asked = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "triphammer_sender_lookups_total", Help: "Requests to senders' APIs for what deliveries lack, by provider and outcome: answered, waiting (failed, asked again), failed (given up).",
	}, []string{"provider", "outcome"})
	m.told = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "triphammer_sender_writes_total",
		Help: "Requests that tell senders of runs, or do there what agents asked for, by provider, what (start, end, mention, or the kind of an output) and outcome: delivered, pending (failed, tried again), failed (given up).",
	}, []string{"provider", "what", "outcome"})
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "triphammer_build_info", Help: "1, with the version of the program and of Go.", ConstLabels: prometheus.Labels{"version": version, "goversion": runtime.Version()},
	})
	build.Set(1)
	for _, outcome := range []store.Outcome{store.Accepted, store.Duplicate} { // an alert reads them
		m.seconds.WithLabelValues(string(outcome))
	}
	m.registry.MustRegister(build, m.ended, m.tokens, m.cost, m.took, m.waited, m.first, m.modelRequests, m.modelTokens, m.modelCost, m.asked, m.told, m.requests, m.seconds, m.applied, m.closed, m.dropped,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Certificate adds the end of the certificate to the metrics.
func (m *Metrics) Certificate(c *listen.Certificate) error {
	return m.registry.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "triphammer_tls_certificate_expiry_timestamp_seconds", Help: "When the TLS certificate of this server expires, in Unix seconds. Alert 14 days before.",
	}, func() float64 {
		if s := c.State(); s != nil {
			return float64(s.ExpiresAt.Unix())
		}
		return 0
	}))
}

// Watch adds the metrics of a store, and of a disk and of runs unless they are nil. Call it once.
// runs counts the children of this process that run and that have ended, and the workspaces.
func (m *Metrics) Watch(s *store.Store, d *disk.Watch, runs func() (running, ended, workspaces int, err error)) error {
	return m.registry.Register(newStoreFigures(s, d, runs))
}

// storeFigures collects metrics from the store at each request.
type storeFigures struct {
	store                *store.Store
	oldest               *prometheus.Desc
	disk                 *disk.Watch // nil: the disk is not watched
	runs, commits, free  *prometheus.Desc
	damaged, lost, clock *prometheus.Desc
	children, workspaces *prometheus.Desc
	waiting, sameBodies  *prometheus.Desc
	ofRuns               func() (running, ended, workspaces int, err error) // nil: there are none here
}

func newStoreFigures(s *store.Store, d *disk.Watch, runs func() (running, ended, workspaces int, err error)) storeFigures {
	return storeFigures{
		s, prometheus.NewDesc("triphammer_oldest_unstarted_run_seconds", "For how long the run that waits longest has waited to be started; 0: none waits. Runs held until a later time do not count. The same on every server.", nil, nil),
		d, prometheus.NewDesc("triphammer_runs", "Runs that have not finished, by state.", []string{"state"}, nil),
		prometheus.NewDesc("triphammer_store_commits_total", "Committed transactions; under load one holds many deliveries.", nil, nil),
		prometheus.NewDesc("triphammer_disk_free_bytes", "Free space of the file systems of the data directory and of the workspaces.", []string{"place"}, nil),
		prometheus.NewDesc("triphammer_store_damaged_reads_total", "Reads that found something else than what was stored. Alert on any.", nil, nil),
		prometheus.NewDesc("triphammer_store_transactions_lost",
			"Acknowledged transactions that the store lacked when it was opened, at most. Alert on any.", nil, nil),
		prometheus.NewDesc("triphammer_clock_doubted", "1 while the machine's clock is in doubt, and nothing is deleted by its age.", nil, nil),
		prometheus.NewDesc("triphammer_child_processes", "Children of this process, by state: running, defunct (ended, and not waited for).", []string{"state"}, nil),
		prometheus.NewDesc("triphammer_workspaces", "Folders of runs on this machine.", nil, nil),
		prometheus.NewDesc("triphammer_waiting_for_a_person", "What waits for the approval of a person, by what: start (of a run), output. The same on every server.", []string{"what"}, nil),
		prometheus.NewDesc("triphammer_same_body_deliveries", "Deliveries of the last 24 hours, accepted and refused, whose signed body came before under another id, at most 10000. The same on every server.", nil, nil), runs,
	}
}

// Describe implements prometheus.Collector.
func (g storeFigures) Describe(ch chan<- *prometheus.Desc) {
	ch <- g.runs
	ch <- g.commits
	ch <- g.free
	ch <- g.damaged
	ch <- g.lost
	ch <- g.clock
	ch <- g.children
	ch <- g.workspaces
	ch <- g.oldest
	ch <- g.waiting
	ch <- g.sameBodies
}

// Collect implements prometheus.Collector.
func (g storeFigures) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.MustNewConstMetric(g.commits, prometheus.CounterValue, float64(g.store.Commits()))
	if g.disk != nil {
		states, err := g.disk.All()
		for _, s := range states {
			ch <- prometheus.MustNewConstMetric(g.free, prometheus.GaugeValue, float64(s.Free), s.Volume)
		}
		if err != nil {
			ch <- prometheus.NewInvalidMetric(g.free, err)
		}
	}
	if g.ofRuns != nil {
		running, ended, workspaces, err := g.ofRuns()
		if err != nil {
			ch <- prometheus.NewInvalidMetric(g.children, err)
		}
		ch <- prometheus.MustNewConstMetric(g.children, prometheus.GaugeValue, float64(running), "running")
		ch <- prometheus.MustNewConstMetric(g.children, prometheus.GaugeValue, float64(ended), "defunct")
		ch <- prometheus.MustNewConstMetric(g.workspaces, prometheus.GaugeValue, float64(workspaces))
	}
	ch <- prometheus.MustNewConstMetric(g.damaged, prometheus.CounterValue, float64(g.store.Damages()))
	ch <- prometheus.MustNewConstMetric(g.lost, prometheus.GaugeValue, float64(g.store.Lost().AtMost))
	doubted := 0.0
	if g.store.Clock().Doubted() != "" {
		doubted = 1
	}
	ch <- prometheus.MustNewConstMetric(g.clock, prometheus.GaugeValue, doubted)
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTime)
	defer cancel()
	waits, err := g.store.Runs.LongestWait(ctx)
	if err != nil {
		ch <- prometheus.NewInvalidMetric(g.oldest, err)
	} else {
		ch <- prometheus.MustNewConstMetric(g.oldest, prometheus.GaugeValue, waits.Seconds())
	}
	starts, outputs, err := g.store.Approvals.Counts(ctx)
	if err != nil {
		ch <- prometheus.NewInvalidMetric(g.waiting, err)
	} else {
		ch <- prometheus.MustNewConstMetric(g.waiting, prometheus.GaugeValue, float64(starts), "start")
		ch <- prometheus.MustNewConstMetric(g.waiting, prometheus.GaugeValue, float64(outputs), "output")
	}
	if same, _, err := g.store.Deliveries.SameBodies(ctx, "", g.store.Agreed().Add(-24*time.Hour)); err != nil {
		ch <- prometheus.NewInvalidMetric(g.sameBodies, err)
	} else {
		ch <- prometheus.MustNewConstMetric(g.sameBodies, prometheus.GaugeValue, float64(same))
	}
	counts, err := g.store.Runs.Counts(ctx)
	if err != nil {
		ch <- prometheus.NewInvalidMetric(g.runs, err)
		return
	}
	for state, n := range counts {
		ch <- prometheus.MustNewConstMetric(g.runs, prometheus.GaugeValue, float64(n), string(state))
	}
}

// Handler serves the metrics.
func (m *Metrics) Handler() http.Handler {
	// If some metrics cannot be read, the others are still shown.
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError})
}

// Closed counts a connection that was closed in favour of another.
func (m *Metrics) Closed(cause listen.Cause) { m.closed.WithLabelValues(string(cause)).Inc() }

// Dropped counts the bodies of a kind that are dropped in favour of others, from 0 on: the result counts one.
func (m *Metrics) Dropped(of string) func() { return m.dropped.WithLabelValues(of).Inc }

// Lookup counts one attempt to ask a sender's API; it is a lookup.Config.Observe.
func (m *Metrics) Lookup(provider, outcome string) { m.asked.WithLabelValues(provider, outcome).Inc() }

// Answer counts a turn of an answer or an output; it is an answer.Config.Observe.
func (m *Metrics) Answer(provider, what, outcome string) {
	m.told.WithLabelValues(provider, what, outcome).Inc()
}

// Delivery counts one ingress request; it is a delivery.Config.Observe.
func (m *Metrics) Delivery(o delivery.Observation) {
	factory, webhook := m.webhooks.labels(o.Factory, o.Webhook)
	m.requests.WithLabelValues(factory, webhook, string(o.Outcome), strconv.Itoa(o.Status), o.Reason).Inc()
	m.seconds.WithLabelValues(string(o.Outcome)).Observe(o.Took.Seconds())
}

// Run counts what a run did; it is a run.Config.Observe.
func (m *Metrics) Run(o run.Observation) {
	factory, automation := m.automations.labels(o.Factory, o.Automation)
	if o.Waited > 0 {
		m.waited.Observe(o.Waited.Seconds())
	}
	if o.Used != (store.Spending{}) {
		m.tokens.WithLabelValues(factory, automation).Add(float64(o.Used.Tokens))
		m.cost.WithLabelValues(factory, automation).Add(o.Used.CostUSD)
	}
	if o.Model != "" {
		m.model(o)
	}
	if o.Ended != "" {
		m.ended.WithLabelValues(factory, automation, string(o.Ended)).Inc()
	}
	if o.Took > 0 {
		m.took.Observe(o.Took.Seconds())
	}
}

// model counts a request to a model. Only a model with a price has a series of its own: a run may name
// any other.
func (m *Metrics) model(o run.Observation) {
	model, result := "other", "answered"
	if o.Priced {
		model = o.Model
	}
	if o.Failed {
		result = "failed"
	}
	m.modelRequests.WithLabelValues(model, result).Inc()
	for kind, n := range map[string]int64{"input": o.Tokens.Input, "cache_read": o.Tokens.CacheRead, "cache_write": o.Tokens.CacheWrite, "output": o.Tokens.Output} {
		m.modelTokens.WithLabelValues(model, kind).Add(float64(n))
	}
	m.modelCost.WithLabelValues(model).Add(o.Used.CostUSD)
	if o.First > 0 {
		m.first.Observe(o.First.Seconds())
	}
}

// Live begins the counters of the automations that a factory serves at zero: the first
// failure is then seen as an increase.
func (m *Metrics) Live(r *applier.Revision) {
	for _, a := range r.Automations {
		factory, automation := m.automations.labels(r.Factory, a.Def.Name)
		for _, result := range []store.RunState{store.Succeeded, store.FailedRun, store.Cancelled} {
			m.ended.WithLabelValues(factory, automation, string(result))
		}
		m.tokens.WithLabelValues(factory, automation)
		m.cost.WithLabelValues(factory, automation)
	}
}

// Applier records the state of a factory; it is an applier.Config.OnChange.
func (m *Metrics) Applier(s applier.State) {
	current := 1.0
	if s.Error != "" {
		current = 0
	}
	m.applied.WithLabelValues(s.Factory).Set(current)
}
