//go:build !race && !raced

package main

// underRace tells whether servers run under the race detector: in all tests with -race, and with the tag raced alone in those that start them.
const underRace = false
