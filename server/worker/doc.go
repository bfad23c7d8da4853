// Package worker executes runs (SPEC 9, 17).
//
// A [Manager] claims queued runs, executes each with a [task.Executor], writes its transcript, and
// records its end. Package run describes what a run is, and its states.
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
// If one process has the store for itself, nothing reaps a lease while the process runs. The
// next start reaps every lease and stops the processes that are left (Executor.Reap).
//
// If several processes share a store (SPEC 17.4), one of them runs [Manager.Reap], which ends
// the attempts of lost workers. A worker that cannot renew a lease stops the agent long
// before the lease is over. If the worker itself stands still, the supervisor kills the
// agent (task.Task.Lease). So an attempt is dead before the next attempt starts. No clocks
// are compared: each side counts the time that has passed.
//
// A worker that starts again ends the attempts that its last process left. It reads from the
// store what other processes ask of its runs (Manager.attend). A run that goes on in a
// workspace is claimed by the worker that has the workspace.
//
// # Guarantees
//
//   - Every run that has left the queue reaches a terminal state, even after a crash.
//   - No attempt is executed twice, and no two attempts of a run at once. A run has more
//     than one attempt only if its definition says so.
//   - The runs of a conversation execute one at a time, in the order of their creation.
//   - The transcript is stored before the state becomes terminal, and granted
//     secrets are redacted in it.
//   - If the store cannot record an end, the manager tries again every second. If the server
//     stops meanwhile, the next start records the end that is in the transcript. Without such
//     an end, it ends the attempt as if the server had died.
//
// # What it does not do
//
// The package does not start or confine processes. Executors do (packages executor and
// kubernetes).
package worker
