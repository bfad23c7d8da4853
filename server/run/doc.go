// Package run says what a run is, and answers requests about runs (SPEC 9).
//
// One function makes each kind of run, and stores nothing:
//
//   - [FromAutomation]: for a delivery or a tick of a schedule
//   - [FromHand]: for a person who starts an automation
//   - [FromRequest]: for a caller of the API
//   - [FromSchedule]: for a schedule that the API made
//   - [FromConversation]: goes on where another run ended
//   - [FromRun]: does again what another run did
//
// A run executes a [Spec]. The spec is made when definitions are applied and is
// stored with the run, so a later commit cannot change a queued run.
//
// A [Desk] says why a run waits, what can be done with it and where its files are. It lets
// readers follow runs, and carries out what people ask for. It does not execute runs:
// package worker does. A Desk knows the worker of its own process by the interface [Local],
// and the workers of other processes from the store.
//
// # States of a run
//
// The state is a column of the store. Only these calls change it, each in one
// transaction:
//
//	(created)    a delivery, a request or a tick of a schedule
//	    |
//	    |          if it waits for a person: BLOCKED, until store.Approvals.Decide or Expire;
//	    |          declined, or not decided in time ----------------> CANCELLED
//	    |
//	    v
//	QUEUED ------- Desk.Cancel, store.Runs.Stop ------------------> CANCELLED
//	 ^  |
//	 |  |          a worker, store.Leases.Claim
//	 |  v
//	INPROGRESS --- a worker, store.Leases.Finish
//	 |  |            the agent ended with status 0 ---------------> SUCCEEDED
//	 |  |            somebody cancelled or interrupted the run ---> CANCELLED
//	 |  |            the agent cannot start, full disk, budget,
//	 |  |            or every attempt would fail alike -----------> FAILED
//	 |  |
//	 |  |            (the leader or the next start, if the transcript has how the attempt ended)
//	 |  |
//	 |  +--------- a worker, store.Leases.Fail
//	 |  |            another status, a signal, timeout, silence,
//	 |  |            server stop, at the last attempt ------------> FAILED
//	 |  |
//	 |  +--------- the leader or the next start, store.Leases.Reap …
//	 |  |            at the next start, or when the worker is lost,
//	 |  |            at the last attempt -------------------------> FAILED
//	 |  |
//	 +--+            before the last attempt: after its delay
//
// SUCCEEDED, FAILED and CANCELLED are terminal: no call changes them. Spec.Retry says how
// many attempts a run has: one, unless its definition sets another number. A queued run
// stays queued while the server is at its limit of runs, short of disk space, or stopped. It
// also waits for the delay of its next attempt, and for the runs before it in its conversation.
//
// Desk.Cancel does not end a run in progress by itself. It records the request
// and stops the agent; the worker then records the end. If the agent ended by
// itself before it was stopped, its own result counts.
//
// # What it does not do
//
// Package delivery, not this package, decides which runs a delivery starts.
package run
