//go:build linux && !client

package main

import "triphammer/cmd/triphammer/host"

func init() { start, thisHost = host.Start, host.Here() }
