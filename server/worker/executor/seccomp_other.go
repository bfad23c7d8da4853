//go:build !amd64

package executor

var oldModes, oldCreations map[int]int
