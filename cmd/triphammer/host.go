//go:build linux && !client

package main

func init() { start, thisHost = startHere, hostHere() }
