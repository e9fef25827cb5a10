// Package etcdstore keeps leases in etcd. Any number of processes may share
// them, each with a Store of its own: it holds nothing that another one needs.
//
// # What is promised
//
//   - A grant is one etcd transaction on the group's record, its term counter
//     and a key that is bound to a fresh etcd lease. So one candidate wins, and
//     terms rise, through restarts, failovers and deletion of the group.
//   - A lease ends when etcd has removed the bound key, and not before the
//     time that its holder was told. What is told counts from before the etcd
//     lease was asked for.
//   - A renewal is a keep-alive followed by a linearizable read. It is
//     acknowledged only if both were answered under the same raft term and the
//     record still names this etcd lease and this term; docs/stores.md has the argument.
//   - Release and endings name the revision of the record that they end.
//
// # What is not
//
//   - TTLs are whole seconds, at least two; etcd raises shorter ones to one and
//     a half of its election timeout.
//   - A lease may outlive its end: by half a second while etcd is well, and by
//     its whole TTL and an election timeout when etcd changes its leader. Nobody
//     else is let in meanwhile.
//   - A renewal does not raise the TTL of a lease.
//   - Terms are what etcd has on disk. An etcd that is restored from a backup
//     repeats terms, unless the floor key was raised first.
package etcdstore
