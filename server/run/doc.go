// Package run says what a run is, and answers what is asked of one (SPEC 9).
//
// Every run is made by a function of create.go: [FromAutomation] for a delivery or a
// tick of a schedule, [FromHand] for who starts an automation, [FromRequest] for a caller of the API, [FromSchedule] for a
// schedule that the API made. [FromConversation] makes one that goes on where another
// run ended, [FromRun] one that does again what another run did (conversation.go). None
// of them stores it.
//
// A run executes a [Spec]. The spec is made when definitions are applied and is
// stored with the run, so a later commit cannot change a queued run.
//
// A [Desk] says why a run waits, what can be done with it and where its files are, lets readers
// follow it, and takes what people ask of it. It executes nothing: that is package worker. What
// the worker of this process has to say, the Desk asks by the interface [Local]; of the workers
// of other processes it reads the store.
//
// # States of a run
//
// The state is a column of the store. Only these calls change it, each in one
// transaction:
//
//	(created)    a delivery, a request or a tick of a schedule
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
//	 |  |            or nobody has cured what made it fail -------> FAILED
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
// many attempts a run has: one, unless its definition says otherwise. A queued run stays
// queued while the server is at its limit of runs, short of disk space, or stopped, until
// its next attempt may start, and until the runs before it in its conversation have ended.
//
// Desk.Cancel does not end a run in progress by itself. It records the request
// and stops the agent; the worker then records the end. If the agent ended by
// itself before it was stopped, its own result counts.
//
// # What it does not do
//
// It does not decide which runs a delivery starts (package delivery). It does not
// execute them (package worker).
package run
