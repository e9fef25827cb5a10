// Package consulstore keeps leases in Consul. Any number of processes may share
// them, each with a Store of its own: it holds nothing that another one needs.
//
// # What is promised
//
//   - A grant is a fresh Consul session, then one transaction that locks the
//     group's record with it and raises the term counter. So one candidate wins,
//     and terms rise, through restarts, failovers and deletion of the group.
//   - A renewal is a fresh session too, and one transaction that moves the lock
//     from the old one to it. Both are committed by a majority of Consul's
//     servers. Consul's own renewal of a session is not used: any server that
//     believes it leads answers it, and a session that is just being ended is
//     renewed as well; docs/stores/consul.md has the argument.
//   - A lease ends when Consul has ended the session, and not before the time that
//     its holder was told: what is told is one TTL and counts from before the
//     session was asked for, and Consul waits for two.
//   - Release and endings name the state of the record that they end.
//   - What is said of a group is confirmed by an entry of Consul's log, to those
//     whose token may write.
//
// # What is not
//
//   - TTLs are whole seconds, at least ten, as Consul's sessions are.
//   - A lease outlives its end by its own TTL, and by another two when Consul
//     changes its leader. Nobody else is let in meanwhile.
//   - Policies, the history and what a token is told that may only read can be out
//     of date for a moment, when a server of Consul was frozen, replaced as leader,
//     and woke up: it then does not know yet.
//   - Who destroys sessions, the node that they belong to or the record opens the
//     group at once.
//   - Terms are what Consul has on disk. A Consul that is restored from a
//     snapshot repeats terms, unless the floor key was raised first.
package consulstore
