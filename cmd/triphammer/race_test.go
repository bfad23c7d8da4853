//go:build race

package main

// The program under test is built like the test itself.
func init() { buildFlags = append(buildFlags, "-race") }
