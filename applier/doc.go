// Package applier makes a commit the live revision, or keeps the old revision.
//
// Each factory has one worker, an [Applier]. The worker is level-triggered: whatever
// kicks it, it takes the newest commit of the production branch. An apply is whole or
// nothing: after any error the last good revision keeps serving (SPEC 4.2).
//
//	         kick           new commit          signed            valid             recorded
//	waiting ------> looking ----------> verifying ------> building -----> recording --------> live
//
//	looking   -- nothing new --> waiting
//	verifying -- not signed ---> refused
//	building  -- errors -------> refused
//	any       -- not readable, not writable --> retrying
//
//	live      ----------------------------------------> waiting
//	refused   -- another commit, the secret, Apply ---> looking
//	retrying  -- a while, a kick ---------------------> looking
//
// The states:
//
//   - waiting: the commit that should serve is settled, that is, applied or refused. A
//     kick wakes the worker. Kicks come from [Source], push notifications, commands,
//     and secrets that are set.
//   - looking: the worker reads the head of the branch. Nothing is new if the head
//     is settled.
//   - verifying: Config.Verify finds out whether an allowed key signed the commit
//     (SPEC 4.10). Without Verify every commit may apply.
//   - building: [Build] reads, validates and compiles the files, with the secrets of
//     the [Ledger].
//   - recording: the [Ledger] keeps the apply. Then the pointer of [Live] is swapped,
//     and the revision serves.
//   - refused: the refusal is recorded, and the commit is settled. The worker tries it
//     again when a secret that it lacks has another value, or when Applier.Apply is
//     called.
//   - retrying: the failure may be temporary, so the worker tries again: after a second
//     at first, then after doubled times of up to a minute. A newer commit is tried at
//     once, as is a kick that does not come from [Source].
//
// While a factory is pinned, the pinned commit should serve. Its files come from the
// [Ledger], and it was verified when it was first applied. So building follows at once,
// without the repository. The worker looks at the branch only to show its head. When the
// pin expires, the head of the branch should serve again.
//
// The package knows no database and no request. Its [Ledger] is all the durable state
// that it needs.
package applier
