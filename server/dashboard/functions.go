package dashboard

import (
	"strings"
	"time"

	"triphammer/server/store"
)

func init() {
	functions["when"], functions["ranFor"], functions["label"] = when, ranFor, store.Outcome.Label
	functions["came"] = func(d *store.Delivery) string { return d.Outcome.Came(d.Started) }
	functions["class"] = strings.ToLower
}

func when(t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return t.UTC().Format("2006-01-02 15:04:05")
}

func ranFor(r *store.Run) string {
	if r.StartedAt.IsZero() || r.FinishedAt.IsZero() {
		return ""
	}
	return r.FinishedAt.Sub(r.StartedAt).Round(time.Millisecond).String()
}
