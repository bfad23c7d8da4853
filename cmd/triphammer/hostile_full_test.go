//go:build full

package main

func init() { attacked = hostileColumns }
