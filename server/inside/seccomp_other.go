//go:build !amd64

package inside

var oldModes, oldCreations map[int]int
