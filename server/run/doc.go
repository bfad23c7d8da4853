// Package run takes a run from its request to its end (SPEC 9).
//
// Every run is made by a function of create.go: [FromAutomation] for a delivery or a
// tick of a schedule, [FromHand] for who starts an automation, [FromRequest] for a caller of the API, [FromSchedule] for a
// schedule that the API made. [FromConversation] makes one that goes on where another
// run ended, [FromRun] one that does again what another run did (conversation.go). None
// of them stores it.
//
// A run executes a [Spec]. The spec is made when definitions are applied and is
// stored with the run, so a later commit cannot change a queued run. A [Manager]
// claims queued runs, gives each a goroutine, an [Executor] and a transcript, and
// records how it ended.
//
// # States of a run
//
// The state is a column of the store. Only these calls change it, each in one
// transaction:
//
//	(created)    a delivery, a request or a tick of a schedule
//	    |
//	    v
//	QUEUED ------- Manager.Cancel, store.RequestStop -------------> CANCELLED
//	 ^  |
//	 |  |          Manager.claim, store.ClaimRuns
//	 |  v
//	INPROGRESS --- Manager.finish, store.FinishRun
//	 |  |            the agent ended with status 0 ---------------> SUCCEEDED
//	 |  |            somebody cancelled or interrupted the run ---> CANCELLED
//	 |  |            the agent cannot start, full disk, budget,
//	 |  |            or nobody has cured what made it fail -------> FAILED
//	 |  |
//	 |  +--------- Manager.finish, store.FailRun
//	 |  |            another status, a signal, timeout, silence,
//	 |  |            server stop, at the last attempt ------------> FAILED
//	 |  |
//	 |  +--------- Manager.recover, Manager.Reap, store.ReapRuns …
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
// Manager.Cancel does not end a run in progress by itself. It records the request
// and stops the agent; Manager.finish then records the end. If the agent ended by
// itself before it was stopped, its own result counts.
//
// # The claim on a run
//
// A claim is a lease (store.Lease): the right of one worker to write about one run
// in progress. Its token is a number that grows with each claim.
//
//	none --- store.ClaimRuns: token + 1, for a minute ---> held
//	held --- store.RenewLease, every 10 seconds ---------> held
//	held --- store.FinishRun ----------------------------> released
//	held --- store.ReapRuns: token + 1 ------------------> lost
//
// The renewal is the heartbeat. It also tells the worker that somebody asked to
// cancel the run. Each write carries the token. A write with a token that is no
// longer valid, or about a run that has ended, fails with store.ErrFenced. The
// worker then stops its agent and records nothing.
//
// Where one process has the store for itself, nothing reaps a lease while it runs. The next
// start reaps every lease and stops the processes that are left (Executor.Reap).
//
// Where several processes share a store (SPEC 17.4), one of them runs Manager.Reap, which ends
// the attempts of workers that are lost. A worker that cannot renew a lease stops the agent
// long before the lease is over; if the worker itself is stopped, the supervisor kills the
// agent (Task.Lease). So an attempt is dead before the next one starts. No clocks are
// compared: each side counts the time that has passed. A worker that starts again ends what
// its last process left. What is asked of a run of another process, it reads from the store
// (Manager.attend). A run that goes on in a workspace is claimed by the worker that has it.
//
// # Guarantees
//
//   - Every run reaches a terminal state, also after a crash. The exception is a
//     run that waits in the queue.
//   - No attempt is executed twice, and no two attempts of a run at once. A run has more
//     than one attempt only if its definition says so.
//   - The runs of a conversation execute one at a time, in the order of their creation.
//   - The transcript is stored before the state becomes terminal, and granted
//     secrets are redacted in it.
//   - If the store cannot record an end, the manager tries again every second. If
//     the server stops meanwhile, the next start records the run as FAILED.
//
// # What it does not do
//
// It does not decide which runs a delivery starts (package delivery). It does not
// start or confine processes (package sandbox).
package run
