//go:build !amd64

package sandbox

var oldModes, oldCreations map[int]int
