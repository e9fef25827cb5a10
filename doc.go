// Package baton elects exactly one leader per group, by leases, and gives
// every leadership a fencing token that makes the leader's work safe even
// when its lease is wrong.
//
// # What is guaranteed
//
//   - A [Store] grants a group to at most one holder at a time, and every
//     grant carries a [Term] that is higher than every term granted for that
//     group before: through release, expiry, deletion of the group, restart,
//     restore and upgrade. Each store declares in its [Guarantees] where it
//     falls short of this.
//   - A [Leadership] trusts its lease no longer than it can prove: until
//     (the moment before the request was sent) + (what the store said was
//     left) - (a margin for clock drift). It has stopped trusting before the
//     store lets anyone else in.
//   - The work's context ends StopGrace before that deadline. On a graceful
//     end the work has returned before the lease is released.
//   - No two leaderships share a term, not even two of one process. A late
//     reply revives nothing.
//
// # What is not guaranteed
//
//   - That only one process is executing at every instant. A process that is
//     frozen between looking at its lease and acting on it acts when it wakes,
//     and no lease can prevent that. The resource it writes to can: hand the
//     [Token] along with each write, and let a ledger beside the data refuse
//     the past (package baton/fence).
//   - That there is always a leader. When the store cannot decide, nobody
//     leads.
//
// # What is assumed of clocks
//
// Wall clocks are never compared between machines, so any offset and any step
// of them is harmless. Deadlines count on a clock that does not stop while
// the machine sleeps ([SystemClock]). The *rate* of a holder's clock may
// differ from the store's by less than Margin/TTL; the default, TTL/10, allows
// for ten per cent, which is a thousand times what a working oscillator does.
//
// # How it is used
//
// [Run] is the whole of it for most programs: it campaigns, runs the work
// while it leads, stops it in time, and campaigns again.
//
//	elector, err := baton.NewElector(store, baton.Config{
//		Group: "payments-coordinator", NodeID: "node-17",
//	})
//	...
//	err = baton.Run(ctx, elector, func(ctx context.Context, l *baton.Leadership) error {
//		return coordinate(ctx, l.Token()) // returns soon after ctx ends
//	})
//
// [Elector.Campaign] is the same in separate steps, and [Elector.Observe]
// tells everybody else who leads, or why nobody does.
package baton
