//go:build full

package gateway

import "testing"

// TestGatewayStreamsFull: with packs of tens of MB.
func TestGatewayStreamsFull(t *testing.T) { gatewayStreams(t, 48<<20) }
