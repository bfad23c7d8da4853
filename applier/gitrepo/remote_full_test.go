//go:build full

package gitrepo

import "testing"

// TestPushCostFull is TestPushCost with thousands of files.
func TestPushCostFull(t *testing.T) { pushCost(t, 10*tooBig, 5000, 1) }
