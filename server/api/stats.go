package api

import (
	"cmp"
	"slices"
	"time"
)

// Stats is GET /api/v1/stats: figures of the deliveries and ended runs of a period.
type Stats struct {
	Since time.Time `json:"since"`
	// Complete tells that everything is counted. After a start of the server, counting takes a while.
	Complete    bool              `json:"complete"`
	Step        string            `json:"step"` // length of each of Times: hour or day
	Times       []StatsTime       `json:"times"`
	Total       StatsTime         `json:"total"`
	Webhooks    []WebhookStats    `json:"webhooks"`
	Automations []AutomationStats `json:"automations"`
	// Models is what runs used of models from the day of Since on, as their gateways counted it. Unlike
	// the other figures it has what runs used that have not ended.
	Models []DayUsage `json:"models"`
	// Spent is what ended runs used and left, if it is asked for (spent=true).
	Spent *Spent `json:"spent,omitempty"`
}

// Spent is what ended runs used and left, by automation, repository and person, the dearest first.
type Spent struct {
	Total        SpentBy   `json:"total"`
	Automations  []SpentBy `json:"automations"`
	Repositories []SpentBy `json:"repositories"` // that the runs' subjects are in, such as github:acme/app
	People       []SpentBy `json:"people"`       // who caused the events of the runs, such as github:ada, or started them
}

// SpentBy is what the ended runs of one thing used and left. An empty name stands for all runs without one.
type SpentBy struct {
	Name         string  `json:"name"`
	Factory      string  `json:"factory,omitempty"` // of an automation
	Runs         int64   `json:"runs"`
	Succeeded    int64   `json:"succeeded"`
	PullRequests int64   `json:"pull_requests"`
	Merged       int64   `json:"merged"`           // of PullRequests
	Unchanged    int64   `json:"merged_unchanged"` // of Merged: without a person's commit
	Tokens       int64   `json:"tokens"`
	CostUSD      float64 `json:"cost_usd"`
}

// ByModel sums usage by model, the dearest first.
func ByModel(days []DayUsage) []ModelUsage {
	var all []ModelUsage
	for _, d := range days {
		i := slices.IndexFunc(all, func(u ModelUsage) bool { return u.Model == d.Model })
		if i < 0 {
			all = append(all, d.ModelUsage)
			continue
		}
		u := &all[i]
		if n := u.Requests - u.Errors + d.Requests - d.Errors; n > 0 {
			u.FirstTokenMS = (u.FirstTokenMS*(u.Requests-u.Errors) + d.FirstTokenMS*(d.Requests-d.Errors)) / n
		}
		u.Input, u.CacheRead, u.CacheWrite, u.Output = u.Input+d.Input, u.CacheRead+d.CacheRead, u.CacheWrite+d.CacheWrite, u.Output+d.Output
		u.CostUSD, u.Requests, u.Retries, u.Errors = u.CostUSD+d.CostUSD, u.Requests+d.Requests, u.Retries+d.Retries, u.Errors+d.Errors
	}
	slices.SortStableFunc(all, func(a, b ModelUsage) int {
		return cmp.Or(cmp.Compare(b.CostUSD, a.CostUSD), cmp.Compare(b.Tokens(), a.Tokens()), cmp.Compare(a.Model, b.Model))
	})
	return all
}

// FactoryMetrics are the Stats of a factory, with those published figures that this server knows.
// It does not learn what became of pull requests.
type FactoryMetrics struct {
	Stats
	AsOf       time.Time `json:"as_of"`
	FactoryUID string    `json:"factory_uid"`
	RunCount   int64     `json:"run_count"`       // number of ended runs
	PRCount    int64     `json:"pr_count"`        // number of pull requests that they opened
	MergedPRs  int64     `json:"merged_pr_count"` // of these
}

// StatsTime are the figures of an hour or a day.
type StatsTime struct {
	At         time.Time        `json:"at"`
	Deliveries int64            `json:"deliveries"`
	Outcomes   map[string]int64 `json:"outcomes"` // deliveries by outcome
	Stopped    map[string]int64 `json:"stopped"`  // deliveries by the stage at which they left the belt
	Wanted     int64            `json:"wanted"`   // deliveries that started a run
	Started    int64            `json:"started"`  // runs that deliveries started
	Runs       map[string]int64 `json:"runs"`     // ended runs, by state
	CostUSD    float64          `json:"cost_usd"`
	Tokens     int64            `json:"tokens"`
}

// WebhookStats are the figures of a webhook.
type WebhookStats struct {
	Factory    string           `json:"factory"`
	Webhook    string           `json:"webhook"`
	UID        string           `json:"uid"`
	ID         string           `json:"id"` // equal to uid
	Deliveries int64            `json:"deliveries"`
	Stopped    map[string]int64 `json:"stopped"`
	Wanted     int64            `json:"wanted"`
	Times      []int64          `json:"times"`   // deliveries, for each of Stats.Times
	Refused    []int64          `json:"refused"` // refused deliveries, for each of Stats.Times
	Duplicates []int64          `json:"duplicates"`
}

// AutomationStats are the figures of an automation's ended runs.
type AutomationStats struct {
	Factory    string           `json:"factory"`
	Automation string           `json:"automation"`
	Runs       map[string]int64 `json:"runs"` // by state
	CostUSD    float64          `json:"cost_usd"`
	Tokens     int64            `json:"tokens"`
}
