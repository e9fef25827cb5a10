// Package raftpeer elects a leader among nodes that are raft peers themselves:
// no store, no server, only the nodes and a directory for each.
//
// # Raft's leader is not yet a leader
//
// Raft elects one leader per raft term, and one that was deposed does not know it. Work
// is more than log entries, so being raft's leader is not enough to do it. A
// leadership here is two entries in the replicated log, a begin and an end, and a lease in
// between that is only as long as the others are known to hold still.
//
//   - A raft leader begins with a barrier, an entry of its own. When that is
//     committed, it knows every begin that was ever committed before.
//   - If the newest begin has its end, nobody works, and it may begin at once. If
//     not, its predecessor may be dead, or cut off and working. It asks all peers how
//     long ago they last vouched for a raft leader, waits until the lease that the
//     predecessor's begin names is over, counted from the latest of what a majority
//     recalls, records that it has expired, and begins then. It counts from the barrier
//     if that is earlier, or if no majority answers.
//   - Begin is committed before the work starts; the term it is given is the token.
//   - Before it works, and again and again while it does, a leader asks the other peers
//     for their raft term. A peer that is in the leader's vouches for it, and
//     remembers when. If a majority of all, itself included, is in the leader's own raft term, and
//     it still is raft's leader of that term, then the leadership can be trusted
//     until (the moment before the questions were sent) + lease - margin.
//   - End is committed after the work has stopped.
//
// # Why two leaderships are never trusted at once
//
// Let O lead in raft term s, and let N become raft's leader in a later one, t. The
// last confirmation of O that counted was asked for at a moment A: each voter of
// some majority said after A that it was in raft term s. N was elected by a
// majority that had moved on to t. Two majorities share a voter, and the raft
// term of a voter only rises, on its disk too. So that voter answered O first
// and voted for N later: A is before N's election, and that is before N's
// barrier. O trusts until A + lease - margin. So N may begin at barrier + lease.
//
// Mostly it may begin earlier. Whoever of the peers answers N's question is counted only if it is
// in t or a later raft term, N itself among them. They are a majority, so they share
// a voter v with the one that confirmed O at A. v vouched for O after A, and before it
// answered N, since it does not go back from t to s; and what it vouches for it
// notes together with its look at its own raft term, so it told N of it. If it has been
// restarted since, it told N of its start, which is later still. If v is O, which counts
// itself, it noted that before it looked at its own state. So v's answer, which N had at R,
// said that d has passed since a moment after A: A is before R - d, and N, which takes
// the latest of what it was told, begins at R - d + lease or later.
//
// The margin is what the rates of clocks may differ by. Let the rates of O's,
// N's and v's clocks be o, n and w. In true time O stops at A + (lease - margin)/o or
// earlier. If v vouched at V, after A, and answered x later, then d = w x, and N begins
// at V + x + (lease - w x)/n or later, and not before V + x. That is V + lease/n at
// x = 0, V + lease/w when w x = lease, on the line between them meanwhile, and later after
// that: never before the earlier of the two. So N's clock and v's may each be
// faster than O's by margin/lease, as N's may if it waits for all of the lease.
//
// The commit of a begin would be a confirmation as well: the entry is accepted in raft term s by a
// majority. But that is raft's business, and nobody remembers when it was. So a leader is
// not trusted before its first round.
//
// If the newest begin has an end, either its holder wrote it after it had stopped,
// or a raft leader did after such a wait. For the leaderships before it the same holds, one by
// one: each begin was made when the one before had ended.
//
// What would not do:
//
//   - raft.VerifyLeader for the question: it counts replies to requests that
//     were sent before it was called, so nothing can be said about after A.
//   - Trust from when the answers came: they may have been under way for longer
//     than N's election and wait took.
//   - N's own memory, or that of fewer than a majority: v need not be among them.
//   - raft's LeaderCh: it keeps the latest news only, so that a raft leadership lost
//     and won again looks like one that was never lost. Here everything is
//     bound to the raft term, which tells them apart, and the channel only wakes
//     whoever looks.
//
// # The token
//
// The token's term is a counter in the replicated state, one more at every begin.
// The raft term would rise as well, but one raft term can see
// two leaderships of the same node, as when it resigns and nobody else wants to lead, and
// they would share it.
//
// # Only those lead who campaign
//
// A peer that raft elects while it does not campaign settles what its predecessor left,
// and hands raft's leadership to a peer that does. After a leadership has ended
// on a peer, others go first: the named successor, or any other that campaigns.
//
// # What must not be lost
//
// A peer's directory holds what it voted and what it has accepted. A peer
// that comes back without it could vote twice, so it is refused by the others, who remember
// the mark of the directory that they admitted. The set of peers is fixed when
// the group begins. See docs/peers.md for what to do then.
package raftpeer
