// Package api is the JSON of the HTTP API: what the server answers with and
// reads, what the command line's client sends and reads, and what the pages
// show. It holds types and codes alone. It knows no store, no request and no
// page, so that each of these can import it.
//
// Times are RFC 3339 in UTC (SPEC 13.4). An absent time is an absent field.
package api

import "time"

// Base is the path under which the API is served, without a slash at its end.
const Base = "/api/v1"

// Time is a time as the API shows it: nil if there is none.
func Time(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
