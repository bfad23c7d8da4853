//go:build !full

package main

// thorough tells whether tests take the time that make test-full has.
const thorough = false
