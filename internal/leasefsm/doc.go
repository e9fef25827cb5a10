// Package leasefsm is the lease machine: two pure parts without I/O,
// goroutines or a clock, for a shell that has all three.
//
//   - [Record] is who holds what, and who did before. Commands change it, each
//     the same way on every replica. It knows no clock: the stamps inside
//     commands are for the history and for people, and decide nothing.
//   - [Deadlines] is until when. It is handed the time, it is never
//     replicated, and it forgets whatever its shell forgets.
//
// # What the shell must do
//
// A shell guards both by one lock. It arms a deadline when a grant is
// recorded, and it records an expiry when a deadline has passed; the record
// alone never ends a lease for its age. Where recording takes time, as in a
// replicated log, the shell closes the deadline to renewal before it proposes
// anything that ends the leadership, and reopens it only when it knows that
// the proposal failed. Leases come out of the record with Remaining 0; the shell
// fills it in.
//
// # What the record does not do
//
// It does not validate ids, notes and metadata beyond what its own invariants
// need, and it keeps policies without enforcing them: both belong at the door,
// where a rule can change without replicas of two versions disagreeing.
package leasefsm
