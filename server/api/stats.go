package api

import "time"

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
}

// FactoryMetrics are the Stats of a factory, with those published figures that this server knows.
// It does not learn what became of pull requests.
type FactoryMetrics struct {
	Stats
	AsOf       time.Time `json:"as_of"`
	FactoryUID string    `json:"factory_uid"`
	RunCount   int64     `json:"run_count"` // number of ended runs
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
