//go:build full

package store

// flipped is how many bits TestFlippedBits flips.
const flipped = 1000
