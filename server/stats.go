package server

import (
	"cmp"
	"context"
	"slices"
	"time"

	"triphammer/server/api"
	"triphammer/server/store"
)

// mostHours is the longest time of which figures are by the hour; of a longer one, they are
// by the day.
const mostHours = 7 * 24 * time.Hour

// stats answers with figures of deliveries and runs since a time, by default of 24 hours. The
// first hour, or day, is counted from its beginning.
func (s *Server) stats(ctx context.Context, c *call) (*api.Stats, error) {
	return s.statsOf(ctx, c, c.Query("factory"))
}

// statsOf is stats of a factory, or of all if it is empty.
func (s *Server) statsOf(ctx context.Context, c *call, factory string) (*api.Stats, error) {
	now := s.cfg.Now().UTC()
	since := now.Add(-23 * time.Hour)
	if text := c.Query("since"); text != "" {
		ago, err := time.ParseDuration(text)
		if at, badTime := time.Parse(time.RFC3339, text); badTime == nil {
			ago, err = now.Sub(at), nil
		}
		if err != nil || ago <= 0 || ago > store.FiguresAge {
			return nil, refuse("since", text, "since is a duration such as 24h, or a time in RFC 3339, of the last 30 days")
		}
		since = now.Add(-ago + time.Hour) // the hour that has begun is one of them
		if ago < time.Hour {
			since = now
		}
	}
	out := &api.Stats{Step: "hour", Webhooks: []api.WebhookStats{}, Automations: []api.AutomationStats{}}
	step := time.Hour
	if now.Sub(since) > mostHours {
		out.Step, step = "day", 24*time.Hour
	}
	out.Since = since.Truncate(step)
	for at := out.Since; !at.After(now); at = at.Add(step) {
		out.Times = append(out.Times, newStats(at))
	}
	out.Total = newStats(out.Since)
	n := len(out.Times)
	webhooks, automations := make(map[string]*api.WebhookStats), make(map[[2]string]*api.AutomationStats)
	complete, err := c.Figures(ctx, out.Since, step != time.Hour, factory, c.Query("wait") == "true", func(d store.DeliveryFigure) {
		i := int(d.Hour.Sub(out.Since) / step)
		if i < 0 || i >= n {
			return
		}
		w := webhooks[d.WebhookUID]
		if w == nil {
			w = &api.WebhookStats{
				Factory: d.Factory, Webhook: d.Webhook, UID: d.WebhookUID, ID: d.WebhookUID, Stopped: make(map[string]int64),
				Times: make([]int64, n), Refused: make([]int64, n), Duplicates: make([]int64, n),
			}
			webhooks[d.WebhookUID] = w
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
		for _, t := range []*api.StatsTime{&out.Times[i], &out.Total} {
			t.Deliveries += d.Count
			t.Outcomes[string(d.Outcome)] += d.Count
			t.Started += d.Started
			if d.Stopped == "" {
				t.Wanted += d.Count
			} else {
				t.Stopped[d.Stopped] += d.Count
			}
		}
	}, func(r store.RunFigure) {
		i := int(r.Hour.Sub(out.Since) / step)
		if i < 0 || i >= n {
			return
		}
		cost := float64(r.CostMicros) / 1e6
		for _, t := range []*api.StatsTime{&out.Times[i], &out.Total} {
			t.Runs[string(r.State)] += r.Count
			t.CostUSD += cost
			t.Tokens += r.Tokens
		}
		if r.Automation == "" {
			return
		}
		a := automations[[2]string{r.Factory, r.Automation}]
		if a == nil {
			a = &api.AutomationStats{Factory: r.Factory, Automation: r.Automation, Runs: make(map[string]int64)}
			automations[[2]string{r.Factory, r.Automation}] = a
		}
		a.Runs[string(r.State)] += r.Count
		a.CostUSD += cost
		a.Tokens += r.Tokens
	})
	if err != nil {
		return nil, err
	}
	out.Complete = complete
	for _, w := range webhooks {
		out.Webhooks = append(out.Webhooks, *w)
	}
	for _, a := range automations {
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

func newStats(at time.Time) api.StatsTime {
	return api.StatsTime{At: at, Outcomes: make(map[string]int64), Stopped: make(map[string]int64), Runs: make(map[string]int64)}
}
