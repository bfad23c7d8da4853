package main

import (
	"testing"
	"time"
)

// TestPackageVersion: an upgrade is newer for the package managers too.
func TestPackageVersion(t *testing.T) {
	for version, want := range map[string]string{
		"v1.2.0":                  "1.2.0",
		"v1.2.0-rc.1":             "1.2.0~rc.1",
		"v1.2.0-5-g948c2bf":       "1.2.0+5+g948c2bf",
		"v1.2.0-5-g948c2bf-dirty": "1.2.0+5+g948c2bf+dirty",
		"v1.2.0-rc.1-5-g948c2bf":  "1.2.0~rc.1+5+g948c2bf",
		"948c2bf":                 "0~20260102030405.948c2bf",
		"948c2bf-dirty":           "0~20260102030405.948c2bf.dirty",
	} {
		d := &dist{version: version, time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
		if got := d.packageVersion(); got != want {
			t.Errorf("%s: %s, want %s", version, got, want)
		}
	}
}
