//go:build race

package factory

func init() { slowdown = 10 }
