//go:build race

package main

// underRace tells whether this is built with the race detector.
const underRace = true
