// Package raftstore keeps leases in a Raft cluster of one to nine servers that
// live inside the programs that use it: the embedded store of the Baton server.
//
// # Terms are durable, timers are not
//
// What must never be forgotten is in the replicated log: grants with their
// TTL, releases, expiries, endings, policies, the floor of all terms. What is
// only about now is not: a renewal moves a deadline in the memory of the raft
// leader, on its own clock, and costs no disk write.
//
// # Who may answer
//
// A raft leader that was deposed does not know it. So nothing is acknowledged
// on the strength of believing to lead. A change is acknowledged when its entry has
// been committed, in the raft term in which it was proposed. A renewal, a read,
// or a refusal is acknowledged after a majority of the voters has confirmed, in a
// round that began after the request arrived, that it still is in the leader's
// raft term. A successor needs a majority that has moved on before it can lead, and two
// majorities share a voter; so at the start of that round there was no successor.
//
// # Why an acknowledged renewal is never cut short
//
// A new raft leader first commits an entry of its own. From that moment, which is later
// than every acknowledgement of its predecessors, it gives every live lease its full TTL.
// Within one reign, whatever ends a leadership first closes it to
// renewal under the lock that guards both, and proposes after that. Until the
// fate of the proposal is known, answers about it wait, or are unavailable.
package raftstore
