//go:build linux && !client

package main

const (
	// devFolder is where dev keeps what it has, below the folder that it serves.
	devFolder = ".triphammer"
	// madeFolder has the secrets that dev made up, in the data directory, a file each.
	madeFolder = "made-secrets"
)
