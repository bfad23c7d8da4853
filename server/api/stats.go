package api

import "time"

// Stats is GET /api/v1/stats: deliveries, and runs that ended, in a time.
type Stats struct {
	Since time.Time `json:"since"`
	// Complete: everything is counted. After a start of the server, counting takes a while.
	Complete    bool              `json:"complete"`
	Step        string            `json:"step"` // hour or day: of Times
	Times       []StatsTime       `json:"times"`
	Total       StatsTime         `json:"total"`
	Webhooks    []WebhookStats    `json:"webhooks"`
	Automations []AutomationStats `json:"automations"`
}

// FactoryMetrics are the Stats of a factory, with the published figures that this server has. It
// does not learn what became of pull requests.
type FactoryMetrics struct {
	Stats
	AsOf       time.Time `json:"as_of"`
	FactoryUID string    `json:"factory_uid"`
	RunCount   int64     `json:"run_count"` // that ended
}

// StatsTime are the figures of a time.
type StatsTime struct {
	At         time.Time        `json:"at"`
	Deliveries int64            `json:"deliveries"`
	Outcomes   map[string]int64 `json:"outcomes"` // deliveries by outcome
	Stopped    map[string]int64 `json:"stopped"`  // deliveries by the stage at which they left the belt
	Wanted     int64            `json:"wanted"`   // deliveries that started a run
	Started    int64            `json:"started"`  // runs that they started
	Runs       map[string]int64 `json:"runs"`     // runs that ended, by state
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
	Times      []int64          `json:"times"`   // deliveries, as Stats.Times
	Refused    []int64          `json:"refused"` // of these, those that were refused
	Duplicates []int64          `json:"duplicates"`
}

// AutomationStats are the figures of an automation: of runs that ended.
type AutomationStats struct {
	Factory    string           `json:"factory"`
	Automation string           `json:"automation"`
	Runs       map[string]int64 `json:"runs"` // by state
	CostUSD    float64          `json:"cost_usd"`
	Tokens     int64            `json:"tokens"`
}
