// Package redisfence keeps a fencing ledger in Redis, beside the data.
//
// Every write is one Lua script: the check runs first, the effect after it, and
// nothing of any other client runs between. [Ledger.Set], [Ledger.HSet] and
// [Ledger.Del] are ready-made; [NewScript] does the same for a script of yours.
//
// # Keys
//
// The ledger's record of resource r is the hash baton:fence:{r}. In a Redis
// Cluster a script can touch one hash slot only, so the data must live in that
// slot too: the part of a data key that Redis hashes must be r. [Key] makes
// such keys, and others are refused, on a single server too, so that moving
// to a cluster does not break anything.
//
// # What Redis does not do
//
//   - It does not roll back. A script that fails half-way leaves what it did
//     until then. The check comes first and a refused write has no effect at
//     all; but an effect that fails has spent its number and may be there in
//     part. Its error leaves the outcome unknown, as [fence.Sequence] expects.
//   - It may forget. Replication is asynchronous: a failover can lose the last
//     Adopt together with the last writes, and so can a restart unless
//     appendfsync is always. A leader of the past may then be let in until the
//     present one adopts again. Where that matters the data belongs into a
//     database with a durable ledger, such as baton/fence/pgfence.
//   - It may evict. The record has no expiry (and Adopt takes away one that
//     somebody set), so the policies noeviction and volatile-* keep it; the
//     allkeys-* policies can drop it, and with it all memory of past terms.
//     Neither FLUSHALL nor a deleted record can be survived.
//
// # The client
//
// go-redis repeats a command whose connection broke (Options.MaxRetries). An
// ordered write that arrives twice is let in once, and the copy answered with
// a *fence.RepeatError, which fence.Sequence resolves. An unordered one is done
// twice: harmless for Set, HSet and Del; for a script that counts use ordered
// claims, or a client with MaxRetries -1. Deadlines of contexts are honoured
// if the client was made with ContextTimeoutEnabled.
package redisfence
