package server

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"triphammer/factory/native"
	"triphammer/server/api"
	"triphammer/server/store"
)

// mostHours is the longest time that has its figures by the hour. A longer time has them by the
// day.
const mostHours = 7 * 24 * time.Hour

// stats answers with figures of deliveries and runs since a time, by default of 24 hours. The
// first hour, or day, is counted from its beginning.
func (s *Server) stats(ctx context.Context, c *call) (*api.Stats, error) {
	return s.statsOf(ctx, c, c.Query("factory"), figuresSpan{since: c.Query("since")})
}

// figuresSpan is the time of which figures are.
type figuresSpan struct {
	since string        // a duration before their end, or a time; empty: 24 hours
	ended time.Duration // before now
	by    string        // hour or day; empty: what suits their length
}

// statsOf is stats of a factory, or of all if it is empty.
func (s *Server) statsOf(ctx context.Context, c *call, factory string, span figuresSpan) (*api.Stats, error) {
	now := s.cfg.Now().UTC().Add(-span.ended)
	since, err := span.begin(now)
	if err != nil {
		return nil, err
	}
	out := &api.Stats{Step: "hour", Webhooks: []api.WebhookStats{}, Automations: []api.AutomationStats{}, Models: []api.DayUsage{}}
	sum := &summing{out: out, step: time.Hour, webhooks: make(map[string]*api.WebhookStats), automations: make(map[[2]string]*api.AutomationStats)}
	switch long := now.Sub(since) > mostHours; {
	case span.by != "" && span.by != "day" && (span.by != "hour" || long):
		return nil, refuse("group_by_period", span.by, "group_by_period is day, or hour for at most 7 days: there are no other figures")
	case long || span.by == "day":
		out.Step, sum.step = "day", 24*time.Hour
	}
	out.Since = since.Truncate(sum.step)
	for at := out.Since; !at.After(now); at = at.Add(sum.step) {
		out.Times = append(out.Times, newStats(at))
	}
	out.Total = newStats(out.Since)
	out.Complete, err = c.Figures(ctx, out.Since, sum.step != time.Hour, factory, c.Query("wait") == "true", sum.delivery, sum.run)
	if err != nil {
		return nil, err
	}
	used, err := c.ModelUsage(ctx, out.Since, factory)
	if err != nil {
		return nil, err
	}
	for _, d := range used {
		if !d.Day.After(now) {
			out.Models = append(out.Models, api.DayUsage{Day: d.Day.Format(time.DateOnly), Factory: d.Factory, Automation: d.Automation, ModelUsage: showUsage(d.ModelUsage)})
		}
	}
	if c.Query("spent") == "true" {
		spent, err := c.Spent(ctx, out.Since, now, factory)
		if err != nil {
			return nil, err
		}
		out.Spent = showSpent(spent)
	}
	for _, w := range sum.webhooks {
		out.Webhooks = append(out.Webhooks, *w)
	}
	for _, a := range sum.automations {
		out.Automations = append(out.Automations, *a)
	}
	slices.SortFunc(out.Webhooks, func(a, b api.WebhookStats) int {
		return cmp.Or(cmp.Compare(a.Factory, b.Factory), cmp.Compare(a.Webhook, b.Webhook), cmp.Compare(a.UID, b.UID))
	})
	slices.SortFunc(out.Automations, func(a, b api.AutomationStats) int {
		return cmp.Or(cmp.Compare(a.Factory, b.Factory), cmp.Compare(a.Automation, b.Automation))
	})
	return out, nil
}

// showSpent sums what runs used and left by what people ask for.
func showSpent(all []store.Spent) *api.Spent {
	shown := &api.Spent{}
	by := make(map[[3]string]*api.SpentBy)
	for _, s := range all {
		person, _, _ := strings.Cut(s.Person, " ")
		if person == "" && s.CreatorKind == "user" {
			person = s.Creator
		}
		sums := []*api.SpentBy{&shown.Total}
		for _, key := range [][3]string{{"automation", s.Automation, s.Factory}, {"repository", native.RepositoryOf(s.Subject)}, {"person", person}} {
			if by[key] == nil {
				by[key] = &api.SpentBy{Name: key[1], Factory: key[2]}
			}
			sums = append(sums, by[key])
		}
		for _, sum := range sums {
			sum.Runs, sum.Succeeded, sum.PullRequests = sum.Runs+s.Runs, sum.Succeeded+s.Succeeded, sum.PullRequests+s.PullRequests
			sum.Merged, sum.Unchanged = sum.Merged+s.Merged, sum.Unchanged+s.Unchanged
			sum.Tokens, sum.CostUSD = sum.Tokens+s.Tokens, sum.CostUSD+s.CostUSD
		}
	}
	list := func(of string) []api.SpentBy {
		some := []api.SpentBy{}
		for key, sum := range by {
			if key[0] == of {
				some = append(some, *sum)
			}
		}
		slices.SortFunc(some, func(a, b api.SpentBy) int {
			return cmp.Or(cmp.Compare(b.CostUSD, a.CostUSD), cmp.Compare(b.Runs, a.Runs), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Factory, b.Factory))
		})
		return some
	}
	shown.Automations, shown.Repositories, shown.People = list("automation"), list("repository"), list("person")
	return shown
}

func showUsage(u store.ModelUsage) api.ModelUsage {
	return api.ModelUsage{
		Model: u.Model, Input: u.Input, CacheRead: u.CacheRead, CacheWrite: u.CacheWrite, Output: u.Output, CostUSD: u.CostUSD,
		Requests: u.Requests, Retries: u.Retries, Errors: u.Errors, FirstTokenMS: u.WaitedMS / max(1, u.Answered),
	}
}

// begin is when the figures begin that end now.
func (span figuresSpan) begin(now time.Time) (time.Time, error) {
	text := span.since
	if text == "" {
		return now.Add(-23 * time.Hour), nil
	}
	ago, err := time.ParseDuration(text)
	if at, badTime := time.Parse(time.RFC3339, text); badTime == nil {
		ago, err = now.Sub(at), nil
	}
	if err != nil || ago <= 0 || ago+span.ended > store.FiguresAge {
		return time.Time{}, refuse("since", text, "since is a duration such as 24h, or a time in RFC 3339, of the last 30 days, and before the end of the figures")
	}
	if ago < time.Hour {
		return now, nil
	}
	return now.Add(-ago + time.Hour), nil // the hour that has begun is one of them
}

// summing adds figures to the answer.
type summing struct {
	out         *api.Stats
	step        time.Duration
	webhooks    map[string]*api.WebhookStats // by UID
	automations map[[2]string]*api.AutomationStats
}

// at returns which of the times of the answer has the hour, and its sums, which are those of that
// time and of all. ok is false if no time of the answer has it.
func (sum *summing) at(hour time.Time) (i int, sums []*api.StatsTime, ok bool) {
	i = int(hour.Sub(sum.out.Since) / sum.step)
	if i < 0 || i >= len(sum.out.Times) {
		return 0, nil, false
	}
	return i, []*api.StatsTime{&sum.out.Times[i], &sum.out.Total}, true
}

func (sum *summing) delivery(d store.DeliveryFigure) {
	i, sums, ok := sum.at(d.Hour)
	if !ok {
		return
	}
	w := sum.webhooks[d.WebhookUID]
	if w == nil {
		n := len(sum.out.Times)
		w = &api.WebhookStats{
			Factory: d.Factory, Webhook: d.Webhook, UID: d.WebhookUID, ID: d.WebhookUID, Stopped: make(map[string]int64),
			Times: make([]int64, n), Refused: make([]int64, n), Duplicates: make([]int64, n),
		}
		sum.webhooks[d.WebhookUID] = w
	}
	w.Deliveries += d.Count
	w.Times[i] += d.Count
	switch {
	case d.Refused():
		w.Refused[i] += d.Count
	case d.Outcome == store.Duplicate:
		w.Duplicates[i] += d.Count
	}
	if d.Stopped == "" {
		w.Wanted += d.Count
	} else {
		w.Stopped[d.Stopped] += d.Count
	}
	for _, t := range sums {
		t.Deliveries += d.Count
		t.Outcomes[string(d.Outcome)] += d.Count
		t.Started += d.Started
		if d.Stopped == "" {
			t.Wanted += d.Count
		} else {
			t.Stopped[d.Stopped] += d.Count
		}
	}
}

func (sum *summing) run(r store.RunFigure) {
	_, sums, ok := sum.at(r.Hour)
	if !ok {
		return
	}
	cost := float64(r.CostMicros) / 1e6
	for _, t := range sums {
		t.Runs[string(r.State)] += r.Count
		t.CostUSD += cost
		t.Tokens += r.Tokens
	}
	if r.Automation == "" {
		return
	}
	a := sum.automations[[2]string{r.Factory, r.Automation}]
	if a == nil {
		a = &api.AutomationStats{Factory: r.Factory, Automation: r.Automation, Runs: make(map[string]int64)}
		sum.automations[[2]string{r.Factory, r.Automation}] = a
	}
	a.Runs[string(r.State)] += r.Count
	a.CostUSD += cost
	a.Tokens += r.Tokens
}

func newStats(at time.Time) api.StatsTime {
	return api.StatsTime{At: at, Outcomes: make(map[string]int64), Stopped: make(map[string]int64), Runs: make(map[string]int64)}
}
