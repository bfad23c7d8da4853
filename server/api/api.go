// Package api has the JSON types and problem codes of the HTTP API, for the server, the
// command line and the pages.
//
// Times are RFC 3339 in UTC (SPEC 13.4). If there is no time, the field is absent.
package api

import (
	"encoding/json"
	"time"
)

// Base is the path under which the API is served, without a slash at its end.
const Base = "/api/v1"

// Time is a time for an optional field; nil if the time is zero.
func Time(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// Present is JSON as somebody sent it, but nil instead of null, because the API shows null as
// an absent field.
func Present(raw json.RawMessage) json.RawMessage {
	if string(raw) == "null" {
		return nil
	}
	return raw
}
