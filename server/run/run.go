// Package run takes a run from its request to its end.
//
// What a run executes is a [Spec], made once when its definitions are applied
// and stored with it, so that a later commit cannot change a queued run. The
// [Manager] claims queued runs under a lease, gives each a goroutine, an
// [Executor] and a transcript, and brings every one to a terminal state, also
// after a crash (SPEC 9).
package run
