package dashboard

import (
	"time"

	"triphammer/server/store"
)

func init() {
	functions["when"] = when
	functions["came"] = func(d *store.Delivery) string { return d.Outcome.Came(d.Started) }
}

func when(t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return t.UTC().Format("2006-01-02 15:04:05")
}
