// Package zkstore keeps leases in ZooKeeper. Any number of processes may share
// them, each with a Store of its own: it holds nothing that another one needs.
//
// # What is promised
//
//   - A grant, a renewal, a release and an ending are each one ZooKeeper
//     transaction that names the versions it replaces. So one candidate wins,
//     and of a renewal and an ending one fails. All are committed by a quorum.
//   - ZooKeeper keeps no time of leases. Every Store is an observer: it counts a
//     lease's TTL on its own clock from when it first saw the last renewal, and
//     writes the end down before it tells anyone. See package observed.
//   - The last term of a group is in a znode of its own, which is never
//     deleted: terms rise through restarts, failovers and deletion of the group.
//   - Reads are linearizable. ZooKeeper's own sync is not, when it changes its
//     leader; so a read follows a transaction that writes nothing.
//
// # What is not
//
//   - A lease may outlive its end by its whole TTL, where nobody observed it
//     before: after a restart of all who did. Nobody else is let in meanwhile.
//   - Offsets of clocks do not matter, rates do: a holder's clock that is slower
//     than another's by more than the holder's margin breaks the lease.
//   - A ZooKeeper that is restored from a backup, or whose znodes were removed by
//     hand, repeats terms.
package zkstore
