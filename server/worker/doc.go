// Package worker executes runs (SPEC 9, 17).
//
// A [Manager] claims queued runs, gives each a goroutine, a [task.Executor] and a transcript, and
// records how it ended. What a run is, and the states that it goes through, stands in package run.
//
// # The claim on a run
//
// A claim is a lease (store.Lease): the right of one worker to write about one run
// in progress. Its token is a number that grows with each claim.
//
//	none --- store.Leases.Claim: token + 1, for a minute --> held
//	held --- store.Leases.Renew, every 10 seconds --------> held
//	held --- store.Leases.Finish --------------------------> released
//	held --- store.Leases.Reap: token + 1 ----------------> lost
//
// The renewal is the heartbeat. It also tells the worker that somebody asked to
// cancel the run. Each write carries the token. A write with a token that is no
// longer valid, or about a run that has ended, fails with store.ErrFenced. The
// worker then stops its agent and records nothing.
//
// Where one process has the store for itself, nothing reaps a lease while it runs. The next
// start reaps every lease and stops the processes that are left (Executor.Reap).
//
// Where several processes share a store (SPEC 17.4), one of them runs [Manager.Reap], which ends
// the attempts of workers that are lost. A worker that cannot renew a lease stops the agent
// long before the lease is over; if the worker itself is stopped, the supervisor kills the
// agent (task.Task.Lease). So an attempt is dead before the next one starts. No clocks are
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
//     the server stops meanwhile, the next start records the end that is in the transcript, or
//     else ends the attempt as one whose server died.
//
// # What it does not do
//
// It does not start or confine processes: that is what an executor does (packages executor and
// kubernetes).
package worker
